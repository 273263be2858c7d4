"""A release of made-up outcomes as an audit reads it: of its file, or of tables not yet written."""

from collections.abc import Iterator, Sequence
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

DRAWN = ("outcome_randomised", "outcome_debiased")
"""Columns of ``units`` that are drawn, as :meth:`Published.of_outcome` names them."""

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
        others = [one.metric for one in self.manifest.outcomes if one.metric != name]
        units = self.units.drop(*([form(one) for one in others] for form in (randomised, debiased)))
        units = units.rename({randomised(name): DRAWN[0], debiased(name): DRAWN[1]})
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
        """Every (pool, arm), with its position in the column ``cell``."""
        return self.frames["pools"].select("pool", "arm").with_row_index("cell")

    def cells_of(self, cluster: pl.Series, arm: pl.Series) -> Ints:
        """The position of the (pool, arm) of units in these clusters and arms, shape [n]."""
        pools = self.frames["strata"].select("cluster", "arm", "pool")
        units = pl.DataFrame({"cluster": cluster, "arm": arm})
        placed = units.join(pools, on=["cluster", "arm"], how="left", maintain_order="left").join(
            self.cells, on=["pool", "arm"], how="left", maintain_order="left"
        )
        return placed["cell"].to_numpy().astype(np.int64)

    def by_level(self, table: str, name: str, levels: Floats) -> Floats | None:
        """A column with a row for each (pool, arm, level), shape [S, L]; None without rows."""
        frame = self.frames[table]
        if frame.is_empty():
            return None
        placed = frame.join(self.cells, on=["pool", "arm"], how="left", maintain_order="left")
        values = np.full((self.cells.height, len(levels)), np.nan)
        level = np.searchsorted(levels, placed["outcome"].to_numpy())
        values[placed["cell"].to_numpy(), level] = placed[name].to_numpy()
        return values

    def of_arms(self, table: str, name: str, arms: Sequence[str]) -> Floats | None:
        """A column with the same number of rows for each arm, shape [A, rows]; None without."""
        frame = self.frames[table]
        if frame.is_empty():
            return None
        found = np.zeros((len(arms), frame.height // frame["arm"].n_unique()))
        for place, arm in enumerate(arms):
            own = frame.filter(pl.col("arm") == arm)[name].to_numpy()
            found[place] = own if len(own) else 0.0
        return found

    def response_tables(self) -> Floats:
        """What units are drawn with, Q, by (pool, arm), outcome and output: shape [S, K, J].

        Where another outcome of L values is drawn together with it, [S, K L, J], of pairs.
        """
        placed, table_of = self.frames["randomiser"], self.frames["pools"]["table"].to_numpy()
        table, output = (placed[name].to_numpy().astype(np.int64) for name in ("table", "output"))
        others = placed["other_outcome"]
        known = np.unique(others.drop_nulls().to_numpy())
        n_others = max(len(known), 1)
        other = np.searchsorted(known, others.fill_null(0.0).to_numpy()) if len(known) else 0
        level = np.searchsorted(self.grid, placed["outcome"].to_numpy()) * n_others + other
        shape = (int(table.max()) + 1, len(self.grid) * n_others, int(output.max()) + 1)
        found = np.full(shape, np.nan)
        found[table, level, output] = placed["probability"].to_numpy()
        tables: Floats = found[table_of]
        return tables

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
