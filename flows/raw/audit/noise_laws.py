"""A release of made-up rows as an audit reads it: its columns by kind, and the noise in them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl

from estimators.response.debias import debias_vector
from flows.config.model.experiment import AnyDesign, Config
from flows.raw.boundary.sealed import Sealed
from flows.raw.drawing.tables import grid_step
from flows.raw.privatize import privatize
from flows.raw.units.rows import Rows
from privatizers.audit.laws import AnyResponses, Responses, TableResponses
from privatizers.audit.mechanism_laws import prior_problems
from privatizers.audit.optimal_laws import table_problems
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.noisy_horvitz_thompson import difference_scale
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from privatizers.noise.randomness import UNIT
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.optimal_design import OptimalDesign
from schemas.arrays import Floats, Ints
from schemas.names import ReleaseName
from schemas.released import Manifest
from schemas.tables import debiased, randomised

NOISED = "noisy_"
"""The names of columns of noised statistics begin so, in any table."""
OF_NOISED = ("probability", "weight")
"""Columns computed from noised statistics, where the mechanism makes its prior from these."""
ARM_COUNTS = "arm_counts"
"""The table of noisy counts of whole arms; they stand for themselves, not for a (pool, arm)."""
OF_LEARNT = ("debias", "randomiser")
"""Tables computed from noisy counts as a whole, where response tables are learnt from these."""
DRAWN = ("outcome_randomised", "outcome_debiased")
"""Columns of ``units`` that are drawn; ``cluster`` too, where clusters are private."""

_TOLD = 40.0
"""Units of an arm for each σ: some dozen strata then tell enough of their arm."""
_MOST_TOLD = 100_000
_NAME = ReleaseName("audit", "once", 1)


@dataclass(frozen=True)
class Published:
    """The tables of a release of made-up rows, as they would be written."""

    manifest: Manifest
    frames: dict[str, pl.DataFrame]
    units: pl.DataFrame
    """Labels as text."""

    def of_outcome(self, name: str) -> "Published":
        """What there is of one of several outcomes, as if it were the only one."""
        frames = {
            table: frame.filter(pl.col("metric") == name) if "metric" in frame.columns else frame
            for table, frame in self.frames.items()
        }
        (own,) = (one for one in self.manifest.outcomes if one.metric == name)
        others = [one.metric for one in self.manifest.outcomes if one.metric != name]
        units = self.units.drop(*([form(one) for one in others] for form in (randomised, debiased)))
        units = units.rename({randomised(name): DRAWN[0], debiased(name): DRAWN[1]})
        return Published(replace(self.manifest, metrics=(own,)), frames, units)

    def with_column(self, name: str) -> pl.DataFrame | None:
        """The table that has a column with any value in it; None where there is none.

        Counts of whole arms are apart: see :meth:`arm_counts`.
        """
        for table, frame in self.frames.items():
            if (
                table != ARM_COUNTS
                and name in frame.columns
                and frame[name].null_count() < frame.height
            ):
                return frame
        return None

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

    def by_level(self, name: str, grid: Floats) -> Floats | None:
        """A column with a row for each (pool, arm, outcome), shape [S, K]; None without it."""
        frame = self.with_column(name)
        if frame is None:
            return None
        placed = frame.join(self.cells, on=["pool", "arm"], how="left", maintain_order="left")
        values = np.full((self.cells.height, len(grid)), np.nan)
        level = np.searchsorted(grid, placed["outcome"].to_numpy())
        values[placed["cell"].to_numpy(), level] = placed[name].to_numpy()
        return values

    def arm_counts(self, arms: Sequence[str], grid: Floats) -> Ints | None:
        """The noisy counts of whole ``arms``, shape [A, K]; None where none are published."""
        frame = self.frames[ARM_COUNTS]
        if frame.is_empty():
            return None
        found = np.zeros((len(arms), len(grid)), dtype=np.int64)
        place = {name: position for position, name in enumerate(arms)}
        for arm, outcome, noisy in frame.select("arm", "outcome", "noisy_count").rows():
            found[place[arm], int(np.searchsorted(grid, outcome))] = noisy
        return found

    def response_tables(self, grid: Floats) -> Floats:
        """What units are drawn with, Q, by (pool, arm), outcome and output: shape [S, K, J].

        Where another outcome of L values is drawn together with it, [S, K L, J], of pairs.
        """
        placed, table_of = self.frames["randomiser"], self.frames["pools"]["table"].to_numpy()
        table, output = (placed[name].to_numpy().astype(np.int64) for name in ("table", "output"))
        others = placed["other_outcome"]
        known = np.unique(others.drop_nulls().to_numpy())
        n_others = max(len(known), 1)
        other = np.searchsorted(known, others.fill_null(0.0).to_numpy()) if len(known) else 0
        level = np.searchsorted(grid, placed["outcome"].to_numpy()) * n_others + other
        shape = (int(table.max()) + 1, len(grid) * n_others, int(output.max()) + 1)
        found = np.full(shape, np.nan)
        found[table, level, output] = placed["probability"].to_numpy()
        tables: Floats = found[table_of]
        return tables


def publish_made_up(
    config: Config, design: AnyDesign | Sequence[AnyDesign], rows: Rows
) -> Published:
    """Release made-up rows by the same function that a release calls."""
    tables = privatize(config, Sealed(rows, rows.n_units), design, _NAME)
    units = pl.DataFrame(pl.from_arrow(tables.units.reader.read_all()))
    for failure in tables.units.failures:
        raise failure
    frames = {name: _spelt(frame) for name, frame in tables.frames().items()}
    return Published(tables.manifest, frames, _spelt(units))


def _spelt(frame: pl.DataFrame) -> pl.DataFrame:
    """A table with its labels as text, of whatever type they are."""
    labels = [name for name in ("cluster", "pool", "arm") if name in frame.columns]
    return frame.with_columns(pl.col(labels).cast(pl.String))


# what may differ with the outcomes


def fixed_columns(release: Published, design: AnyDesign) -> Iterator[tuple[str, pl.Series]]:
    """Each column that may not depend on outcomes, under its name, ``table.column``."""
    own_prior = design.mechanism.name in ("cluster-dp", "cluster-free-dp")
    for table, frame in release.frames.items():
        for name in frame.columns:
            if learns(design) and (table in OF_LEARNT or name == "table"):
                continue  # `dependence_problems` makes all of them again
            if not name.startswith(NOISED) and not (own_prior and name in OF_NOISED):
                yield f"{table}.{name}", frame[name]
    private = release.manifest.has_private_clusters
    for name in release.units.columns:
        if name not in DRAWN and not (private and name == "cluster"):
            yield f"units.{name}", release.units[name]
    for name, value in asdict(release.manifest).items():
        if name != "created_at":
            yield f"release.{name}", pl.Series([str(value)])


def learns(design: AnyDesign) -> bool:
    """Whether response tables are made of noisy counts."""
    if not isinstance(design, OptimalDesign):
        return False
    return design.mechanism.parameters.learnt_from != "nothing"


def units_to_learn(config: Config, design: AnyDesign, least: int) -> int:
    """At least so many units, and as many as let the tables of arms be made of their counts."""
    parameters = design.mechanism.parameters
    counts = parameters.arm_counts or parameters.counts
    if not learns(design) or counts is None:
        return least
    return min(max(least, int(_TOLD * counts.noise_scale) * len(config.arms.names)), _MOST_TOLD)


# what follows from noised numbers


def dependence_problems(config: Config, design: AnyDesign, release: Published) -> list[str]:
    """Problems with priors, weights and unit values, which must follow from the noisy counts."""
    if isinstance(design, AggregateDesign):
        return []
    if isinstance(design, OptimalDesign):
        return _table_problems(config, design, release)
    grid = np.array(config.outcome.grid)
    parameters = design.mechanism.parameters
    prior, weight = (release.by_level(name, grid) for name in OF_NOISED)
    if prior is None or weight is None:
        return ["there are no priors or weights"]
    noisy = release.by_level("noisy_count", grid)
    sizes = release.frames["pools"]["n_units"].to_numpy()
    whole = None if noisy is None else noisy.astype(np.int64)
    problems = prior_problems(design.mechanism.name, parameters, sizes, whole, prior)
    if release.manifest.outcomes[0].resampling_probability != parameters.resampling_probability:
        problems.append("the rate that is published is not the one that is claimed")
    if not np.array_equal(weight, debias_vector(grid, prior, parameters.resampling_probability)):
        problems.append("weights are not those of the published priors and rate")
    cell = release.cells_of(release.units["cluster"], release.units["arm"])
    level = np.searchsorted(grid, release.units[DRAWN[0]].to_numpy())
    if not np.array_equal(weight[cell, level], release.units[DRAWN[1]].to_numpy()):
        problems.append("a unit's debiased outcome is not the weight of its outcome")
    return problems


def _table_problems(config: Config, design: OptimalDesign, release: Published) -> list[str]:
    """Problems with response tables, which must be those that the mechanism makes of the counts."""
    grid, mechanism = np.array(config.outcome.grid), design.mechanism
    noisy = release.by_level("noisy_count", grid)
    whole = None if noisy is None else noisy.astype(np.int64)
    sizes = release.frames["pools"]["n_units"].to_numpy().astype(np.int64)
    arm = release.cells["arm"].cast(pl.Enum(config.arms.names)).to_physical().to_numpy()
    of_arms = release.arm_counts(config.arms.names, grid)
    stated = mechanism.response(whole, sizes, arm.astype(np.int64), of_arms)
    outputs = np.arange(stated.n_outputs, dtype=np.float64)
    tables = release.response_tables(grid)
    likely, values = (release.by_level(name, outputs) for name in OF_NOISED)
    if likely is None or values is None:
        return ["there are no outputs or values"]
    problems = []
    inputs, order = _inputs_as_published(mechanism, grid)
    if not np.array_equal(tables, stated.probabilities[stated.table_of][:, order]):
        problems.append("response tables are not those of the published counts")
    if not np.array_equal(values, stated.weights):
        problems.append("values of outputs are not those of the published counts")
    if not np.array_equal(likely, stated.likely[stated.table_of]):
        problems.append("probabilities of outputs are not those of the published counts")
    epsilon = mechanism.parameters.response_epsilon
    if release.manifest.outcomes[0].response_epsilon != epsilon:
        problems.append("the epsilon that is published of tables is not the one that is claimed")
    for cell in np.unique(stated.table_of, return_index=True)[1].tolist():
        units = tables[cell] * UNIT
        if not np.array_equal(units, np.rint(units)):
            problems.append("a probability of a response table is no multiple of 2⁻⁵³")
            continue
        wrong = table_problems(units.astype(np.int64), values[cell], inputs, epsilon)
        problems += [f"a response table {what}" for what in wrong]
    cell = release.cells_of(release.units["cluster"], release.units["arm"])
    output = np.searchsorted(outputs, release.units[DRAWN[0]].to_numpy())
    if not np.array_equal(values[cell, output], release.units[DRAWN[1]].to_numpy()):
        problems.append("a unit's debiased outcome is not the value of its output")
    return problems


def _inputs_as_published(mechanism: ClusterOptimalDP, grid: Floats) -> tuple[Floats, Ints]:
    """The inputs of a table by this outcome first, and their rows in the mechanism's own table."""
    if not isinstance(mechanism, PairedOptimalDP):
        return grid, np.arange(len(grid))
    first, second = (len(one.values) for one in mechanism.pair)
    rows = np.arange(first * second).reshape(first, second)
    order = rows if mechanism.place == 0 else rows.T
    return np.repeat(grid, order.shape[1]), order.ravel()


def responses_of(
    design: AnyDesign,
    release: Published,
    units: pl.DataFrame,
    cell: Ints,
    level: Ints,
    grid: Floats,
) -> AnyResponses | None:
    """The draws of ``units`` of a release, in these cells and with these levels, shape [n] each.

    None where another outcome, whose levels are not known here, is drawn together with this one:
    :mod:`flows.raw.audit.several_outcomes` looks at both.
    """
    if isinstance(design.mechanism, PairedOptimalDP):
        return None
    return table_responses(design, release, units, cell, level, grid)


def table_responses(
    design: AnyDesign,
    release: Published,
    units: pl.DataFrame,
    cell: Ints,
    level: Ints,
    grid: Floats,
) -> AnyResponses | None:
    """Return the same, the levels being those of pairs where outcomes are drawn together."""
    parameters = design.mechanism.parameters
    outcome = units[DRAWN[0]].to_numpy()
    if parameters.response_epsilon is not None:
        tables = release.response_tables(grid)
        shape = tables.shape
        found, table_of = np.unique(tables.reshape(shape[0], -1), axis=0, return_inverse=True)
        q = found.reshape(-1, *shape[1:])
        return TableResponses(level, cell, outcome.astype(np.int64), q, table_of)
    prior, rate = release.by_level("probability", grid), parameters.resampling_probability
    if prior is None or rate is None:
        return None
    return Responses(level, cell, np.searchsorted(grid, outcome), rate, prior)


# noise


@dataclass(frozen=True)
class Noise:
    """The noise in a statistic of some (pool, arm)s, shape [cells, numbers], and its scale."""

    values: Ints
    scale: float
    cells: Ints
    """Positions of the (pool, arm)s."""


def noise_in(config: Config, design: AnyDesign, release: Published, counts: Ints) -> list[Noise]:
    """All noise in a release whose true ``counts`` are known, shape [S, K]."""
    return [
        *_of_statistic(config, design, release, counts),
        *_of_arm_counts(config, design, release, counts),
        *_of_squares(config, design, release, counts),
    ]


def _of_arm_counts(
    config: Config, design: AnyDesign, release: Published, counts: Ints
) -> list[Noise]:
    """The noise in the counts of arms, listed under the first (pool, arm) of each arm."""
    stated = design.mechanism.parameters.arm_counts
    noisy = release.arm_counts(config.arms.names, np.array(config.outcome.grid))
    if stated is None or noisy is None:
        return []
    arm = release.cells["arm"].to_numpy()
    noise, cells = [], []
    for place, name in enumerate(config.arms.names):
        if (arm == name).any():
            noise.append(noisy[place] - counts[arm == name].sum(axis=0))
            cells.append(int(np.argmax(arm == name)))
    values = np.array(noise)
    values = values[:, 1:] if values.shape[1] == 2 else values
    return [Noise(values, stated.noise_scale, np.array(cells))]


def _of_squares(config: Config, design: AnyDesign, release: Published, counts: Ints) -> list[Noise]:
    """The noise in the sums of squares of arms, listed under the first (pool, arm) of each arm."""
    squares = design.mechanism.parameters.squares
    if squares is None:
        return []
    table, grid = release.frames["squares"], config.outcome.grid
    arm = release.cells["arm"].to_numpy()
    noise, cells = [], []
    for name, noisy in table.select("arm", "noisy_square").rows():
        of_arm = counts[arm == name].sum(axis=0)
        steps = (noisy - squares.steps.least_of(grid) * of_arm.sum()) / squares.steps.step_of(grid)
        noise.append(round(steps) - int(of_arm @ np.array(squares.steps.steps)))
        cells.append(int(np.argmax(arm == name)))
    return [Noise(np.array(noise)[:, np.newaxis], squares.noise_scale, np.array(cells))]


def _of_statistic(
    config: Config, design: AnyDesign, release: Published, counts: Ints
) -> list[Noise]:
    """The noise in the statistic of each (pool, arm): counts, sums or differences."""
    parameters = design.mechanism.parameters
    scale, lattice = parameters.noise_scale, parameters.lattice
    everywhere, grid = np.arange(len(counts)), np.array(config.outcome.grid)
    if scale is None:
        return []
    noisy = release.by_level("noisy_count", grid)
    if noisy is not None:
        noise = np.rint(noisy).astype(np.int64) - counts
        return [Noise(noise[:, 1:] if len(grid) == 2 else noise, scale, everywhere)]
    step = grid_step(config, design)
    if lattice is None or step is None:
        return []
    sums = counts @ np.array(lattice.steps, dtype=np.int64)
    if release.with_column("noisy_mean") is not None:
        means = release.frames["pools"]["noisy_mean"].to_numpy()
        noisy_sums = np.rint((means - grid[0]) / step * counts.sum(axis=1)).astype(np.int64)
        return [Noise((noisy_sums - sums)[:, np.newaxis], scale, everywhere)]
    return _of_differences(release, counts.sum(axis=1), sums, step, scale)


def _of_differences(
    release: Published, sizes: Ints, sums: Ints, step: float, scale: float
) -> list[Noise]:
    """The noise in differences between the arms of a pool, one item for each scale of noise."""
    if release.with_column("noisy_difference") is None:
        return []
    noisy = release.frames["pools"]["noisy_difference"].fill_null(np.nan).to_numpy()
    treated = np.flatnonzero(~np.isnan(noisy))
    control = treated - 1  # the arms of a pool are neighbouring rows, control first
    both = sizes[control] // np.gcd(sizes[control], sizes[treated]) * sizes[treated]
    exact = sums[treated] * (both // sizes[treated]) - sums[control] * (both // sizes[control])
    noise = np.rint(noisy[treated] / step * both).astype(np.int64) - exact
    scales = difference_scale(sizes[control], sizes[treated], scale)
    return [
        Noise(noise[scales == value][:, np.newaxis], float(value), treated[scales == value])
        for value in np.unique(scales)
    ]
