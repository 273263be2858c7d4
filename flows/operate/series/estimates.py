"""Effects over several releases of one experiment: each period's, and all of them together."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import polars as pl

from estimators.arm_effects import Estimate
from estimators.coverage import coverage_warnings
from estimators.operate.people import CrossTerms
from estimators.operate.series import LOOKS
from flows.operate.series.nights import Nights, find_nights
from flows.operate.series.people import Kind, People, crossed, find_people, side_by_side
from flows.operate.series.pooling import Pooled, PooledEstimate, keys_of, pool_periods
from flows.orchestration.states import running_flow
from flows.orchestration.step import open_step
from flows.released.checksums import sha256_of
from flows.released.estimates.by_attribute import (
    AttributeEstimate,
    among_segments,
    estimate_by,
    members_by,
)
from flows.released.estimates.frames import EffectsFrame, check_asked, frame
from flows.released.estimates.release import estimate_file, estimate_release
from flows.released.estimates.segments import (
    SEGMENT,
    estimate_segments,
    read_segments,
)
from flows.released.file.macros import LEVEL
from flows.released.file.opening import Opening, kept_open
from flows.released.night import Night
from flows.released.tables.analyst_table import UNIT_ID, NoIdsError
from flows.runtime.files import replace_file
from flows.runtime.reading.table_files import read_table
from schemas.errors import ConfigError, InputError, shown

UNLIKELY = 0.001
"""Arm sizes that are less probable than this under the intended shares are told."""
_LISTED = 5

_HIDDEN = (
    "{:,} people of one release were released before, but their hashes are in no earlier one: in "
    "another experiment of the population, or their ids were written otherwise, which changes a "
    "hash; then the error of all together is too small"
)
_ASK = (
    "so the interval allows for any correlation between nights and is wide. Say --people disjoint "
    "if nobody is in two releases, --people returning if people come back under the same ids (in "
    'Python: people="disjoint")'
)


@dataclass(frozen=True)
class PooledAttributeEstimate(AttributeEstimate, PooledEstimate):
    """A :class:`PooledEstimate` in one segment of an attribute."""


@dataclass(frozen=True)
class Table:
    """A table of the analyst's beside the releases: segments, or covariates."""

    kind: str
    """``segments`` or ``covariates``."""
    file: Path
    frame: pl.DataFrame


@dataclass(frozen=True)
class ByAttribute:
    """An attribute that all releases publish, to estimate by."""

    attribute: str
    kind: ClassVar[str] = "by"


@dataclass(frozen=True)
class ForAttributes:
    """Attributes that all releases publish, to adjust for."""

    attributes: tuple[str, ...]
    kind: ClassVar[str] = "adjust"


Split = Table | ByAttribute | ForAttributes
"""What effects of releases are estimated by, or adjusted for."""


@dataclass(frozen=True)
class PeriodEstimates:
    """What one release gives."""

    night: Night
    estimates: Sequence[Estimate]
    fit: dict[str, Any] | None = None
    """How the analyst's table fits it; None without one, or where none of its ids is there."""
    misfits: tuple[str, ...] = ()
    """What of the analyst's table does not fit it."""


@dataclass(frozen=True)
class SeriesEstimates:
    """Effects of every period, and of all of them together after each one."""

    nights: Nights
    people: People
    looks: int
    periods: list[PeriodEstimates]
    cumulative: Pooled
    table: Split | None = None

    @cached_property
    def pooled(self) -> Sequence[PooledEstimate]:
        """All periods together; by an attribute, each beside its other segments."""
        return self.cumulative.after(len(self.periods) - 1) if self.by is None else self.by[1]

    @cached_property
    def by(self) -> tuple[str, list[PooledAttributeEstimate]] | None:
        """The attribute that effects are estimated by, if any, and all periods together."""
        if not isinstance(self.table, ByAttribute):
            return None
        pooled = self.cumulative.after(len(self.periods) - 1)
        return self.table.attribute, among_segments(pooled, PooledAttributeEstimate)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said besides: what was left out, gaps, changed designs."""
        plan = "the first release states no planned standard error for it"
        lacking = [one for one in self.pooled if one.estimate is not None]
        without = [one for one in lacking if one.ci_lower_always is None]
        if not without:
            return self.nights.notes
        some = "" if len(without) == len(lacking) else f"{len(without):,} of the effects have "
        text = f"{some}no interval for those who look every night: {plan}"
        return (*self.nights.notes, text)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to look into before the numbers are believed."""
        found: list[str] = []
        if self.people.kind == "unknown":
            found.append(f"whether people come back is not known ({self.people.because}), {_ASK}")
        elif self.people.kind == "returning" and not len(self.people.shared):
            found.append(f"{self.people.because}, so the interval allows for any correlation")
        if self.people.n_unmatched:
            found.append(_HIDDEN.format(self.people.n_unmatched))
        manifests = [one.night.manifest for one in self.periods]
        odd = [one for one in manifests if (one.sample_ratio_p or 1.0) < UNLIKELY]
        found += [
            f"{one.release_id}: arm sizes do not fit the intended shares (p = "
            f"{one.sample_ratio_p:.1g}); find out why before you believe its effect"
            for one in odd
        ]
        changed = sum(one.n_arm_changed or 0 for one in manifests)
        if changed:
            found.append(f"{changed:,} units came back in another arm")
        empty = [one.night.manifest.period for one in self.periods if not one.estimates]
        if empty:
            listed = ", ".join(empty[:_LISTED]) + (" and others" if len(empty) > _LISTED else "")
            found.append(f"{len(empty):,} periods give no effect and are left out: {listed}")
        same_shares = self.nights.first.manifest.same_shares
        found += coverage_warnings(self.pooled, same_shares=same_shares)
        told = [
            f"{one.night.manifest.period}: {text}" for one in self.periods for text in one.misfits
        ]
        more = [f"and {len(told) - _LISTED:,} of the kind"] if len(told) > _LISTED else []
        return (*found, *told[:_LISTED], *more)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp estimate --json`` for several releases."""
        return {
            "experiment": self.nights.first.manifest.experiment,
            "people": self.people.kind,
            "people_because": self.people.because,
            "n_shared": len(self.people.shared),
            "looks": self.looks,
            "notes": list(self.notes),
            "withdrawn": [one.release_id for one in self.nights.withdrawn],
            "closing": None if self.nights.closing is None else self.nights.closing.as_json(),
            "warnings": list(self.warnings),
            "periods": [self._period(one) for one in self.periods],
            "pooled": [vars(one) for one in self.pooled],
        }

    def _period(self, one: PeriodEstimates) -> dict[str, Any]:
        names = ("release_id", "period", "epsilon", "delta", "n_units", "n_set_aside")
        return {
            **{name: getattr(one.night.manifest, name) for name in (*names, "sample_ratio_p")},
            **({} if self.table is None else {self.table.kind: one.fit}),
            "estimates": [vars(estimate) for estimate in one.estimates],
        }


def people_of(key: str, told: str | None) -> Kind | None:
    """Whether people come back, as it was said; ConfigError, naming ``key``, for another word."""
    kinds: dict[str, Kind] = {"disjoint": "disjoint", "returning": "returning"}
    if told is not None and told not in kinds:
        raise ConfigError(key, f"{shown(told)} is neither 'disjoint' nor 'returning'")
    return None if told is None else kinds[told]


def split_of(kind: str, given: Any) -> Split:
    """What is asked for: ``by`` an attribute, to ``adjust`` for some, or by a table's file."""
    if kind == "by":
        return ByAttribute(given)
    if kind == "adjust":
        return ForAttributes(given)
    return Table(kind, Path(given), read_table(Path(given)))


def estimate_series(
    paths: Sequence[Path],
    level: float = LEVEL,
    *,
    table: Split | None = None,
    told: Kind | None = None,
    looks: int | None = None,
    metrics: Sequence[str] = (),
    read: Callable[[duckdb.DuckDBPyConnection, Night], Sequence[Estimate]] | None = None,
) -> SeriesEstimates:
    """Estimate effects from the releases at ``paths`` (files, or folders), and pool them.

    ``table`` has segments or covariates of the analyst's, whose ids may be in any of the releases,
    or names attributes that all of them publish.
    ``told`` says whether people come back, where one knows better than the files; ``looks`` is the
    look that matters most to whoever looks every night; ``metrics`` names the metrics that are
    asked for, none all of them. ``read`` estimates from a release that is open, where more is done
    with it at once; without a ``table``. Raises InputError where a file is no release or does not
    fit the others, ConfigError where an argument is impossible.
    """
    looks = LOOKS if looks is None else looks
    if not 1 <= looks <= 1_000_000:
        raise ConfigError("looks", f"{looks!r} is not a number of looks from 1 to 1,000,000")
    if isinstance(table, Table) and table.kind == "segments":
        table = replace(table, frame=read_segments(table.file, table.frame).rows)
    with kept_open() as opening:
        if read is None:
            nights = find_nights(paths, opening=opening)
            periods = [_of_night(night, level, table, metrics) for night in nights.nights]
        else:
            found = dict[Path, Sequence[Estimate]]()
            nights = find_nights(
                paths, lambda open_, one: found.update({one.path: read(open_, one)}), opening
            )
            periods = [PeriodEstimates(night, found[night.path]) for night in nights.nights]
        if isinstance(table, Table) and not any(one.fit for one in periods):
            raise InputError(
                f"{table.file}: none of its ids is in any of the {len(periods):,} releases"
            )
        people = find_people(nights, told, opening)
        every = [one.estimates for one in periods]
        cross = _cross(nights, people, every, table, opening)
    n_arms = len(nights.arms) - 1
    pooled = pool_periods(every, people, n_arms, level, looks, cross)
    return SeriesEstimates(nights, people, looks, periods, pooled, table)


def estimate_folder(
    path: Path, asked: Mapping[str, object], level: float, output: Path | None = None
) -> SeriesEstimates:
    """Estimate from the release, or the folder of releases, at ``path``.

    ``asked`` has what effects are estimated by, or adjusted for (:func:`split_of`): at most one of
    them is other than empty. ``output`` gets the document of ``clusterdp estimate --json`` for
    several releases, whole or not at all; it replaces one that is there.
    """
    given = {kind: value for kind, value in asked.items() if value}
    check_asked(level, **given)
    split = next((split_of(kind, value) for kind, value in given.items()), None)
    effects = estimate_series([path], level, table=split)
    if output is not None:
        document = json.dumps(effects.as_json(), indent=2, ensure_ascii=False) + "\n"
        try:
            with replace_file(output, mode=0o644) as file:
                os.fchmod(file.fileno(), 0o644)  # whatever the mask, as of releases
                file.write(document.encode())
        except OSError as error:
            problem = f"{output.absolute()}: cannot be written ({error.strerror})"
            raise InputError(problem) from None
    return effects


def _of_night(
    night: Night, level: float, table: Split | None, metrics: Sequence[str]
) -> PeriodEstimates:
    """What one release gives; a task where a flow runs, kept unless a table is the analyst's."""
    key = None
    if not isinstance(table, Table) and running_flow() is not None:
        facts = version("clusterdp"), sha256_of(night.path), level, repr(table), list(metrics)
        key = f"clusterdp-estimate-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}"
    found = open_step(estimate_night, key)(night.path, level, table, metrics)
    kind = AttributeEstimate if isinstance(table, ByAttribute) else Estimate
    estimates = [kind(**one) for one in found["estimates"]]
    return PeriodEstimates(night, estimates, found["fit"], tuple(found["misfits"]))


def estimate_night(
    path: Path, level: float, table: Split | None, metrics: Sequence[str]
) -> dict[str, Any]:
    """Estimate from one release, with the analyst's table, or by attributes, where one asks.

    Returns a document: ``estimates``, the ``fit`` of what was asked for (null where none of a
    table's ids is there, or nothing was asked) and ``misfits``.
    """
    fit: Any = None
    misfits: tuple[str, ...] = ()
    estimates: Sequence[Estimate] = []
    if table is None:
        estimates = estimate_file(path, level, metrics)
    elif isinstance(table, Table):
        try:
            found = estimate_one(path, level, table, metrics)
            # Most units of a table are in other releases, which goes without saying.
            misfits = replace(found, n_unmatched=0).misfits
            estimates, fit = found.estimates, found.as_json()
        except NoIdsError:
            pass
        except InputError as error:
            raise InputError(f"{path.stem}: {error}") from None
    else:
        asked = estimate_one(path, level, table, metrics)
        estimates, fit = asked.estimates, asked.as_json()
        misfits = asked.misfits if isinstance(table, ForAttributes) else ()
    return {"estimates": [vars(one) for one in estimates], "fit": fit, "misfits": list(misfits)}


def estimate_one(path: Path, level: float, table: Split | None, metrics: Sequence[str] = ()) -> Any:
    """What one release gives: the result of the module that estimates by what is asked for."""
    if table is None:
        return estimate_release(path, level, metrics)
    if isinstance(table, ByAttribute):
        return estimate_by(path, table.attribute, level, metrics)
    if isinstance(table, Table) and table.kind == "segments":
        return estimate_segments(path, table.file, level, table.frame, metrics)
    from flows.released.estimates import covariates  # noqa: PLC0415 - statsmodels takes seconds

    if isinstance(table, ForAttributes):
        return covariates.estimate_adjusted(path, table.attributes, level, metrics)
    return covariates.estimate_covariates(path, table.file, level, table.frame, metrics)


def _cross(
    nights: Nights,
    people: People,
    periods: Sequence[Sequence[Estimate]],
    table: Split | None,
    opening: Opening,
) -> CrossTerms | None:
    """What ties the periods together, with a column for each effect; None where it is not known."""
    if not len(people.shared):
        return None
    keys = keys_of(periods)
    segments: list[str | None] = [None]
    members: Callable[[Night], pl.DataFrame] | None = None
    if isinstance(table, ByAttribute) or (isinstance(table, Table) and table.kind == "segments"):
        names = list(dict.fromkeys(segment for *_, segment, _ in keys if segment is not None))
        segments, members = [*names], partial(_members, table, pl.Enum(names))
    metrics = list(dict.fromkeys(metric for metric, *_ in keys))
    found = [crossed(nights, people, metric, members, len(segments), opening) for metric in metrics]
    effects = product(metrics, (False, True), nights.arms[1:], segments)
    place = {effect: at for at, effect in enumerate(effects)}
    columns = [
        place[metric, estimator == "combined", arm, segment]
        for metric, arm, _, segment, estimator in keys
    ]
    every = side_by_side(found)
    return CrossTerms(every.total[:, columns], every.scatter[:, columns])


def _members(table: Table | ByAttribute, names: pl.Enum, night: Night) -> pl.DataFrame:
    if isinstance(table, Table):
        rows = table.frame.filter(pl.col(SEGMENT).is_in(names.categories.implode()))
    else:
        rows = members_by(night.path, table.attribute)
    group = pl.col(SEGMENT).cast(names).to_physical().cast(pl.Int64).alias("group")
    return rows.select(UNIT_ID, group)


def frame_by_period(
    found: SeriesEstimates, rows: Sequence[tuple[Sequence[Estimate], type[Estimate]]]
) -> pl.DataFrame:
    """Return the rows of every period as one table, after ``period`` and ``release_id``."""
    frames = []
    for one, (estimates, kind) in zip(found.periods, rows, strict=True):
        said = (
            pl.lit(getattr(one.night.manifest, of)).alias(of) for of in ("period", "release_id")
        )
        frames.append(frame(estimates, kind).select(*said, pl.all()))
    return EffectsFrame(pl.concat(frames))
