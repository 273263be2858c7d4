"""Margins of a file: their sums are reconciled with strata and units once, when it is made.

Readers and macros share what that takes, in tables that only they read: :data:`CELLS` and
:data:`PAIRS` of the cells, and :data:`STRATA` of how these and the strata cross. There a cell is
called by a key that follows from its margin and its number in that (:func:`cell_key`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import duckdb
import numpy as np
import polars as pl

from estimators.response.debias import response_noise_variance
from estimators.response.pool_statistics import sum_noise
from estimators.strata.evidence import Pools
from estimators.strata.margins import CellStatistics, Crossing, Margins, PoolStatistics
from flows.released.file.outputs import Outputs
from flows.released.file.sql import quote_name, text
from flows.runtime.threads import in_parallel
from schemas.arrays import Floats, Integers, Ints
from schemas.margin_codes import unpacked
from schemas.released import Metric
from schemas.tables import STRATUM, margin_columns, randomised

if TYPE_CHECKING:
    import pyarrow as pa

_WIDTH: Final = 256
"""As many cells as a margin's codes tell apart."""
CELLS: Final = "margin_cells"
PAIRS: Final = "margin_pairs"
STRATA: Final = "margin_strata"

_AT_ONCE: Final = 1 << 18
"""Units that are crossed at once; where strata and cells make more, an eighth of these."""
_SIZES: Final = "SELECT max(cell) + 1 FROM main.margins GROUP BY margin ORDER BY margin"
_PUBLISHED: Final = """
SELECT margin, cell, arm, n_units::DOUBLE AS n, noisy_sum, noise_scale
FROM main.margins WHERE metric = {metric}"""
_DRAWN: Final = "SELECT {columns} FROM temp.main.drawn"
_CROSSED: Final = """
SELECT s.code AS row, m.cell, m.n_units, m.noise
FROM {schema}.{table} AS m
JOIN temp.main.numbered_strata AS s ON s.stratum = m.stratum
WHERE m.place = {place} ORDER BY s.code, m.cell"""
_STORED: Final = "FROM {schema}.{table} WHERE place = {place}"


@dataclass(frozen=True)
class MarginOutcome:
    """An outcome of a release, as far as its margins need it."""

    metric: Metric
    grid: Floats
    arms: tuple[str, ...]
    places: pl.DataFrame
    """A row a stratum, in the order of names, with ``stratum arm_code pool_code``."""
    pools: Pools
    statistics: PoolStatistics
    outputs: Outputs | None

    @property
    def strata(self) -> tuple[Ints, Ints]:
        """The number of each stratum's arm, and of its (pool, arm)."""
        arm, pool = (
            self.places[name].to_numpy().astype(np.int64) for name in ("arm_code", "pool_code")
        )
        return arm, pool

    def places_of(self, pool: Ints, drawn: Floats) -> Ints:
        """The places of units' drawn values in :attr:`counts_as`; ``pool`` is their (pool, arm)."""
        if self.outputs is not None:
            return self.outputs.table_of[pool] * self.outputs.n_outputs + drawn.astype(np.int64)
        return pool * len(self.grid) + self._levels(drawn)

    def _levels(self, drawn: Floats) -> Ints:
        """The places of levels in the grid; on one that is nearly even, no level is sought."""
        low, size = float(self.grid[0]), len(self.grid)
        steps = (size - 1) / (float(self.grid[-1]) - low)
        if np.abs((self.grid - low) * steps - np.arange(size)).max() < 0.25:
            return np.rint((drawn - low) * steps).astype(np.int64)
        return np.searchsorted(self.grid, drawn)

    @cached_property
    def counts_as(self) -> tuple[Floats, Floats]:
        """What drawn values add to the noise of a sum, and what they count as.

        Outcomes are measured from the grid's mean.
        """
        if self.outputs is not None:
            return self.outputs.functions.noise.ravel(), self.outputs.functions.mean.ravel()
        rate, prior = self.metric.resampling_probability or 0.0, self.pools.prior_mean[:, None]
        outcome = (self.grid - float(self.grid.mean())) + np.zeros_like(prior)
        spread = self.pools.prior_variance[:, None] + np.zeros_like(outcome)
        noise = response_noise_variance(np.ones_like(outcome), (outcome - prior) ** 2, spread, rate)
        return noise.ravel(), ((outcome - rate * prior) / (1.0 - rate)).ravel()


def cell_key(margin: int) -> str:
    """SQL for the key of a cell of a margin, by its number ``code``."""
    return f"{margin * _WIDTH} + code::INTEGER"


def _keys(sizes: Sequence[int]) -> Ints:
    """The keys of all cells, in order."""
    return np.concatenate([at * _WIDTH + np.arange(size) for at, size in enumerate(sizes)])


def sizes_of(connection: duckdb.DuckDBPyConnection) -> list[int]:
    """How many cells each margin of a release has."""
    return [int(size) for (size,) in connection.execute(_SIZES).fetchall()]


_Counted = tuple[dict[int, list[Integers | Floats]], dict[tuple[int, int], list[Integers | Floats]]]
"""Of each margin by strata, and of pairs of margins by arms: units, and what they add of each kind
and outcome."""


class _Sums:
    """Sums over units by stratum and cell, and by arm and pairs of cells; of J outcomes."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, every: Sequence[MarginOutcome]
    ) -> None:
        self.sizes = sizes_of(connection)
        self.starts = np.cumsum([0, *self.sizes])
        self._every = every
        self._arm, self._pool = every[0].strata
        n_cells, self._n_arms = int(self.starts[-1]), len(every[0].arms)
        self.n = np.zeros((len(self._arm), n_cells))
        self.noise = [np.zeros_like(self.n) for _ in every]
        self.values = [np.zeros((self._n_arms, n_cells)) for _ in every]
        self.pairs = np.zeros((self._n_arms, n_cells, n_cells))
        self.pair_noise = [np.zeros_like(self.pairs) for _ in every]
        self._read(connection)

    def _read(self, connection: duckdb.DuckDBPyConnection) -> None:
        numbers = self._every[0].places["stratum"].to_numpy().astype(np.int64)
        self._code = np.empty_like(numbers)
        self._code[numbers] = np.arange(len(numbers))
        n_margins = len(self.sizes)
        columns = [STRATUM, *margin_columns(n_margins)]
        columns += [quote_name(randomised(one.metric.metric)) for one in self._every]
        query = _DRAWN.format(columns=", ".join(columns))
        at_once = max(_AT_ONCE, self.n.size // 8)
        batches = connection.sql(query).to_arrow_reader(at_once)
        # With a thread more there are two more tables of strata and cells.
        counted = in_parallel if at_once == _AT_ONCE else map
        for found in counted(self._counted, batches):
            of_margin, of_pair = found
            cells = [slice(*ends) for ends in pairwise(self.starts)]
            for at, tables in of_margin.items():
                known = (self.n, *self.noise)
                for total, table in zip(known, tables, strict=False):
                    total[:, cells[at]] += table
                for total, table in zip(self.values, tables[len(known) :], strict=True):
                    total[:, cells[at]] += self._by_arm(table)
            for (at, other), tables in of_pair.items():
                for matrix, table in zip((self.pairs, *self.pair_noise), tables, strict=True):
                    matrix[:, cells[at], cells[other]] += table
        for matrix, sums in ((self.pairs, self.n), *zip(self.pair_noise, self.noise, strict=True)):
            np.add(matrix, matrix.transpose(0, 2, 1).copy(), out=matrix)
            for cell in range(matrix.shape[1]):
                matrix[:, cell, cell] = np.bincount(self._arm, sums[:, cell], len(matrix))

    def _counted(self, batch: "pa.RecordBatch") -> _Counted:
        """What some units add."""
        stratum, *columns = (column.to_numpy() for column in batch.columns)
        stratum, n_packed = self._code[stratum], len(columns) - len(self._every)
        arm, pool = self._arm[stratum], self._pool[stratum]
        noises, values = [], []
        for one, drawn in zip(self._every, columns[n_packed:], strict=True):
            place = one.places_of(pool, drawn)
            noise, value = (of_place[place] for of_place in one.counts_as)
            noises.append(noise)
            values.append(value)
        sizes = self.sizes
        codes = [code.astype(np.int64) for code in unpacked(columns[:n_packed], len(sizes))]
        of_margin, of_pair = {}, {}
        for at, size in enumerate(sizes):
            key = stratum * size + codes[at]
            of_margin[at] = _added(key, (len(self._arm), size), *noises, *values)
            key = arm * size + codes[at]
            for other in range(at + 1, len(sizes)):
                both = key * sizes[other] + codes[other]
                shape = (self._n_arms, size, sizes[other])
                of_pair[at, other] = _added(both, shape, *noises)
        return of_margin, of_pair

    def _by_arm(self, of_strata: Integers | Floats) -> Integers | Floats:
        """Sums over the strata of each arm, shape [arms, …]."""
        arms = range(self._n_arms)
        return np.stack([of_strata[self._arm == arm].sum(axis=0) for arm in arms])


def _added(key: Ints, shape: tuple[int, ...], *values: Floats) -> list[Integers | Floats]:
    """How many units each key has, and what they add of each of the ``values``, shape [n]."""
    found = (np.bincount(key, one, math.prod(shape)) for one in (None, *values))
    return [one.reshape(shape) for one in found]


def reconcile(
    connection: duckdb.DuckDBPyConnection, every: Sequence[MarginOutcome]
) -> list[tuple[Margins, Crossing]]:
    """Reconcile the margins of all outcomes with the units that this run has written.

    With each come its strata, in the order of names, crossed with the cells.
    """
    sums = _Sums(connection, every)
    return [_reconciled(connection, one, sums, at) for at, one in enumerate(every)]


def _reconciled(
    connection: duckdb.DuckDBPyConnection, outcome: MarginOutcome, sums: _Sums, at: int
) -> tuple[Margins, Crossing]:
    query = _PUBLISHED.format(metric=text(outcome.metric.metric))
    rows = pl.DataFrame(connection.sql(query).materialize())
    arm = rows["arm"].cast(pl.Enum(outcome.arms)).to_physical().to_numpy().astype(np.int64)
    cell = sums.starts[rows["margin"].to_numpy()] + rows["cell"].to_numpy()
    n, noisy, scale = (rows[name].to_numpy() for name in ("n", "noisy_sum", "noise_scale"))
    # An arm without a unit of a cell has no sum of it: it tells nothing then, whatever its noise.
    apart, fourth = np.zeros((2, *sums.values[at].shape))
    variance = np.ones_like(apart)
    variance[arm, cell], fourth[arm, cell] = sum_noise(scale, outcome.grid)
    apart[arm, cell] = noisy - n * float(outcome.grid.mean()) - sums.values[at][arm, cell]
    sizes = tuple(sums.sizes)
    cells = CellStatistics(apart, variance, fourth, sums.pairs, sums.pair_noise[at], sizes)
    crossed = Crossing.of_matrix(sums.n, sums.noise[at])
    unit_noise, pools = outcome.metric.unit_noise or 0.0, outcome.statistics
    by_pool = crossed.gathered(outcome.strata[1], len(pools.arm))
    return Margins.of(unit_noise, cells, pools, by_pool), crossed


def cell_rows(place: int, arms: Sequence[str], margins: Margins) -> pl.DataFrame:
    """The rows of :data:`CELLS` of the outcome at a ``place``: what each arm's sums tell."""
    columns = {"gap": margins.gap, "fourth": margins.fourth}
    return _rows(place, arms, ("cell",), columns, margins.sizes)


def pair_rows(place: int, arms: Sequence[str], margins: Margins) -> pl.DataFrame:
    """The rows of :data:`PAIRS`: how the sums of two cells go together."""
    columns = {"inverse": margins.inverse, "spread": margins.spread}
    return _rows(place, arms, ("cell", "other"), columns, margins.sizes)


def _rows(
    place: int,
    arms: Sequence[str],
    names: Sequence[str],
    columns: dict[str, Floats],
    sizes: Sequence[int],
) -> pl.DataFrame:
    at = np.indices(next(iter(columns.values())).shape).reshape(len(names) + 1, -1)
    keys = _keys(sizes)
    return pl.DataFrame(
        [
            pl.Series("place", np.full(at.shape[1], place), pl.Int32),
            pl.Series("arm", np.array(arms)[at[0]], pl.String),
            *(
                pl.Series(name, keys[one], pl.Int32)
                for name, one in zip(names, at[1:], strict=True)
            ),
            *(pl.Series(name, column.ravel()) for name, column in columns.items()),
        ]
    )


def stratum_rows(
    place: int, places: pl.DataFrame, crossed: Crossing, margins: Margins
) -> pl.DataFrame:
    """The rows of :data:`STRATA`: the units of each stratum in each cell, and their Σ û."""
    keys = _keys(margins.sizes)
    return pl.DataFrame(
        [
            pl.Series("place", np.full(len(crossed.row), place), pl.Int32),
            places["stratum"].cast(pl.Int64)[crossed.row],
            pl.Series("cell", keys[crossed.cell], pl.Int32),
            pl.Series("n_units", crossed.n_units),
            pl.Series("noise", crossed.noise),
        ]
    )


def read_margins(
    connection: duckdb.DuckDBPyConnection, schema: str, place: int, outcome: MarginOutcome
) -> tuple[Margins, Crossing]:
    """Read what :func:`reconcile` gave of the outcome at a ``place`` of a release."""

    def read(query: str, table: str) -> pl.DataFrame:
        filled = query.format(schema=schema, table=table, place=place)
        return pl.DataFrame(connection.sql(filled).materialize())

    cells, pairs, rows = (
        read(query, table)
        for query, table in ((_STORED, CELLS), (_STORED, PAIRS), (_CROSSED, STRATA))
    )
    keys = np.unique(cells["cell"].to_numpy())

    def matrix(frame: pl.DataFrame, column: str, *names: str) -> Floats:
        arm = frame["arm"].cast(pl.Enum(outcome.arms)).to_physical().to_numpy()
        at = (np.searchsorted(keys, frame[name].to_numpy()) for name in names)
        found = np.zeros((len(outcome.arms), *([len(keys)] * len(names))))
        found[arm.astype(np.int64), *at] = frame[column].to_numpy()
        return found

    row, n, noise = (rows[name].to_numpy() for name in ("row", "n_units", "noise"))
    cell = np.searchsorted(keys, rows["cell"].to_numpy())
    crossed = Crossing(row.astype(np.int64), cell, n, noise, len(outcome.places), len(keys))
    margins = Margins(
        unit_noise=outcome.metric.unit_noise or 0.0,
        inverse=matrix(pairs, "inverse", "cell", "other"),
        spread=matrix(pairs, "spread", "cell", "other"),
        gap=matrix(cells, "gap", "cell"),
        fourth=matrix(cells, "fourth", "cell"),
        pools=outcome.statistics,
        by_pool=crossed.gathered(outcome.strata[1], len(outcome.statistics.arm)),
        sizes=tuple(np.bincount(keys // _WIDTH).tolist()),
    )
    return margins, crossed


def shifts_of_cells(arms: Sequence[str], every: Sequence[Margins]) -> pl.DataFrame:
    """Return by how much units of each cell are calibrated, ``shift0`` and so on of the outcomes.

    A row an arm of a cell, with the number of its ``margin`` and its ``code`` there.
    """
    margin, code = np.divmod(_keys(every[0].sizes), _WIDTH)
    return pl.DataFrame(
        [
            pl.Series("margin", np.tile(margin, len(arms)), pl.Int32),
            pl.Series("code", np.tile(code, len(arms)), pl.UInt8),
            pl.Series("arm", np.repeat(np.array(arms), len(code)), pl.String),
            *(pl.Series(f"shift{at}", one.shifts.ravel()) for at, one in enumerate(every)),
        ]
    )
