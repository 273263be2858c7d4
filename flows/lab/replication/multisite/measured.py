"""What is measured of the claims of Koga, Chaudhuri and Page (2024), Section IV.

``sound`` is what `clusterdp site` reports, ``printed`` the paper's forms, for which no guarantee is
claimed. Errors are mean absolute ones in parts of the range of outcomes.
"""

from collections.abc import Sequence
from math import log

import numpy as np

from estimators.effects.site_aggregates import METHODS, Sites, mvagg
from flows.lab.replication.claims import (
    Found,
    Measure,
    Run,
    geometric,
    jackknife,
    mean_of,
    paired_ratio,
)
from flows.lab.replication.multisite.data import STRATA, Study, studies, synth
from flows.lab.replication.multisite.study import (
    ALPHAS,
    DELTA,
    GLOBAL,
    OURS,
    PRINTED,
    PROPORTIONS,
    QUICK_ALPHAS,
    QUICK_PROPORTIONS,
    QUICK_RUNS,
    RUNS,
    SMOOTH,
    TRIAL,
    Errors,
    run,
)
from flows.lab.replication.panels import Line, Panel
from privatizers.effects.sites.matching_sensitivity import smooth_effect_bound
from privatizers.effects.toolbox.smooth_sensitivity import beta_of
from privatizers.lab.unprotected.as_printed import equation_one
from schemas.arrays import Floats, Ints

_FORMS = {"sound": OURS, "printed": PRINTED}
_MVAGG, _IVW, _ALL, _LARGEST = range(4)
_LEAST, _MOST = 0, -1  # of alpha: 1/8 and 8
_EQUAL, _THREE, _UNEQUAL = "1:1", "1:1:1", "18:1:1"


def _errors_of(study: Study, how: Run) -> tuple[Errors, Sequence[float]]:
    more = 3 if study.is_trial else 1  # which is cheap, and needs it most
    if how.quick:
        found = run(study, QUICK_ALPHAS, QUICK_RUNS * more, proportions=QUICK_PROPORTIONS)
        return found, QUICK_ALPHAS
    return run(study, ALPHAS, RUNS * more, proportions=PROPORTIONS), ALPHAS


def _panel(study: Study, errors: Errors, alphas: Sequence[float], kind: str, label: str) -> Panel:
    each = errors[label, kind, OURS]
    lines = (
        Line.of(name, alphas, [mean_of(each[:, at, of]) for at in range(len(alphas))])
        for of, name in enumerate(METHODS)
    )
    title = f"{study.title}, sites {label or 'by urbanity'}"
    across, up = "α: ε of the last site over the first's", "mean |error|, in parts of the range"
    return Panel(f"{title}: {kind}", across, up, tuple(lines), "xy")


def _over_best(means: Floats) -> float:
    """The error of mvagg over the least of the others'; means of shape [alphas, aggregates]."""
    return geometric(means[:, _MVAGG], means[:, 1:].min(axis=1))


def _gap(of: Floats, unequal: Floats) -> float:
    """One aggregate's error over mvagg's, over the same at other sites; shape [2] each."""
    return float(of[0] / of[1] / (unequal[0] / unequal[1]))


def _trials(how: Run) -> Found:
    stroke, star, *_ = studies(how)
    found: dict[str, tuple[float, float]] = {}
    of_stroke, alphas = _errors_of(stroke, how)
    of_star, _ = _errors_of(star, how)
    for guarantee, form in _FORMS.items():
        two, three, unequal = (
            of_stroke[sites, TRIAL, form] for sites in (_EQUAL, _THREE, _UNEQUAL)
        )
        schools = of_star["", TRIAL, form]
        pair = ([_LARGEST, _MVAGG], [_ALL, _MVAGG])
        each = {
            "ist best": jackknife(_over_best, two),
            "ist all": paired_ratio(two[:, _LEAST, _ALL], two[:, _LEAST, _LARGEST]),
            "ist ivw": paired_ratio(two[:, _LEAST, _IVW], two[:, _LEAST, _MVAGG]),
            "ist largest": jackknife(_gap, three[:, _MOST, pair[0]], unequal[:, _MOST, pair[0]]),
            "ist gap all": jackknife(_gap, unequal[:, _LEAST, pair[1]], three[:, _LEAST, pair[1]]),
            "star mvagg": paired_ratio(schools[:, _MOST, _MVAGG], schools[:, _MOST, _IVW]),
            "star ivw": paired_ratio(schools[:, _LEAST, _IVW], schools[:, _LEAST, _MVAGG]),
            "star all": paired_ratio(schools[:, _LEAST, _MVAGG], schools[:, _LEAST, _ALL]),
        }
        found |= {f"{key} {guarantee}": value for key, value in each.items()}
    return found, (
        _panel(stroke, of_stroke, alphas, TRIAL, _EQUAL),
        _panel(star, of_star, alphas, TRIAL, ""),
    )


def _matching(study: Study, how: Run) -> Found:
    errors, alphas = _errors_of(study, how)
    found: dict[str, tuple[float, float]] = {}
    sites = dict.fromkeys(label for label, _, _ in errors)
    for guarantee, form in _FORMS.items():
        smooth, whole = (
            np.stack([errors[one, kind, form] for one in sites], axis=1)
            for kind in (SMOOTH, GLOBAL)
        )
        two = errors[_EQUAL, SMOOTH, form]
        by_setting = smooth[..., _MVAGG]
        worst = np.unravel_index(by_setting.mean(axis=0).argmax(), by_setting.shape[1:])
        each = {
            "smooth": paired_ratio(smooth[..., _MVAGG], whole[..., _MVAGG]),
            "global": mean_of(errors[_EQUAL, GLOBAL, form][:, _LEAST, _MVAGG]),
            "worst": mean_of(by_setting[:, worst[0], worst[1]]),
            "greatest": mean_of(two[:, _MOST, _MVAGG]),
            "ivw": paired_ratio(smooth[:, :, _LEAST, _IVW], smooth[:, :, _LEAST, _MVAGG]),
        }
        found |= {f"{study.name} {key} {guarantee}": value for key, value in each.items()}
    return found, (_panel(study, errors, alphas, SMOOTH, _EQUAL),)


def _observed(how: Run) -> Found:
    _, _, *others = studies(how)
    each = [_matching(study, how) for study in others]
    measured = {key: value for one, _ in each for key, value in one.items()}
    return measured, tuple(panel for _, panels in each for panel in panels)


def _synth(how: Run) -> Found:
    return _matching(synth(how.random), how)


def _sizes(study: Study) -> tuple[Ints, Ints]:
    of, treated = study.people.stratum, study.people.treated
    counts = (np.bincount(of[treated == arm], minlength=STRATA) for arm in (True, False))
    first, second = counts
    return first, second


def _bounds(treated: Ints, control: Ints, beta: float) -> Floats:
    """S by Equation (1) and ours."""
    printed = equation_one(treated, control, high=1.0, beta=beta)
    return np.array([printed, smooth_effect_bound(treated, control, high=1.0, beta=beta)])


def _sensitivity(how: Run) -> Found:
    beta, n_drawn = beta_of(1.0, DELTA), 6 if how.quick else 20
    sizes = (500, 5_000, 20_000, 50_000, 100_000)

    def drawn(n_units: int, imbalance: float) -> Floats:
        made = (synth(how.random, n_units, imbalance) for _ in range(n_drawn))
        return np.array([_bounds(*_sizes(one), beta) for one in made])

    by_size = {n: drawn(n, 0.0) for n in sizes}
    even, odd = drawn(10_000, 0.0), drawn(10_000, 4.0)
    near = _bounds(np.array([1, 0]), np.array([19, 0]), beta)
    next_to_it = _bounds(np.array([1, 1]), np.array([18, 0]), beta)
    found: dict[str, tuple[float, float]] = {}
    for at, guarantee in enumerate(("printed", "sound")):
        for few, many in ((500, 5_000), (50_000, 100_000)):
            slope = jackknife(
                lambda a, b, few=few, many=many: log(a / b) / log(many / few),
                by_size[few][:, at],
                by_size[many][:, at],
            )
            found[f"slope {few} {guarantee}"] = slope
        found[f"imbalance {guarantee}"] = jackknife(
            lambda a, b: float(a / b), odd[:, at], even[:, at]
        )
        most = max(float(one[:, at].max()) for one in (*by_size.values(), odd))
        found[f"below {guarantee}"] = most, 0.0
        apart = abs(log(near[at] / next_to_it[at])) / beta
        found[f"beta {guarantee}"] = float(apart), 0.0
    lines = tuple(
        Line.of(name, sizes, [mean_of(one[:, at]) for one in by_size.values()])
        for at, name in enumerate(("Equation (1), as printed", "ours"))
    )
    return found, (
        Panel("Figure 6: Synth, 100 strata, ε = 1", "people", "smooth sensitivity", lines, "xy"),
    )


def _search(how: Run) -> Found:
    """Algorithm 3 against its own search among all sets of sites."""
    worst = 0.0
    members = np.array(list(np.ndindex(*[2] * 8))[1:], dtype=np.float64)
    for _ in range(200 if how.quick else 2_000):
        n_units = how.random.integers(1, 99, 8).astype(np.float64)
        sites = Sites(np.zeros(8), how.random.exponential(size=8) ** 3, n_units)
        each = members @ (sites.n_units**2 * sites.variance) / (members @ sites.n_units) ** 2
        worst = max(worst, abs(mvagg(sites).variance / float(each.min()) - 1.0))
    return {"search": (worst, 0.0)}, ()


MEASURES: dict[str, Measure] = {
    "trials": _trials,
    "matching": _observed,
    "synth": _synth,
    "sensitivity": _sensitivity,
    "search": _search,
}
