"""Every estimator transcribed from its definition, for a release that is told unit by unit.

θ̂ = Σ_i a_i v(ỹ_i) + Σ_p β_p M_p: what each unit and each statistic counts for is put down one by
one, so that V̂_noise = Σ_i a_i² V̂_i + Σ_p β_p² Var M_p needs no formula for covariances. Nothing of
the product is used.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from types import MappingProxyType

from numpy.polynomial.laguerre import laggauss
from scipy.optimize import brentq
from scipy.stats import t as student

from tests.estimators.told_release import Function, Told, Unit, identity, squared


def p_value(distance: float, degrees_of_freedom: float, kurtosis: float = 0.0) -> float:
    """P(|t_ν| √(1 − ρ + ρE) ≥ distance), E one of twelve numbers in place of an exponential one."""
    rho = math.sqrt(kurtosis / 3)
    return math.fsum(
        2 * weight * float(student.sf(distance / math.sqrt(1 - rho + rho * e), degrees_of_freedom))
        for e, weight in zip(*laggauss(12), strict=True)
    )


def quantile(level: float, degrees_of_freedom: float, kurtosis: float = 0.0) -> float:
    """The distance that is as probable as 1 − level, searched."""

    def off(x: float) -> float:
        return p_value(math.exp(x), degrees_of_freedom, kurtosis) - (1 - level)

    return math.exp(brentq(off, -20, 20, xtol=1e-13))


@dataclass(frozen=True)
class Mean:
    value: float
    noise: float
    fourth: float


def weighted(
    told: Told, f: Function, share: dict[int, float], weights: dict[tuple[int, int], float]
) -> Mean:
    """θ̂ = Σ share v + Σ_p w_p T_p (M_p − μ̂_p), T_p the sum of the shares in the pool."""
    counts_for, totals = dict(share), dict.fromkeys(told.cells, 0.0)
    for at, part in share.items():
        totals[told.key(told.units[at])] += part
    value = noise = fourth = 0.0
    for key, total in totals.items():
        beta = weights[key] * total
        if beta == 0:
            continue
        everyone = told.of(key)
        for at in everyone:
            counts_for[at] = counts_for.get(at, 0.0) - beta / len(everyone)
        own = told.statistic(key, f)
        value, noise, fourth = (
            value + beta * own[0],
            noise + beta**2 * own[1],
            fourth + beta**4 * own[2],
        )
    for at, factor in counts_for.items():
        value += factor * told.debiased(told.units[at], f)
        noise += factor**2 * told.unit_noise(told.units[at], f)
    return Mean(value, noise, fourth)


@dataclass(frozen=True)
class Stratum:
    """Units by their positions."""

    treated: list[int]
    control: list[int]
    weight: int
    clusters: tuple["Stratum", ...] = ()
    """Those that were merged, by size and name."""
    places: frozenset[int] = frozenset()
    """Clusters, or pools in their place."""


def strata_of(
    units: Sequence[Unit],
    members: Sequence[int],
    place: Callable[[Unit], int],
    arms: tuple[int, int],
    *,
    same_shares: bool,
    own_sizes: Mapping[int, float] = MappingProxyType({}),
) -> list[Stratum]:
    """Places with two units in both arms, and small ones in one stratum if that may be.

    Of places with own sizes those that are left are one stratum with the least of the others, which
    stands for nobody, if there is another.
    """
    alone, rest, left, small = [], [], [], []
    sizes = Counter(units[at].arm for at in members)
    for name in sorted({place(units[at]) for at in members}):
        here = [at for at in members if place(units[at]) == name]
        sides = [[at for at in here if units[at].arm == arm] for arm in arms]
        if same_shares and len(here) * min(sizes.values()) < 4 * len(members):
            small.append(name)
            rest.append(Stratum(sides[0], sides[1], len(here), places=frozenset({name})))
        elif min(map(len, sides)) >= 2:
            alone.append(Stratum(sides[0], sides[1], len(here), places=frozenset({name})))
        elif own_sizes.get(name, 0.0) > 0:
            left.append(Stratum(sides[0], sides[1], len(here), places=frozenset({name})))
    treated, control = (
        [at for one in rest for at in getattr(one, side)] for side in ("treated", "control")
    )
    if min(len(treated), len(control)) >= 2:
        rest.sort(key=lambda one: one.weight)  # by name already
        weight = sum(one.weight for one in rest)
        merged = frozenset().union(*(one.places for one in rest))
        alone.append(Stratum(treated, control, weight, tuple(rest), merged))
    by_own = [one for one in alone if any(own_sizes.get(name, 0.0) > 0 for name in one.places)]
    lone = [one for one in by_own if not one.clusters and not one.places <= {*small}]
    if left and lone and len(by_own) > 1:
        least = min(lone, key=lambda one: one.weight)  # by name already
        left.append(least)
        treated, control = (
            [at for one in left for at in getattr(one, side)] for side in ("treated", "control")
        )
        places = frozenset().union(*(one.places for one in left))
        alone = [one for one in alone if one is not least]
        alone.append(Stratum(treated, control, 0, places=places))
    return alone


@dataclass(frozen=True)
class Pairs:
    """V̂ of the contrast of merged clusters, by twos, and its degrees of freedom."""

    variance: float
    freedom: float


def pairs_of(told: Told, stratum: Stratum) -> Pairs | None:
    """What each unit counts for in each z_c is put down; A follows from these numbers alone."""
    if len(stratum.clusters) < 2:
        return None
    units = stratum.treated + stratum.control
    outcome = [told.debiased(told.units[at], identity) for at in units]
    size = [len(stratum.treated), len(stratum.control)]

    def factors(cluster: Stratum) -> list[float]:
        own = (cluster.treated, cluster.control)
        share = [len(own[side]) / size[side] for side in (0, 1)]
        found = []
        for at in units:
            side = 0 if at in stratum.treated else 1
            factor = ((at in own[side]) - share[side]) / size[side]
            found.append(-factor if side else factor)
        return found

    rows = [factors(cluster) for cluster in stratum.clusters]
    n_pairs = len(rows) // 2
    variance, seen = 0.0, []
    for nth in range(n_pairs):
        members = rows[2 * nth : 2 * nth + 2 if nth < n_pairs - 1 else len(rows)]
        more = len(members) / (len(members) - 1)
        middle = [fmean(column) for column in zip(*members, strict=True)]
        apart = [[x - m for x, m in zip(row, middle, strict=True)] for row in members]
        z = [math.fsum(f * y for f, y in zip(row, outcome, strict=True)) for row in apart]
        variance += more * math.fsum(x * x for x in z)
        alike = more * math.fsum(f * f for row in apart for f in row)
        seen.append((alike, len(members) - 1))
    known, worth = math.fsum(one for one, _ in seen), 1 / size[0] + 1 / size[1]
    if known < 0.4999995 * worth:
        return None
    doubt = math.fsum(one**2 / free for one, free in seen)
    return Pairs(variance * worth / known, known**2 / doubt)


@dataclass(frozen=True)
class Side:
    mean: float
    variance: float
    noise: float
    scatter: float
    fourth: float


@dataclass(frozen=True)
class Result:
    estimate: float
    variance: float
    noise_variance: float
    degrees_of_freedom: float
    kurtosis: float
    n_units: int
    treated_mean: float
    treated_variance: float
    control_mean: float
    control_variance: float


def contrast(
    told: Told,
    estimator: str,
    arm: int,
    control: int = 0,
    group: int = 0,
    *,
    same_shares: bool = False,
) -> Result | None:
    """τ̂ of ``arm`` against ``control``, V̂ and the degrees of freedom; None without strata."""
    members = [at for at, unit in enumerate(told.units) if group in unit.groups]
    clusters = {
        cluster: list(told.pool_of.values()).count(pool) for cluster, pool in told.pool_of.items()
    }

    def place(unit: Unit) -> int:
        return told.pool_of[unit.cluster] if estimator == "histogram" else unit.cluster

    if estimator == "histogram" and not same_shares:
        members = [at for at in members if clusters[told.units[at].cluster] == 1]
    own_sizes = {} if estimator == "histogram" else told.own_sizes
    strata = strata_of(
        told.units, members, place, (arm, control), same_shares=same_shares, own_sizes=own_sizes
    )
    if not strata:
        return None
    total = sum(one.weight for one in strata)
    parts = [one.weight / total for one in strata]
    replaced = [replaced_by_pairs(told, estimator, one) for one in strata]
    treated, reference = (
        _side(
            told,
            estimator,
            parts,
            [getattr(one, name) for one in strata],
            [(kept, own[side]) for kept, own in replaced],
            [
                min(told.own_sizes.get(name, 0.0) for name in one.places)
                if estimator == "combined"
                else 0.0
                for one in strata
            ],
        )
        for side, name in enumerate(("treated", "control"))
    )
    unlike, scatter = treated.variance + reference.variance, treated.scatter + reference.scatter
    noise = treated.noise + reference.noise
    spread = max(unlike, noise)
    fourth = treated.fourth + reference.fourth
    degrees = spread**2 / scatter - 2 if scatter > 0 else math.inf
    return Result(
        estimate=treated.mean - reference.mean,
        variance=spread,
        noise_variance=noise,
        degrees_of_freedom=max(degrees, 1.0) if unlike > 1e-12 * noise else math.nan,
        kurtosis=min(fourth / spread**2, 3.0) if fourth > 0 else 0.0,
        n_units=total,
        treated_mean=treated.mean + told.center,
        treated_variance=max(treated.variance, treated.noise),
        control_mean=reference.mean + told.center,
        control_variance=max(reference.variance, reference.noise),
    )


def weights_of(told: Told, estimator: str) -> dict[tuple[int, int], float]:
    return {
        key: {"tau_q": 0.0, "histogram": 1.0, "combined": cell.mean_weight}[estimator]
        for key, cell in told.cells.items()
    }


Replaced = tuple[float, tuple[tuple[float, float], tuple[float, float]]]
"""What is kept of Ŝ²/n, and for each arm what replaces the rest and half the variance of that."""


def replaced_by_pairs(told: Told, estimator: str, stratum: Stratum) -> Replaced:
    found = pairs_of(told, stratum)
    if found is None:
        return 1.0, ((0.0, 0.0), (0.0, 0.0))
    weights, used, noise, own = weights_of(told, estimator), 1.0, 0.0, []
    for side in (stratum.treated, stratum.control):
        units = [told.units[at] for at in side]
        own.append(variance([told.debiased(unit, identity) for unit in units]) / len(side))
        if estimator != "tau_q":
            used *= 1 - fmean(weights[told.key(unit)] for unit in units)
            noise += math.fsum(told.unit_noise(unit, identity) for unit in units) / len(side) ** 2
    part = own[0] / sum(own) if sum(own) > 0 else 0.5
    first, second = (
        (
            share * used * (found.variance - noise),
            share * (used * found.variance) ** 2 / (found.freedom + 2),
        )
        for share in (part, 1 - part)
    )
    return 1 - used, (first, second)


def _side(
    told: Told,
    estimator: str,
    parts: list[float],
    strata: list[list[int]],
    replaced: list[tuple[float, tuple[float, float]]],
    own_sizes: list[float],
) -> Side:
    weights = weights_of(told, estimator)
    given, together = parts, [at for at, s in enumerate(own_sizes) if s > 0]
    n_together = sum(len(strata[at]) for at in together)
    moved = math.fsum(own_sizes[at] * given[at] for at in together)
    held = math.fsum(given[at] for at in together)
    parts = [
        b * (1 - s) + (moved * len(own) / n_together if s > 0 else 0.0)
        for b, s, own in zip(given, own_sizes, strata, strict=True)
    ]
    of_square = {key: cell.square_weight for key, cell in told.cells.items()}
    share = {at: b / len(own) for b, own in zip(parts, strata, strict=True) for at in own}
    found = weighted(told, identity, share, weights)
    sampling = pairs_scatter = most_by_mean = most_by_width = kept_sum = kept_share = 0.0
    of_squares: dict[int, float] = {}
    spreads: list[tuple[float, float, float]] = []
    for b, own, (kept, (pairs, doubt)) in zip(parts, strata, replaced, strict=True):
        n = len(own)
        more = n / (n - 1)
        if estimator == "tau_q":
            spread = variance([told.debiased(told.units[at], identity) for at in own])
            spreads.append((spread, 0.0, math.inf))
        else:
            equal = dict.fromkeys(own, 1 / n)
            mean = weighted(told, identity, equal, weights)
            square = weighted(told, squared, equal, of_square)
            near = min(max(mean.value, told.steps[0]), told.steps[-1])
            widest = ((told.steps[-1] - told.steps[0]) / 2) ** 2 * more
            most = ((told.steps[-1] - near) * (near - told.steps[0]) + mean.noise) * more
            spread = (square.value - mean.value**2 + mean.noise) * more
            noise = max(square.noise * more**2 - 1e-9 * widest**2, 0.0)  # less is rounding
            spreads.append((spread, noise, min(most, widest)))
            most_by_mean += b**2 * kept * most / n
            most_by_width += b**2 * kept * widest / n
            of_squares |= dict.fromkeys(own, b**2 * kept / (n - 1) / n)
        kept_sum += b**2 * kept * spread / n
        kept_share += b**2 * kept / n
        sampling += b**2 * pairs
        pairs_scatter += b**4 * doubt
    most = math.inf if estimator == "tau_q" else min(most_by_mean, most_by_width)
    usual = min(max(kept_sum, 0.0), most) / kept_share if kept_share > 0 else 0.0
    scatter, insides = pairs_scatter, []
    for b, own, (kept, _), (spread, noise, top) in zip(
        parts, strata, replaced, spreads, strict=True
    ):
        own_part = usual**2 / (usual**2 + noise) if noise > 0 else 1.0
        drawn_in = usual + (spread - usual) * own_part
        inside = spread if estimator == "tau_q" else min(max(drawn_in, 0.0), top)
        insides.append(inside)
        scatter += b**4 * (kept * inside / len(own)) ** 2 / (len(own) + 1)
    apart, top, apart_scatter = _apart(
        told, weights, [strata[at] for at in together], spreads, insides, together
    )
    apart, top = moved**2 * apart, moved**2 * top
    scatter += apart_scatter(moved, held)
    most += min(max(apart, 0.0), top)
    sampling = max(min(max(kept_sum + apart, 0.0), most) + sampling, 0.0)
    if estimator == "tau_q":
        return Side(found.value, sampling, found.noise, scatter, found.fourth)
    scatter += weighted(told, squared, of_squares, of_square).noise / 2
    return Side(found.value, sampling + found.noise, found.noise, scatter, found.fourth)


def _apart(
    told: Told,
    weights: dict[tuple[int, int], float],
    strata: list[list[int]],
    spreads: list[tuple[float, float, float]],
    insides: list[float],
    places: list[int],
) -> tuple[float, float, Callable[[float, float], float]]:
    """σ̂_b²/n of strata that count by an arm's own units, the most it can be, and its scatter."""
    n = sum(map(len, strata))
    if not strata:
        return 0.0, 0.0, lambda _moved, _held: 0.0
    share = [len(own) / n for own in strata]
    found = [weighted(told, identity, dict.fromkeys(own, 1 / len(own)), weights) for own in strata]
    mean, noise = [one.value for one in found], [one.noise for one in found]
    center = weighted(told, identity, {at: 1 / n for own in strata for at in own}, weights)
    sampling = [spreads[at][0] / len(own) for at, own in zip(places, strata, strict=True)]
    inside = [insides[at] / len(own) for at, own in zip(places, strata, strict=True)]
    between = math.fsum(
        g * ((m - center.value) ** 2 - known - noisy) + g**2 * bounded
        for g, m, known, noisy, bounded in zip(share, mean, sampling, noise, inside, strict=True)
    )
    between += center.noise
    widest = ((told.steps[-1] - told.steps[0]) / 2) ** 2
    top = math.fsum(
        g * widest * len(own) / (len(own) - 1) for g, own in zip(share, strata, strict=True)
    )

    def scatter(moved: float, held: float) -> float:
        rows = list(zip(share, inside, noise, strict=True))
        errors = math.fsum(
            (g * (1 - g) * (moved**2 * known + (held**2 - moved**2) * noisy)) ** 2
            for g, known, noisy in rows
        )
        common = math.fsum(
            g**2 * (moved**4 * known + (held**2 - moved**2) ** 2 * noisy)
            for g, known, noisy in rows
        )
        return (errors + 2 * min(max(between, 0.0), top) * common) / n**2

    return between / n, top / n, scatter
