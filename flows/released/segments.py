"""Effects in segments of the analyst's own: a table of ``unit_id, segment`` beside a release."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from estimators.effects import Estimate, effects
from flows.released.file.evidence import MOMENTS, read_frame, read_released, slices_of
from flows.released.file.read import opened, read_manifest
from flows.released.file.sql import quoted
from flows.runtime.table_files import id_column, read_table, text_or_integer
from schemas.errors import InputError

UNIT_ID = "unit_id"
SEGMENT = "segment"

_SLICES = """
SELECT m.segment, u.cluster, u.arm, {moments}
FROM (SELECT unit_id, cluster, arm, {outcome} - $center AS d FROM main.units) AS u
JOIN temp.main.members AS m ON m.unit_id = u.unit_id::VARCHAR
GROUP BY m.segment, u.cluster, u.arm
ORDER BY m.segment, u.cluster, u.arm
"""
_MATCHED = """
SELECT count(DISTINCT m.unit_id) FROM temp.main.members AS m
WHERE m.unit_id IN (SELECT unit_id::VARCHAR FROM main.units)
"""


@dataclass(frozen=True)
class SegmentEstimates:
    """Effects by segment, and how the table fits the release."""

    estimates: list[Estimate]
    n_segments: int
    n_rows: int
    n_matched: int
    """Units of the table that are in the release."""
    n_unmatched: int
    n_duplicates: int
    """Rows that repeat another; they count once."""
    n_missing: int
    """Rows without an id or a segment; they are left out."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What does not fit."""
        told = {
            "units of the table are not in the release": self.n_unmatched,
            "rows of the table repeat another and count once": self.n_duplicates,
            "rows of the table lack an id or a segment and are left out": self.n_missing,
        }
        return tuple(f"{count:,} {what}" for what, count in told.items() if count)

    def as_json(self) -> dict[str, int]:
        """How the table fits, as ``clusterdp estimate --segments --json`` gives it."""
        return {
            "n_segments": self.n_segments,
            "n_rows": self.n_rows,
            "n_matched": self.n_matched,
            "n_unmatched": self.n_unmatched,
            "n_duplicates": self.n_duplicates,
            "n_missing": self.n_missing,
        }


def estimate_segments(
    path: Path, file: Path, level: float = 0.95, frame: pl.DataFrame | None = None
) -> SegmentEstimates:
    """Estimate every arm's effect in every segment of ``file`` from the release at ``path``.

    ``file`` is CSV or Parquet with the columns ``unit_id`` and ``segment``; ids are matched as
    text, and a unit may be in several segments. By τ̂_Q of the segment's units, and, where counts
    are published, calibrated by what their pools' counts say (``combined``). Raises InputError
    where the table cannot be used. A ``frame`` is used as it is; ``file`` is its name then.
    """
    table = read_table(file) if frame is None else frame
    rows = pl.DataFrame(
        {
            UNIT_ID: id_column(table, file, UNIT_ID).cast(pl.String),
            SEGMENT: text_or_integer(table, file, SEGMENT).cast(pl.String),
        }
    )
    whole = rows.drop_nulls()
    members = whole.unique()
    if members.is_empty():
        raise InputError(f"{file}: has no row with an id and a segment")
    with opened(path) as connection:
        connection.execute("CREATE TEMP TABLE members (unit_id VARCHAR, segment VARCHAR)")
        connection.register("members_to_insert", members.to_arrow())
        connection.execute("INSERT INTO temp.main.members FROM members_to_insert")
        manifest = read_manifest(connection)
        if not manifest.has_units:
            raise InputError(
                f"{path.absolute()}: this release has no units, so nothing can be sliced: "
                f"{manifest.mechanism} publishes statistics of clusters alone"
            )
        released = read_released(connection, manifest)
        matched = int(read_frame(connection, _MATCHED).item())
        n_units = members[UNIT_ID].n_unique()
        if matched == 0:
            raise InputError(
                f"{file}: none of its {n_units:,} ids is in {path.absolute()}. Is it the table of "
                "another release? Where ids are released hashed, clusterdp hash-ids makes them fit"
            )
        query = _SLICES.format(moments=MOMENTS, outcome=quoted(released.metric.metric))
        found = read_frame(connection, query, {"center": float(released.grid.mean())})
    segments = members[SEGMENT].unique().sort()
    coded = found.with_columns(
        pl.col(SEGMENT).cast(pl.Enum(segments)).to_physical().cast(pl.Int64).alias("group")
    )
    estimates = effects(
        released.evidence(slices_of(coded, released.places)),
        released.arms,
        released.manifest.control,
        segments.to_list(),
        same_shares=released.manifest.same_shares,
        level=level,
    )
    return SegmentEstimates(
        estimates=estimates,
        n_segments=len(segments),
        n_rows=rows.height,
        n_matched=matched,
        n_unmatched=n_units - matched,
        n_duplicates=whole.height - members.height,
        n_missing=rows.height - whole.height,
    )
