"""A release of made-up outcomes as an audit reads it: of its file, or of tables not yet written."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from estimators.ends import End
from flows.released.file.checks.stated import stated_ends
from flows.released.file.read import open_release, read_manifest
from schemas.arrays import Floats, Ints
from schemas.released import TABLES, Manifest, Metric, ReleaseTables
from schemas.tables import debiased, randomised

DRAWN = "outcome_randomised"
"""What :meth:`FileTables.of_outcome` calls what was drawn of units."""

_NOISED = "noisy_"
"""The names of columns of noised statistics begin so, in any table."""
_OF_COUNTS = {"probability", "weight"}
"""Columns of ``debias`` that are computed from noisy counts, where a prior is made of these."""
_LEARNT = {"debias", "randomiser"}
"""Tables computed from noisy counts as a whole, where response tables are learnt from these."""
_COMPUTED = {"estimates", "means", "ends"}
"""Tables computed from the others once these are written."""
_BY_CLUSTER = {"pools", "strata", "debias", "counts"}
"""Tables with a row for each cluster, or for each pool of clusters."""
_OWN_PRIOR = ("cluster-dp", "cluster-free-dp")


@dataclass(frozen=True)
class FileTables:
    """The tables of a release of made-up outcomes; labels as text."""

    manifest: Manifest
    frames: dict[str, pl.DataFrame]
    units: pl.DataFrame
    ends: tuple[End, ...] = ()

    def of_outcome(self, name: str) -> "FileTables":
        """What there is of one outcome, as if it were the only one."""
        frames = {
            table: frame.filter(pl.col("metric") == name) if "metric" in frame.columns else frame
            for table, frame in self.frames.items()
        }
        (own,) = (one for one in self.manifest.outcomes if one.metric == name)
        drawn = pl.col(randomised(name)).alias(DRAWN)
        units = self.units.select("unit_id", "cluster", "arm", drawn)
        return FileTables(replace(self.manifest, metrics=(own,)), frames, units)

    @property
    def metric(self) -> Metric:
        """The facts of the only outcome."""
        (own,) = self.manifest.outcomes
        return own

    @property
    def grid(self) -> Floats:
        """The grid of the only outcome, shape [K]."""
        values: Floats = self.frames["outcomes"]["outcome"].to_numpy()
        return values

    @property
    def cells(self) -> pl.DataFrame:
        """Every (pool, arm)."""
        return self.frames["pools"].select("pool", "arm")

    def cells_of(self, cluster: pl.Series, arm: pl.Series) -> Ints:
        """The position of the (pool, arm) of units in these clusters and arms, shape [n]."""
        pools = self.frames["strata"].select("cluster", "arm", "pool")
        cells = self.cells.with_row_index("cell")
        placed = pools.join(cells, on=["pool", "arm"], how="left")
        units = pl.DataFrame({"cluster": cluster, "arm": arm})
        found = units.join(placed, on=["cluster", "arm"], how="left", maintain_order="left")["cell"]
        return found.to_numpy().astype(np.int64)

    def numbers(self, name: str) -> Floats:
        """A column of ``pools``, NaN where it is missing; shape [S]."""
        return self.frames["pools"][name].cast(pl.Float64).fill_null(np.nan).to_numpy()

    def of_each(self, rows: pl.DataFrame, table: str, name: str) -> Floats | None:
        """What a table has of each pool or arm of ``rows``, by outcome: shape [rows, K].

        None where there is nothing.
        """
        frame = self.frames[table]
        if frame.is_empty():
            return None
        order = ["row", *(one for one in ("outcome",) if one in frame.columns)]
        placed = rows.with_row_index("row").join(frame, on=rows.columns, how="left").sort(order)
        return placed[name].cast(pl.Float64).to_numpy().reshape(rows.height, -1)

    def response_tables(self) -> tuple[Floats, Ints]:
        """What units are drawn with, Q, shape [T, K, J], and the table of each cell, shape [S].

        Where another outcome of L values is drawn together with it, [T, K L, J], of pairs.
        """
        placed = self.frames["randomiser"].sort("table", "outcome", "other_outcome", "output")
        n_tables, n_outputs = (placed[name].n_unique() for name in ("table", "output"))
        q = placed["probability"].to_numpy().reshape(n_tables, -1, n_outputs)
        return q, self.frames["pools"]["table"].to_numpy().astype(np.int64)

    def fixed(self) -> Iterator[tuple[str, pl.Series]]:
        """Each column that may not depend on outcomes, under its name, ``table.column``."""
        private, metrics = self.manifest.has_private_clusters, self.manifest.outcomes
        learns = self.manifest.mechanism == "cluster-optimal-dp" and self._learns
        own_prior = self.manifest.mechanism in _OWN_PRIOR
        for table, frame in self.frames.items():
            if table in _COMPUTED or (private and table in _BY_CLUSTER):
                continue
            for name in frame.columns:
                learnt = learns and (table in _LEARNT or name == "table")
                of_counts = own_prior and name in _OF_COUNTS
                if not (learnt or of_counts or name.startswith(_NOISED)):
                    yield f"{table}.{name}", frame[name]
        drawn = {form(one.metric) for one in metrics for form in (randomised, debiased)}
        for name in self.units.columns:
            if name not in drawn and not (private and name == "cluster"):
                yield f"units.{name}", self.units[name]
        for name, value in asdict(self.manifest).items():
            if name != "created_at":
                yield f"release.{name}", pl.Series([str(value)])

    @property
    def _learns(self) -> bool:
        """Whether response tables may be made of noisy counts."""
        return not self.frames["arm_counts"].is_empty() or not self.frames["counts"].is_empty()


def of_tables(tables: ReleaseTables) -> FileTables:
    """A release that is not written; its units are drawn here."""
    units = pl.DataFrame(pl.from_arrow(tables.units.reader.read_all()))
    for failure in tables.units.failures:
        raise failure
    frames = {name: _spelt(frame) for name, frame in tables.frames().items()}
    return FileTables(tables.manifest, frames, _spelt(units))


def of_file(path: Path) -> FileTables:
    """A release by its file, the rows of each table in their order."""
    with open_release(path, at_any_loss=True) as connection:
        manifest, ends = read_manifest(connection), stated_ends(connection)
        frames = {
            name: _spelt(connection.sql(f"FROM main.{name} ORDER BY rowid").pl())
            for name in TABLES
            if name not in ("release", "metrics")
        }
    return FileTables(manifest, frames, frames.pop("units"), ends)


def _spelt(frame: pl.DataFrame) -> pl.DataFrame:
    """A table with its labels as text, of whatever type they are."""
    labels = [name for name in ("cluster", "pool", "arm") if name in frame.columns]
    return frame.with_columns(pl.col(labels).cast(pl.String))
