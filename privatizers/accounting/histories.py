"""Accounts by unit: who was in which releases, and what each of them has paid so.

Who is in a release is public in this model, and so is what it costs. A history of releases, each of
them chosen after seeing the ones before, costs a unit the sum of the prices of those that it is in,
and costs nobody more than the greatest of these sums: a release without the unit is the same
function of the same data, whatever the unit's outcome is. So releases of different people cost
each of them one release.

A *register* says of units what releases they were in. Units are digests, 52 bits of a keyed digest
in the upper part of a word; the lower 12 bits hold a number from 1 on, that of a *history*: how
often the unit was in a release of one experiment, in one arm, at one price. Words rise, and no
digest stands twice. Two units with one digest are charged together, which errs toward privacy: of
N units about N²/2⁵³ pairs are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from estimators.strata.evidence import distinct
from privatizers.accounting.budget import Budget, total
from schemas.arrays import Bools, Integers, Ints, Words

CODE_BITS = 12
"""Bits of a word that hold the number of a history."""
MOST_HISTORIES = 1 << CODE_BITS
"""Numbers that a register can tell apart; 0 stands for nothing."""

_BITS = np.uint64(CODE_BITS)
_CODES = np.uint64(MOST_HISTORIES - 1)
_KEPT = 1 << 16  # histories whose sums are remembered
_PIECE = 1 << 17  # what is made of so many words at once stays in the processor's cache

Codes = NDArray[np.int32]
"""Numbers of histories."""


@dataclass(frozen=True, order=True)
class Presence:
    """One way to be in a release: of what experiment, in what arm, at what price."""

    experiment: str
    arm: str
    epsilon: float
    delta: float


History = tuple[tuple[Presence, int], ...]
"""How often a unit was in releases, by the way that it was in them; sorted, without zeros."""


def history_of(times: Mapping[Presence, int]) -> History:
    """Return the history of who was so often in releases of each kind."""
    return tuple(sorted((presence, n) for presence, n in times.items() if n))


@lru_cache(_KEPT)
def cost_of(history: History) -> Budget:
    """What a unit of this history has paid: the sum of the prices, rounded up once."""
    return total(
        Budget(presence.epsilon, presence.delta) for presence, n in history for _ in range(n)
    )


class TooManyHistoriesError(Exception):
    """There are more histories than a register can tell apart."""


class Histories:
    """Histories by their numbers, in the order in which they were met; 0 is that of nobody."""

    def __init__(self, known: Iterable[History] = ((),)) -> None:
        """Begin with these; the first is the empty one."""
        self._numbers: dict[History, int] = {}
        for history in known:
            self.number(history)

    def __len__(self) -> int:
        """How many there are, the empty one included."""
        return len(self._numbers)

    @property
    def known(self) -> tuple[History, ...]:
        """All of them, by number."""
        return tuple(self._numbers)

    def number(self, history: History) -> int:
        """The number of a history, a new one where it has none."""
        return self._numbers.setdefault(history, len(self._numbers))

    def joined(
        self, codes: Codes, others: Integers, theirs: Sequence[History], sign: int = 1
    ) -> Codes:
        """Numbers of the histories that two come to together, unit by unit; shapes [n].

        ``codes`` are numbers of this object, ``others`` those of ``theirs``. With ``sign`` −1 the
        second is taken out of the first.
        """
        if not others.any():
            return codes
        width, size = len(theirs), len(self) * len(theirs)
        known, joined = self.known, np.empty(len(codes), dtype=np.int32)
        for piece in pieces(len(codes)):
            met, place = distinct(codes[piece].astype(np.int64) * width + others[piece], size)
            numbers = [
                self.number(_sum(known[pair // width], theirs[pair % width], sign))
                for pair in met.tolist()
            ]
            joined[piece] = np.array(numbers, dtype=np.int32)[place]
        return joined


@lru_cache(_KEPT)
def _sum(first: History, second: History, sign: int) -> History:
    times = dict(first)
    for presence, n in second:
        times[presence] = times.get(presence, 0) + sign * n
    return history_of(times)


def digests_of(words: Words) -> Words:
    """The digests in words, without the numbers of histories."""
    return words >> _BITS


def row_words(digests: Words, codes: NDArray[np.integer]) -> Words:
    """Put digests (64 bits, the lower 12 of which are dropped) and numbers together; shapes [n]."""
    words: Words = np.empty(len(digests), dtype=np.uint64)
    for piece in pieces(len(words)):
        np.bitwise_and(digests[piece], ~_CODES, out=words[piece])
        words[piece] |= codes[piece].astype(np.uint64)
    return words


def first_of_each(rising: Words) -> NDArray[np.bool_]:
    """Which words begin a new digest; ``rising``, shape [n]."""
    new = np.ones(len(rising), dtype=np.bool_)
    before, after = rising[:-1], rising[1:]
    for piece in pieces(len(after)):
        np.greater(before[piece] ^ after[piece], _CODES, out=new[1:][piece])
    return new


def pieces(n: int) -> Iterator[slice]:
    """All places, so many at once that what is made of them stays in the processor's cache."""
    return (slice(start, start + _PIECE) for start in range(0, n, _PIECE))


def those(holds: Bools, codes: Codes) -> Bools:
    """Whether it ``holds`` of each number, looked up by them; shape of ``codes``."""
    found = np.zeros(len(codes), dtype=np.bool_)
    for piece in pieces(len(codes)) if holds.any() else ():
        found[piece] = holds[codes[piece]]
    return found


def times(numbers: Iterable[Integers], width: int) -> Ints:
    """How often each number below ``width`` occurs, shape [width]; they come in pieces."""
    counts = np.zeros(width, dtype=np.int64)
    for some in numbers:
        counts += np.bincount(some, minlength=width)
    return counts


def same_digests(words: Words, others: Words) -> bool:
    """Whether words have the same digests, place by place."""
    return len(words) == len(others) and not np.any(words ^ others > _CODES)


def codes_in(wanted: Words, blocks: Iterable[Words]) -> NDArray[np.uint16]:
    """Look rising digests up in a register; its number for each, 0 where it has none.

    ``blocks`` are the register's words, one block after the other. Shape of the result: [wanted].
    """
    found = np.zeros(len(wanted), dtype=np.uint16)
    for block in blocks:
        if not len(block) or not len(wanted):
            continue
        start = int(np.searchsorted(wanted, block[0] >> _BITS))
        stop = int(np.searchsorted(wanted, block[-1] >> _BITS, side="right"))
        some = wanted[start:stop] << _BITS  # the least words of these digests
        if same_digests(block, some):  # as of people who come back all: nobody has to be sought
            found[start:stop] = block & _CODES
            continue
        differences = block[np.searchsorted(block, some)] - some
        hits = np.flatnonzero(differences <= _CODES)
        found[start + hits] = differences[hits].astype(np.uint16)
    return found


@dataclass(frozen=True)
class Register:
    """A register to be read: its words, block by block, and the histories by number."""

    blocks: Callable[[], Iterator[Words]]
    histories: tuple[History, ...]
    n_words: int


def united(
    registers: Sequence[Register], histories: Histories, span: int = 1 << 20
) -> Iterator[tuple[Words, Codes]]:
    """All digests of some registers, rising, with what their histories come to together.

    They come in parts made of about ``span`` words of all registers, few enough for the processor's
    cache; numbers are those of ``histories``.
    """
    if not registers:
        return
    n_words = sum(register.n_words for register in registers)
    n_parts = max(1, -(-n_words // span))
    ends = [((part + 1) << 64) // n_parts for part in range(n_parts)]
    readers = [_Below(register.blocks()) for register in registers]
    numbers = [np.array([histories.number(h) for h in each.histories]) for each in registers]
    by_sorting = len(histories) <= MOST_HISTORIES
    for end in ends:
        parts = [reader.take(end) for reader in readers]
        if all(same_digests(parts[0], part) for part in parts[1:]):  # only numbers change
            yield _combined_by_lookup(digests_of(parts[0]), parts, registers, histories)
        elif by_sorting:
            yield _combined_by_sorting(parts, numbers, histories)
        else:
            digests = np.unique(np.concatenate([digests_of(part) for part in parts]))
            yield _combined_by_lookup(digests, parts, registers, histories)


def _combined_by_sorting(
    parts: Sequence[Words], numbers: Sequence[NDArray[np.int64]], histories: Histories
) -> tuple[Words, Codes]:
    """Digests and joint histories of parts, whose own histories have these ``numbers``.

    All words are sorted at once, their numbers with them; digests that stand more than once are
    then few, or stand in a few patterns.
    """
    words = np.concatenate(
        [
            part
            if np.array_equal(new, np.arange(len(new)))
            else row_words(part, new[part & _CODES])
            for part, new in zip(parts, numbers, strict=True)
        ]
    )
    words.sort()
    digests, codes = digests_of(words), (words & _CODES).astype(np.int32)
    while True:
        again = np.zeros(len(digests), dtype=np.bool_)  # the digest before is the same
        np.equal(digests[1:], digests[:-1], out=again[1:])
        if not again.any():
            return digests, codes
        second = again.copy()
        second[1:] &= ~again[:-1]
        place = np.flatnonzero(second)
        codes[place - 1] = histories.joined(codes[place - 1], codes[place], histories.known)
        digests, codes = digests[~second], codes[~second]


def _combined_by_lookup(
    digests: Words, parts: Sequence[Words], registers: Sequence[Register], histories: Histories
) -> tuple[Words, Codes]:
    """The same of all ``digests`` of the parts, also where words cannot hold histories' numbers."""
    codes = np.zeros(len(digests), dtype=np.int32)
    for register, part in zip(registers, parts, strict=True):
        theirs = codes_in(digests, [part])
        codes = histories.joined(codes, theirs, register.histories)
    return digests, codes


def merged(registers: Sequence[Register], histories: Histories) -> Iterator[Words]:
    """The words of one register that says what several say; ``histories`` are met on the way.

    Raises TooManyHistoriesError where there are more than a register can tell apart.
    """
    for digests, codes in united(registers, histories):
        if len(histories) > MOST_HISTORIES:
            raise TooManyHistoriesError
        words: Words = digests << _BITS
        words |= codes.astype(np.uint64)
        yield words


class _Below:
    """Takes words off the front of a register."""

    def __init__(self, blocks: Iterator[Words]) -> None:
        self._blocks = blocks
        self._left: Words = np.zeros(0, dtype=np.uint64)

    def take(self, end: int) -> Words:
        """All words below ``end``, which is beyond the greatest word or a multiple of a digest."""
        least = end >> CODE_BITS << CODE_BITS  # of the words that are not
        taken = []
        while True:
            beyond = least > int(self._left[-1]) if len(self._left) else True
            n = len(self._left) if beyond else int(np.searchsorted(self._left, np.uint64(least)))
            taken.append(self._left[:n])
            self._left = self._left[n:]
            if len(self._left):
                break
            following = next(self._blocks, None)
            if following is None:
                break
            self._left = following
        return np.concatenate(taken)
