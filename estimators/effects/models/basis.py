"""The functions of the features that an effect model is made of: orthonormal under histograms.

    φ(x) = (1, φ_1(x_1) …, φ_d(x_d) …),   Σ_cells q_j φ_ja φ_jb = 1 if a = b else 0,

where q_j is the (noisy) histogram of feature j. A number has t, and t² where the degree is 2, both
made orthogonal to what stands before them; t = clip((x − m)/s, −2, 2) with mean m and standard
deviation s of its histogram. Levels have contrasts, one fewer than there are levels.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from schemas.arrays import Floats
from schemas.effects.model import Agreed, EffectDesign, Feature, LevelFeature, NumberFeature

_REACH = 2.0
"""Standard deviations from its mean at which a number's t is cut off."""
_LEAST_NORM = 0.15
"""A term of which less is left, orthogonal to those before it, is dropped: a number without
variation, or a square of one that has two values."""
_LEAST_SHARE = 0.02
"""Of a level: a rarer one would have a contrast that no row resembles."""

_PEOPLE = 1e6

INTERCEPT, LINEAR, CURVATURE, PAIR = range(4)
"""The kinds of terms: what one prior variance is learnt for."""


@dataclass(frozen=True)
class NumberTerms:
    """Polynomials of one number."""

    mean: float
    spread: float
    """s, in parts of the bounds' range, as ``mean``."""
    polynomials: Floats = field(repr=False)
    """Shape [terms, 3]: factors of 1, t and t²."""

    @property
    def n_terms(self) -> int:
        """How many functions of the number there are: 0, 1 or 2."""
        return int(self.polynomials.shape[0])

    def values(self, positions: Floats) -> Floats:
        """Return the functions at ``positions`` in [0, 1]; shapes [n] and [n, terms]."""
        t = np.clip((positions - self.mean) / self.spread, -_REACH, _REACH)
        one, linear, square = self.polynomials.T
        found: Floats = one + np.multiply.outer(t, linear) + np.multiply.outer(t * t, square)
        return found


@dataclass(frozen=True)
class LevelTerms:
    """Contrasts of the levels of one feature."""

    contrasts: Floats = field(repr=False)
    """Shape [levels, terms]."""

    @property
    def n_terms(self) -> int:
        """How many contrasts there are: one fewer than levels."""
        return int(self.contrasts.shape[1])

    def values(self, levels: Floats) -> Floats:
        """Return the contrasts of ``levels``, numbers from 0; shapes [n] and [n, terms]."""
        return self.contrasts[levels.astype(np.int64)]


Terms = NumberTerms | LevelTerms


@dataclass(frozen=True)
class Basis:
    """All functions of all features, with what their histograms say."""

    terms: tuple[Terms, ...]
    """By feature."""
    shares: tuple[Floats, ...] = field(repr=False)
    """By feature: its histogram, at least 0, adding up to 1."""
    pairs: tuple[tuple[int, int], ...]
    """Features whose first terms are multiplied: places among them."""
    pair_factors: Floats = field(repr=False)
    """Shape [pairs]: 1, but 0 where a feature of the pair has no term."""

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """The kind of each of the p functions."""
        found = [INTERCEPT]
        for terms in self.terms:
            if isinstance(terms, NumberTerms):
                found += [LINEAR, CURVATURE][: terms.n_terms]
            else:
                found += [LINEAR] * terms.n_terms
        return (*found, *([PAIR] * len(self.pairs)))

    @property
    def size(self) -> int:
        """Return p, the number of functions."""
        return len(self.kinds)

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """By feature: where its functions stand among the p."""
        ends = [1, *itertools.accumulate((terms.n_terms for terms in self.terms), initial=1)][1:]
        return tuple(slice(start, stop) for start, stop in itertools.pairwise(ends))

    def values(self, features: Floats) -> Floats:
        """Return φ, shape [n, p], for ``features`` of shape [n, d]."""
        phi = np.empty((len(features), self.size))
        phi[:, 0] = 1.0
        for feature, (terms, place) in enumerate(zip(self.terms, self.places, strict=True)):
            phi[:, place] = terms.values(features[:, feature])
        start = self.size - len(self.pairs)
        for number, (first, second) in enumerate(self.pairs):
            if self.pair_factors[number]:
                one, two = self.places[first].start, self.places[second].start
                phi[:, start + number] = phi[:, one] * phi[:, two]
            else:
                phi[:, start + number] = 0.0
        return phi

    def weighted(self, features: Floats) -> tuple[Floats, Floats]:
        """Return v = w φ, shape [n, p], and w = min(1, √p/|φ|), shape [n]: |v| ≤ √p.

        A weighted regression, not a trimmed one: w² is a row's weight.
        """
        phi = self.values(features)
        length = np.sqrt(by_row(phi, phi))
        weight = np.minimum(1.0, np.sqrt(self.size) / length)
        return phi * weight[:, None], weight


def by_row(functions: Floats, factors: Floats) -> Floats:
    """Return Σ_j φ_j f_j, shape [n], for ``functions`` [n, p] and ``factors`` [p] or [n, p].

    One after the other, so that a number follows from its row alone: the last digits of a library's
    product also hang on where a row stands, and on how many there are.
    """
    total = np.zeros(len(functions))
    for one, factor in zip(functions.T, factors.T, strict=True):
        total += one * factor
    return total


def basis_of(
    design: EffectDesign, counts: Sequence[Floats], noise_std: float, degree: int
) -> Basis:
    """Return the basis under histograms ``counts``, one of shape [cells] a feature, noise and all.

    ``noise_std`` is the standard deviation of the noise of a count, 0 where they are exact;
    ``degree`` 1 or 2.
    """
    terms: list[Terms] = []
    shares = []
    for feature, count in zip(design.features, counts, strict=True):
        share = _shares(feature, count, noise_std)
        shares.append(share)
        if isinstance(feature, NumberFeature):
            terms.append(_number_terms(share, degree))
        else:
            terms.append(LevelTerms(_orthonormal(np.eye(len(share))[:-1], share).T))
    pairs = tuple((design.place(one), design.place(two)) for one, two in design.pairs)
    factors = [float(all(terms[place].n_terms for place in pair)) for pair in pairs]
    return Basis(tuple(terms), tuple(shares), pairs, np.array(factors))


def usual_shares(design: EffectDesign, agreed: Agreed) -> list[Floats]:
    """Return the histogram of each feature as sites agreed on it, shape [cells] each.

    A normal one about the middle of what is usual, with half its width as standard deviation (of
    positions between the bounds); even where nothing was said. In units of a million people, so
    that fewer than half a one make an empty bin.
    """
    found = []
    for feature, usual in zip(design.features, agreed.usual, strict=True):
        share = np.ones(feature.n_cells)
        if usual is not None and isinstance(feature, NumberFeature):
            low, high = feature.positions(np.array(usual))
            away = (bin_centres(feature.n_cells) - (low + high) / 2.0) / ((high - low) / 2.0)
            share = np.exp(-(away**2) / 2.0)
        found.append(_PEOPLE * share / share.sum())
    return found


def _shares(feature: Feature, count: Floats, noise_std: float) -> Floats:
    """Return a histogram that is one: bins under a σ count as empty, rare levels as rare."""
    if isinstance(feature, LevelFeature):
        share = count / max(float(count.sum()), 1.0)
        share = np.maximum(share, _LEAST_SHARE)
    else:
        share = np.where(count < max(noise_std, 0.5), 0.0, count)
        if not share.any():
            share = np.ones(len(count))
    normal: Floats = share / share.sum()
    return normal


def counts_of(design: EffectDesign, features: Floats) -> list[Floats]:
    """Return the histogram of each feature, over the units that it is known of (no NaN)."""
    found = []
    for place, feature in enumerate(design.features):
        known = features[~np.isnan(features[:, place]), place]
        scale = 1 if isinstance(feature, LevelFeature) else feature.n_cells
        cell = np.minimum((known * scale).astype(np.int64), feature.n_cells - 1)
        found.append(np.bincount(cell, minlength=feature.n_cells).astype(np.float64))
    return found


def bin_centres(n_bins: int) -> Floats:
    """Return the centres of equal bins of [0, 1], shape [n_bins]."""
    return (np.arange(n_bins) + 0.5) / n_bins


def _number_terms(share: Floats, degree: int) -> NumberTerms:
    centres = bin_centres(len(share))
    mean = float(share @ centres)
    spread = max(float(np.sqrt(share @ (centres - mean) ** 2)), 1.0 / (4.0 * len(share)))
    t = np.clip((centres - mean) / spread, -_REACH, _REACH)
    powers = np.array([np.ones_like(t), t, t * t])
    made = [np.array([1.0, 0.0, 0.0])]
    for power in range(1, degree + 1):
        factors = np.zeros(3)
        factors[power] = 1.0
        for before in made:
            factors -= float(share @ ((before @ powers) * (factors @ powers))) * before
        norm = float(np.sqrt(share @ (factors @ powers) ** 2))
        if norm < _LEAST_NORM:
            break
        made.append(factors / norm)
    return NumberTerms(mean, spread, np.array(made[1:]).reshape(-1, 3))


def _orthonormal(functions: Floats, share: Floats) -> Floats:
    """Return what is left of ``functions`` [k, cells] orthogonal to 1 and to each other, of norm 1.

    Under the weights ``share``, all above 0; the k functions and 1 are linearly independent.
    """
    made = [np.ones(len(share))]
    for function in functions:
        left = function.copy()
        for before in made:
            left -= (share * before) @ left * before
        made.append(left / np.sqrt(share @ (left * left)))
    return np.array(made[1:]).reshape(-1, len(share))
