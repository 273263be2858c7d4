"""Registers of who was in which releases, against dictionaries that say the same."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from privatizers.accounting.budget import Budget
from privatizers.accounting.histories import (
    CODE_BITS,
    MOST_HISTORIES,
    Histories,
    History,
    Presence,
    Register,
    TooManyHistoriesError,
    codes_in,
    cost_of,
    digests_of,
    first_of_each,
    history_of,
    merged,
    row_words,
    united,
)
from schemas.arrays import Words

People = dict[int, History]
"""What is to be said of each digest."""

A, B, OTHER = (
    Presence("trial", "none", 0.1, 0.0),
    Presence("trial", "mail", 0.1, 0.0),
    Presence("another", "mail", 2.0, 1e-6),
)


def register_of(people: People, block: int = 7) -> Register:
    """A register that says this of people, read in blocks of so many words."""
    histories = tuple(dict.fromkeys([(), *people.values()]))
    codes = np.array([histories.index(people[one]) for one in sorted(people)], dtype=np.int64)
    digests = np.array(sorted(people), dtype=np.uint64) << np.uint64(CODE_BITS)
    words = row_words(digests, codes)

    def blocks() -> Iterator[Words]:
        for start in range(0, len(words), block):
            yield words[start : start + block]

    return Register(blocks, histories, len(words))


def somebody(random: np.random.Generator, size: int, most: int = 2**52) -> People:
    """People with histories that look random."""
    found = {}
    for digest in random.integers(0, most, size, dtype=np.uint64).tolist():
        times = {way: int(random.integers(0, 4)) for way in (A, B, OTHER)}
        found[digest] = history_of(times) or ((A, 1),)
    return found


def together(several: list[People]) -> People:
    found: dict[int, Counter[Presence]] = {}
    for people in several:
        for digest, history in people.items():
            found.setdefault(digest, Counter()).update(dict(history))
    return {digest: history_of(times) for digest, times in found.items()}


def people_of(parts: Iterator[tuple[Words, "np.ndarray"]], histories: Histories) -> People:
    found: People = {}
    last = -1
    for digests, codes in parts:
        for digest, code in zip(digests.tolist(), codes.tolist(), strict=True):
            assert digest > last
            last = digest
            found[digest] = histories.known[code]
    return found


@pytest.mark.parametrize("most", [40, 2**52], ids=["the same people", "others"])
@pytest.mark.parametrize("span", [1, 50, 1 << 21])
@pytest.mark.parametrize("fits", [True, False], ids=["by sorting", "by lookup"])
def test_registers_together_say_what_they_say_apart(
    most: int, span: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fits:
        monkeypatch.setattr("privatizers.accounting.histories.MOST_HISTORIES", 0)
    random = np.random.default_rng(most + span)
    for n in (1, 2, 5):
        several = [somebody(random, int(size), most) for size in random.integers(0, 60, n)]
        histories = Histories()
        found = people_of(united([register_of(one) for one in several], histories, span), histories)
        assert found == together(several)


def test_a_part_is_small_however_many_registers_there_are() -> None:
    random = np.random.default_rng(5)
    for n in (1, 4, 40):
        registers = [register_of(somebody(random, 50)) for _ in range(n)]
        sizes = [len(digests) for digests, _ in united(registers, Histories(), 50)]
        assert sum(sizes) == 50 * n
        assert max(sizes) <= 100  # they are spread evenly, as digests are
        assert len(sizes) == n


def test_a_merged_register_is_one_like_others() -> None:
    random = np.random.default_rng(3)
    several = [somebody(random, size, 300) for size in (200, 10, 90)]
    histories = Histories()
    words = np.concatenate(list(merged([register_of(one) for one in several], histories)))
    once_more = Histories()
    again = Register(lambda: iter([words]), histories.known, len(words))
    assert people_of(united([again], once_more), once_more) == together(several)
    assert first_of_each(words).all()


@pytest.mark.parametrize("odd", [None, 0, 99], ids=["all alike", "the first", "the last"])
def test_registers_of_the_same_people_are_joined_place_by_place(odd: int | None) -> None:
    random = np.random.default_rng(7)
    first = somebody(random, 100)
    others = dict(zip(sorted(first), somebody(random, 100).values(), strict=True))
    if odd is not None:  # as many as before, one of them somebody else
        digest = sorted(first)[odd]
        others[digest ^ 1] = others.pop(digest)
    histories = Histories()
    both = [register_of(one) for one in (first, others)]
    assert people_of(united(both, histories), histories) == together([first, others])


@pytest.mark.release  # thousands of histories
def test_no_more_histories_than_words_hold() -> None:
    several: list[People]
    ways = [Presence("trial", str(i), 0.1, 0.0) for i in range(MOST_HISTORIES // 2 + 1)]
    several = [{i: ((way, 1),) for i, way in enumerate(part)} for part in (ways[:-1], ways)]
    for people in several:
        list(merged([register_of(people)], Histories()))
    others: People = {i: ((Presence("b", way.arm, 1.0, 0.0), 1),) for i, way in enumerate(ways)}
    with pytest.raises(TooManyHistoriesError):
        list(merged([register_of(one) for one in (*several, others)], Histories()))


@pytest.mark.parametrize("block", [1, 3, 1000])
def test_who_is_in_a_register_is_found_with_their_history(block: int) -> None:
    random = np.random.default_rng(block)
    people = somebody(random, 150, 400)
    register = register_of(people, block)
    wanted = np.arange(0, 450, 1, dtype=np.uint64)
    theirs = np.array(sorted(people), dtype=np.uint64)  # where all of a block are wanted
    one_off = np.sort(np.append(theirs[1:], np.uint64(500)))
    for sought in (wanted, theirs, one_off):
        found = codes_in(sought, register.blocks())
        for digest, code in zip(sought.tolist(), found.tolist(), strict=True):
            assert (register.histories[code] or None) == people.get(digest)
    assert len(codes_in(np.zeros(0, dtype=np.uint64), register.blocks())) == 0
    assert not codes_in(wanted, iter([])).any()


def test_taking_out_what_was_put_in_leaves_nothing() -> None:
    random = np.random.default_rng(9)
    people = somebody(random, 80, 100)
    wanted = np.arange(100, dtype=np.uint64)
    register = register_of(people)
    theirs = codes_in(wanted, register.blocks())
    histories = Histories()
    codes = histories.joined(np.zeros(100, dtype=np.int32), theirs, register.histories)
    twice = histories.joined(codes, theirs, register.histories)
    assert histories.joined(twice, theirs, register.histories, sign=-1).tolist() == codes.tolist()
    assert not histories.joined(codes, theirs, register.histories, sign=-1).any()


def test_many_pairs_of_histories_are_joined_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(11)
    people = [somebody(random, 90, 120) for _ in range(2)]
    wanted = np.arange(120, dtype=np.uint64)
    answers = []
    for dense in (1 << 20, 0):  # numbers a key up to which a table of them all is made
        monkeypatch.setattr("estimators.strata.evidence._DENSE", dense)
        histories, codes = Histories(), np.zeros(120, dtype=np.int32)
        for one in people:
            register = register_of(one)
            found = codes_in(wanted, register.blocks())
            codes = histories.joined(codes, found, register.histories)
        answers.append([histories.known[code] for code in codes.tolist()])
    assert answers[0] == answers[1]


def test_a_history_costs_the_sum_of_its_prices_exactly() -> None:
    assert cost_of(history_of({A: 10})) == Budget(1.0, 0.0)
    assert cost_of(history_of({A: 3, OTHER: 2})) == Budget(4.3, 2e-6)
    assert cost_of(()) == Budget(0.0, 0.0)
    assert history_of({A: 0}) == ()


def test_the_digest_is_all_but_the_lower_bits() -> None:
    digests = np.array([0xFFFFFFFFFFFFFFFF, 0x1FFF, 0x1000], dtype=np.uint64)
    words = row_words(digests, np.array([1, 2, 3]))
    assert digests_of(words).tolist() == [2**52 - 1, 1, 1]
    assert (words & np.uint64(MOST_HISTORIES - 1)).tolist() == [1, 2, 3]
