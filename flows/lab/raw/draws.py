"""What a release of made-up outcomes drew: its noise, and the draws of its units.

The truth is known, so noise is what is published less that. Scales, rates and tables are those that
the release states.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from flows.config.model.experiment import AnyDesign, Config
from flows.lab.raw.made_up_log import MadeUpPeople, unit_ids
from flows.lab.raw.published import DRAWN, FileTables
from flows.raw.units.unit_ids import released_ids
from privatizers.lab.audit.response_laws import AnyResponses, Responses, TableResponses
from privatizers.mechanisms.noisy_horvitz_thompson import difference_scale
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class Truth:
    """Made-up people of a night with their outcomes, and how these are released."""

    config: Config
    """With the grids that were resolved."""
    designs: Sequence[AnyDesign]
    people: MadeUpPeople
    levels: Sequence[Ints]
    """The position of each outcome on its grid, by place; shape [n] each."""
    numbers: Ints
    """Those of the people who are released."""

    def __post_init__(self) -> None:
        """Fail where outcomes are not on the grids that they are released on."""
        for one, level in zip(self.config.outcomes, self.levels, strict=True):
            if level.max() >= len(one.grid):
                raise AssertionError("made-up outcomes are on another grid than the release")


@dataclass(frozen=True)
class Noise:
    """The noise in a statistic of some (pool, arm)s, shape [cells, numbers], and its scale."""

    values: Ints
    scale: float
    cells: Ints
    """Positions of the (pool, arm)s."""


@dataclass(frozen=True)
class DrawnOutcome:
    """What was drawn of one outcome."""

    name: str
    cells: pl.DataFrame
    """Every (pool, arm)."""
    noise: list[Noise]
    responses: AnyResponses | None
    """Of its units; None where none are published, and of a second that shares the first's."""
    place: Ints
    """Of the units, in their order, the place among people; shape [n]."""
    alike: bool = True
    """Of two outcomes that are drawn together, whether every unit has one output for both."""


def draws_of(truth: Truth, release: FileTables) -> list[DrawnOutcome]:
    """Everything that was drawn of each outcome."""
    place = _places(truth, release.units)
    each = [release.of_outcome(one.name) for one in truth.config.outcomes]
    together = isinstance(truth.designs[0].mechanism, PairedOptimalDP)
    found = []
    for position, (own, design) in enumerate(zip(each, truth.designs, strict=True)):
        level = truth.levels[position][place]
        k, cell = len(own.grid), _cells(truth, own, place)
        counts = np.bincount(cell * k + level, minlength=own.cells.height * k).reshape(-1, k)
        if together:
            level = level * len(each[1].grid) + truth.levels[1][place]
        drawn = _responses(own, cell, level) if position == 0 or not together else None
        hidden = not own.units.height and truth.config.private_clusters is not None
        found.append(
            DrawnOutcome(
                truth.config.outcomes[position].name,
                own.cells,
                [] if hidden else list(_noise(truth.config.arms.names, design, own, counts)),
                drawn,
                place,
                not together or each[0].units[DRAWN[0]].equals(each[1].units[DRAWN[0]]),
            )
        )
    return found


def labels_of(truth: Truth, release: FileTables) -> Responses | None:
    """Private clusters as drawn, with the λ = k/(e^ε₁ + k − 1) that their price allows."""
    private, clusters = truth.config.private_clusters, truth.people.clusters
    if private is None or not release.units.height:
        return None
    k = len(clusters)
    rate = k / (np.exp(release.manifest.cluster_epsilon or 0.0) + k - 1.0)
    label = truth.people.cluster[_places(truth, release.units)]
    drawn = release.units["cluster"].cast(pl.Enum(clusters)).to_physical().to_numpy()
    of_one = np.zeros(len(label), dtype=np.int64)
    prior = np.full((1, k), 1.0 / k)
    return Responses(label, of_one, drawn.astype(np.int64), float(rate), prior)


def _places(truth: Truth, units: pl.DataFrame) -> Ints:
    """The places of the units of a release; of one without units those of all who are in it."""
    if not units.height:
        return truth.numbers % truth.people.n_units
    ids = released_ids(truth.config, unit_ids(truth.numbers))
    known = pl.DataFrame({"unit_id": ids, "number": truth.numbers})
    found = units.select("unit_id").join(
        known, on="unit_id", how="left", maintain_order="left", validate="1:1"
    )["number"]
    if found.null_count() or len(found) != len(truth.numbers):
        raise AssertionError("the units of a release are not those of its log")
    return found.to_numpy() % truth.people.n_units


def _cells(truth: Truth, own: FileTables, place: Ints) -> Ints:
    """The (pool, arm) of each unit, by its published cluster, shape [n]."""
    if own.units.height:
        return own.cells_of(own.units["cluster"], own.units["arm"])
    people, arms = truth.people, pl.Series(truth.config.arms.names)
    clusters = pl.Series(people.clusters, dtype=pl.String)
    if truth.config.private_clusters is not None:
        return np.zeros(len(place), dtype=np.int64)
    return own.cells_of(clusters.gather(people.cluster[place]), arms.gather(people.arm[place]))


def _responses(own: FileTables, cell: Ints, level: Ints) -> AnyResponses | None:
    """The draws of units in these cells with these levels (of pairs, where drawn so)."""
    if not own.units.height:
        return None
    outcome = own.units[DRAWN[0]].to_numpy()
    if own.metric.response_epsilon is not None:
        tables = own.response_tables()
        found, table_of = np.unique(tables.reshape(len(tables), -1), axis=0, return_inverse=True)
        q = found.reshape(-1, *tables.shape[1:])
        return TableResponses(level, cell, outcome.astype(np.int64), q, table_of.reshape(-1))
    prior, rate = own.by_level("debias", "probability", own.grid), own.metric.resampling_probability
    if prior is None or rate is None:
        raise AssertionError("units are published without what they were drawn by")
    return Responses(level, cell, np.searchsorted(own.grid, outcome), rate, prior)


# noise


def _noise(
    arms: Sequence[str], design: AnyDesign, own: FileTables, counts: Ints
) -> Iterator[Noise]:
    """All noise in a release whose true ``counts`` are known, shape [S, K]."""
    metric, sizes = own.metric, counts.sum(axis=1)
    everywhere = np.arange(len(counts))
    noisy = own.by_level("counts", "noisy_count", own.grid)
    if noisy is not None and metric.noise_scale is not None:
        yield Noise(_of_counts(noisy, counts), metric.noise_scale, everywhere)
    elif metric.noise_scale is not None and metric.grid_step is not None:
        steps = np.rint((own.grid - own.grid[0]) / metric.grid_step).astype(np.int64)
        sums = counts @ steps
        means = own.frames["pools"]["noisy_mean"]
        if means.null_count() < len(means):
            of_pools = (means.to_numpy() - own.grid[0]) / metric.grid_step * sizes
            values = np.rint(of_pools).astype(np.int64) - sums
            yield Noise(values[:, np.newaxis], metric.noise_scale, everywhere)
        else:
            yield from _of_differences(own, sizes, sums, metric.grid_step, metric.noise_scale)
    yield from _of_arms(arms, design, own, counts)


def _of_counts(noisy: Floats, counts: Ints) -> Ints:
    """Of two counts the upper is noised, and the other is what it leaves."""
    noise = np.rint(noisy).astype(np.int64) - counts
    if counts.shape[1] == 2 and np.array_equal(noise[:, 0], -noise[:, 1]):
        return noise[:, 1:]
    return noise


def _of_arms(
    arms: Sequence[str], design: AnyDesign, own: FileTables, counts: Ints
) -> Iterator[Noise]:
    """The noise in counts and sums of squares of arms, under the first (pool, arm) of each."""
    arm = own.cells["arm"].to_numpy()
    of_arms = np.array([counts[arm == name].sum(axis=0) for name in arms])
    cells = np.array([int(np.argmax(arm == name)) for name in arms])
    noisy = own.of_arms("arm_counts", "noisy_count", arms)
    if noisy is not None:
        scale = float(own.frames["arm_counts"]["noise_scale"][0])
        yield Noise(_of_counts(noisy, of_arms), scale, cells)
    squares, table = (
        design.mechanism.parameters.squares,
        own.of_arms("squares", "noisy_square", arms),
    )
    if squares is not None and table is not None:
        step, least = (
            of(own.grid.tolist()) for of in (squares.steps.step_of, squares.steps.least_of)
        )
        drawn = np.rint((table[:, 0] - least * of_arms.sum(axis=1)) / step).astype(np.int64)
        values = drawn - of_arms @ np.array(squares.steps.steps)
        scale = float(own.frames["squares"]["noise_scale"][0]) / step
        yield Noise(values[:, np.newaxis], scale, cells)


def _of_differences(
    own: FileTables, sizes: Ints, sums: Ints, step: float, scale: float
) -> Iterator[Noise]:
    """The noise in differences between the arms of a pool, one item for each scale of noise."""
    noisy = own.frames["pools"]["noisy_difference"].fill_null(np.nan).to_numpy()
    treated = np.flatnonzero(~np.isnan(noisy))
    control = treated - 1  # the arms of a pool are neighbouring rows, control first
    both = np.lcm(sizes[control], sizes[treated])
    exact = sums[treated] * (both // sizes[treated]) - sums[control] * (both // sizes[control])
    noise = np.rint(noisy[treated] / step * both).astype(np.int64) - exact
    scales = difference_scale(sizes[control], sizes[treated], scale)
    for value in np.unique(scales):
        yield Noise(noise[scales == value][:, np.newaxis], float(value), treated[scales == value])
