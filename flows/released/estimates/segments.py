"""Effects in segments of the analyst's own: a table of ``unit_id, segment`` beside a release."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

from estimators.arm_effects import Estimate
from estimators.coverage import coverage_warnings
from estimators.ratios import RatioEvidence, ratio_warnings
from estimators.strata.evidence import debias_mean
from estimators.strata.margins import Crossing
from flows.released.estimates.release import effects_of
from flows.released.file.evidence import (
    Released,
    deviations,
    moments_of,
    read_frame,
    slices_of,
    units_of,
)
from flows.released.file.ratios import covariances_of, ratios_among
from flows.released.file.read import has_text_ids, open_release, read_chosen, read_manifest
from flows.released.tables.analyst_table import UNIT_ID, AnalystTable, TableFit
from flows.runtime.reading.table_files import id_column, read_table, text_or_integer
from schemas.documents import fields_of
from schemas.errors import InputError
from schemas.released import Metric, Ratio
from schemas.tables import margin_code

SEGMENT = "segment"

_SLICES = """
SELECT segment, cluster, arm, {moments}
FROM (SELECT {segment} AS segment, cluster, arm, {deviations} FROM {units} AS u {members})
GROUP BY segment, cluster, arm ORDER BY segment, cluster, arm
"""
_CROSSED = """
SELECT segment, cluster, arm, cell, {moments}
FROM (
    SELECT {segment} AS segment, cluster, arm, {code} + {start} AS cell, {deviations}
    FROM {units} AS u {members}
)
GROUP BY segment, cluster, arm, cell
"""
_UNITS = """
SELECT n.place AS slice_group, u.cluster, u.arm, {{columns}}
FROM main.units AS u {members} JOIN temp.main.numbered_segments AS n ON n.segment = {segment}
"""
_MEMBERS = "JOIN temp.main.members AS m ON m.unit_id = u.unit_id::VARCHAR"
_MATCHED = """
SELECT count(DISTINCT m.unit_id) FROM temp.main.members AS m
WHERE m.unit_id IN (SELECT unit_id::VARCHAR FROM main.units)
"""


@dataclass(frozen=True, kw_only=True)
class SegmentEstimates(TableFit):
    """Effects by segment, and how the table fits the release."""

    estimates: list[Estimate]
    n_segments: int
    same_shares: bool
    """Whether the release declares that all clusters were randomised with the same arm shares."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what does not fit, and about effects that compare few people."""
        few = coverage_warnings(self.estimates, same_shares=self.same_shares)
        return (*self.misfits, *few, *ratio_warnings(self.estimates))

    @property
    def misfits(self) -> tuple[str, ...]:
        """Sentences about rows of the table that do not fit the release."""
        counts = {
            "units of the table are not in the release": self.n_unmatched,
            "rows of the table repeat another and count once": self.n_duplicates,
            "rows of the table lack an id or a segment and are left out": self.n_missing,
        }
        return tuple(f"{count:,} {what}" for what, count in counts.items() if count)

    def as_json(self) -> dict[str, Any]:
        """How the table fits, as ``clusterdp estimate --segments --json`` gives it."""
        return {"n_segments": self.n_segments, **fields_of(self, TableFit)}


def estimate_segments(
    path: Path,
    file: Path,
    level: float = 0.95,
    frame: pl.DataFrame | None = None,
    metrics: Sequence[str] = (),
) -> SegmentEstimates:
    """Estimate every arm's effect in every segment of ``file`` from the release at ``path``.

    ``file`` is CSV or Parquet with the columns ``unit_id`` and ``segment``; ids are matched as
    text, and a unit may be in several segments. The estimates are τ̂_Q of the units of a segment
    and, where counts are published, the same calibrated by the counts of their pools
    (``combined``), for one metric after the other; ``metrics`` names those that are asked for, none
    all of them. Raises InputError where the table cannot be used. A ``frame`` is used as it is;
    ``file`` is its name then.
    """
    table = read_segments(file, frame)
    with open_release(path) as connection:
        manifest = read_manifest(connection)
        if not manifest.has_units:
            raise InputError(
                f"{path.absolute()}: this release has no units, so nothing can be sliced: "
                f"{manifest.mechanism} publishes statistics of clusters alone"
            )
        chosen, every = read_chosen(connection, metrics)
        connection.register("members_to_insert", table.rows.to_arrow())
        connection.execute("CREATE TEMP TABLE members AS FROM members_to_insert")
        n_matched = int(read_frame(connection, _MATCHED).item())
        fit = table.fit(n_matched, path, has_text_ids=has_text_ids(connection))
        segments = table.rows[SEGMENT].unique().sort().to_list()
        estimates = estimates_of_slices(
            connection, every, chosen, level, segments, "m.segment", _MEMBERS
        )
    return SegmentEstimates(
        estimates=estimates,
        n_segments=len(segments),
        same_shares=manifest.same_shares,
        **fit,
    )


def estimates_of_slices(
    connection: duckdb.DuckDBPyConnection,
    every: Sequence[Released],
    chosen: Sequence[Metric | Ratio],
    level: float,
    segments: Sequence[str],
    segment: str,
    members: str = "",
) -> list[Estimate]:
    """Estimate the effects on the ``chosen`` metrics in every segment, outcomes before ratios.

    ``every`` has the outcomes that these need. ``segment`` is SQL for the segment of a row of units
    ``u``, one of ``segments``, and ``members`` SQL for what is joined to them for it.
    """
    ratios = ratios_among(every, chosen)
    parts = {
        "segment": segment,
        "deviations": deviations(every),
        "units": units_of(every),
        "members": members,
    }
    moments = ", ".join([moments_of(every), *covariances_of(ratios)])
    query = _SLICES.format(moments=moments, **parts)
    group = pl.col(SEGMENT).cast(pl.Enum(segments)).to_physical().cast(pl.Int64)
    rows = (
        read_frame(connection, query)
        .join(every[0].places, on=["cluster", "arm"], how="inner", maintain_order="left")
        .with_columns(group.alias("group"))
    )
    if every[0].manifest.assigned:
        _number(connection, segments)
    units = _UNITS.format(members=members, segment=segment.replace("{", "{{").replace("}", "}}"))
    asked = {one.metric for one in chosen}
    crossed = _crossed(connection, every, rows, parts)
    evidence = [
        one.evidence(slices, one.read_parties(connection, slices, units), crossed[at])
        for at, one, slices in ((at, one, slices_of(rows, at)) for at, one in enumerate(every))
    ]
    estimates = [
        estimate
        for one, of_outcome in zip(every, evidence, strict=True)
        if one.metric.metric in asked
        for estimate in effects_of(one, of_outcome, level, segments)
    ]
    for at, ratio in enumerate(ratios):
        above, below = every[ratio.numerator], every[ratio.denominator]
        of_above, of_below = evidence[ratio.numerator], evidence[ratio.denominator]
        covariance = ratio.scale(every) * rows[f"covariance{at}"].to_numpy().astype(np.float64)
        products = above.read_products(connection, below, (of_above.slices, of_below.slices), units)
        of_ratio = RatioEvidence(ratio.ratio.metric, of_above, of_below, covariance, products)
        estimates += effects_of(above, of_ratio, level, segments)
    return estimates


def _crossed(
    connection: duckdb.DuckDBPyConnection,
    every: Sequence[Released],
    rows: pl.DataFrame,
    parts: Mapping[str, str],
) -> list[Crossing | None]:
    """Cross the slices, ``rows``, with the cells of margins, for each outcome; None without any.

    What ``units`` each cell has in a slice, and their noise, are as those of a slice.
    """
    if every[0].margins is None:
        return [None] * len(every)
    starts = np.cumsum([0, *every[0].margins.sizes]).tolist()
    found = [
        read_frame(
            connection,
            _CROSSED.format(
                moments=moments_of(every),
                code=margin_code(at, len(starts) - 1),
                start=starts[at],
                **parts,
            ),
        )
        for at in range(len(starts) - 1)
    ]
    keys = [SEGMENT, "cluster", "arm"]
    places = rows.with_row_index("row").select(
        "row", "group", *keys, "cluster_code", "arm_code", "pool_code", "own_sizes"
    )
    cells = pl.concat(found).join(places, on=keys).sort("row", "cell")
    row, cell = (cells[name].to_numpy().astype(np.int64) for name in ("row", "cell"))
    crossed: list[Crossing | None] = []
    for at, one in enumerate(every):
        slices = slices_of(cells, at)
        noise = debias_mean(slices, one.pools, one.metric.resampling_probability or 0.0).noise
        n = slices.n_units
        crossed.append(Crossing(row, cell, n, noise * n**2, rows.height, starts[-1]))
    return crossed


def read_segments(file: Path, frame: pl.DataFrame | None = None) -> AnalystTable:
    """Read an analyst's table of segments: ``unit_id`` and ``segment``, as text."""
    table = read_table(file) if frame is None else frame
    ids = id_column(table, file, UNIT_ID).cast(pl.String)
    segments = text_or_integer(table, file, SEGMENT).cast(pl.String)
    rows = pl.DataFrame({UNIT_ID: ids, SEGMENT: segments})
    return AnalystTable.of(file, rows, [UNIT_ID, SEGMENT])


def _number(connection: duckdb.DuckDBPyConnection, segments: Sequence[str]) -> None:
    """Put the segments into the temporary table ``numbered_segments``, each with its place."""
    numbered = pl.DataFrame({SEGMENT: segments, "place": range(len(segments))})
    connection.register("segments_to_number", numbered.to_arrow())
    connection.execute("CREATE OR REPLACE TEMP TABLE numbered_segments AS FROM segments_to_number")
    connection.unregister("segments_to_number")
