"""The whole output distribution of a small release on two neighbouring data sets, and its loss.

A stratum publishes noisy counts Ñ, the prior q̃ that it makes of them, and every unit's randomised
outcome; only the changed unit's ỹ tells D from D′ once Ñ is known. Everything is discrete, so the
outcomes can be listed with their probabilities, and the exact loss be read off the list. Nothing
of the proof of the guarantee is used: no bound on a ratio, no dominating pair.

**How so many outcomes are listed.** q̃ of a cell depends on that cell's clipped count and on the
total of the clipped counts. A clipped count is either γ or k/n, so the total is m γ + s/n for whole
m and s: a lattice of integers on which the cells add up exactly. The prior comes from the product's
own code, evaluated on a full vector of counts for each (cell, total); vectors with the same total
can differ in the last bits of q̃, by up to 4 K 2⁻⁵³. Losses listed are therefore good to 4 K 2⁻⁵³/γ,
10⁻¹¹ for K = 5 and γ = 0.001, and are never above what a q̃ ≥ γ allows.

A noisy sum, where that is published, is listed from its true value: the prior is uniform then.

**What is left out.** Noisy counts are listed from −reach to n + reach. Beyond, q̃ stays the same
and so does the ratio of probabilities, hence no greater loss is missed; the probability of it all
is bounded by ``tail_mass`` and added to δ.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from privatizers.audit.count_lattice import CountLattice, grouped, loss_of, mass_of, own_prior
from privatizers.audit.neighbours import Instance, worst_instances
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import Parameters, StrataStatistic
from privatizers.mechanisms.prior import realised_prior, uniform_prior
from schemas.arrays import Floats, Ints

_TAIL = 40.0  # reach in scales: e⁻⁴⁰ = 4e-18 of a cell's noise lies beyond
_MOST_REACH = 1_000_000  # bounds memory where the scale is enormous; `tail_mass` says what it costs


@dataclass(frozen=True)
class Model:
    """What a mechanism says it does to a stratum."""

    parameters: Parameters
    own_prior: bool
    """The prior is made of the noisy counts; else it is uniform."""
    complement: bool
    """One noise for two outcomes, the other count being its complement."""


def model_of(mechanism: Mechanism) -> Model:
    """The model of one of the product's mechanisms, which its name tells."""
    parameters = mechanism.parameters
    own = mechanism.name != "uniform-prior-dp"
    return Model(parameters, own, complement=parameters.n_outcomes == 2)


@dataclass(frozen=True)
class Enumeration:
    """Outcomes of one instance, those alike put together."""

    instance: Instance
    mass: Floats
    """Probability under D of each outcome."""
    loss: Floats
    """Logarithm of the ratio of its probabilities under D and D′."""
    reach: int
    """Noisy counts were listed from −reach to n + reach."""
    tail_mass: float
    """Bound on the probability, under D and under D′, of everything not listed."""

    @property
    def epsilon(self) -> float:
        """The greatest loss of any outcome, in either direction: the exact ε of the instance."""
        return float(np.abs(self.loss).max())

    def delta_at(self, epsilon: float) -> float:
        """δ(ε) of the instance, the greater of both directions, from above.

        Σ (P − e^ε Q)₊ over the outcomes listed, plus ``tail_mass`` for all others.
        """
        return self.listed_delta_at(epsilon) + self.tail_mass

    def listed_delta_at(self, epsilon: float) -> float:
        """δ(ε) of the outcomes listed alone, at most ``tail_mass`` below the exact one."""
        there = -np.expm1(epsilon - self.loss)
        back = -np.expm1(epsilon + self.loss) * np.exp(-self.loss)
        return float(max(self.mass @ there.clip(0), self.mass @ back.clip(0)))

    def epsilon_at(self, delta: float) -> float:
        """Return the least ε ≥ 0 at which :meth:`listed_delta_at` is at most ``delta``.

        ε = max over sets A of outcomes of ln((P(A) − δ)/Q(A)); by Neyman and Pearson's lemma sets
        of the greatest losses are enough.
        """
        if delta == 0:
            return self.epsilon
        return max(0.0, *(_prefix_epsilon(p, q, delta) for p, q in self.prefixes()))

    def prefixes(self) -> list[tuple[Floats, Floats]]:
        """P(A) and Q(A) of the sets of the greatest losses, for either direction."""
        order = np.argsort(-self.loss, kind="stable")
        p, q = self.mass[order], (self.mass * np.exp(-self.loss))[order]
        return [(np.cumsum(p), np.cumsum(q)), (np.cumsum(q[::-1]), np.cumsum(p[::-1]))]


def enumerated(model: Model, instance: Instance, reach: int | None = None) -> Enumeration:
    """List what ``model`` may publish of ``instance`` and of its neighbour.

    ``reach`` is how far noisy counts are listed beyond 0 … n; by default 40 σ, a million at most.
    """
    scale = model.parameters.noise_scale
    if reach is None:
        reach = 0 if scale is None else math.ceil(min(_TAIL * scale, _MOST_REACH))
    giving, taking = _views(model, instance, reach)
    rate = model.parameters.resampling_probability
    kept, drawn = 1 - rate + rate * giving.prior, rate * giving.prior
    kept_there, drawn_there = 1 - rate + rate * taking.prior, rate * taking.prior
    other_mass, other_loss = _other_draws(giving, taking, rate, instance.n_outcomes)
    return Enumeration(
        instance,
        np.concatenate([giving.mass * kept, taking.mass * drawn_there, other_mass]),
        np.concatenate(
            [
                giving.loss + np.log(kept / drawn),
                taking.loss - np.log(kept_there / drawn_there),
                other_loss,
            ]
        ),
        reach,
        _tail_mass(model, reach),
    )


def enumerated_statistic(parameters: StrataStatistic, instance: Instance) -> Enumeration:
    """List what a statistic of the stratum alone tells: noisy counts or a sum, and no unit."""
    k, scale, lattice = instance.n_outcomes, parameters.noise_scale, parameters.lattice
    if scale is None:
        raise ValueError("nothing is published of the stratum")
    # No draw enters a view by itself, so λ and γ do not matter.
    model = Model(Parameters.of(k, 0.5, 1 / k, scale, lattice), own_prior=False, complement=k == 2)
    reach = math.ceil(min(_TAIL * scale, _MOST_REACH))
    view, _ = _views(model, instance, reach)
    return Enumeration(instance, view.mass, view.loss, reach, _tail_mass(model, reach))


def enumerated_number(instance: Instance, moved: int, scale: float) -> Enumeration:
    """List one whole number with noise of ``scale``, which the change moves by ``moved``.

    Beyond 0 and ``moved`` all numbers tell the same.
    """
    reach = math.ceil(min(_TAIL * scale, _MOST_REACH))
    low, high = min(moved, 0), max(moved, 0)
    noisy = np.arange(low - reach, high + reach + 1)
    tail = 2 * math.exp(-(reach + 1) / scale) / (1 + math.exp(-1 / scale))
    mass = grouped(np.clip(noisy, low, high) - low, mass_of(noisy, 0, scale))
    loss = loss_of(np.arange(low, high + 1), 0, moved, scale)
    return Enumeration(instance, mass, loss, reach, tail)


def with_squares(parameters: StrataStatistic, found: Enumeration) -> Enumeration:
    """Add the noisy sum of squares of the arm, which is drawn by itself; nothing where none is.

    Every pair of outcomes of the two is an outcome: masses are multiplied and losses added.
    """
    squares, instance = parameters.squares, found.instance
    if squares is None:
        return found
    steps = squares.steps.steps
    moved = steps[instance.to_cell] - steps[instance.from_cell]
    own = enumerated_number(instance, moved, squares.noise_scale)
    return Enumeration(
        instance,
        np.outer(found.mass, own.mass).ravel(),
        np.add.outer(found.loss, own.loss).ravel(),
        found.reach,
        found.tail_mass + own.tail_mass,
    )


def neighbours(parameters: StrataStatistic, n_units: int) -> list[Instance]:
    """Neighbours of ``n_units`` that are worth looking at for what is published.

    With sums of squares also those whose outcome goes to the middle of the grid, which moves the
    squares most; from one end to the other it moves the sum of outcomes most, and squares not.
    """
    found = worst_instances(n_units, parameters.n_outcomes)
    if parameters.squares is None:
        return found
    middle = int(np.argmin(parameters.squares.steps.steps))
    return found + [replace(each, to_cell=middle) for each in found]


def _prefix_epsilon(p: Floats, q: Floats, delta: float) -> float:
    """Return the greatest ln((P(A) − δ)/Q(A)) of the sets given, −∞ where δ covers them all."""
    tells = (p > delta) & (q > 0)
    ratios = (p[tells] - delta) / q[tells]
    return math.log(ratios.max()) if len(ratios) else -math.inf


@dataclass(frozen=True)
class _View:
    """What the noisy counts say, and the prior of one of the two outcomes; all of shape [M]."""

    mass: Floats
    """Probability under D."""
    loss: Floats
    """Logarithm of the ratio of the probabilities under D and D′."""
    prior: Floats


@dataclass(frozen=True)
class _Cell:
    """The noisy count of a cell, by clipped count and by what it says of the change; shape [G]."""

    level: Ints
    """0 where it is clipped to γ, else the steps of 1/n above the last count that is."""
    mass: Floats
    loss: Floats


def _views(model: Model, instance: Instance, reach: int) -> tuple[_View, _View]:
    """What the counts say beside the prior of the outcome given up, and of the one taken."""
    scale = model.parameters.noise_scale
    if scale is None:
        one = np.ones(1)
        return _constant(model, instance, one, np.zeros(1))
    if model.parameters.lattice is not None:
        return _sum_views(model, instance, model.parameters.lattice, scale, reach)
    if model.complement:
        return _complement_views(model, instance, scale, reach)
    gamma = model.parameters.truncation_threshold
    lattice = _lattice(instance.n_units, instance.n_outcomes, gamma)
    giving = _moved(lattice, instance, instance.from_cell, scale, reach)
    taking = _moved(lattice, instance, instance.to_cell, scale, reach)
    if not model.own_prior:
        mass = np.multiply.outer(giving.mass, taking.mass).ravel()
        return _constant(model, instance, mass, np.add.outer(giving.loss, taking.loss).ravel())
    rest = _Totals(lattice.nothing(), lattice.nothing())
    for count in instance.unmoved:
        rest = rest.plus(lattice, lattice.level_mass(count, scale, reach), lattice.anything())
    return _coupled(lattice, giving, taking, rest), _coupled(lattice, taking, giving, rest)


@lru_cache(maxsize=4)
def _lattice(n_units: int, n_outcomes: int, gamma: float) -> CountLattice:
    """One lattice, and one table of priors, for all instances of a size."""
    return CountLattice(n_units, n_outcomes, gamma)


def _constant(model: Model, instance: Instance, mass: Floats, loss: Floats) -> tuple[_View, _View]:
    """Views where the prior is uniform, whatever the counts say."""
    parameters = model.parameters
    prior = realised_prior(
        uniform_prior(1, parameters.n_outcomes), parameters.truncation_threshold
    )[0]
    giving, taking = (
        _View(mass, loss, np.full_like(mass, prior[cell]))
        for cell in (instance.from_cell, instance.to_cell)
    )
    return giving, taking


def _sum_views(
    model: Model, instance: Instance, lattice: Lattice, scale: float, reach: int
) -> tuple[_View, _View]:
    """Views where the sum is noised: it is listed from its true value, which alone matters."""
    moved = lattice.steps[instance.to_cell] - lattice.steps[instance.from_cell]
    noisy = np.arange(min(moved, 0) - reach, max(moved, 0) + reach + 1)
    return _constant(model, instance, mass_of(noisy, 0, scale), loss_of(noisy, 0, moved, scale))


def _complement_views(
    model: Model, instance: Instance, scale: float, reach: int
) -> tuple[_View, _View]:
    """Views where the upper of two counts is noised and the lower is what it leaves of n."""
    upper = np.arange(-reach, instance.n_units + reach + 1)
    mass = mass_of(upper, instance.counts[1], scale)
    loss = loss_of(upper, instance.counts[1], instance.neighbour[1], scale)
    if not model.own_prior:
        return _constant(model, instance, mass, loss)
    noisy = np.stack([instance.n_units - upper, upper], axis=1)
    prior = own_prior(noisy, instance.n_units, model.parameters.truncation_threshold)
    giving, taking = (
        _View(mass, loss, prior[:, cell]) for cell in (instance.from_cell, instance.to_cell)
    )
    return giving, taking


def _moved(lattice: CountLattice, instance: Instance, cell: int, scale: float, reach: int) -> _Cell:
    """The noisy count of one of the two cells that the change moves."""
    noisy = np.arange(-reach, instance.n_units + reach + 1)
    loss = loss_of(noisy, instance.counts[cell], instance.neighbour[cell], scale)
    alike = np.stack([lattice.levels(noisy), loss], axis=1)
    groups, group = np.unique(alike, axis=0, return_inverse=True)
    mass = grouped(group, mass_of(noisy, instance.counts[cell], scale))
    return _Cell(groups[:, 0].astype(np.int64), mass, groups[:, 1])


@dataclass(frozen=True)
class _Totals:
    """What some cells add up to: the probability of each (m, s), and which of them can occur.

    The second tells impossible totals from those whose probability is too small for a double.
    """

    mass: Floats
    possible: Floats
    """Above 0 where the total can occur."""

    def plus(self, lattice: CountLattice, level_mass: Floats, levels: Floats) -> "_Totals":
        """One cell more, with its level masses, and 1 at the levels that it can have."""
        possible = np.minimum(lattice.plus(self.possible, levels), 1.0)
        return _Totals(lattice.plus(self.mass, level_mass), possible)


def _coupled(lattice: CountLattice, own: _Cell, other: _Cell, rest: _Totals) -> _View:
    """The view of one moved cell, with the other and the rest of them added up.

    The other moved cell enters by its level, and by each value of its own loss apart.
    """
    parts = []
    for loss in np.unique(other.loss):
        alike = other.loss == loss
        levels = grouped(other.level[alike], np.ones(alike.sum()), lattice.n_levels)
        level_mass = grouped(other.level[alike], other.mass[alike], lattice.n_levels)
        totals = rest.plus(lattice, level_mass, levels)
        possible = totals.possible[lattice.states] > 0
        mass = np.multiply.outer(own.mass, totals.mass[lattice.states][possible])
        losses = np.broadcast_to((own.loss + loss)[:, np.newaxis], mass.shape)
        prior = lattice.priors[:, possible][own.level]
        parts.append((mass.ravel(), losses.ravel(), prior.ravel()))
    mass, losses, prior = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _View(mass, losses, prior)


def _other_draws(
    giving: _View, taking: _View, rate: float, n_outcomes: int
) -> tuple[Floats, Floats]:
    """Mass and loss of the outcomes in which ỹ is neither of the two that the change concerns.

    Only the counts tell then: by the loss of the counts, λ (P − E q̃ − E q̃′) of probability, where
    the two views list the same counts.
    """
    if n_outcomes == 2:
        return np.empty(0), np.empty(0)
    losses, group = np.unique(giving.loss, return_inverse=True)
    left = grouped(group, giving.mass * (1 - giving.prior))
    _, group = np.unique(taking.loss, return_inverse=True)
    left -= grouped(group, taking.mass * taking.prior)
    return rate * left.clip(0), losses  # below 0 by rounding alone


def _tail_mass(model: Model, reach: int) -> float:
    """At most 2 a^(reach + 1)/(1 + a) for each noised cell, a = e^(−1/σ): both tails."""
    scale = model.parameters.noise_scale
    if scale is None:
        return 0.0
    one_noise = model.complement or model.parameters.lattice is not None
    noised = 1 if one_noise else model.parameters.n_outcomes
    tail = 2 * math.exp(-(reach + 1) / scale) / (1 + math.exp(-1 / scale))
    return noised * tail
