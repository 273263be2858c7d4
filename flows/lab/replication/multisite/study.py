"""One effect out of several sites, by every aggregate: Koga, Chaudhuri and Page, Section IV.

Site j of J has ε_j = α^((j−1)/(J−1)) ε_1 and δ = 1e-5, α from 1/8 to 8: with α small the first
site, which is the largest, is the accurate one, with α large the last. Errors are |τ̂_DP − τ̂|, τ̂
being the effect in everybody's data at once without noise, in parts of the range of outcomes;
people are dealt out to sites anew in every run.

Each effect is estimated twice. *Ours* is what `clusterdp site` does: `RandomisedTrial`,
`SmoothMatching` and `GlobalMatching`, each with its default shares. *As printed* are the paper's
forms, ε in equal parts, for which no guarantee is claimed: noise for sums of squares at B²; smooth
sensitivities by Equation (1); 2B as the global sensitivity. The paper does not say

- what is done with variances that noise makes negative: here the part of sampling is 0 at least,
  as otherwise such a site would count as exact or better;
- how the sampling variance is protected in GlobalDPMatching: here at its range, B²/2 and a little;
- from how many sites its estimate without noise is: here everybody is at one, so that splitting
  counts as error too;
- how often people are dealt out: here in every run, the same way for every α and estimator.

Of sites of equal size the first is the largest (its footnote 1). It has the same ε for every α, and
reports once a run.

Splits and printed noise come from a fixed number, the noise of ours from the operating system.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from estimators.effects.site_aggregates import METHODS, Sites, aggregates, clamp_variances
from flows.lab.replication.multisite.data import Study
from privatizers.effects.sites.dp_matching import GlobalMatching, SmoothMatching
from privatizers.effects.sites.matching import SitePeople, evaluate
from privatizers.effects.sites.randomised_trial import RandomisedTrial, SiteEffect
from privatizers.lab.unprotected.as_printed import (
    StandardDraws,
    global_matching_as_printed,
    smooth_matching_as_printed,
    trial_as_printed,
)
from schemas.arrays import Floats, Ints

Random = np.random.Generator
Report = Callable[[SitePeople, float, Random], tuple[float, float]]

OURS, PRINTED = "ours", "as printed"
TRIAL, SMOOTH, GLOBAL = "difference in means", "smooth matching", "global matching"
ALPHAS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
QUICK_ALPHAS = (1 / 8, 1.0, 8.0)
RUNS, QUICK_RUNS = 100, 40
PROPORTIONS = ((1, 1), (1, 1, 1), (3, 2, 1), (9, 9, 2), (18, 1, 1))
QUICK_PROPORTIONS = ((1, 1), (1, 1, 1), (18, 1, 1))
DELTA = 1e-5
HIGH = 1.0
"""B: outcomes are brought to [0, 1]."""


log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class Estimator:
    """How a site reports: ``report`` takes people, ε and a generator for printed noise."""

    name: str
    form: str
    delta: float
    """δ that the form claims, or is said to."""
    report: Report


def effect(study: Study) -> float:
    """Return τ̂ of everybody at once, without noise: the difference in means, or by matching.

    Of made-up people it is the true effect, as in the paper.
    """
    if study.truth is not None:
        return study.truth
    people = study.people
    if not study.is_trial:
        return evaluate(people, HIGH).effect
    treated = people.treated
    return float(people.outcome[treated].mean() - people.outcome[~treated].mean())


def epsilons(first: float, alpha: float, n_sites: int) -> tuple[float, ...]:
    """Return ε_j = α^((j−1)/(J−1)) ε_1 of each of J sites, two at least."""
    return tuple(first * alpha ** (j / (n_sites - 1)) for j in range(n_sites))


def dealt(people: SitePeople, proportions: Sequence[int], random: Random) -> list[SitePeople]:
    """Deal people out to sites of sizes in these proportions; the first has what is left over."""
    n, total = people.n_units, sum(proportions)
    sizes = [n * part // total for part in proportions]
    sizes[0] += n - sum(sizes)
    places = np.split(random.permutation(n), np.cumsum(sizes)[:-1])
    return [_at(people, np.sort(place)) for place in places]


def _at(people: SitePeople, place: Ints) -> SitePeople:
    return SitePeople(
        people.stratum[place], people.treated[place], people.outcome[place], people.n_strata
    )


def _ours(report: Callable[[SitePeople, float], SiteEffect]) -> Report:
    def numbers(people: SitePeople, epsilon: float, _: Random) -> tuple[float, float]:
        made = report(people, epsilon)
        return made.estimate, made.variance

    return numbers


def _printed_trial(people: SitePeople, epsilon: float, random: Random) -> tuple[float, float]:
    return trial_as_printed(random.laplace(size=(2, 2)), people, epsilon, HIGH)


def _printed_smooth(people: SitePeople, epsilon: float, random: Random) -> tuple[float, float]:
    of_effect, of_variance = random.laplace(size=2).tolist()
    draws = StandardDraws(of_effect, of_variance, float(random.normal()))
    return smooth_matching_as_printed(draws, people, epsilon, delta=DELTA, high=HIGH)


def _printed_global(people: SitePeople, epsilon: float, random: Random) -> tuple[float, float]:
    return global_matching_as_printed(random.laplace(size=2), people, epsilon, HIGH)


_TRIAL = _ours(lambda site, eps: RandomisedTrial(eps, HIGH).report(site.treated, site.outcome))
_SMOOTH = _ours(lambda site, eps: SmoothMatching(eps, DELTA, HIGH).report(site))
_GLOBAL = _ours(lambda site, eps: GlobalMatching(eps, HIGH).report(site))
FOR_TRIALS = (
    Estimator(TRIAL, OURS, 0.0, _TRIAL),
    Estimator(TRIAL, PRINTED, 0.0, _printed_trial),
)
FOR_MATCHING = (
    Estimator(SMOOTH, OURS, DELTA, _SMOOTH),
    Estimator(GLOBAL, OURS, 0.0, _GLOBAL),
    Estimator(SMOOTH, PRINTED, DELTA, _printed_smooth),
    Estimator(GLOBAL, PRINTED, 0.0, _printed_global),
)


def aggregated(estimates: Floats, variances: Floats, n_units: Floats) -> Floats:
    """Return the effect by each of :data:`METHODS`, of reports of shape [J] each.

    The first site is the largest, also where others are of its size.
    """
    variance, _ = clamp_variances(variances, np.zeros_like(variances))
    made = aggregates(Sites(estimates, variance, n_units))
    return np.array([*(one.estimate for one in made[:-1]), estimates[0]])


Errors = dict[tuple[str, str, str], Floats]
"""|τ̂_DP − τ̂| by sites, estimator and form; shape [runs, alphas, aggregates]."""


def run(
    study: Study,
    alphas: Sequence[float],
    runs: int,
    *,
    proportions: Sequence[Sequence[int]] = PROPORTIONS,
    estimators: Sequence[Estimator] | None = None,
) -> Errors:
    """Return the errors of every aggregate for every setting of a study.

    ``estimators`` are by default all of its kind; ``proportions`` do not matter where its sites are
    fixed.
    """
    if estimators is None:
        estimators = FOR_TRIALS if study.is_trial else FOR_MATCHING
    splits: list[Sequence[int]] = list(proportions) if study.site is None else [()]
    found: Errors = {}
    for sizes in splits:
        label = ":".join(map(str, sizes))
        log.info("%s, sites %s …", study.name, label or "as they are")
        errors = _errors(study, sizes, estimators, alphas, runs)
        found |= {(label, one.name, one.form): errors[:, e] for e, one in enumerate(estimators)}
    return found


def _errors(
    study: Study,
    sizes: Sequence[int],
    estimators: Sequence[Estimator],
    alphas: Sequence[float],
    runs: int,
) -> Floats:
    """|τ̂_DP − τ̂|, shape [runs, estimators, alphas, aggregates]."""
    splits, noise = np.random.default_rng(2024).spawn(2)
    truth = effect(study)
    fixed = []
    if study.site is not None:
        fixed = [_at(study.people, np.flatnonzero(study.site == j)) for j in np.unique(study.site)]
    errors = np.empty((runs, len(estimators), len(alphas), len(METHODS)))
    for nth in range(runs):
        sites = fixed or dealt(study.people, sizes, splits)
        n_units = np.array([site.n_units for site in sites], dtype=np.float64)
        for e, one in enumerate(estimators):
            first = one.report(sites[0], study.epsilon, noise)  # whatever α is
            for a, alpha in enumerate(alphas):
                budgets = epsilons(study.epsilon, alpha, len(sites))
                others = zip(sites[1:], budgets[1:], strict=True)
                reports = np.array([first, *(one.report(site, eps, noise) for site, eps in others)])
                made = aggregated(reports[:, 0], reports[:, 1], n_units)
                errors[nth, e, a] = np.abs(made - truth)
    return errors
