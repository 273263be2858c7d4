"""The point that comes first where it is declared how people came to the sites, on real trials.

STAR's schools lie at four places, stroke patients are dealt to three sites 18 : 1 : 1. Mean errors
are over the best of the paper's aggregates at the first, the better of `mvagg` and `ivw` at the
other: 1.064 ± .013 and 1.003 ± .002 at the worst α (3,000 and 1,500 runs), where 1.1 and 1.05 are
asked. A run is off by ``ERRORS`` = 4.5 standard errors once in 3e5, of six together once in 5e4;
what comes first without a declaration has 1.65 and 1.49, which is far beyond.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators.effects.site_aggregates import MEAN_OF_SITES, METHODS
from flows.effects.released.site_aggregates import Combined, combine
from flows.lab.replication.multisite.data import STAR, STROKE, Study, star, stroke
from flows.lab.replication.multisite.study import QUICK_ALPHAS, dealt, effect, epsilons
from flows.runtime.reading.table_files import read_table
from privatizers.effects.sites.matching import SitePeople
from privatizers.effects.sites.randomised_trial import RandomisedTrial
from tests.site_reports import a_report
from tests.statistical.simulate import real_data

N_RUNS, ERRORS = 300, 4.5
NUMBERS = ("estimate", "variance", "noise_variance", "n_units")


def at_places(study: Study) -> list[SitePeople]:
    assert study.site is not None
    people = study.people
    return [
        SitePeople(people.stratum[one], people.treated[one], people.outcome[one], people.n_strata)
        for one in (study.site == place for place in np.unique(study.site))
    ]


def combined(sites: list[SitePeople], budgets: Sequence[float], declared: str) -> Combined:
    """What the server makes of the sites' reports."""
    reports = []
    for number, (people, epsilon) in enumerate(zip(sites, budgets, strict=True)):
        made = RandomisedTrial(epsilon, 1.0).report(people.treated, people.outcome)
        numbers = {name: getattr(made, name) for name in NUMBERS}
        reports.append(a_report(site=f"s{number}", epsilon=epsilon, **numbers))
    return combine(tuple(reports), declared)


@pytest.mark.parametrize(
    ("file", "declared", "others", "most"),
    [(STAR, "places", (*METHODS, MEAN_OF_SITES), 1.1), (STROKE, "dealt", ("mvagg", "ivw"), 1.05)],
    ids=["places", "dealt"],
)
def test_what_comes_first_is_about_as_near_as_the_nearest(
    file: Path, declared: str, others: Sequence[str], most: float
) -> None:
    frame, random = read_table(real_data(str(file))), np.random.default_rng(3)
    study = star(frame) if file == STAR else stroke(frame)
    truth, places = effect(study), None if study.site is None else at_places(study)
    over = []
    for alpha in QUICK_ALPHAS:
        errors = []
        for _ in range(N_RUNS):
            sites = places or dealt(study.people, (18, 1, 1), random)
            found = combined(sites, epsilons(study.epsilon, alpha, len(sites)), declared)
            of_others = [one.estimate for one in found.aggregates if one.method in others]
            undeclared = replace(found, declared=None).first.estimate
            errors.append([found.first.estimate, undeclared, *of_others])
        own, without, *rest = np.abs(np.array(errors) - truth).T
        best = min(rest, key=np.mean)
        ratio, before = own.mean() / best.mean(), without.mean() / best.mean()
        error = float(np.std(own - ratio * best, ddof=1) / best.mean() / N_RUNS**0.5)
        assert ratio < most + ERRORS * error
        over.append(before - most - ERRORS * error)
    assert max(over) > 0.0  # without a declaration the bound does not hold
