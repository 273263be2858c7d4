"""Who is in a release, as the accounts by unit know it, and what they have paid before."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from privatizers.accounting.budget import Budget
from privatizers.accounting.histories import (
    Codes,
    History,
    Presence,
    cost_of,
    digests_of,
    first_of_each,
    row_words,
)
from schemas.arrays import Bools, Integers, Ints, Words


@dataclass(frozen=True)
class AccountKey:
    """The key that units are digested with for the accounts of one population."""

    secret: bytes = field(repr=False)
    fingerprint: str
    """Different for each key and population; reveals nothing of either."""


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

    @cached_property
    def order(self) -> Ints:
        """Rows by their digests, shape [n]."""
        return np.argsort(self._row_words)

    @cached_property
    def words(self) -> Words:
        """The register of these units: rising, each digest once, the arm's number from 1 on."""
        rising = np.sort(self._row_words)
        return rising[first_of_each(rising)]

    @property
    def _row_words(self) -> Words:
        return row_words(self.digests, self.arms + np.uint16(1))

    @cached_property
    def place(self) -> Ints:
        """The place of each row's digest among those of :attr:`words`, shape [n]."""
        rising = self._row_words[self.order]
        places = np.empty(len(rising), dtype=np.int64)
        places[self.order] = np.cumsum(first_of_each(rising)) - 1
        return places

    def is_among_first(self, n: int) -> Bools:
        """Which rows are among the first ``n`` of their digest, in the order of rows; shape [n]."""
        order = np.argsort(digests_of(self.digests), kind="stable")
        begins = np.flatnonzero(first_of_each(self.digests[order]))
        sizes = np.diff(np.append(begins, len(order)))
        rank = np.arange(len(order)) - np.repeat(begins, sizes)
        found = np.empty(len(order), dtype=np.bool_)
        found[order] = rank < n
        return found

    def kept(self, rows: Bools) -> "Members":
        """Those of some rows, shape [n]."""
        if rows.all():
            return self
        return Members(
            self.digests[rows],
            self.arms[rows],
            self.experiment,
            self.arm_names,
            self.key_fingerprint,
        )

    def histories(self, cost: Budget) -> tuple[History, ...]:
        """What being in a release of these units at ``cost`` adds, by the numbers in words."""
        ways = (Presence(self.experiment, arm, cost.epsilon, cost.delta) for arm in self.arm_names)
        return ((), *(((way, 1),) for way in ways))


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
    found_in: Mapping[int, int] = field(default_factory=dict)
    """Where units cannot pay: how many of these are in the release of which charge."""

    def knowing(self, found_in: Mapping[int, int]) -> "Accounts":
        """The same, with what units that cannot pay were in."""
        return replace(self, found_in=found_in)

    @cached_property
    def released_before(self) -> Bools:
        """Which digests were in a release of the experiment, of another period; shape [words]."""
        mine = self.members.experiment
        known = [any(way.experiment == mine for way, _ in history) for history in self.histories]
        return np.array(known, dtype=np.bool_)[self.codes_without_own]

    @property
    def n_arm_changed(self) -> int:
        """How many digests were in such a release in another arm than now."""
        names = self.members.arm_names
        mine = self.members.experiment
        arms_before = [
            {way.arm for way, _ in history if way.experiment == mine} for history in self.histories
        ]
        numbers = (self.members.words & np.uint64(0xFFF)).astype(np.int64) - 1
        width = len(names)
        pairs = np.bincount(
            self.codes_without_own.astype(np.int64) * width + numbers,
            minlength=width * len(self.histories),
        )
        met = np.flatnonzero(pairs)
        return sum(
            int(pairs[pair])
            for pair in met.tolist()
            if arms_before[pair // width] - {names[pair % width]}
        )

    def paid(self, codes: Codes) -> dict[int, Budget]:
        """What was paid by each history that there is among ``codes``, by its number."""
        there = np.flatnonzero(np.bincount(codes, minlength=len(self.histories)))
        return {number: cost_of(self.histories[number]) for number in there.tolist()}

    def of_rows(self, digests: Bools) -> Bools:
        """Facts about digests as facts about rows; shapes [words] and [n]."""
        return digests[self.members.place]

    def cannot_pay(self, everybody: Budget, cost: Budget, limit: Budget, codes: Codes) -> Bools:
        """Which digests would have paid more than ``limit``; shape [words].

        ``everybody`` has paid that beside what ``codes`` say, and would pay ``cost`` now.
        """
        short = np.zeros(len(self.histories), dtype=np.bool_)
        for number, paid in self.paid(codes).items():
            short[number] = not (everybody + paid + cost).fits_into(limit)
        return short[codes]

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
        """The most that any of the units has paid, ``cost`` included, ε and δ each."""
        paid = self.paid(self.codes).values() if len(self.codes) else [Budget()]
        after = [each + cost for each in paid]
        return Budget(max(b.epsilon for b in after), max(b.delta for b in after))
