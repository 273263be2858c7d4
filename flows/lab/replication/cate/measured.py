"""What is measured of the claims of Niu et al. (2022), Section 5: who benefits, learnt privately.

On their set-ups A to E, and on a stand-in for their voters (:mod:`.setups`), at δ = 1e-5.
``sound`` are the DR-, R- and S-learner of Algorithm 1 with sound stages, and the moment effect
model; ``printed`` the same with DP-EBM stages, as published, where the library is installed: on
people who are made up alone, and under the library's claim, which does not hold for a row replaced.

Every fit learns from people of its own, the same for all learners and ε, and is compared on one set
of fresh people. Of errors dᵢ = τ̂ᵢ − τ there, the mean of dᵢ² is the mean squared error, of dᵢdⱼ,
i ≠ j, the squared bias, and what is left is the variance. All follow from the mean products of
errors, shape [fits, fits], and so do standard errors, leaving out one fit at a time.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import hypot
from typing import Final

import numpy as np
from numpy.random import Generator
from scipy.optimize import brentq

from estimators.concentrated import concentrated_rho
from estimators.effects.models.fit import fit_learner
from flows.lab.replication.cate import library
from flows.lab.replication.cate.setups import (
    HILLSTROM,
    Predict,
    SetUp,
    SetUpPeople,
    hillstrom,
    simulated,
)
from flows.lab.replication.claims import Found, Measure, NotTriedError, Run, jackknife
from flows.lab.replication.panels import Line, Panel
from privatizers.accounting.accountant import epsilon_at
from privatizers.effects.models import meta
from privatizers.effects.models.lattice_sums import BATCH
from privatizers.effects.toolbox.lattice_gaussian import continuous_delta, continuous_sigma
from schemas.arrays import Floats
from schemas.effects.model import Learner

DELTA: Final = 1e-5
STRICT, LOOSE, PLAIN = 1.0, 16.0, 1e4
"""Of ε: the least and greatest that they try, and one whose noise is nothing."""
_EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0)
_FEW, _SOME, _MANY, _MOST = 500, 4_000, 16_000, 32_000
_SIZES = (_FEW, 1_000, 2_000, _SOME, 8_000, _MANY, _MOST)
_FIGURE_3: Final = {"A": _MANY, "B": _MANY, "C": _SOME, "D": _SOME, "E": _SOME, "H": _MANY}
AUTHORS: Final = {"A": 1.228, "B": 1.714, "C": 2.812, "D": 3.416, "E": 10.79, "H": 0.0158}
"""The DR-learner's error at ε = 1 and 8,000 people: of the authors' results file
(``dp_cate_simulation_final.csv`` in the repository FengshiNiu/DP-CATE at 6b6b41f), for H of runs of
InterpretML 0.7.8."""

Fit = Callable[[SetUp, SetUpPeople, float, Generator], Predict]
"""Learns effects at an ε."""
Value = Callable[..., float]

log = logging.getLogger("clusterdp")


def _fit(
    learner: Learner, set_up: SetUp, people: SetUpPeople, epsilon: float, _: Generator
) -> Predict:
    asked = set_up.design(epsilon, DELTA), len(people.outcome)
    model = fit_learner(
        learner, *asked, meta.draw_sums(learner, *asked, set_up.batches(people, BATCH))
    )
    return lambda features: model.predict(set_up.positions(features))[0]


SOUND: Final[dict[str, Fit]] = {
    "moments": partial(_fit, "moments"),
    "dr": partial(_fit, "dr"),
    "r": partial(_fit, "r"),
    "s": partial(_fit, "s"),
}
PUBLISHED: Final[dict[str, Fit]] = {
    "dr": partial(library.fit, "dr", DELTA),
    "s": partial(library.fit, "s", DELTA),
}
_ERROR = "mean squared error, outcomes' unit squared"
_TITLES = {"moments": "moment effect model", "dr": "DR", "r": "R", "s": "S"}


@dataclass(frozen=True)
class Study:
    """Learners on one set-up, each fitted ``n_fits`` times when it is asked for."""

    set_up: SetUp
    learners: dict[str, Fit]
    n_fits: int
    random: Generator
    fresh: SetUpPeople = field(init=False)
    _people: dict[int, list[SetUpPeople]] = field(default_factory=dict, init=False)
    _products: dict[tuple[str, int, float], Floats] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Draw the people on whom learners are compared."""
        object.__setattr__(self, "fresh", self.set_up.fresh(self.random))

    def fitted(self, learner: str, n: int, epsilon: float) -> Iterator[Predict]:
        """Return every fit on n people."""
        if n not in self._people:
            self._people[n] = [self.set_up.draw(n, self.random) for _ in range(self.n_fits)]
        fit = self.learners[learner]
        return (fit(self.set_up, one, epsilon, self.random) for one in self._people[n])

    def products(self, learner: str, n: int, epsilon: float) -> Floats:
        """Return the mean products of errors of each two fits, shape [fits, fits]."""
        key = learner, n, epsilon
        if key not in self._products:
            predicted = [each(self.fresh.features) for each in self.fitted(*key)]
            off = np.stack(predicted) - self.fresh.effect
            self._products[key] = off @ off.T / off.shape[1]
        return self._products[key]

    def found(self, value: Value, *cells: tuple[str, int, float]) -> tuple[float, float]:
        """Return a value of cells' products, and its standard error."""
        each = [self.products(*cell) for cell in cells]
        left = [
            value(*(np.delete(np.delete(one, at, 0), at, 1) for one in each))
            for at in range(self.n_fits)
        ]
        return value(*each), float(np.sqrt((self.n_fits - 1) * np.var(left)))


def error(products: Floats) -> float:
    """The mean squared error."""
    return float(np.diagonal(products).mean())


def squared_bias(products: Floats) -> float:
    """The squared bias; its estimate may be negative."""
    n = len(products)
    return float(products.sum() - np.trace(products)) / (n * (n - 1))


def variance(products: Floats) -> float:
    """The variance about the mean fit."""
    return error(products) - squared_bias(products)


def _over(part: Value) -> Value:
    return lambda above, below: part(above) / part(below)


def _part_of_variance(strict: Floats, loose: Floats) -> float:
    """How much of what privacy adds to the error is variance."""
    return (variance(strict) - variance(loose)) / (error(strict) - error(loose))


def _losses(dr: Floats, dr_loose: Floats, s: Floats, s_loose: Floats) -> float:
    return error(dr) / error(dr_loose) / (error(s) / error(s_loose))


def _claims(study: Study) -> Iterator[tuple[str, tuple[float, float]]]:
    """What is claimed of a set-up, for the learners that there are."""
    name, spread = study.set_up.name, float(study.fresh.effect.var())
    at = _FIGURE_3[name]
    for learner, n in product(("dr", "r"), (_FEW, _MOST)):
        if learner in study.learners:
            cells = ((learner, n, STRICT), (learner, n, LOOSE))
            yield f"{learner} {n}", study.found(_over(error), *cells)
    both = ("dr", at, STRICT), ("dr", at, LOOSE)
    yield "variance", study.found(_over(variance), *both)
    yield "bias", study.found(_over(squared_bias), *both)
    yield "mostly", study.found(_part_of_variance, *both)
    of_s = ("s", at, STRICT), ("s", at, LOOSE)
    yield "s", study.found(lambda one: error(one) / (spread or 1.0), of_s[0])
    if spread:
        yield "average", study.found(lambda one: error(one) / spread, ("dr", _SOME, STRICT))
    if "moments" in study.learners:
        yield "flexible", study.found(_losses, *both, *of_s)
        own = ("moments", 8_000, STRICT)
        yield "authors", study.found(lambda one: error(one) / AUTHORS[name], own)


def _judged(studies: Sequence[Study], guarantee: str) -> dict[str, tuple[float, float]]:
    """What is measured of every set-up, by the keys of claims.

    A few fits do not tell well how far apart such values lie. So a standard error is, in parts of
    its value, no less than the median of the same claim's on all set-ups.
    """
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for study in studies:
        log.info("set-up %s …", study.set_up.title)
        for claim, measured in _claims(study):
            found.setdefault(claim, {})[study.set_up.name] = measured
    keyed = {}
    for claim, by_name in found.items():
        usual = float(np.median([one / abs(value) for value, one in by_name.values()]))
        for name, (value, one) in by_name.items():
            keyed[f"{claim} {name} {guarantee}"] = value, max(one, abs(value) * usual)
    return keyed


def _panels(study: Study, how: Run) -> Iterator[Panel]:
    """Figures 2 and 3 of a set-up; in a quick run with the cells of its claims."""
    title, n = study.set_up.title, _FIGURE_3[study.set_up.name]
    few = (_FEW, _MOST), ("dr", "r"), (STRICT, LOOSE)
    usual = (_SIZES if how.full else (_FEW, _SOME, _MANY, _MOST)), tuple(SOUND), _EPSILONS
    sizes, learners, epsilons = few if how.quick else usual
    lines = [
        Line.of(_TITLES[one], sizes, [study.found(error, (one, of, STRICT)) for of in sizes])
        for one in learners
    ]
    plain = [study.found(error, ("dr", of, PLAIN)) for of in sizes]
    lines.append(Line.of("DR without privacy", sizes, plain, is_reference=True))
    if spread := float(study.fresh.effect.var()):
        lines.append(Line("the average effect alone", sizes, [spread] * len(sizes)))
    yield Panel(f"Figure 2, {title}, ε = 1", "people", _ERROR, tuple(lines), "xy")
    lines = [
        Line.of(f"DR: {what}", epsilons, [study.found(of, ("dr", n, one)) for one in epsilons])
        for what, of in (("variance", variance), ("squared bias", squared_bias))
    ]
    flat = [study.found(error, ("dr", n, PLAIN))] * len(epsilons)
    lines.append(Line.of("DR: error without privacy", epsilons, flat, is_reference=True))
    yield Panel(f"Figure 3, {title}, {n:,} people", "ε", _ERROR, tuple(lines), "xy")


def _set_ups(how: Run) -> Found:
    studies = [Study(one, SOUND, _n_fits(how), how.random) for one in simulated()]
    found = _judged(studies, "sound")
    drawn = studies[1:2] if how.quick else studies
    panels = [panel for study in drawn for panel in _panels(study, how)]
    return found, tuple(sorted(panels, key=lambda one: one.title))  # figure by figure


def _n_fits(how: Run) -> int:
    return 6 if how.quick else 50 if how.full else 12


def _published(how: Run) -> Found:
    """Algorithm 1 with DP-EBM stages: minutes, and no faster with fewer people."""
    if how.quick:
        raise NotTriedError("takes minutes: not in a quick run")
    if not library.is_installed():
        raise NotTriedError("needs the extra clusterdp[cate-replication]")
    n_fits = 50 if how.full else 3
    studies = [Study(one, PUBLISHED, n_fits, how.random) for one in simulated()]
    return _judged(studies, "printed"), ()


def _customers(how: Run) -> Found:
    """The stand-in for voters: Figures 2 and 3, and Figure 1 by months since the last purchase."""
    n_fits = _n_fits(how)
    study = Study(hillstrom(how.file(HILLSTROM)), SOUND, n_fits, how.random)
    found = _judged([study], "sound")
    months, some = np.arange(1.0, 13.0), study.fresh.features[:1_000]
    at = np.repeat(some[np.newaxis], len(months), axis=0)
    at[:, :, 0] = months[:, np.newaxis]
    true = np.mean(0.5 * some[:, 2]) / (1.0 + 5.0 / months)

    def curve(of: Predict) -> Floats:
        each: Floats = of(at.reshape(-1, some.shape[1])).reshape(at.shape[:2]).mean(axis=1)
        each -= each.mean()
        return each

    epsilons = (STRICT, LOOSE) if how.quick else _EPSILONS
    curves = {
        one: np.array([curve(each) for each in study.fitted("dr", _MANY, one)])
        for one in (*epsilons, PLAIN)
    }
    true -= true.mean()
    apart = {one: np.mean((each - true) ** 2, axis=1) for one, each in curves.items()}
    jumps = {
        one: np.abs(np.diff(each, 2, axis=1)).mean(axis=1).round(9) for one, each in curves.items()
    }
    found["1 apart sound"] = jackknife(_ratio, apart[STRICT], apart[LOOSE])
    found["1 jumps sound"] = jackknife(_ratio, jumps[STRICT], jumps[LOOSE])
    lines = [Line(f"ε = {one:g}", months.tolist(), curves[one][0].tolist()) for one in epsilons]
    plain = curves[PLAIN][0].tolist()
    lines.append(Line("without privacy", months.tolist(), plain, is_reference=True))
    lines.append(Line("true", months.tolist(), true.tolist()))
    label = "Figure 1, H, 16,000 people: DR, one fit each"
    panel = Panel(
        label, "months since the last purchase", "effect, less its mean", tuple(lines), ""
    )
    return found, (panel,) if how.quick else (*_panels(study, how), panel)


def _ratio(above: Floats, below: Floats) -> float:
    return float(above / below)


def _accounts(_: Run) -> Found:
    """Prices, every one exact."""
    set_up, n = simulated()[0], 1_000
    sums = meta.stand_in("dr", set_up.design(1.0, DELTA), n)
    rho = concentrated_rho(1.0, DELTA)
    together = brentq(lambda one: concentrated_rho(one, DELTA) - 3.0 * rho, 1.0, 3.0)
    parts = (continuous_sigma(part, DELTA / 2.0) for part in (0.9, 0.1))  # as the library splits ε
    moved = 2.0 * hypot(*(1.0 / sigma for sigma in parts))
    replaced = brentq(lambda one: continuous_delta(1.0 / moved, one) - DELTA, 0.5, 4.0)
    return {
        "parallel": (epsilon_at(meta.event(sums), DELTA), 0.0),
        "sequential": (float(together), 0.0),
        "replaced": (float(replaced), 0.0),
    }, ()


MEASURES: dict[str, Measure] = {
    "accounts": _accounts,
    "set-ups": _set_ups,
    "as published": _published,
    "customers": _customers,
}
