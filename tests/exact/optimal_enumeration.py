"""Enumerations of Cluster-Optimal-DP: noisy counts, the table that they choose, an output.

Once the noisy counts are known, only the changed unit's output tells D from D′, and it is drawn
from the table that these counts choose. The product's own code chooses it, for every vector of
noisy counts that is listed; no bound on a ratio is used.

**Which counts are listed.** A noisy count has no bounds, and a table takes a programme to solve. So
the whole numbers are cut into intervals, within which a count's loss is the same, and each is
listed as one of its numbers, with the mass of all. This is the exact list of a release whose noisy
counts are rounded to these numbers before anything is made of them; with intervals of one number it
is that of the release itself, but for the two ends. The claim has to hold for both.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.noise.randomness import UNIT
from schemas.arrays import Floats
from tests.exact.enumeration import Enumeration, enumerate_number, neighbours
from tests.exact.neighbours import Instance

_SIZES = (2, 8)
_KNOWN = 4  # units times ε of the counts from which, roughly, tables are made of them
_MOST_OUTCOMES = 13  # that are solved for within tenths of a second
_MANY = 10_000
_IMPOSSIBLE = 500.0  # the loss of an output that one data set cannot give


@dataclass(frozen=True)
class Window:
    """How the noisy counts of a stratum are listed."""

    reach: int = 1
    """Intervals of a cell on either side, besides the two next to its count."""
    step: int = 1
    """Whole numbers in an interval; the last ones go on for ever."""
    unmoved_reach: int | None = None
    """The same of cells that do not change; None for one interval that holds everything."""
    arm_step: int = 1
    """Whole numbers in an interval of a count of the whole arm."""

    def of_steps(self, mechanism: ClusterOptimalDP, scales: float) -> "Window":
        """Return the window with intervals of so many scales of the noise."""
        steps = [
            1 if counts is None else math.ceil(scales * counts.noise_scale)
            for counts in (mechanism.parameters.counts, mechanism.parameters.arm_counts)
        ]
        return replace(self, step=steps[0], arm_step=steps[1])


@dataclass(frozen=True)
class ArmInstance(Instance):
    """A stratum in which a unit changes, and others of its arm, whose counts tell of it too."""

    others: tuple[tuple[int, ...], ...] = ()
    """Counts of the others."""


@dataclass(frozen=True)
class _Counts:
    """Noisy counts of one vector, its probability under D, and the log ratio of the two."""

    noisy: tuple[int, ...]
    mass: float
    loss: float


def enumerate_optimal(
    mechanism: ClusterOptimalDP, instance: Instance, window: Window | None = None
) -> Enumeration:
    """List the outcomes of a stratum, and of others of its arm, for an instance and its neighbour.

    Arms' sums of squares are left out.
    """
    parameters = mechanism.parameters
    masses, losses = [], []
    for published in _published(mechanism, instance, window or Window()):
        mass, loss = _outputs(mechanism, instance, published)
        masses.append(mass * math.prod(one.mass for one in published.all))
        losses.append(loss + math.fsum(one.loss for one in published.all))
    mass, loss = np.concatenate(masses), np.concatenate(losses)
    lattice, scale = parameters.lattice, parameters.noise_scale
    if lattice is None or scale is None:
        return Enumeration(instance, mass, loss, 0, 0.0)
    moved = lattice.steps[instance.to_cell] - lattice.steps[instance.from_cell]
    noisy_sum = enumerate_number(instance, moved, scale)
    return Enumeration(
        instance,
        np.outer(noisy_sum.mass, mass).ravel(),
        np.add.outer(noisy_sum.loss, loss).ravel(),
        noisy_sum.margin,
        noisy_sum.tail_mass,
    )


def optimal_enumerations(mechanism: ClusterOptimalDP) -> list[Enumeration]:
    """Enumerate neighbours of several sizes: tables by the public guess, and learnt ones.

    Learnt tables take a programme each, so few of them are listed, and fewer on fine grids.
    """
    parameters, k = mechanism.parameters, mechanism.parameters.n_outcomes
    small = [one for size in _SIZES for one in neighbours(parameters, size)]
    price = _least_price(mechanism)
    if price is None:
        return [enumerate_optimal(mechanism, one) for one in small]
    both = parameters.counts is not None and parameters.arm_counts is not None
    narrow = Window(2 if both else 8) if k == 2 else Window(1 if k <= 5 and not both else 0)
    narrow = narrow.of_steps(mechanism, 0.5)
    listed = [enumerate_optimal(mechanism, one, narrow) for one in small]
    solvable = k <= _MOST_OUTCOMES
    large = math.ceil(_KNOWN * (k if solvable else 1) / price) + 1
    wide = Window(1 if k <= 3 and not both else 0).of_steps(mechanism, 1.0)
    shapes = neighbours(parameters, large)
    of_learnt = shapes[-3:] if k <= 5 else shapes[-1:]
    listed += [enumerate_optimal(mechanism, one, wide) for one in of_learnt]
    if solvable:
        last = of_learnt[-1]
        pair = ArmInstance(last.counts, last.from_cell, last.to_cell, (last.counts[::-1],))
        listed.append(enumerate_optimal(mechanism, pair, replace(wide, reach=0)))
    return listed


def taught_instance(mechanism: ClusterOptimalDP) -> tuple[Instance, int]:
    """Return neighbours for which an arm's counts choose its tables, and how often to draw them.

    Each draw takes a programme.
    """
    parameters, k = mechanism.parameters, mechanism.parameters.n_outcomes
    price = _least_price(mechanism)
    if price is None:
        return neighbours(parameters, _SIZES[0])[0], _MANY
    n = math.ceil(_KNOWN / price)
    counts = (max(n - 1, 1),) + (0,) * (k - 2) + (1,)
    return Instance(counts, 0, k - 1), 150 if k <= 5 else 40 if k <= _MOST_OUTCOMES else 10


def _least_price(mechanism: ClusterOptimalDP) -> float | None:
    """Return what the cheapest counts that are published cost; None where there are none."""
    parameters = mechanism.parameters
    of_strata = 0.0 if parameters.counts is None else parameters.statistic_epsilon
    prices = [price for price in (of_strata, parameters.arm_counts_epsilon) if price > 0]
    return min(prices) if prices else None


@dataclass(frozen=True)
class _Published:
    """The noisy counts of one listed release: of its strata, and of their arm."""

    strata: tuple[_Counts, ...]
    arms: tuple[_Counts, ...]

    @property
    def all(self) -> tuple[_Counts, ...]:
        return self.strata + self.arms


def _published(
    mechanism: ClusterOptimalDP, instance: Instance, window: Window
) -> Iterator[_Published]:
    """List the noisy counts of the stratum that changes, of each other one, and of the arm."""
    parameters = mechanism.parameters
    others = instance.others if isinstance(instance, ArmInstance) else ()
    strata: Iterator[tuple[_Counts, ...]] = iter([()])
    arms: Iterator[tuple[_Counts, ...]] = iter([()])
    if parameters.counts is not None:
        scale = parameters.counts.noise_scale
        changing = _vectors(instance.counts, instance.neighbour, scale, window)
        still = [_vectors(counts, counts, scale, window) for counts in others]
        strata = itertools.product(changing, *still)
    if parameters.arm_counts is not None:
        rest = np.sum(np.array([(0,) * instance.n_outcomes, *others]), axis=0)
        here, there = (
            tuple((np.array(counts) + rest).tolist())
            for counts in (instance.counts, instance.neighbour)
        )
        of_arm = replace(window, step=window.arm_step)
        arms = ((one,) for one in _vectors(here, there, parameters.arm_counts.noise_scale, of_arm))
    return itertools.starmap(_Published, itertools.product(strata, arms))


def _outputs(
    mechanism: ClusterOptimalDP, instance: Instance, published: _Published
) -> tuple[Floats, Floats]:
    """Return the changed unit's outputs given the noisy counts: P(output | D), and its loss."""
    noisy, of_arms = (
        np.array([one.noisy for one in counts]) if counts else None
        for counts in (published.strata, published.arms)
    )
    others = instance.others if isinstance(instance, ArmInstance) else ()
    sizes = np.array([sum(counts) for counts in (instance.counts, *others)])
    response = mechanism.response(noisy, sizes, np.zeros(len(sizes), dtype=np.int64), of_arms)
    table = response.tables_used[int(response.table_of[0])].units
    here, there = table[instance.from_cell], table[instance.to_cell]
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(here.astype(np.float64)) - np.log(there.astype(np.float64))
    possible = (here > 0) | (there > 0)
    return here[possible] / UNIT, np.clip(loss[possible], -_IMPOSSIBLE, _IMPOSSIBLE)


def _vectors(
    counts: tuple[int, ...], neighbour: tuple[int, ...], scale: float, window: Window
) -> list[_Counts]:
    """List the noisy counts of a stratum; of two counts the lower is n less the upper."""
    k = len(counts)
    noised = range(1, 2) if k == 2 else range(k)
    lines = [_intervals(counts[cell], neighbour[cell], scale, window) for cell in noised]
    found = []
    for cells in itertools.product(*lines):
        noisy = tuple(value for value, _, _ in cells)
        if k == 2:
            noisy = (sum(counts) - noisy[0], *noisy)
        mass = math.prod(mass for _, mass, _ in cells)
        found.append(_Counts(noisy, mass, math.fsum(loss for _, _, loss in cells)))
    return found


def _intervals(
    count: int, neighbour: int, scale: float, window: Window
) -> list[tuple[int, float, float]]:
    """Cut a noisy count's values into intervals: a number of each, its mass, and its loss."""
    reach = window.reach
    if count == neighbour:
        if window.unmoved_reach is None:
            return [(count, 1.0, 0.0)]
        reach = window.unmoved_reach
    low, high = (count - 1, count) if count == neighbour else sorted((count, neighbour))
    # The first number of each interval above, the last of each below.
    ups = [high + window.step * place for place in range(reach + 1)]
    downs = [low - window.step * place for place in range(reach + 1)]
    found = []
    for firsts, sign in ((ups, 1), (downs, -1)):
        edges = [_beyond(first, count, scale, sign) for first in firsts] + [0.0]
        for first, mass, beyond in zip(firsts, edges, edges[1:], strict=False):
            loss = (abs(first - neighbour) - abs(first - count)) / scale
            found.append((first, mass - beyond, loss))
    return found


def _beyond(first: int, count: int, scale: float, sign: int) -> float:
    """Return P(Ñ ≥ first), or P(Ñ ≤ first) for ``sign`` −1, of discrete Laplace noise."""
    least = sign * (first - count)
    a = math.exp(-1.0 / scale)
    if least >= 1:
        return math.exp(-least / scale) / (1.0 + a)
    return 1.0 - math.exp(-(1 - least) / scale) / (1.0 + a)
