"""Step 2, private: read the log, set aside rows with public faults, put the rest into order.

Rows come in batches, each judged by the rules that read one row alone; then all rows of a unit are
brought together (:mod:`flows.raw.spill.sorted_runs`) and judged by the rules that read more.

Of a site the same is done. Where its treatment was not randomised more is protected: neighbours
differ in a unit's arm and covariates, too. So nothing that anybody else could notice, a failure of
the run included, follows there from the arms of the units that are kept, or from their covariates.
Which rows name no declared arm, or stand for a unit twice, and are set aside for it, is taken to be
public.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pandera.errors
import polars as pl

from flows.config.experiment import Config
from flows.config.site import SiteConfig
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.ingest import Log
from flows.raw.quarantine import FaultyRows, Quarantined
from flows.raw.reading.log_files import file_names
from flows.raw.spill.sorted_runs import SortedRuns, Stored, parts
from flows.raw.spill.unit_order import in_one_piece, order_units, rises
from flows.raw.spill.workspace import Workspace
from flows.raw.units.attribution import attributed
from flows.raw.units.exposures import first_exposures
from flows.raw.units.private_clusters import known_clusters, without_private_clusters
from flows.raw.units.rows import COLUMNS, Rows, rows_of
from flows.runtime.progress import Progress
from schemas.errors import InputError
from schemas.raw import (
    ARM,
    CLUSTER,
    FAULT,
    OUTCOME,
    RULE,
    TIME,
    UNIT,
    UNIT_RULES,
    Rule,
    event_rules,
    rules,
)
from schemas.raw_frame import fits
from schemas.roster import Roster

_MISSING = np.uint32(0xFFFFFFFF)  # the code of an arm that is null
_ARM_TEXT = "text of arm"
_UNDECLARED = 1 << 16  # codes of arms that are not declared begin here


@values_free
def validate(
    config: Config | SiteConfig, log: Sealed[Log], workspace: Workspace | None = None
) -> tuple[Sealed[Rows], Sealed[Quarantined], Roster]:
    """Return the rows that are kept, those that are set aside, and public facts about the log.

    Rows are set aside for faults in unit, arm, cluster or time alone, never for an outcome. Raises
    InputError where a file cannot be read, a declared arm has no units (at a site's trial: fewer
    than two) or nothing is left. Where a site protects arms, one arm alone is no reason to fail:
    the report is mostly noise then, and its variance says so. What does not fit into memory is put
    into the ``workspace``; nothing else is written: see
    :func:`~flows.raw.quarantine.write_quarantine`.
    """
    raw = log.open()
    judge = _Judge(config, raw, workspace)
    stored = tuple(judge.parts())
    rows = rows_of(stored, config.arms.names, raw.unit_type)
    roster = _roster(config, rows, judge.aside, judge.rules)
    _check_left(config, roster, judge.n_read)
    aside = Quarantined(judge.aside, raw.files)
    return Sealed(rows, rows.n_units), Sealed(aside, roster.quarantined), roster


@dataclass
class _Judge:
    """One pass over a log: what is kept comes out in order, what is not goes to the pile."""

    config: Config | SiteConfig
    log: Log
    workspace: Workspace | None
    n_read: int = 0
    aside: FaultyRows = field(init=False)
    rules: tuple[Rule, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing set aside."""
        self.aside = FaultyRows(self.workspace)
        self.rules = (rules if self._of_events is None else event_rules)(self.config.arms.names)

    @property
    def _of_events(self) -> Config | None:
        """The configuration where rows of the log are exposures; else None."""
        config = self.config
        return config if isinstance(config, Config) and config.source.grain == "event" else None

    def parts(self) -> Iterator[Stored]:
        """The rows that are kept, in the order of units; checked against the schema."""
        together = [self._read(), *self._read_events()]
        total = together[0].n_rows
        least = 0 if self.workspace is None else self.workspace.least_parts
        in_memory = least == 0 and all(one.in_memory for one in together)
        last: pl.Series | None = None
        with Progress("ordering units", total) as progress:
            for position, part in enumerate(parts(together, self.workspace, least)):
                found, events = part[0], part[1] if len(part) > 1 else None
                if found is None:
                    continue
                kept = self._judged(found, events)
                self._check(kept, last)
                last = kept[UNIT][-1:] if kept.height else last
                progress.advance(found.height)
                if len(kept):
                    yield self._stored(kept, position, in_memory=in_memory)

    def _stored(self, kept: pl.DataFrame, position: int, *, in_memory: bool) -> Stored:
        if in_memory or self.workspace is None:
            return Stored(kept.height, kept)
        return Stored(kept.height, self.workspace.write(kept, f"kept-{position}"))

    # reading

    def _read(self) -> SortedRuns:
        """Judge all rows by the rules that read one, and bring them on their way into order."""
        runs = SortedRuns(self.workspace, "rows")
        alone = [rule for rule in self.rules if rule.name not in UNIT_RULES]
        arms = self.config.arms.names
        known = {UNIT: 0, ARM: 0}
        with Progress("reading the log", self.log.roster.known_rows()) as progress:
            for batch in self.log.batches(lambda rows: _coded(rows, arms, alone)):
                self.n_read += batch.height
                sound, faulty = _parted(batch)
                if faulty is not None:
                    self.aside.add(without_private_clusters(self.config, faulty))
                for name in known:
                    unread = 0 if faulty is None else faulty[name].null_count()
                    known[name] += batch.height - unread
                runs.add(sound)
                progress.advance(batch.height)
        self._check_read(known)
        return runs

    def _read_events(self) -> list[SortedRuns]:
        """Outcome events, where there are any; how many, nobody is told."""
        if self.log.events is None:
            return []
        runs = SortedRuns(self.workspace, "events")
        with Progress("reading outcome events", self.log.events.known_rows()) as progress:
            for batch in self.log.event_batches():
                runs.add(batch.filter(pl.col(UNIT).is_not_null()))
                progress.advance(batch.height)
        return [runs]

    def _check_read(self, known: dict[str, int]) -> None:
        """Fail where there is nothing to judge."""
        names = file_names(self.log.files)
        if self.n_read == 0:
            raise InputError(f"the log is empty: no row in {names}")
        columns = self.config.columns
        for key, column in (("unit", columns.unit), ("arm", columns.arm)):
            if known[UNIT if key == "unit" else ARM] == 0:
                raise InputError(
                    f"columns.{key}: no row of {names} has a readable value in {column!r}; "
                    "correct the name"
                )

    # judging

    def _judged(self, part: pl.DataFrame, events: pl.DataFrame | None) -> pl.DataFrame:
        """The rows of :data:`COLUMNS` that are kept of all rows of some units."""
        of_events = self._of_events
        if of_events is not None:
            return self._by_events(of_events, part, events)
        order = order_units(part[UNIT])
        if not order.repeats.any() and part[FAULT].max() == 0:
            return self._finished(order.rows(part.select(COLUMNS)))
        rows = order.rows(part)
        del part
        repeated = order.repeats | np.append(order.repeats[1:], False)
        faulty = rows[FAULT].to_numpy() > 0
        wrong = rows.filter(pl.Series(repeated))
        named = wrong.with_columns(_first_broken(_of_units(self.rules)).alias(RULE))
        self._put_aside(named.filter(pl.col(FAULT) == 0))
        rows = rows.filter(pl.Series(~(repeated | faulty)))
        return self._finished(rows)

    def _by_events(
        self, config: Config, part: pl.DataFrame, events: pl.DataFrame | None
    ) -> pl.DataFrame:
        """The same of exposures, each unit with the outcome that its events come to."""
        found = first_exposures(part)
        name = _of_units(self.rules)[0].name
        self._put_aside(found.contaminated.with_columns(pl.lit(name).alias(RULE)))
        source, outcome = config.source, config.outcome
        values = np.full(found.kept.height, np.nan)
        if events is not None and outcome.aggregate is not None:
            values = attributed(
                events,
                found.kept,
                aggregate=outcome.aggregate,
                window=source.window_microseconds,
                cap=outcome.cap,
            )
        return self._finished(found.kept.with_columns(pl.Series(OUTCOME, self.log.mapped(values))))

    def _put_aside(self, rows: pl.DataFrame) -> None:
        """Set rows with declared arms aside, these spelt out again."""
        names = pl.Series(self.config.arms.names)
        spelt = rows.with_columns(
            names.gather(rows[ARM]).alias(ARM), pl.col(CLUSTER).cast(pl.String)
        )
        self.aside.add(without_private_clusters(self.config, spelt))

    def _finished(self, rows: pl.DataFrame) -> pl.DataFrame:
        arms = pl.Enum(self.config.arms.names)
        code = pl.Series([], dtype=arms).to_physical().dtype
        return rows.select(COLUMNS).with_columns(
            in_one_piece(rows[UNIT]), pl.col(ARM).cast(code).cat.to(arms)
        )

    def _check(self, kept: pl.DataFrame, last: pl.Series | None) -> None:
        """Let pandera judge the rows that are kept; they always pass, unless a rule is wrong."""
        try:
            fits(self.config.arms.names).validate(kept, lazy=True)
        except pandera.errors.SchemaErrors as error:
            broken = sorted({one.reason_code.name for one in error.schema_errors})
        else:
            seam = kept[UNIT][:1] if last is None else pl.concat([last, kept[UNIT][:1]])
            broken = [] if rises(seam) else ["parts overlap"]
        if broken:
            raise InputError(f"rows that passed every rule break the schema ({', '.join(broken)})")


def _coded(batch: pl.DataFrame, arms: tuple[str, ...], alone: list[Rule]) -> pl.DataFrame:
    """Arms as codes (UInt32), and :data:`FAULT`: 0, or 1 for rows that break one of these rules.

    Where some do, the columns ``text of arm`` and ``rule`` say more.
    """
    if _is_sound(batch):
        return batch.with_columns(
            pl.col(ARM).to_physical().cast(pl.UInt32), pl.lit(0, pl.UInt8).alias(FAULT)
        )
    text = batch.with_columns(pl.col(ARM, CLUSTER).cast(pl.String))
    declared = pl.col(ARM).cast(pl.Enum(arms), strict=False).to_physical().cast(pl.UInt32)
    other = pl.col(ARM).hash() % (int(_MISSING) - _UNDECLARED) + _UNDECLARED
    code = pl.coalesce(
        declared,
        pl.when(pl.col(ARM).is_not_null()).then(other.cast(pl.UInt32)),
        pl.lit(_MISSING, pl.UInt32),
    )
    return text.with_columns(_first_broken(alone).alias(RULE)).with_columns(
        code.alias(ARM),
        pl.col(ARM).alias(_ARM_TEXT),
        pl.col(CLUSTER).cast(pl.Categorical),
        pl.col(RULE).is_not_null().cast(pl.UInt8).alias(FAULT),
    )


def _parted(batch: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """All rows that have a unit, faulty ones to judge it by; and the faulty ones, as text."""
    if RULE not in batch.columns:
        return batch, None
    faulty = batch.filter(pl.col(RULE).is_not_null()).with_columns(
        pl.col(_ARM_TEXT).alias(ARM), pl.col(CLUSTER).cast(pl.String)
    )
    return batch.filter(pl.col(UNIT).is_not_null()).drop(RULE, _ARM_TEXT), faulty


def _is_sound(batch: pl.DataFrame) -> bool:
    """Whether no row of a batch breaks a rule by itself, told without looking at each."""
    named = [name for name in (UNIT, CLUSTER, TIME) if name in batch.columns]
    is_declared = isinstance(batch.schema[ARM], pl.Enum)
    return is_declared and all(batch[name].null_count() == 0 for name in named)


def _first_broken(applied: Iterable[Rule]) -> pl.Expr:
    """Name of the first rule a row breaks; null where it breaks none."""
    return pl.coalesce([pl.when(rule.faulty).then(pl.lit(rule.name)) for rule in applied])


def _of_units(applied: Iterable[Rule]) -> list[Rule]:
    return [rule for rule in applied if rule.name in UNIT_RULES]


def _roster(
    config: Config | SiteConfig, rows: Rows, aside: FaultyRows, applied: tuple[Rule, ...]
) -> Roster:
    by_arm = dict(zip(rows.arms, rows.sizes.sum(axis=0).tolist(), strict=True))
    if isinstance(config, SiteConfig):
        shares, protected = None, config.protects_arms
    else:
        shares, protected = config.arms.expected_shares, False
    return Roster(
        n_units=rows.n_units,
        n_clusters=known_clusters(config, rows),
        units_by_arm={} if protected else by_arm,
        quarantined=aside.n_rows,
        quarantined_by_rule={
            rule.name: aside.by_rule[rule.name] for rule in applied if rule.name in aside.by_rule
        },
        sample_ratio_p=_sample_ratio(list(by_arm.values()), shares),
    )


def _sample_ratio(observed: list[int], shares: tuple[float, ...] | None) -> float | None:
    """p-value of Pearson's χ² test of the arm sizes against the intended shares."""
    total = sum(observed)
    if shares is None or total == 0:
        return None
    from scipy.special import chdtrc  # noqa: PLC0415 - takes a quarter of a second

    expected = [share * total for share in shares]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(chdtrc(len(observed) - 1, statistic))


def _check_left(config: Config | SiteConfig, roster: Roster, n_read: int) -> None:
    """Fail where the log cannot be released; by public facts alone."""
    aside = ", ".join(f"{name} {count:,}" for name, count in roster.quarantined_by_rule.items())
    if roster.n_units == 0:
        raise InputError(
            f"no row is left: all {n_read:,} were set aside ({aside}); "
            "check columns and arms in the configuration"
        )
    for arm, count in roster.units_by_arm.items():
        if count < (2 if isinstance(config, SiteConfig) else 1):
            key = "arms.control" if arm == config.arms.control else "arms.treatments"
            has = f"{count} unit(s)" if count else "no units"
            raise InputError(
                f"{key}: the declared arm {arm!r} has {has} in this log"
                + ("; a trial takes 2 at least, for an effect with a variance" if count else "")
                + (f" (rows set aside: {aside})" if aside else "")
            )
