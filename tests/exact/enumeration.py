"""The whole output distribution of a small release on two neighbouring data sets, and its loss.

A stratum publishes noisy counts Ñ, the prior q̃ computed from them, and every unit's randomised
outcome. Once Ñ is known, only the changed unit's ỹ tells D from D′. Everything is discrete, so the
outcomes can be listed with their probabilities, and the list shows the exact loss. The proof of the
guarantee is not used: no bound on a ratio, no dominating pair.

**How so many outcomes are listed.** q̃ of a cell depends on that cell's clipped count and on the
total of the clipped counts. A clipped count is either γ or k/n, so the total is m γ + s/n for whole
m and s: a lattice of integers on which the cells add up exactly. The product's own code computes
the prior, for one full vector of counts for each (cell, total). Vectors with the same total can
differ in the last bits of q̃, by up to 4 K 2⁻⁵³. The error of the listed losses is therefore at most
4 K 2⁻⁵³/γ, 10⁻¹¹ for K = 5 and γ = 0.001, and they are never above what a q̃ ≥ γ allows.

A noisy sum, where one is published, is listed by its distance from the true value: the prior is
uniform then.

**What is left out.** Noisy counts are listed from −margin to n + margin. Further out, q̃ stays the
same and so does the ratio of probabilities, hence no greater loss is missed. ``tail_mass`` bounds
the probability of all that is left out, and is added to δ.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import Parameters, StrataStatistic
from privatizers.mechanisms.prior import realised_prior, uniform_prior
from schemas.arrays import Floats, Ints
from tests.exact.count_lattice import CountLattice, loss_of, mass_of, own_prior, sum_groups
from tests.exact.neighbours import Instance, worst_instances

_TAIL = 40.0  # margin in scales: e⁻⁴⁰ = 4e-18 of a cell's noise lies beyond
_MOST_MARGIN = 1_000_000  # bounds memory for enormous scales; the rest is in `tail_mass`


@dataclass(frozen=True)
class Model:
    """What a mechanism states that it does to a stratum."""

    parameters: Parameters
    own_prior: bool
    """Whether the prior is computed from the noisy counts; otherwise it is uniform."""
    complement: bool
    """Whether two outcomes share one noise, one count being the other's complement."""


def model_of(mechanism: Mechanism) -> Model:
    """Return the model of one of the product's mechanisms, by its name."""
    parameters = mechanism.parameters
    has_prior = mechanism.name != "uniform-prior-dp"
    return Model(parameters, has_prior, complement=parameters.n_outcomes == 2)


@dataclass(frozen=True)
class Enumeration:
    """The outcomes of one instance; equal ones are merged."""

    instance: Instance
    mass: Floats
    """Probability under D of each outcome."""
    loss: Floats
    """Logarithm of the ratio of each outcome's probabilities under D and D′."""
    margin: int
    """Noisy counts are listed from −margin to n + margin."""
    tail_mass: float
    """Bound on the probability, under D and under D′, of everything not listed."""

    @property
    def epsilon(self) -> float:
        """The greatest loss of any outcome, in either direction: the exact ε of the instance."""
        return float(np.abs(self.loss).max())

    def delta_at(self, epsilon: float) -> float:
        """Return an upper bound on δ(ε) of the instance, the greater of both directions.

        Σ (P − e^ε Q)₊ over the outcomes listed, plus ``tail_mass`` for all others.
        """
        return self.listed_delta_at(epsilon) + self.tail_mass

    def listed_delta_at(self, epsilon: float) -> float:
        """Return δ(ε) of the listed outcomes alone, at most ``tail_mass`` below the exact one."""
        forward = -np.expm1(epsilon - self.loss)
        backward = -np.expm1(epsilon + self.loss) * np.exp(-self.loss)
        return float(max(self.mass @ forward.clip(0), self.mass @ backward.clip(0)))

    def epsilon_at(self, delta: float) -> float:
        """Return the least ε ≥ 0 at which :meth:`listed_delta_at` is at most ``delta``.

        ε = max over sets A of outcomes of ln((P(A) − δ)/Q(A)); by Neyman and Pearson's lemma only
        sets of the greatest losses need to be tried.
        """
        if delta == 0:
            return self.epsilon
        return max(0.0, *(_greatest_epsilon(p, q, delta) for p, q in self.prefixes()))

    def prefixes(self) -> list[tuple[Floats, Floats]]:
        """Return P(A) and Q(A) of the sets of the greatest losses, for either direction."""
        order = np.argsort(-self.loss, kind="stable")
        p, q = self.mass[order], (self.mass * np.exp(-self.loss))[order]
        return [(np.cumsum(p), np.cumsum(q)), (np.cumsum(q[::-1]), np.cumsum(p[::-1]))]


def enumerate_outcomes(model: Model, instance: Instance, margin: int | None = None) -> Enumeration:
    """List the outcomes of ``model`` for ``instance`` and its neighbour.

    Noisy counts are listed up to ``margin`` beyond 0 … n; by default 40 σ, at most a million.
    """
    scale = model.parameters.noise_scale
    if margin is None:
        margin = 0 if scale is None else math.ceil(min(_TAIL * scale, _MOST_MARGIN))
    giving, taking = _views(model, instance, margin)
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
        margin,
        _tail_mass(model, margin),
    )


def enumerate_statistic(parameters: StrataStatistic, instance: Instance) -> Enumeration:
    """List the outcomes of a stratum's statistic alone: noisy counts or a sum, and no units."""
    k, scale, lattice = instance.n_outcomes, parameters.noise_scale, parameters.lattice
    if scale is None:
        raise ValueError("nothing is published of the stratum")
    # Views hold no draws of units, so λ and γ do not matter.
    model = Model(Parameters.of(k, 0.5, 1 / k, scale, lattice), own_prior=False, complement=k == 2)
    margin = math.ceil(min(_TAIL * scale, _MOST_MARGIN))
    view, _ = _views(model, instance, margin)
    return Enumeration(instance, view.mass, view.loss, margin, _tail_mass(model, margin))


def enumerate_number(instance: Instance, moved: int, scale: float) -> Enumeration:
    """List a whole number with noise of ``scale``, which the change moves by ``moved``.

    All numbers beyond 0 have the same loss, and so have those beyond ``moved``.
    """
    margin = math.ceil(min(_TAIL * scale, _MOST_MARGIN))
    low, high = min(moved, 0), max(moved, 0)
    noisy = np.arange(low - margin, high + margin + 1)
    tail = 2 * math.exp(-(margin + 1) / scale) / (1 + math.exp(-1 / scale))
    mass = sum_groups(np.clip(noisy, low, high) - low, mass_of(noisy, 0, scale))
    loss = loss_of(np.arange(low, high + 1), 0, moved, scale)
    return Enumeration(instance, mass, loss, margin, tail)


def with_squares(parameters: StrataStatistic, listed: Enumeration) -> Enumeration:
    """Add the noisy sum of squares of the arm, if one is published; its noise is independent.

    Every pair of outcomes is an outcome: masses are multiplied and losses added.
    """
    if parameters.squares is None:
        return listed
    return _beside(listed, parameters.squares.steps.steps, parameters.squares.noise_scale)


def with_margins(parameters: StrataStatistic, listed: Enumeration) -> Enumeration:
    """Add the noisy sums of the one cell of each margin that the unit is in, likewise."""
    if parameters.margins is None:
        return listed
    for scale in parameters.margins.noise_scales:
        listed = _beside(listed, parameters.margins.lattice.steps, scale)
    return listed


def _beside(listed: Enumeration, steps: tuple[int, ...], scale: float) -> Enumeration:
    """Add a noisy sum of what outcomes count as, in ``steps``."""
    instance = listed.instance
    moved = steps[instance.to_cell] - steps[instance.from_cell]
    number = enumerate_number(instance, moved, scale)
    return Enumeration(
        instance,
        np.outer(listed.mass, number.mass).ravel(),
        np.add.outer(listed.loss, number.loss).ravel(),
        listed.margin,
        listed.tail_mass + number.tail_mass,
    )


def neighbours(parameters: StrataStatistic, n_units: int) -> list[Instance]:
    """Return neighbours of ``n_units`` among which the greatest loss is expected.

    With sums of squares they include neighbours whose outcome goes to the middle of the grid, which
    changes the squares most; from one end to the other changes the sum of outcomes most, and the
    squares not at all.
    """
    instances = worst_instances(n_units, parameters.n_outcomes)
    if parameters.squares is None:
        return instances
    middle = int(np.argmin(parameters.squares.steps.steps))
    return instances + [replace(instance, to_cell=middle) for instance in instances]


def _greatest_epsilon(p: Floats, q: Floats, delta: float) -> float:
    """Return the greatest ln((P(A) − δ)/Q(A)) of these sets; −∞ where no P(A) is above δ."""
    used = (p > delta) & (q > 0)
    ratios = (p[used] - delta) / q[used]
    return math.log(ratios.max()) if len(ratios) else -math.inf


@dataclass(frozen=True)
class _View:
    """The outcomes of the noisy counts, with the prior of one changing outcome; shape [M] each."""

    mass: Floats
    """Probability under D."""
    loss: Floats
    """Logarithm of the ratio of the probabilities under D and D′."""
    prior: Floats


@dataclass(frozen=True)
class _Cell:
    """The noisy count of a cell, grouped by clipped count and by loss; shape [G] each."""

    level: Ints
    """0 where the count is clipped to γ, else its steps of 1/n above the last clipped count."""
    mass: Floats
    loss: Floats


def _views(model: Model, instance: Instance, margin: int) -> tuple[_View, _View]:
    """Return the views with the priors of the outcome given up and of the outcome taken."""
    scale = model.parameters.noise_scale
    if scale is None:
        return _uniform_views(model, instance, np.ones(1), np.zeros(1))
    if model.parameters.lattice is not None:
        return _sum_views(model, instance, model.parameters.lattice, scale, margin)
    if model.complement:
        return _complement_views(model, instance, scale, margin)
    gamma = model.parameters.truncation_threshold
    lattice = _lattice(instance.n_units, instance.n_outcomes, gamma)
    giving = _changed_cell(lattice, instance, instance.from_cell, scale, margin)
    taking = _changed_cell(lattice, instance, instance.to_cell, scale, margin)
    if not model.own_prior:
        mass = np.multiply.outer(giving.mass, taking.mass).ravel()
        return _uniform_views(model, instance, mass, np.add.outer(giving.loss, taking.loss).ravel())
    rest = _Totals(lattice.nothing(), lattice.nothing())
    for count in instance.unmoved:
        rest = rest.plus(lattice, lattice.level_mass(count, scale, margin), lattice.anything())
    return _coupled_view(lattice, giving, taking, rest), _coupled_view(
        lattice, taking, giving, rest
    )


@lru_cache(maxsize=4)
def _lattice(n_units: int, n_outcomes: int, gamma: float) -> CountLattice:
    """Return the lattice, and so the table of priors, of all instances of a size."""
    return CountLattice(n_units, n_outcomes, gamma)


def _uniform_views(
    model: Model, instance: Instance, mass: Floats, loss: Floats
) -> tuple[_View, _View]:
    """Return views with the uniform prior, for any counts."""
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
    model: Model, instance: Instance, lattice: Lattice, scale: float, margin: int
) -> tuple[_View, _View]:
    """Return views of a noisy sum, listed by its distance from the true value."""
    moved = lattice.steps[instance.to_cell] - lattice.steps[instance.from_cell]
    noisy = np.arange(min(moved, 0) - margin, max(moved, 0) + margin + 1)
    return _uniform_views(
        model, instance, mass_of(noisy, 0, scale), loss_of(noisy, 0, moved, scale)
    )


def _complement_views(
    model: Model, instance: Instance, scale: float, margin: int
) -> tuple[_View, _View]:
    """Return views where the upper of two counts has noise and the lower is n less the upper."""
    upper = np.arange(-margin, instance.n_units + margin + 1)
    mass = mass_of(upper, instance.counts[1], scale)
    loss = loss_of(upper, instance.counts[1], instance.neighbour[1], scale)
    if not model.own_prior:
        return _uniform_views(model, instance, mass, loss)
    noisy = np.stack([instance.n_units - upper, upper], axis=1)
    prior = own_prior(noisy, instance.n_units, model.parameters.truncation_threshold)
    giving, taking = (
        _View(mass, loss, prior[:, cell]) for cell in (instance.from_cell, instance.to_cell)
    )
    return giving, taking


def _changed_cell(
    lattice: CountLattice, instance: Instance, cell: int, scale: float, margin: int
) -> _Cell:
    """Return the noisy count of one of the two cells that change."""
    noisy = np.arange(-margin, instance.n_units + margin + 1)
    loss = loss_of(noisy, instance.counts[cell], instance.neighbour[cell], scale)
    facts = np.stack([lattice.levels(noisy), loss], axis=1)
    groups, group = np.unique(facts, axis=0, return_inverse=True)
    mass = sum_groups(group, mass_of(noisy, instance.counts[cell], scale))
    return _Cell(groups[:, 0].astype(np.int64), mass, groups[:, 1])


@dataclass(frozen=True)
class _Totals:
    """The totals of some cells: the probability of each (m, s), and which of them can occur.

    A total that can occur may have a probability that is too small for a double.
    """

    mass: Floats
    possible: Floats
    """Above 0 where the total can occur."""

    def plus(self, lattice: CountLattice, level_mass: Floats, levels: Floats) -> "_Totals":
        """Return the totals with one more cell, its level masses, and 1 at its possible levels."""
        possible = np.minimum(lattice.plus(self.possible, levels), 1.0)
        return _Totals(lattice.plus(self.mass, level_mass), possible)


def _coupled_view(lattice: CountLattice, cell: _Cell, other: _Cell, rest: _Totals) -> _View:
    """Return the view of one changing cell, with the totals of the other one and the rest.

    The other changing cell is added level by level, separately for each value of its loss.
    """
    parts = []
    for loss in np.unique(other.loss):
        equal = other.loss == loss
        levels = sum_groups(other.level[equal], np.ones(equal.sum()), lattice.n_levels)
        level_mass = sum_groups(other.level[equal], other.mass[equal], lattice.n_levels)
        totals = rest.plus(lattice, level_mass, levels)
        possible = totals.possible[lattice.states] > 0
        mass = np.multiply.outer(cell.mass, totals.mass[lattice.states][possible])
        losses = np.broadcast_to((cell.loss + loss)[:, np.newaxis], mass.shape)
        prior = lattice.priors[:, possible][cell.level]
        parts.append((mass.ravel(), losses.ravel(), prior.ravel()))
    mass, losses, prior = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _View(mass, losses, prior)


def _other_draws(
    giving: _View, taking: _View, rate: float, n_outcomes: int
) -> tuple[Floats, Floats]:
    """Return mass and loss of the outcomes in which ỹ is neither of the two changing outcomes.

    Only the counts tell D from D′ then. For each loss of the counts the probability is
    λ (P − E q̃ − E q̃′), where the two views list the same counts.
    """
    if n_outcomes == 2:
        return np.empty(0), np.empty(0)
    losses, group = np.unique(giving.loss, return_inverse=True)
    left = sum_groups(group, giving.mass * (1 - giving.prior))
    _, group = np.unique(taking.loss, return_inverse=True)
    left -= sum_groups(group, taking.mass * taking.prior)
    return rate * left.clip(0), losses  # below 0 by rounding alone


def _tail_mass(model: Model, margin: int) -> float:
    """Return at most 2 a^(margin + 1)/(1 + a) for each noised cell, a = e^(−1/σ): both tails."""
    scale = model.parameters.noise_scale
    if scale is None:
        return 0.0
    one_noise = model.complement or model.parameters.lattice is not None
    noised = 1 if one_noise else model.parameters.n_outcomes
    tail = 2 * math.exp(-(margin + 1) / scale) / (1 + math.exp(-1 / scale))
    return noised * tail
