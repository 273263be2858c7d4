"""The accounts by unit of one population: read from registers, checked, summed up.

Who calls these has the turn of the population (:mod:`flows.ledger.units.turn`), so no charge of it
is made meanwhile.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from flows.config.model.declared import Terms
from flows.ledger.members import Accounts, Members, greatest
from flows.ledger.rules import OPEN, Entry, of_everybody, spent
from flows.ledger.tables import CHARGES, POPULATIONS, REGISTERS, select
from flows.ledger.units.registers import (
    DamagedRegisterError,
    RegisterRow,
    Shelves,
    new_register,
    prefix_of,
    register_rows,
)
from privatizers.accounting.budget import Budget
from privatizers.accounting.histories import (
    Codes,
    Histories,
    History,
    Register,
    TooManyHistoriesError,
    codes_in,
    cost_of,
    merged,
    united,
)
from schemas.errors import ConfigError, InputError

_AT_ONCE = 2  # registers that are read at once: checking and searching need no lock
_IN_HAND = 4  # registers whose answers wait for each other: a large one beside small ones
_MOST_WORDS = 1 << 28  # of a sum: 2 GB
_NIGHTS = 3  # releases that a night in which nobody comes back is compared with
_EXPECTED = 10  # units that would have come back, at the least of their shares

Connect = Callable[[], AbstractContextManager[sa.Connection]]


@dataclass(frozen=True)
class Tally:
    """What all units of a population have paid, one by one."""

    n_units: int
    """How many are known; those of releases without a register are not. 0 where no register is
    left, or where those that there are cannot be added up."""
    most: Budget
    """The most that anybody has paid, ε and δ each."""
    median_epsilon: float
    histories: dict[History, int]
    """How many units have which."""
    lost: frozenset[int]


def check_key(connection: sa.Connection, population: str, fingerprint: str, *, begin: bool) -> None:
    """Raise ConfigError where the population's accounts were begun under another key.

    The first key that is asked about is the one, where they are to ``begin``. A second one could
    make somebody who has paid already look like somebody new.
    """
    begun = known_key(connection, population)
    if begun is None and begin:
        row = {"population": population, "key_fingerprint": fingerprint}
        connection.execute(sa.insert(POPULATIONS).values(row))
    elif begun not in (None, fingerprint):
        raise ConfigError(
            "ledger.key_file",
            f"is not the key that the accounts of population {population!r} were begun with, so "
            "nobody who has paid could be recognised; nothing was charged. Name that key, or put "
            "it back from a copy; and let the same pay as before, units or what "
            "columns.privacy_unit names",
        )


def known_key(connection: sa.Connection, population: str) -> str | None:
    """The fingerprint of the key of a population's accounts; None where it has none yet."""
    query = sa.select(POPULATIONS.c.key_fingerprint).where(POPULATIONS.c.population == population)
    return connection.execute(query).scalar_one_or_none()


class _Sources:
    """The registers that together tell of all charges that count, those that can be read."""

    def __init__(
        self,
        shelves: Shelves,
        entries: Sequence[Entry],
        rows: Mapping[str, RegisterRow],
        marks: Collection[str],
    ) -> None:
        self.shelves = shelves
        self._of_charges = {e.id: rows[e.roster] for e in entries if e.roster and e.roster in rows}
        self.charges = frozenset(e.id for e in entries if e.counts and e.roster is not None)
        self.settled = frozenset(
            e.id for e in entries if e.id in self.charges and e.state not in OPEN
        )
        self._marks = marks
        self.lost: set[int] = set()
        sums = [row for row in rows.values() if row.charges and row.mark in marks]
        self.sums: list[RegisterRow] = []
        covered: set[int] = set()
        for row in sorted(sums, key=lambda one: -len(one.charges)):
            if row.charges <= self.charges and not row.charges & covered:
                self.sums.append(row)
                covered |= row.charges
        self.own: dict[int, RegisterRow] = {}
        self._take_own(self.charges - covered)

    def _take_own(self, charges: Collection[int]) -> None:
        """Read of these charges what each release has itself."""
        for charge in sorted(charges):
            row = self._of_charges.get(charge)
            if row is None or row.mark not in self._marks:
                self.lost.add(charge)
            else:
                self.own[charge] = row

    def give_up(self, row: RegisterRow) -> None:
        """Do without a register that is damaged: without a sum, or without a release's own."""
        if row in self.sums:
            self.sums.remove(row)
            self._take_own(row.charges)
            return
        for charge, own in list(self.own.items()):
            if own == row:
                del self.own[charge]
                self.lost.add(charge)

    def own_of(self, charges: Collection[int]) -> list[tuple[int, RegisterRow]]:
        """Each release's own register, of these charges, where there is one."""
        return [(charge, row) for charge, row in self._of_charges.items() if charge in charges]

    def registers(self, connection: sa.Connection, rows: Iterable[RegisterRow]) -> list[Register]:
        """Some of them, to be read word by word."""
        return [
            Register(partial(self.shelves.blocks, connection, row), row.histories, row.n_words)
            for row in rows
        ]

    @property
    def rows(self) -> list[RegisterRow]:
        """All of them."""
        return [*self.sums, *self.own.values()]


def read_accounts(
    begin: Connect | None,
    connect: Connect,
    shelves: Shelves,
    terms: Terms,
    members: Members,
    period: str,
) -> Accounts:
    """Find out what the units of a log have paid; ``begin`` holds the whole ledger, shortly.

    Without ``begin`` the ledger is looked at as it is, and nothing in it changes.
    """
    with (begin or connect)() as connection:
        check_key(connection, terms.population, members.key_fingerprint, begin=begin is not None)
        entries = select(connection, CHARGES.c.population == terms.population)
        rows = register_rows(connection, terms.population)
        if begin is not None:
            shelves.remove(connection, shelves.strays(connection, terms.population))
    sources = _Sources(shelves, entries, rows, (members.mark, *members.others))
    with connect() as connection:
        histories = Histories()
        codes = _looked_up(connection, sources, members, histories)
        mine = {
            entry.id
            for entry in entries
            if (entry.name.experiment, entry.name.period) == (terms.experiment, period)
        }
        without_own = codes
        for charge, row in sources.own_of((sources.charges - sources.lost) & mine):
            numbers = _numbers_in(connection, sources, members, row)
            if numbers is None:  # a sum has it all the same
                name = next(e.name.release_id for e in entries if e.id == charge)
                raise InputError(
                    f"the ledger's list of the units in {name} is lost or damaged, so nobody can "
                    "tell who was released by it; nothing was charged. Put it back from a copy"
                )
            for theirs in numbers:
                without_own = histories.joined(without_own, theirs, row.histories, sign=-1)
        accounts = Accounts(
            members=members,
            codes=codes,
            codes_without_own=without_own,
            histories=histories.known,
            charges=sources.charges,
            lost=frozenset(sources.lost),
            unlisted=tuple(
                entry.name.release_id
                for entry in entries
                if entry.counts
                and entry.name.experiment == terms.experiment
                and entry.name.period != period
                and (entry.roster is None or entry.id in sources.lost)
            ),
            everybody=of_everybody(entries, terms.population, sources.lost),
            warnings=_lost_warnings(entries, sources.lost),
        )
        accounts = _compared(accounts, entries, rows, terms.experiment, mine)
        short = accounts.cannot_pay(accounts.everybody, terms.cost, terms.limit, codes)
        if not short.any():
            return accounts
        found_in: dict[int, int] = {}
        for charge, row in sources.own_of(sources.charges - sources.lost):
            numbers = _numbers_in(connection, sources, members, row)
            if numbers is not None:
                found_in[charge] = int((numbers[0][short] > 0).sum()) if numbers else 0
        return replace(accounts, found_in=found_in)


def _looked_up(
    connection: sa.Connection, sources: _Sources, members: Members, histories: Histories
) -> Codes:
    """Look all digests up in all registers, in two at once; what is damaged is given up."""
    numbers_in = partial(_numbers_in, connection, sources, members)
    codes = np.zeros(len(members.words), dtype=np.int32)
    read: list[RegisterRow] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while left := [row for row in sources.rows if row not in read]:
            some = left[: _IN_HAND if sources.shelves.in_files else 1]
            read += some
            for row, numbers in zip(some, pool.map(numbers_in, some), strict=True):
                if numbers is None:
                    sources.give_up(row)
                for theirs in numbers or ():
                    codes = histories.joined(codes, theirs, row.histories)
    return codes


def _numbers_in(
    connection: sa.Connection, sources: _Sources, members: Members, row: RegisterRow
) -> list[NDArray[np.uint16]] | None:
    """The numbers that a register has for each digest, shape [words]: one list a spelling.

    None where it is damaged.
    """
    sought = members.sought(row.mark)
    try:
        codes = codes_in(sought.digests, sources.shelves.blocks(connection, row))
    except DamagedRegisterError:
        return None
    if codes.max(initial=0) >= len(row.histories):
        return None
    return list(sought.by_turns(codes, len(members.words)))


def _compared(
    accounts: Accounts,
    entries: Sequence[Entry],
    rows: Mapping[str, RegisterRow],
    experiment: str,
    mine: Collection[int],
) -> Accounts:
    """The same with how many units came back, and a warning where nobody did, unlike before."""
    charges = accounts.charges - accounts.lost - set(mine)
    others = [
        rows.get(entry.roster or "")
        for entry in entries
        if entry.id in charges and entry.name.experiment == experiment
    ]
    if not others:
        return accounts
    n_met, n_units = int(accounts.released_before.sum()), len(accounts.codes)
    shares = [row.met[0] / row.met[1] for row in others if row is not None and row.met]
    least = min(shares[-_NIGHTS:], default=0.0)
    warnings = accounts.warnings
    if n_met == 0 and not accounts.lost and least * n_units >= _EXPECTED:
        warnings += (
            f"none of the {n_units:,} units was released before by this experiment, though in each "
            f"of its last {len(shares[-_NIGHTS:])} release(s) at least {100 * least:.2g} % were: "
            "are the ids of these people made or spelt in another way now? Then accounts charge "
            "them as new ones, and who comes back is not known",
        )
    return replace(accounts, met=(n_met, n_units), warnings=warnings)


def _lost_warnings(entries: Sequence[Entry], lost: Collection[int]) -> tuple[str, ...]:
    names = [entry.name.release_id for entry in entries if entry.id in lost]
    if not names:
        return ()
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (
        f"the ledger's lists of the units in {len(names)} release(s) are lost, damaged or under "
        f"another key ({listed}); they count for everybody. Put them back from a copy",
    )


# summing up


def sum_up(begin: Connect, connect: Connect, shelves: Shelves, population: str, mark: str) -> None:
    """Make one sum of the smallest registers, where each is not far smaller than the next.

    So each register that is left is at least about as large as all smaller ones together, and a
    night reads few of them. Charges that a run is still to leave may be given back: they wait.
    """
    with connect() as connection:
        entries = select(connection, CHARGES.c.population == population)
        rows_by_name = register_rows(connection, population)
    sources = _Sources(shelves, entries, rows_by_name, (mark,))
    settled = [row for charge, row in sources.own.items() if charge in sources.settled]
    rows = sorted([*settled, *sources.sums], key=lambda row: row.n_words)
    size, n_taken = 0, 0
    for row in rows:
        if n_taken and not (row.n_words < 2 * size and size + row.n_words <= _MOST_WORDS):
            break
        size, n_taken = size + row.n_words, n_taken + 1
    taken = rows[:n_taken]
    if len(taken) < 2:
        return
    of_own = {charge for charge, row in sources.own.items() if row in taken}
    charges = frozenset(of_own.union(*(row.charges for row in taken)))
    name = f"{prefix_of(population)}-{max(charges)}-{len(charges)}"
    histories = Histories()
    with connect() as connection:
        registers = sources.registers(connection, taken)
        try:
            written = shelves.write(connection, name, merged(registers, histories))
        except (DamagedRegisterError, TooManyHistoriesError, InputError):
            connection.rollback()
            return  # looking up will tell which; a sum saves time alone
        summed = new_register(population, name, mark, written, histories.known, charges)
        connection.commit()
    old = [one.name for one in taken if one.charges]
    with begin() as connection:
        connection.execute(sa.delete(REGISTERS).where(REGISTERS.c.name.in_([*old, name])))
        connection.execute(sa.insert(REGISTERS).values(summed))
    with begin() as connection:
        shelves.remove(connection, [one for one in old if one != name])


def tally(
    connection: sa.Connection, shelves: Shelves, entries: Sequence[Entry], population: str
) -> Tally | None:
    """Add up what every unit has paid; None where the population has no accounts by unit.

    Of registers with several marks a unit in two of them is not known again without its id: nobody
    is counted then, and the most is what was found out as releases were charged.
    """
    key = known_key(connection, population)
    if key is None:
        return None
    registers = register_rows(connection, population)
    marks = {row.mark for row in registers.values()}
    ours = [mark for mark in marks if mark.rpartition(":")[2] == key]
    sources = _Sources(shelves, entries, registers, ours)
    while True:
        try:
            counts = _counts(connection, sources)
            break
        except DamagedRegisterError as damage:
            sources.give_up(damage.row)
    everybody = of_everybody(entries, population, sources.lost)
    if len({row.mark for row in sources.rows}) > 1:
        most = spent(entries, population, sources.lost)
        return Tally(0, most, everybody.epsilon, {}, frozenset(sources.lost))
    amounts = [(everybody + cost_of(history), n) for history, n in counts.items()]
    paid = sorted(amounts, key=lambda each: each[0].epsilon)
    n_units = sum(counts.values())
    middle, seen = everybody.epsilon, 0
    for amount, n in paid:
        seen += n
        if 2 * seen >= n_units:
            middle = amount.epsilon
            break
    most = greatest([everybody, *(amount for amount, _ in paid)])
    return Tally(n_units, most, middle, counts, frozenset(sources.lost))


def _counts(connection: sa.Connection, sources: _Sources) -> dict[History, int]:
    """How many units have which history."""
    counts: Counter[History] = Counter()
    histories = Histories()
    for _, codes in united(sources.registers(connection, sources.rows), histories):
        n_units, ways = np.bincount(codes, minlength=len(histories)), histories.known
        for number in np.flatnonzero(n_units).tolist():
            counts[ways[number]] += int(n_units[number])
    return counts
