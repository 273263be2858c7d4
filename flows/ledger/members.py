"""Who is in a release, as the accounts by unit know it, and what they have paid before."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flows.runtime.threads import places_of_rising, rising
from privatizers.accounting.budget import Budget, of_group
from privatizers.accounting.histories import (
    MOST_HISTORIES,
    Codes,
    History,
    Presence,
    cost_of,
    digests_of,
    first_of_each,
    pieces,
    row_words,
    those,
    times,
)
from schemas.arrays import Bools, Integers, Ints, Words
from schemas.errors import InputError

_CODES = np.uint64(MOST_HISTORIES - 1)


@dataclass(frozen=True)
class AccountKey:
    """The key that units are digested with for the accounts of one population."""

    secret: bytes = field(repr=False)
    fingerprint: str
    """Different for each key and population; reveals nothing of either."""


def mark_of(key_fingerprint: str, ids: str | None) -> str:
    """The mark of registers: of what form of ids their digests are, and under what key.

    ``ids`` is "canonical" or "exact"; None stands for ids as they were written, all of them as
    text, which is what registers had before they had marks.
    """
    return key_fingerprint if ids is None else f"2-{ids}:{key_fingerprint}"


@dataclass(frozen=True)
class Sought:
    """Digests to look up in a register: rising, and the places that they belong to among words."""

    digests: Words
    places: Ints | None = None
    """None where they are those of the words themselves; else each digest once a place."""

    def by_turns(self, codes: NDArray[np.uint16], n_words: int) -> Iterator[NDArray[np.uint16]]:
        """The numbers that a register has for the digests, as numbers of words: shape [words].

        First one of each place, then the second of those where two were found, and so on: what a
        unit paid under several spellings adds up.
        """
        if self.places is None:
            yield codes
            return
        there = np.flatnonzero(codes)
        there = there[np.argsort(self.places[there], kind="stable")]
        while len(there):
            places = self.places[there]
            first = np.ones(len(there), dtype=np.bool_)
            np.not_equal(places[1:], places[:-1], out=first[1:])
            numbers = np.zeros(n_words, dtype=np.uint16)
            numbers[places[first]] = codes[there[first]]
            yield numbers
            there = there[~first]


@dataclass(frozen=True)
class Members:
    """The units of a log: keyed digests and arms, in the order of its rows."""

    digests: Words = field(repr=False)
    """Shape [n]."""
    arms: Integers = field(repr=False)
    """Positions among ``arm_names``, shape [n]."""
    experiment: str
    arm_names: tuple[str, ...]
    key_fingerprint: str
    ids: str = "canonical"
    """What form of ids is digested: "canonical" or "exact"."""
    others: Mapping[str, tuple[Words, ...]] = field(default_factory=dict, repr=False)
    """What rows have to be sought by in registers with other marks; shape [n] each."""
    by_household: bool = False
    """Whether who pays has paid for all its rows at once."""

    @cached_property
    def order(self) -> Ints:
        """Rows by their digests, shape [n]."""
        return places_of_rising(self._row_words)

    @property
    def words(self) -> Words:
        """The register of these units: rising, each digest once, with a number from 1 on."""
        return self._register[0]

    @property
    def n_rows(self) -> Integers:
        """How many rows each digest has, in the order of :attr:`words`."""
        return self._register[1]

    @property
    def n_paid(self) -> Integers:
        """For how many rows each pays by itself: all that it has, but 1 of a household."""
        return _once(len(self.n_rows)) if self.by_household else self.n_rows

    @property
    def most_paid(self) -> int:
        """The most rows that one of them pays for; 1 at least."""
        return int(self.n_paid.max(initial=1))

    @cached_property
    def _register(self) -> tuple[Words, Integers, tuple[tuple[int, int], ...]]:
        """Words, rows of each, and what their numbers from 1 on stand for: arm, rows paid for.

        A digest of several rows has the first arm of these.
        """
        every = rising(self._row_words)
        first = first_of_each(every)
        ways = [(arm, 1) for arm in range(len(self.arm_names))]
        if first.all():
            return every, _once(len(every)), tuple(ways)
        more_rows = np.flatnonzero(~first)  # few, but for households: no table of all meanwhile
        words, n_rows = every[first], np.ones(len(every) - len(more_rows), dtype=np.int32)
        several, more_of_each = np.unique(
            more_rows - np.arange(1, len(more_rows) + 1), return_counts=True
        )
        n_rows[several] += more_of_each.astype(np.int32)
        if self.by_household:
            return words, n_rows, tuple(ways)
        arms = (words[several] & _CODES).astype(np.int64) - 1
        pairs = np.stack([arms, n_rows[several].astype(np.int64)], axis=1)
        more, number = np.unique(pairs, axis=0, return_inverse=True)
        if len(ways) + len(more) >= MOST_HISTORIES:
            raise InputError(
                f"source.ids: the ids of {len(several):,} unit(s) differ from another's by case, "
                "zeros or blanks alone, in too many ways; nothing was charged. Mend the ids, or "
                'declare source.ids = "exact" if these are different people'
            )
        words[several] = row_words(words[several], len(ways) + 1 + number.reshape(-1))
        return words, n_rows, (*ways, *map(tuple, more.tolist()))

    def arms_of_words(self, piece: slice) -> Ints:
        """The arms of some digests, in the order of :attr:`words`."""
        arms = np.array([arm for arm, _ in self._register[2]])
        return arms[(self.words[piece] & _CODES).astype(np.int64) - 1]

    @property
    def mark(self) -> str:
        """The mark of registers that hold such digests."""
        return mark_of(self.key_fingerprint, self.ids)

    def sought(self, mark: str) -> Sought:
        """What to look up in a register with this mark; KeyError where that cannot be told."""
        if mark == self.mark:
            return Sought(digests_of(self.words))
        return self._sought_otherwise[mark]

    @cached_property
    def _sought_otherwise(self) -> dict[str, Sought]:
        return {mark: _each_once(self.place, rows) for mark, rows in self.others.items()}

    @property
    def _row_words(self) -> Words:
        return row_words(self.digests, self.arms + np.uint16(1))

    @cached_property
    def place(self) -> Ints:
        """The place of each row's digest among those of :attr:`words`, shape [n]."""
        every = self._row_words[self.order]
        places = np.empty(len(every), dtype=np.int64)
        places[self.order] = np.cumsum(first_of_each(every)) - 1
        return places

    def is_among_first(self, n: int) -> Bools:
        """Which rows are among the first ``n`` of their digest, in the order of rows; shape [n]."""
        order = np.argsort(digests_of(self.digests), kind="stable")
        begins = np.flatnonzero(first_of_each(self.digests[order]))
        sizes = np.diff(np.append(begins, len(order)))
        rank = np.arange(len(order)) - np.repeat(begins, sizes)
        among = np.empty(len(order), dtype=np.bool_)
        among[order] = rank < n
        return among

    def kept(self, rows: Bools) -> "Members":
        """Those of some rows, shape [n]."""
        if rows.all():
            return self
        return replace(
            self,
            digests=self.digests[rows],
            arms=self.arms[rows],
            others={mark: tuple(one[rows] for one in way) for mark, way in self.others.items()},
        )

    def histories(self, cost: Budget) -> tuple[History, ...]:
        """What being in a release of these units at ``cost`` a row adds, by numbers in words."""
        costs = ((self.arm_names[arm], of_group(cost, n)) for arm, n in self._register[2])
        ways = (Presence(self.experiment, arm, c.epsilon, c.delta) for arm, c in costs)
        return ((), *(((way, 1),) for way in ways))


def _once(n: int) -> Ints:
    """One row each, without any memory."""
    return np.broadcast_to(np.int64(1), n)


def _each_once(place: Ints, rows: tuple[Words, ...]) -> Sought:
    """The digests of rows, each once a place; shapes [n]."""
    digests, places = np.concatenate([digests_of(one) for one in rows]), np.tile(place, len(rows))
    order = np.lexsort((places, digests))
    digests, places = digests[order], places[order]
    new = np.ones(len(places), dtype=np.bool_)
    new[1:] = (places[1:] != places[:-1]) | (digests[1:] != digests[:-1])
    return Sought(digests[new], places[new])


def greatest(amounts: Iterable[Budget]) -> Budget:
    """The greatest ε and the greatest δ of some amounts; 0 of none."""
    budgets = [Budget(), *amounts]
    return Budget(max(each.epsilon for each in budgets), max(each.delta for each in budgets))


@dataclass(frozen=True)
class Accounts:
    """What the units of a log have paid, by all charges that count; public facts alone."""

    members: Members
    codes: Codes
    """Number of each digest's history, in the order of ``members.words``."""
    codes_without_own: Codes
    """The same without releases of the log's own period."""
    histories: tuple[History, ...]
    charges: frozenset[int]
    """The charges with a register, when it was read."""
    lost: frozenset[int]
    """Those of them whose register cannot be read: they count for everybody."""
    unlisted: tuple[str, ...]
    """Releases of the experiment, of other periods, of which nobody knows who is in them."""
    everybody: Budget
    """What everybody has paid, for those and for releases without a register."""
    warnings: tuple[str, ...] = ()
    met: tuple[int, int] | None = None
    """How many of how many units, all that were asked about, the experiment has released before;
    None where it had released nobody that is known."""
    found_in: Mapping[int, int] = field(default_factory=dict)
    """Where units cannot pay: how many of these are in the release of which charge."""

    @cached_property
    def released_before(self) -> Bools:
        """Which digests were in a release of the experiment, of another period; shape [words]."""
        mine = self.members.experiment
        is_mine = [any(way.experiment == mine for way, _ in history) for history in self.histories]
        return those(np.array(is_mine, dtype=np.bool_), self.codes_without_own)

    @property
    def n_arm_changed(self) -> int:
        """How many digests were in such a release in another arm than now."""
        names = self.members.arm_names
        mine = self.members.experiment
        arms_before = [
            {way.arm for way, _ in history if way.experiment == mine} for history in self.histories
        ]
        width, codes = len(names), self.codes_without_own
        if not any(arms_before):
            return 0
        numbers = (
            codes[some].astype(np.int64) * width + self.members.arms_of_words(some)
            for some in pieces(len(codes))
        )
        pairs = times(numbers, width * len(self.histories))
        met = np.flatnonzero(pairs)
        return sum(
            int(pairs[pair])
            for pair in met.tolist()
            if arms_before[pair // width] - {names[pair % width]}
        )

    def paid(self, codes: Codes) -> dict[int, Budget]:
        """What was paid by each history that there is among ``codes``, by its number."""
        counts = times((codes[some] for some in pieces(len(codes))), len(self.histories))
        there = np.flatnonzero(counts)
        return {number: cost_of(self.histories[number]) for number in there.tolist()}

    def of_rows(self, digests: Bools) -> Bools:
        """Facts about digests as facts about rows; shapes [words] and [n]."""
        return digests[self.members.place]

    def cannot_pay(self, everybody: Budget, cost: Budget, limit: Budget, codes: Codes) -> Bools:
        """Which digests would have paid more than ``limit``; shape [words].

        ``everybody`` has paid that beside what ``codes`` say, and would pay ``cost`` now.
        """
        short = np.zeros(len(codes), dtype=np.bool_)
        for n, mine in self._by_rows():
            too_much = np.zeros(len(self.histories), dtype=np.bool_)
            for number, paid in self.paid(codes[mine]).items():
                too_much[number] = not (everybody + paid + of_group(cost, n)).fits_into(limit)
            short[mine] = those(too_much, codes[mine])
        return short

    def _by_rows(self) -> Iterator[tuple[int, Bools | slice]]:
        """The digests that pay for one row, for two, and so on, shape [words]."""
        n_paid = self.members.n_paid
        if self.members.most_paid == 1:
            yield 1, slice(None)
            return
        for n in np.flatnonzero(np.bincount(n_paid)).tolist():
            yield n, n_paid == n

    def kept(self, rows: Bools) -> "Accounts":
        """Those of some rows of the log, shape [n]."""
        if rows.all():
            return self
        members = self.members.kept(rows)
        left = np.isin(digests_of(self.members.words), digests_of(members.words), kind="sort")
        return replace(
            self,
            members=members,
            codes=self.codes[left],
            codes_without_own=self.codes_without_own[left],
        )

    def most(self, cost: Budget) -> Budget:
        """The most that any of the units has paid, ``cost`` for each row included, ε and δ each."""
        after = [
            paid + of_group(cost, n)
            for n, mine in self._by_rows()
            for paid in self.paid(self.codes[mine]).values()
        ]
        return greatest(after or [cost])
