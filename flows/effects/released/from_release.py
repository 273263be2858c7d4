"""Who benefits, from a released file and a table of the analyst's: at no cost of privacy.

The average effect and those of subgroups are those of ``clusterdp estimate``, with its intervals;
curves along features are :mod:`estimators.effects.models.from_release`. Subgroups are made from the
table alone, not from outcomes: a text's values, and quarters of a number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from estimators.arm_effects import Estimate
from estimators.effects.models.from_release import ReleaseFit, fit_release, pair_of
from estimators.effects.models.model import EffectModel
from estimators.means import SHARPEST_FIRST
from flows.effects.released.features import Column, columns_of, is_narrow, members, positions
from flows.effects.released.findings import EFFECT, effects_json
from flows.released.estimates.frames import check_asked
from flows.released.estimates.release import estimate_file
from flows.released.estimates.segments import SEGMENT, estimate_segments
from flows.released.file.evidence import Released, read_every
from flows.released.file.read import has_text_ids, one_outcome, open_release, read_manifest
from flows.released.tables.analyst_table import (
    UNIT_ID,
    AnalystTable,
    TableFit,
    column_codes,
    read_covariates,
    units_beside,
)
from flows.released.tables.attribute_table import attribute_table, rare_notes
from schemas.documents import plain
from schemas.effects.model import (
    Curve,
    Effect,
    EffectDesign,
    NoisySums,
    NumberFeature,
    Propensity,
    SubgroupEffect,
    level_names,
)
from schemas.errors import ConfigError, InputError
from schemas.released import Manifest, Metric

TOO_FEW: Final = "too few units to compare"
TOO_WIDE: Final = "too few units to say: any effect that is possible would be in the interval"
_ALL: Final = "all"
"""The segment of everybody in the table; those of subgroups have a colon."""


@dataclass(frozen=True, kw_only=True)
class ReleaseEffects:
    """Who benefits from one treatment arm, and how the table fits the release."""

    manifest: Manifest
    metric: Metric
    arm: str
    arms: tuple[str, ...]
    level: float
    design: EffectDesign
    n_rows: int
    """Units of both arms in the table, which curves are made of."""
    ate: Effect | None
    """Of everybody in the release, whether in the table or not."""
    subgroups: tuple[SubgroupEffect, ...]
    degree: int
    """Of the polynomials of numbers."""
    importance: tuple[tuple[str, float], ...]
    """Variance of each feature's curve in the outcomes' unit squared, the greatest first."""
    curves: tuple[Curve, ...] = field(repr=False)
    fitted: ReleaseFit = field(repr=False)
    table: TableFit
    warnings: tuple[str, ...]
    """Sentences about what does not fit, and about columns that are left out or doubtful."""
    sums: tuple[NoisySums, ...] = ()
    """None with noise of their own: the release has all the noise that there is."""

    @property
    def no_intervals(self) -> str | None:
        """Why there is no average effect; None where there is."""
        return None if self.ate else f"No average effect is given: {TOO_FEW}."

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp effects --json``."""
        design = self.design
        return {
            "learner": "moments",
            "epsilon": design.epsilon,
            "delta": design.delta,
            "neighbours": self.manifest.neighbours,
            "n_rows": self.n_rows,
            "features": [one.name for one in design.features],
            "model_path": None,
            "propensity": design.propensity.kind,
            "degree": self.degree,
            **effects_json(self.ate, self.subgroups, self.importance),
            "curves": plain(self.curves),
            "release_id": self.manifest.release_id,
            "metric": self.metric.metric,
            "arm": self.arm,
            "control": self.manifest.control,
            "arms": list(self.arms),
            "confidence_level": self.level,
            "covariates": vars(self.table),
        }


Findings = EffectModel | ReleaseEffects
"""What is known of who benefits: pages and tables are made of either."""


def effects_from_release(
    path: Path,
    file: Path | None,
    *,
    frame: pl.DataFrame | None = None,
    features: Sequence[str] | None = None,
    arm: str | None = None,
    metric: str | None = None,
    level: float = 0.95,
) -> ReleaseEffects:
    """Return who benefits from an ``arm`` of the release at ``path``, along columns of ``file``.

    ``file`` is CSV or Parquet: ``unit_id``, matched as text, and columns of numbers, text or
    booleans from before the experiment; ``features`` names those that are used, None all. A
    ``frame`` is used as it is; ``file`` is its name then. ``file`` None stands for the attributes
    that the release publishes (:func:`flows.released.tables.attribute_table.attribute_table`).
    ``arm`` None is the first treatment arm, and ``metric`` None the one outcome of the release.

    Raises:
        InputError: The release publishes no units, or the table cannot be used with it.
        ConfigError: There is no such arm, metric, column or attribute, the release has several
            outcomes and none is named, or the level is not between 0 and 1.
    """
    check_asked(level)
    rare: dict[str, int] = {}
    if file is None:
        named = None if features is None else tuple(features)
        frame, rare = attribute_table(path, named, "features")
        file = path.absolute()
    table = _chosen(read_covariates(file, frame), features)
    with open_release(path) as connection:
        manifest = read_manifest(connection)
        if not manifest.has_units:
            raise InputError(
                f"{path.absolute()}: publishes no units, so nobody can tell from it who benefits: "
                f"{manifest.mechanism} publishes statistics of clusters alone"
            )
        (released,) = read_every(connection, manifest, [one_outcome(manifest, metric)])
        treatments = released.arms[1:]
        chosen = _arm(treatments, arm, path)
        units = units_beside(connection, table, [released])
        are_text = has_text_ids(connection)
    known = units.filter("known").drop("known")
    fit = TableFit(**table.fit(known.height, path, has_text_ids=are_text))
    columns = columns_of(table, known)
    fitted, n_rows = _fitted(columns, known, released, chosen, path)
    design = fitted.design
    name = released.metric.metric
    everybody = _sharpest(estimate_file(path, level, [name]), chosen).get(None)
    effects = _sharpest(_in_segments(path, table, columns, level, name), chosen)
    within = effects.get(_ALL)
    if within is not None:
        fitted = fitted.anchored(within.estimate, within.std_error)
    return ReleaseEffects(
        manifest=manifest,
        metric=released.metric,
        arm=chosen,
        arms=treatments,
        level=level,
        design=design,
        n_rows=n_rows,
        ate=everybody,
        subgroups=tuple(_subgroups(design, effects)),
        degree=fitted.base.degree,
        importance=fitted.importance,
        curves=fitted.curves,
        fitted=fitted,
        table=fit,
        warnings=(
            *rare_notes(rare),
            *_misfits(fit, units.height - known.height),
            *_doubts(table, known, columns),
        ),
    )


def _chosen(table: AnalystTable, features: Sequence[str] | None) -> AnalystTable:
    """Leave out the columns that were not asked for; rows in the order of their ids.

    So sums are the same every time.
    """
    rows = table.rows.sort(UNIT_ID)
    if features is None:
        return replace(table, rows=rows)
    for name in features:
        if name not in table.names:
            has = ", ".join(table.names)
            raise ConfigError("features", f"{table.file} has no column {name!r}; it has {has}")
    return replace(table, rows=rows.select(UNIT_ID, *dict.fromkeys(features)))


def _arm(treatments: Sequence[str], arm: str | None, path: Path) -> str:
    if not treatments:
        raise InputError(f"{path.absolute()}: has no treatment arm")
    if arm is None:
        return treatments[0]
    if arm not in treatments:
        listed = ", ".join(map(repr, treatments))
        raise ConfigError("arm", f"{arm!r} is no treatment arm of the release; it has {listed}")
    return arm


def _fitted(
    columns: Sequence[Column], known: pl.DataFrame, released: Released, arm: str, path: Path
) -> tuple[ReleaseFit, int]:
    manifest = released.manifest
    placed = known.select("cluster", "arm").join(
        released.places, on=["cluster", "arm"], how="left", maintain_order="left"
    )
    pair = pair_of(
        released.whole,
        placed["cluster_code"].to_numpy().astype(np.int64),
        placed["arm_code"].to_numpy().astype(np.int64),
        known["d0"].to_numpy(),
        (released.arms.index(arm), 0),
        same_shares=manifest.same_shares,
        noise=known["noise0"].to_numpy() if released.metric.has_tables else None,
    )
    if len(np.unique(pair.treated)) < 2:
        raise InputError(
            f"{path.absolute()}: {arm!r} and {manifest.control!r} cannot be compared: the table "
            "has no units of both in clusters with two or more of each"
        )
    shares = np.unique(pair.propensity)
    constant = float(shares[0]) if len(shares) == 1 else None
    design = EffectDesign(
        features=tuple(one.feature for one in columns),
        subgroups=tuple(one.groups for one in columns),
        low=float(released.grid[0]),
        high=float(released.grid[-1]),
        propensity=Propensity("column" if constant is None else "value", constant),
        epsilon=manifest.epsilon,
        delta=manifest.delta,
        neighbours="outcome",
        targeting=False,
    )
    of_columns = (positions(one.feature, known[one.code], path) for one in columns)
    features = np.stack([each[pair.rows] for each in of_columns], axis=1)
    return fit_release(design, pair, features), len(pair.rows)


def _in_segments(
    path: Path, table: AnalystTable, columns: Sequence[Column], level: float, metric: str
) -> list[Estimate]:
    rows = table.rows.rename(dict(column_codes(table)))
    parts = [
        members(rows, one).select(UNIT_ID, pl.format(f"{place}:{{}}", "at").alias(SEGMENT))
        for place, one in enumerate(columns)
    ]
    everybody = rows.select(UNIT_ID, pl.lit(_ALL).alias(SEGMENT))
    segments = pl.concat([everybody, *parts])
    return estimate_segments(path, table.file, level, segments, [metric]).estimates


def _subgroups(
    design: EffectDesign, effects: Mapping[str | None, Effect]
) -> Iterator[SubgroupEffect]:
    """The effect in every subgroup, but where its interval would say nothing at all."""
    possible = 2.0 * (design.high - design.low)
    for place, groups in enumerate(design.subgroups):
        for at, name in enumerate(level_names(design, groups)):
            effect = effects.get(f"{place}:{at}")
            if effect is None:
                yield SubgroupEffect(groups.name, name, None, TOO_FEW)
            elif effect.ci_upper - effect.ci_lower > possible:
                yield SubgroupEffect(groups.name, name, None, TOO_WIDE)
            else:
                yield SubgroupEffect(groups.name, name, effect, None)


def _sharpest(estimates: Sequence[Estimate], arm: str) -> Mapping[str | None, Effect]:
    found: dict[str | None, Effect] = {}
    for one in sorted(estimates, key=lambda one: SHARPEST_FIRST.index(one.estimator)):
        numbers = [getattr(one, name) for name in EFFECT]
        if one.arm == arm and None not in numbers:
            found.setdefault(one.segment, Effect(*numbers))
    return found


def _misfits(fit: TableFit, n_without: int) -> list[str]:
    counts = {
        "units of the table are not in the release": fit.n_unmatched,
        "units of the release are not in the table: curves and subgroups are without them, the "
        "average effect is of everybody": n_without,
        "rows of the table repeat another and count once": fit.n_duplicates,
        "rows of the table lack an id and are left out": fit.n_missing,
    }
    return [f"{count:,} {what}" for what, count in counts.items() if count]


def _doubts(table: AnalystTable, known: pl.DataFrame, columns: Sequence[Column]) -> list[str]:
    used = {one.feature.name for one in columns}
    gaps = {name: known[code].null_count() for name, code in column_codes(table)}
    lacking = [
        f"{count:,} units lack a value in column {name!r}: in its curve they count as average, and "
        "they are in none of its subgroups"
        for name, count in gaps.items()
        if count and name in used
    ]
    dropped = [
        f"column {name!r} is not used: it does not vary among the units of the release"
        for name in gaps
        if name not in used
    ]
    narrow = [
        f"most of column {one.name!r} lies within a small part of its range, so its curve can tell "
        "next to nothing: cap the column, or take its logarithm"
        for one, code, _ in columns
        if isinstance(one, NumberFeature) and is_narrow(one, known[code])
    ]
    return [*lacking, *dropped, *narrow]
