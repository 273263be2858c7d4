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
from privatizers.lab.audit.laws import Responses, by_priors, by_tables
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


@dataclass(frozen=True)
class Noise:
    """The noise in a statistic of some (pool, arm)s, shape [cells, numbers], and its scale."""

    values: Ints
    scale: float
    cells: Ints
    """Positions of the (pool, arm)s, of an arm the first."""

    @classmethod
    def of(cls, noise: Floats, step: Floats, scale: float, cells: Ints) -> "Noise":
        """That of one number a cell, in steps."""
        return cls(np.rint(noise / step).astype(np.int64)[:, np.newaxis], scale, cells)


@dataclass(frozen=True)
class DrawnOutcome:
    """What was drawn of one outcome."""

    name: str
    cells: Sequence[str]
    """Every (pool, arm)."""
    noise: list[Noise]
    responses: Responses | None
    """Of its units; None where none are published, and of a second that shares the first's."""
    place: Ints
    """Of the units, in their order, the place among people; shape [n]."""
    alike: bool = True
    """Of two outcomes that are drawn together, whether every unit has one output for both."""


def draws_of(truth: Truth, release: FileTables) -> list[DrawnOutcome]:
    """Everything that was drawn of each outcome."""
    place, names = _places(truth, release.units), [one.name for one in truth.config.outcomes]
    if not release.units.height and truth.config.private_clusters is not None:
        return [DrawnOutcome(name, [], [], None, place) for name in names]  # nobody knows the rest
    each = [release.of_outcome(name) for name in names]
    together = isinstance(truth.designs[0].mechanism, PairedOptimalDP)
    alike = not together or each[0].units[DRAWN].equals(each[1].units[DRAWN])
    found: list[DrawnOutcome] = []
    for own, design, of_places in zip(each, truth.designs, truth.levels, strict=True):
        level, cell = of_places[place], _cells(truth, own, place)
        shape = own.cells.height, len(own.grid)
        counts = np.bincount(cell * shape[1] + level, minlength=shape[0] * shape[1]).reshape(shape)
        if together:
            level = level * len(each[1].grid) + truth.levels[1][place]
        published = release.units.height and not (together and found)
        responses = _responses(own, cell, level) if published else None
        of_arms = _of_arms(truth.config.arms.names, design, own, counts)
        noise = [*_of_pools(own, counts), *of_arms]
        cells = [f"{pool}, {arm}" for pool, arm in own.cells.rows()]
        found.append(DrawnOutcome(own.metric.metric, cells, noise, responses, place, alike))
    return found


def labels_of(truth: Truth, release: FileTables) -> Responses | None:
    """Private clusters as drawn, with the λ = k/(e^ε₁ + k − 1) that their price allows."""
    clusters = truth.people.clusters
    if truth.config.private_clusters is None or not release.units.height:
        return None
    k = len(clusters)
    rate = k / (np.exp(release.manifest.cluster_epsilon or 0.0) + k - 1.0)
    label = truth.people.cluster[_places(truth, release.units)]
    drawn = release.units["cluster"].cast(pl.Enum(clusters)).to_physical().to_numpy()
    prior = np.full((1, k), 1.0 / k)
    return by_priors(label, np.zeros_like(label), drawn.astype(np.int64), float(rate), prior)


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
    return own.cells_of(clusters.gather(people.cluster[place]), arms.gather(people.arm[place]))


def _responses(own: FileTables, cell: Ints, level: Ints) -> Responses:
    """The draws of units in these cells with these levels (of pairs, where drawn so)."""
    outcome = own.units[DRAWN].to_numpy()
    if own.metric.response_epsilon is not None:
        return by_tables(level, cell, outcome.astype(np.int64), *own.response_tables())
    prior, rate = own.of_each(own.cells, "debias", "probability"), own.metric.resampling_probability
    if prior is None or rate is None:
        raise AssertionError("units are published without what they were drawn by")
    return by_priors(level, cell, np.searchsorted(own.grid, outcome), rate, prior)


# noise


def _of_pools(own: FileTables, counts: Ints) -> Iterator[Noise]:
    """The noise in statistics of (pool, arm)s whose true ``counts`` are known, shape [S, K].

    In whole steps of what is published: units, or parts of the grid's steps.
    """
    grid, n, every = own.grid, counts.sum(axis=1), np.arange(len(counts))
    scale, step = own.metric.noise_scale or 0.0, own.metric.grid_step or 0.0
    mean, difference = (own.numbers(f"noisy_{name}") for name in ("mean", "difference"))
    means = counts @ (grid - grid[0]) / n
    noisy = own.of_each(own.cells, "counts", "noisy_count")
    if noisy is not None:
        yield _of_counts(noisy, counts, scale, every)
    if not np.isnan(mean).all():
        yield Noise.of(mean - grid[0] - means, step / n, scale, every)
    treated = np.flatnonzero(~np.isnan(difference))
    control = treated - 1  # the arms of a pool are neighbouring rows, control first
    scales = difference_scale(n[control], n[treated], scale)
    for own_scale in np.unique(scales):
        one, other = treated[scales == own_scale], control[scales == own_scale]
        steps = step / np.lcm(n[one], n[other])
        yield Noise.of(difference[one] - means[one] + means[other], steps, float(own_scale), one)


def _of_arms(
    arms: Sequence[str], design: AnyDesign, own: FileTables, counts: Ints
) -> Iterator[Noise]:
    """The noise in statistics of whole arms, likewise."""
    grid, arm = own.grid, own.cells["arm"].to_numpy()
    every_arm = pl.DataFrame({"arm": arms})
    first = np.array([int(np.argmax(arm == name)) for name in arms])
    counts = np.array([counts[arm == name].sum(axis=0) for name in arms])
    noisy = own.of_each(every_arm, "arm_counts", "noisy_count")
    squares = own.of_each(every_arm, "squares", "noisy_square")
    if noisy is not None:
        scale = float(own.frames["arm_counts"]["noise_scale"][0])
        yield _of_counts(noisy, counts, scale, first)
    steps_of_squares = design.mechanism.parameters.squares
    if squares is not None and steps_of_squares is not None:
        unit = np.array(steps_of_squares.steps.step_of(grid.tolist()))
        scale = float(own.frames["squares"]["noise_scale"][0] / unit)
        exact = counts @ (grid - (grid[0] + grid[-1]) / 2.0) ** 2
        yield Noise.of(squares[:, 0] - exact, unit, scale, first)


def _of_counts(noisy: Floats, counts: Ints, scale: float, cells: Ints) -> Noise:
    """Of two counts the upper is noised, and the other is what it leaves."""
    noise = np.rint(noisy).astype(np.int64) - counts
    is_one = counts.shape[1] == 2 and np.array_equal(noise[:, 0], -noise[:, 1])
    return Noise(noise[:, 1:] if is_one else noise, scale, cells)
