"""One effect from those that several sites report: aggregates, and a test of homogeneity.

Site j reports an effect τ_j, an estimate s_j² of its variance and its number of units N_j, all of
them released already, so nothing here costs privacy. Each aggregate is a weighted mean Σ w_j τ_j,
Σ w_j = 1, and its variance Σ w_j² s_j² (Koga, Chaudhuri and Page, Algorithm 3 and the baselines of
their Section IV):

- ``mvagg``: w_j = N_j/N_I on the set I of sites that makes the variance least;
- ``ivw``: w_j ∝ 1/s_j²;
- ``all``: w_j = N_j/ΣN;
- ``largest``: the site with most units alone;
- ``ivw-pooled`` (ours, :func:`ivw_pooled`): ``ivw`` where people were dealt to sites at random.

All of these assume that every site has the same effect. The weights of ``mvagg`` and ``ivw`` come
from *reported* variances, and the variances stated for these aggregates take the weights as given.
They are somewhat too small where the reports are noisy, because sites that look good get more
weight. Where sites differ, ``all`` is the effect among the people of these sites, and ``mvagg`` and
``ivw`` weigh effects by noise, which answers no question; their intervals then leave out that
sites differ. What holds whether they differ or not is ``mean-of-sites`` (:func:`mean_of_sites`):
the effect at a typical site.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from estimators.special import chdtrc, chdtri, ndtri, stdtrit
from schemas.arrays import Floats, Ints

METHODS: Final = ("mvagg", "ivw", "all", "largest")
IVW_POOLED: Final = "ivw-pooled"
MEAN_OF_SITES: Final = "mean-of-sites"
LEAST_LEVEL: Final = 0.917
"""From this level on the t interval of the mean of sites covers what it says (Bakirov, Székely)."""
HOMOGENEITY_ALARM: Final = 0.05
"""The p-value of Cochran's Q under which the sites do not look like having one effect."""
_HALVINGS = 200  # of [0, the greatest τ²], until no double lies between


@dataclass(frozen=True, eq=False)
class Sites:
    """What J sites reported; shape [J] each, J at least 1."""

    estimate: Floats
    """τ_j, in the unit of the outcomes."""
    variance: Floats
    """s_j², in that unit squared; not negative (:func:`clamp_variances`)."""
    n_units: Floats
    """N_j, greater than 0."""

    def __post_init__(self) -> None:
        """Refuse numbers that no set of sites can have reported."""
        shapes = {self.estimate.shape, self.variance.shape, self.n_units.shape}
        sound = (
            len(shapes) == 1
            and self.estimate.ndim == 1
            and len(self.estimate) > 0
            and bool(np.isfinite(self.estimate).all())
            and bool(np.isfinite(self.variance).all() and (self.variance >= 0).all())
            and bool(np.isfinite(self.n_units).all() and (self.n_units > 0).all())
        )
        if not sound:
            raise ValueError(
                "sites need finite estimates, variances of at least 0 and units, of one length"
            )


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One effect made of those of several sites."""

    method: str
    estimate: float
    variance: float
    """Variance given the weights; see the head of this module."""
    used: Ints
    """Positions of the sites that have a weight, increasing; shape [sites used]."""
    weights: Floats
    """Of these sites, adding up to one; shape [sites used]."""

    def interval(self, level: float) -> tuple[float, float]:
        """Return its interval, a normal one by its variance (:func:`normal_interval`)."""
        return normal_interval(self.estimate, self.variance, level)


@dataclass(frozen=True, eq=False)
class MeanOfSites(Aggregate):
    """The unweighted mean of sites with its t interval, and how much the sites differ."""

    tau: float
    """Standard deviation τ of the sites' true effects, in the unit of the outcomes."""
    sites: Sites

    def interval(self, level: float) -> tuple[float, float]:
        """Return bounds of the effect at a typical site (:func:`mean_bounds`)."""
        lower, upper = mean_bounds(self.sites.estimate, level)
        return float(lower), float(upper)

    def tau_interval(self, level: float) -> tuple[float, float]:
        """Return bounds of τ: Q(τ²) is between two quantiles of χ² (Viechtbauer 2007).

        They hold so far as reports are normal and their variances known.
        """
        tails = (1.0 - level) / 2.0, (1.0 + level) / 2.0
        lower, upper = (float(chdtri(len(self.used) - 1, one)) for one in tails)
        return _spread_where(self.sites, lower) ** 0.5, _spread_where(self.sites, upper) ** 0.5


@dataclass(frozen=True)
class Homogeneity:
    """Cochran's test that the sites have one effect."""

    q: float
    degrees_of_freedom: int
    p_value: float
    i_squared: float
    """Share of the spread between sites that their variances do not explain: (Q − df)/Q."""

    @property
    def doubtful(self) -> bool:
        """Whether the sites do not look like having one effect."""
        return self.p_value < HOMOGENEITY_ALARM


def clamp_variances(variance: Floats, floor: Floats) -> tuple[Floats, Ints]:
    """Return variances of at least ``floor``, and the positions of those that were below it.

    A noisy estimate of a variance can come out negative. An estimate with noise of a known variance
    varies by at least that variance, so ``floor`` is the variance of the noise where a site states
    it (0 where not). With a variance of 0, a site would count as exact and outweigh all others.
    Both arguments have shape [J].
    """
    least = np.maximum(floor, 0.0)
    return np.maximum(variance, least), np.flatnonzero(variance < least)


def aggregates(sites: Sites) -> tuple[Aggregate, ...]:
    """Return the aggregate by each of :data:`METHODS`, in that order."""
    return mvagg(sites), ivw(sites), aggregate_all(sites), largest(sites)


def mvagg(sites: Sites) -> Aggregate:
    """Return the mean weighted by units over the set of sites with the least variance, exactly.

    I* = argmin_I A(I)/B(I)²,  A = Σ_{j∈I} N_j² s_j²,  B = Σ_{j∈I} N_j   (Algorithm 3),

    which the paper searches for among all 2^J sets. It is a prefix of the sites in increasing order
    of k_j = N_j s_j²: A/B² is quasi-concave on B > 0 (its sets {A ≥ c B²} are convex), so its least
    value over the convex hull of the points (A(I), B(I)) is at a corner, and a corner minimises
    A − t B = Σ_{j∈I} N_j (k_j − t) for some t, hence holds the sites with k_j < t and none with
    k_j > t (sites with k_j = t lie on the edge between two corners). O(J log J). Of prefixes that
    are equally good the longest is taken: where variances are 0, all sites with a variance of 0.
    """
    share = sites.n_units / sites.n_units.max()  # so that no square overflows
    scale = sites.variance.max() or 1.0
    cost = share * (sites.variance / scale)
    order = np.argsort(cost, kind="stable")
    within = np.cumsum(share[order])
    variance = np.cumsum(share[order] * cost[order]) / within**2
    length = len(variance) - int(np.argmin(variance[::-1]))
    return _by_units(sites, "mvagg", np.sort(order[:length]))


def ivw(sites: Sites) -> Aggregate:
    """Return the mean weighted by 1/s_j², w_j = (1/s_j²) / Σ 1/s².

    Its variance 1/Σ(1/s²) is the least of all weighted means. Sites with a variance of 0 outweigh
    every other; among themselves they are weighted by units.
    """
    least = float(sites.variance.min())
    if least == 0:
        return _by_units(sites, "ivw", np.flatnonzero(sites.variance == 0))
    weights = least / sites.variance
    return _weighted(sites, "ivw", np.arange(len(weights)), weights)


def ivw_pooled(sites: Sites, noise: Floats, epsilon: Floats) -> Aggregate:
    """Return ``ivw`` of people who were dealt to sites at random, so that they spread alike.

    Site j then varies by v_j + c/N_j, v_j the variance of its ``noise``, with one c for all. Of
    what it reports of c, N_j (s_j² − v_j), noise has a standard error of at most e_j = N_j v_j ε_j
    (every estimator, at default shares). c is the mean of max(N_j (s_j² − v_j) − e_j, 0) by weights
    1/e_j²: less e_j, as reports are clipped at 0 and a c that noise made up is worse than none.
    It chooses weights alone: the variance is of what sites report, as for every other aggregate.
    ``noise`` and ``epsilon`` have the shape [J].
    """
    error = np.maximum(sites.n_units * noise * epsilon, np.finfo(np.float64).tiny)
    clear = np.maximum(sites.n_units * (sites.variance - noise) - error, 0.0)
    per_unit = np.average(clear, weights=(error.min() / error) ** 2)
    alike = ivw(replace(sites, variance=noise + per_unit / sites.n_units))
    return _weighted(sites, IVW_POOLED, alike.used, alike.weights)


def aggregate_all(sites: Sites) -> Aggregate:
    """Return the mean over all sites weighted by units (AggAll)."""
    return _by_units(sites, "all", np.arange(len(sites.n_units)))


def largest(sites: Sites) -> Aggregate:
    """Return the effect of the site with most units (AggLargest); of equals, the least variance."""
    most = np.flatnonzero(sites.n_units == sites.n_units.max())
    best = most[np.argmin(sites.variance[most])]
    return _by_units(sites, "largest", np.array([best]))


def homogeneity(sites: Sites) -> Homogeneity | None:
    """Test with the reported variances whether all sites have one effect (Cochran's Q).

    Q = Σ_j (τ_j − τ̂)²/s_j²,   τ̂ = Σ(τ/s²)/Σ(1/s²),

    is χ² with J − 1 degrees of freedom if they have, for known variances and normal effects;
    reported variances and the Laplace noise of privacy make that approximate. I² is (Q − df)/Q, at
    least 0. None for one site, or where a variance is 0: there is no test then.
    """
    degrees = len(sites.estimate) - 1
    if degrees < 1 or float(sites.variance.min()) == 0:
        return None
    with np.errstate(over="ignore"):
        deviation = (sites.estimate - ivw(sites).estimate) / np.sqrt(sites.variance)
        q = min(float(np.sum(deviation**2)), float(np.finfo(np.float64).max))
    unexplained = max(0.0, 1.0 - degrees / q) if q > 0 else 0.0
    return Homogeneity(q, degrees, float(chdtrc(degrees, q)), unexplained)


def mean_of_sites(sites: Sites) -> MeanOfSites | None:
    """Return the mean of sites, which needs no reported variance; None for one site.

    τ̄ = Στ_j/J of variance Σ(τ_j − τ̄)²/((J − 1)J). τ² solves Q(τ²) = J − 1, or is 0 (Paule and
    Mandel 1982):

    Q(x) = Σ_j (τ_j − τ̂)²/(s_j² + x),   τ̂ the mean with weights 1/(s_j² + x).
    """
    n_sites = len(sites.estimate)
    if n_sites == 1:
        return None
    mean = _by_units(replace(sites, n_units=np.ones(n_sites)), MEAN_OF_SITES, np.arange(n_sites))
    variance = float(np.var(sites.estimate, ddof=1)) / n_sites
    tau = _spread_where(sites, n_sites - 1.0) ** 0.5
    return MeanOfSites(**{**vars(mean), "variance": variance}, tau=tau, sites=sites)


def mean_bounds(estimate: Floats, level: float) -> tuple[Floats, Floats]:
    """Return τ̄ ± t √(Σ(τ_j − τ̄)²/((J − 1)J)), t Student's with J − 1 degrees of freedom.

    At two-sided levels of :data:`LEAST_LEVEL` and more it covers at least what it says where the
    τ_j are independent about one mean, each normal or a scale mixture of normals, as Laplace noise
    is, whatever their variances (Bakirov and Székely 2005; Ibragimov and Müller 2010).
    ``estimate`` has the shape [..., J], bounds [...]. Raises ValueError for a lower level.
    """
    if not LEAST_LEVEL <= level < 1.0:
        raise ValueError(
            f"level is {level}, and the interval of a mean of sites holds from {LEAST_LEVEL} on"
        )
    mean, n_sites = estimate.mean(axis=-1), estimate.shape[-1]
    error = estimate.std(axis=-1, ddof=1) / np.sqrt(n_sites)
    half_width = stdtrit(n_sites - 1, (1.0 + level) / 2.0) * error
    return mean - half_width, mean + half_width


def _spread_where(sites: Sites, q: float) -> float:
    """Return the x ≥ 0 at which Q(x) = ``q``, 0 where it is nowhere that much; Q falls with x."""
    low, high = 0.0, float(np.sum((sites.estimate - sites.estimate.mean()) ** 2)) / q
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if not low < middle < high:
            break
        weight = 1.0 / (sites.variance + middle)
        apart = sites.estimate - weight @ sites.estimate / weight.sum()
        low, high = (middle, high) if weight @ apart**2 > q else (low, middle)
    return low


def normal_interval(estimate: float, variance: float, level: float) -> tuple[float, float]:
    """Return τ̂ ± z s, z the (1 + ``level``)/2 quantile of the normal distribution.

    Where the noise of privacy, which is Laplace, makes up most of s, intervals at 0.95 cover
    a little less than they say (0.937 for one site whose variance is all noise).
    """
    half_width = float(ndtri((1 + level) / 2)) * variance**0.5
    return estimate - half_width, estimate + half_width


def _by_units(sites: Sites, method: str, used: Ints) -> Aggregate:
    return _weighted(sites, method, used, sites.n_units[used])


def _weighted(sites: Sites, method: str, used: Ints, weights: Floats) -> Aggregate:
    share = weights / weights.max()
    share = share / share.sum()
    return Aggregate(
        method=method,
        estimate=float(np.sum(share * sites.estimate[used])),
        variance=float(np.sum(share**2 * sites.variance[used])),
        used=used.astype(np.int64),
        weights=share,
    )
