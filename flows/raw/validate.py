"""Step 2, private: read the log, set aside rows with public faults, put the rest into order.

Rows come in batches, each judged by the rules that read one row alone; then all rows of a unit are
brought together (:mod:`flows.raw.spill.sorted_runs`) and judged by the rules that read more.

Of a site the same is done. Where its treatment was not randomised more is protected: neighbours
differ in a unit's arm and covariates, too. So nothing that anybody else could notice, a failure of
the run included, follows there from the arms of the units that are kept, or from their covariates.
Which rows name no declared arm, or stand for a unit twice, and are set aside for it, is taken to be
public.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from flows.config.model.declared import LogFacts
from flows.config.model.sections import NamedOutcome
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.ingest import Log
from flows.raw.quarantine import FaultyRows, HandedFaults, Quarantined
from flows.raw.reading.log_files import file_names
from flows.raw.spill.sorted_runs import Handed, SortedRuns, Stored, Table, parts, stored
from flows.raw.spill.unit_order import order_units, rises
from flows.raw.spill.workspace import Workspace, each, n_shares
from flows.raw.units.assignment import in_several_arms
from flows.raw.units.attribution import attributed
from flows.raw.units.exposures import Exposures, first_exposures
from flows.raw.units.private_clusters import without_private_clusters
from flows.raw.units.roster import check_faults, check_left, roster_of
from flows.raw.units.row_faults import coded, first_broken, judge_repeated, parted
from flows.raw.units.rows import COLUMNS, Rows, counted, rows_of, rows_where
from flows.runtime.garbage import loading
from flows.runtime.progress import Progress
from schemas.arrays import Floats
from schemas.errors import InputError
from schemas.raw import (
    ARM,
    ASSIGNED,
    ASSIGNED_ARMS,
    CLUSTER,
    EVENT,
    FAULT,
    FILE,
    OUTCOME,
    PAYER,
    ROW,
    RULE,
    TIME,
    UNIT,
    UNIT_RULES,
    VALUE,
    Rule,
    attribute_columns,
    event_rules,
    numbered,
    rules,
    several,
)
from schemas.roster import Repeats, Roster


def _unheard(_: int) -> None:
    """Tell nobody how far work has come."""


@values_free
def validate(
    facts: LogFacts, log: Sealed[Log], workspace: Workspace | None = None
) -> tuple[Sealed[Rows], Sealed[Quarantined], Roster]:
    """Return the rows that are kept, those that are set aside, and public facts about the log.

    Rows are set aside for faults in unit, arm, cluster, time or who was randomised together, never
    for an outcome. Raises
    InputError where a file cannot be read, a declared arm has no units (at a site's trial: fewer
    than two), nothing is left, or more rows have faults than may. Where a site protects arms, one
    arm alone is no reason to fail: the report is mostly noise then, and its variance says so. What
    does not fit into memory is put into the ``workspace``; nothing else is written: see
    :func:`~flows.raw.quarantine.write_quarantine`.
    """
    raw = log.open()
    judge = _Judge(facts, raw, workspace)
    rows = judge.of_one_arm(rows_of(list(judge.parts()), facts.arms, raw.unit_type))
    n_aside = judge.aside.by_rule
    names = (*(rule.name for rule in judge.rules), ASSIGNED_ARMS)
    by_rule = {name: n_aside[name] for name in names if name in n_aside}
    roster = replace(
        roster_of(facts, rows, by_rule),
        attribute_changed=judge.n_changed if facts.of_events and facts.facts else None,
        n_read=judge.n_read,
        n_faulty=sum(by_rule.values()),
        repeats=judge.repeats if facts.tells_rows else Repeats(),
    )
    check_left(facts, roster, judge.n_read, judge.aside.undeclared)
    check_faults(facts, roster, judge.n_read)
    aside = Quarantined(judge.aside, raw.roster.files)
    return Sealed(rows, rows.n_units), Sealed(aside, roster.quarantined), roster


@dataclass(frozen=True)
class _Tally:
    """What a worker tells of the rows that it has read or judged; the numbers are public."""

    aside: HandedFaults
    n_read: int
    readable: Counter[str]
    n_changed: int
    repeats: Repeats


@dataclass
class _Judge:
    """One pass over a log: what is kept comes out in order, what is not goes to the pile.

    With workers each of them has a judge of its own for what it reads, or for a range of units.
    """

    facts: LogFacts
    log: Log
    workspace: Workspace | None
    n_read: int = 0
    readable: Counter[str] = field(default_factory=Counter)
    """Of how many rows the unit, and the arm, could be read."""
    n_changed: int = 0
    """Of how many units later exposures state other facts than the first."""
    repeats: Repeats = field(default_factory=Repeats)
    """What becomes of units that have several rows."""
    aside: FaultyRows = field(init=False)
    rules: tuple[Rule, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing set aside."""
        self.aside = FaultyRows(self.workspace)
        of_rows = event_rules if self.facts.of_events else rules
        self.rules = of_rows(
            self.facts.arms, payers=PAYER in self.facts.facts, assigned=ASSIGNED in self.facts.facts
        )

    @property
    def _columns(self) -> tuple[str, ...]:
        """The columns of rows that are kept; where they stood, if they may be set aside later."""
        more = several(OUTCOME, self.facts.n_outcomes)[1:]
        place = (FILE, ROW) if ASSIGNED in self.facts.facts else ()
        return (*COLUMNS, *more, *self.facts.facts, *place)

    def tally(self) -> _Tally:
        """What is told to who asked for this."""
        aside = self.aside.handed_over()
        return _Tally(aside, self.n_read, self.readable, self.n_changed, self.repeats)

    def _add(self, tally: _Tally) -> None:
        self.aside.take_over(tally.aside)
        self.n_read += tally.n_read
        self.readable += tally.readable
        self.n_changed += tally.n_changed
        self.repeats += tally.repeats

    def parts(self) -> Iterator[tuple[Stored, Table]]:
        """The rows that are kept, in the order of units, and how many of them are where.

        That is as :func:`~flows.raw.units.rows.counted` says. They are checked against the schema.
        """
        if self.workspace is None or self.workspace.workers is None:
            return self._parts()
        return self._parts_by_workers(self.workspace)

    def _parts(self) -> Iterator[tuple[Stored, Table]]:
        with Progress("reading the log", self.log.roster.known_rows()) as progress:
            tables = [self.read(progress.advance)]
        self._check_read()
        if self.log.events is not None:
            with Progress("reading outcome events", self.log.events.known_rows()) as progress:
                tables.append(self.read_events(progress.advance))
        in_memory = all(table.in_memory for table in tables)
        last: pl.Series | None = None
        writing: Callable[[], tuple[Stored, Table]] | None = None  # a part, behind the next one
        with Progress("ordering units", tables[0].n_rows) as progress:
            for kept in self.judged(tables, progress.advance):
                last = self._check(kept, last)
                if kept.height and (self.workspace is None or in_memory):
                    yield Stored(kept.height, kept), self.places(kept)
                elif kept.height and self.workspace is not None:
                    written = self.workspace.behind.submit(self._written, kept, self.workspace)
                    if writing is not None:
                        yield writing()
                    writing = written.result
        if writing is not None:
            yield writing()

    def _written(self, kept: pl.DataFrame, workspace: Workspace) -> tuple[Stored, Table]:
        return Stored(kept.height, workspace.write(kept, "kept")), self.places(kept)

    # sharing it out

    def _parts_by_workers(self, workspace: Workspace) -> Iterator[tuple[Stored, Table]]:
        tables = self._read_by_workers(workspace)
        n_parts = max(-(-tables[0].n_bytes // workspace.part_bytes), n_shares(workspace))
        # By the units of the log alone, as how many events there are may be an outcome.
        cuts = tables[0].cuts(n_parts)
        of_cuts = workspace.write(pl.DataFrame({UNIT: cuts}), "cuts")
        indexes = [table.indexes for table in tables]
        calls = [
            (self.facts, self.log, indexes, of_cuts, position) for position in range(len(cuts) + 1)
        ]
        last: pl.Series | None = None
        with Progress("ordering units", tables[0].n_rows) as progress:
            for kept, n_rows, tally in each(workspace, judge_range, calls):
                self._add(tally)
                progress.advance(n_rows)
                if kept is not None:
                    last = self._check(kept[0].load(), last)
                    yield kept
        for table in tables:
            table.remove_files()

    def _read_by_workers(self, workspace: Workspace) -> list[SortedRuns]:
        """Have the log read by workers, a share each; the rows of its tables, in files."""
        shares = self.log.roster.shares(n_shares(workspace))
        calls = [(self.facts, replace(self.log, roster=share)) for share in shares]
        reading = each(workspace, read_share, calls)
        reading_events: Iterator[Handed] = iter(())
        if self.log.events is not None:
            shares = self.log.events.shares(n_shares(workspace))
            calls = [(self.facts, replace(self.log, events=share)) for share in shares]
            reading_events = each(workspace, read_share_of_events, calls)
        tables = [SortedRuns(workspace, "rows")]
        with Progress("reading the log", self.log.roster.known_rows()) as progress:
            for rows, tally in reading:
                tables[0].take_over(rows)
                self._add(tally)
                progress.advance(tally.n_read)
        self._check_read()
        if self.log.events is not None:
            tables.append(SortedRuns.of(workspace, reading_events, "events"))
        return tables

    # reading

    def read(self, advance: Callable[[int], None] = _unheard) -> SortedRuns:
        """Judge all rows by the rules that read one, and bring them on their way into order."""
        n_tables = 1 if self.log.events is None else 2
        runs = SortedRuns(self.workspace, "rows", n_tables=n_tables)
        for batch in self.log.batches(lambda rows: coded(rows, self.facts.arms, self.rules)):
            self.n_read += batch.height
            sound, faulty = parted(batch)
            if faulty is not None:
                self.aside.add(without_private_clusters(self.facts, faulty))
            for name in (UNIT, ARM):
                unread = 0 if faulty is None else faulty[name].null_count()
                self.readable[name] += batch.height - unread
            runs.add(sound)
            advance(batch.height)
        return runs

    def read_events(self, advance: Callable[[int], None] = _unheard) -> SortedRuns:
        """Outcome events, where there are any; how many, nobody is told."""
        runs = SortedRuns(self.workspace, "events", n_tables=2)
        for batch in self.log.event_batches():
            has_all = batch[UNIT].null_count() == 0  # to filter is to copy
            runs.add(batch if has_all else batch.filter(pl.col(UNIT).is_not_null()))
            advance(batch.height)
        return runs

    def _check_read(self) -> None:
        """Fail where there is nothing to judge."""
        names = file_names(self.log.roster.files)
        if self.n_read == 0:
            raise InputError(f"the log is empty: no row in {names}")
        for key, column in ((UNIT, self.facts.unit_column), (ARM, self.facts.arm_column)):
            if self.readable[key] == 0:
                raise InputError(
                    f"columns.{key}: no row of {names} has a readable value in {column!r}; "
                    "correct the name",
                    key=f"columns.{key}",
                )

    # judging

    def judged(
        self, tables: Sequence[SortedRuns], advance: Callable[[int], None] = _unheard
    ) -> Iterator[pl.DataFrame]:
        """The rows that are kept of those in ``tables``, the log and events, in their order."""
        for part in parts(tables, self.workspace):
            found, events = part[0], part[1] if len(part) > 1 else None
            if found is not None:
                yield self._judged(found, events)
                advance(found.height)

    def places(self, kept: pl.DataFrame) -> Table:
        """How many of the rows are in which cluster and arm."""
        return counted(kept, len(self.facts.arms), self.workspace)

    def _judged(self, part: pl.DataFrame, events: pl.DataFrame | None) -> pl.DataFrame:
        """The rows of :data:`COLUMNS` that are kept of all rows of some units."""
        if self.facts.of_events:
            return self._by_events(part, events)
        order = order_units(part[UNIT])
        if not order.repeats.any() and part[FAULT].max() == 0:
            return self._finished(order.rows(part.select(self._columns)))
        rows = order.rows(part)
        del part
        repeated = order.repeats | np.append(order.repeats[1:], False)
        kept = ~repeated & (rows[FAULT].to_numpy() == 0)
        if repeated.any():
            of_several = rows.filter(pl.Series(repeated))
            cluster = (CLUSTER,) if self.facts.clusters == "public" else ()
            stated = (ARM, *cluster, *self.facts.facts)  # all that is public of a unit
            repeats, first = order.repeats[repeated], self.facts.first_counts
            kept[repeated], aside, found = judge_repeated(
                of_several, repeats, stated, first_counts=first
            )
            self.repeats += found
            named = of_several.with_columns(first_broken(self.rules, of_units=True).alias(RULE))
            self._put_aside(named.filter(pl.Series(aside)))
        return self._finished(rows.filter(pl.Series(kept)))

    def _by_events(self, part: pl.DataFrame, events: pl.DataFrame | None) -> pl.DataFrame:
        """The same of exposures, each unit with the outcomes that its events come to."""
        private = self.facts.clusters == "private"
        found = first_exposures(part, self.facts.facts, private_clusters=private)
        self.n_changed += found.n_changed
        self._put_aside(found.contaminated.with_columns(pl.lit(UNIT_RULES[0]).alias(RULE)))
        values = [
            pl.Series(
                numbered(OUTCOME, position),
                _attributed(self.facts.window, outcome, position, events, found),
            )
            for position, outcome in enumerate(self.facts.outcomes)
        ]
        return self._finished(self.log.with_mapped(found.kept.with_columns(values)))

    def of_one_arm(self, rows: Rows) -> Rows:
        """The rows without those whose group, what was randomised, has several arms."""
        if ASSIGNED not in self.facts.facts:
            return rows
        mixed = in_several_arms(rows)
        if not mixed.any():
            return rows
        for part, wrong in rows.by_part(mixed):
            if wrong.any():
                found = part.load().filter(pl.Series(wrong))
                self._put_aside(
                    found.with_columns(pl.col(ARM).to_physical(), pl.lit(ASSIGNED_ARMS).alias(RULE))
                )
        return rows_where(rows, ~mixed, self.workspace)

    def _put_aside(self, rows: pl.DataFrame) -> None:
        """Set rows with declared arms aside, these spelt out again."""
        names = pl.Series(self.facts.arms)
        spelt = rows.with_columns(
            names.gather(rows[ARM]).alias(ARM), pl.col(CLUSTER).cast(pl.String)
        )
        self.aside.add(without_private_clusters(self.facts, spelt))

    def _finished(self, rows: pl.DataFrame) -> pl.DataFrame:
        arms = pl.Enum(self.facts.arms)
        code = pl.Series([], dtype=arms).to_physical().dtype
        return rows.select(self._columns).with_columns(pl.col(ARM).cast(code).cat.to(arms))

    def _check(self, kept: pl.DataFrame, last: pl.Series | None) -> pl.Series | None:
        """Let pandera judge the rows that are kept; they always pass, unless a rule is wrong.

        ``last`` is the unit before them; returns the last of them.
        """
        with loading():
            from schemas.raw_frame import broken, fits  # noqa: PLC0415 - pandera; workers do without

        attributes = attribute_columns(len(self.log.attributes))
        schema = fits(
            self.facts.arms,
            payers=PAYER in self.facts.facts,
            ranges=self.log.ranges,
            assigned=ASSIGNED in self.facts.facts,
            attributes=dict(zip(attributes, self.log.attributes, strict=True)),
        )
        breaks = broken(schema, kept)
        if not breaks and last is not None and not rises(pl.concat([last, kept[UNIT][:1]])):
            breaks = ["parts overlap"]
        if breaks:
            raise InputError(f"rows that passed every rule break the schema ({', '.join(breaks)})")
        return kept[UNIT][-1:] if kept.height else last


def _attributed(
    window: int | None,
    outcome: NamedOutcome,
    position: int,
    events: pl.DataFrame | None,
    found: Exposures,
) -> Floats:
    """One outcome of each unit, by its events; NaN where it has none, or where none are read."""
    if events is None or outcome.aggregate is None:
        return np.full(found.kept.height, np.nan)
    names = {UNIT: UNIT, TIME: TIME, EVENT: EVENT, numbered(VALUE, position): VALUE}
    events = events.select(
        pl.col(name).alias(names[name]) for name in events.columns if name in names
    )
    cap, aggregate = outcome.cap, outcome.aggregate
    return attributed(events, found.kept, aggregate=aggregate, window=window, cap=cap)


# what workers do


def read_share(facts: LogFacts, log: Log, workspace: Workspace) -> tuple[Handed, _Tally]:
    """Read a share of the units or exposures of a log, in a worker."""
    judge = _Judge(facts, log, workspace)
    rows = judge.read()
    return rows.handed_over(), judge.tally()


def read_share_of_events(facts: LogFacts, log: Log, workspace: Workspace) -> Handed:
    """Read a share of the outcome events of a log, in a worker."""
    return _Judge(facts, log, workspace).read_events().handed_over()


def judge_range(
    facts: LogFacts,
    log: Log,
    indexes: Sequence[Sequence[Path]],
    cuts: Path,
    position: int,
    workspace: Workspace,
) -> tuple[tuple[Stored, Table] | None, int, _Tally]:
    """Judge all rows of the units between two cuts, in a worker.

    Returns what is kept of them, if anything is, and where it is; and how many there were.
    """
    judge = _Judge(facts, log, workspace)
    places = pl.read_ipc(cuts)[UNIT]
    tables = [SortedRuns.of(workspace, some, "rows").between(places, position) for some in indexes]
    kept = [part for part in judge.judged(tables) if part.height]
    rows = pl.concat(kept) if kept else None
    stated = None if rows is None else (stored(rows, workspace, "kept"), judge.places(rows))
    return stated, tables[0].n_rows, judge.tally()
