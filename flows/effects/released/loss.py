"""What an effect model or a site's report costs a unit, worked out from its file alone.

|φ| ≤ B and |w φ| ≤ B with B² = p, the number of functions; |y| ≤ 1, |T − e| ≤ t, and residuals are
clipped to ±C. So neighbours' sums are apart, in the Euclidean norm, by at most what
:func:`farthest` says, and by what rounding to steps of h adds: h √k for k sums.

Discrete Gaussian noise of scale σ on whole numbers that neighbours move by Δ in the Euclidean norm
has ρ = Δ²/(2σ²), and ρ adds up. It implies (ε, δ) for every order α > 1 with

    ε = αρ + (ln(1/δ) + α ln(1 − 1/α) − ln(α − 1))/(α − 1)

(Canonne, Kamath and Steinke 2020, Theorem 14 and Corollary 13).

A report says how much variance noise adds to its effect, and not by which numbers of units and
parts of ε: so the least is found of all that there may be.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from flows.released.loss.loss import Loss, Part
from schemas.effects.file import ModelDocument
from schemas.effects.model import EffectDesign, NoisySums
from schemas.effects.site import SiteReport

_IN_DOUBLES: Final = 1.0 + 2.0**-24
"""Of the distance of sums: what adding up in doubles makes of it at most."""
_FINER: Final = 1.0 + 2.0**-19
"""Of a rounding to whole steps, which is of sums that were rounded to 2⁻²⁰ of a step before."""
_NEAR: Final = 1e-9
_OF_FEATURES: Final = frozenset({"histograms", "gram", "signed_gram", "treatment", "treated_gram"})
"""Sums that outcomes have no part in."""
_ROOT: Final = math.sqrt(2.0)
_RAISED: Final = 1.0 + 2.0**-44  # covers the rounding of doubles
_DRAWN: Final = "That noise was drawn as the file says, once, from chance that nobody knows."
_CLIPPED: Final = (
    "That rows were clipped to the declared bounds before they were summed, each unit once, and "
    "which units take part follows from public facts."
)
_STAGES: Final = "That each unit's row was in the sums of one {} alone."
_EXACT: Final = "That arms and features need no protection: sums of them are exact."
_DIVIDED: Final = (
    "How epsilon was divided, and the noise on the variance: the report does not say, so it costs "
    "what is worked out at least."
)


def model_loss(
    document: ModelDocument,
    n_functions: int,
    clip: float | None,
    site_clips: Mapping[str, float],
    path: Path,
) -> Loss:
    """Work out what a model costs.

    ``n_functions`` p and ``clip`` C (in halves of the outcomes' range; None where nothing was
    clipped), of each site where there are several, were worked out from its sums, and bound what
    later ones are of. Sums of one stage, or one site, add up. Each stage of a learner, and each
    site, has its own units, so the dearest counts.
    """
    design, sums = document.design, document.sums
    stages, parts, broken = defaultdict[str, float](float), list[Part](), list[str]()
    for each in sums:
        stage = each.name.rpartition(".")[0]
        rho = _rho(design, each, n_functions, site_clips.get(stage, clip))
        stages[stage] += rho
        epsilon = epsilon_of(rho, design.delta)
        parts.append(Part(None, epsilon, design.delta, each.name, "bound"))
        if each.rho < rho * (1.0 - _NEAR):
            broken.append(f"sums: rho of {each.name} is less than its scale gives, {rho:.6g}")
    rho = max(stages.values())
    epsilon = epsilon_of(rho, design.delta)
    if epsilon > design.epsilon:
        broken.append("epsilon and delta are less than what the scales of sums give")
    sites = () if design.agreed is None else design.agreed.sites
    broken += [
        f"agreed: epsilon of {one.site} is less than what the scales of its sums give"
        for one in sites
        if epsilon_of(stages[one.site], one.delta) > one.epsilon
    ]
    return Loss(
        path=path.absolute(),
        release_id=document.head.model_id,
        stated_epsilon=design.epsilon,
        stated_delta=design.delta,
        epsilon=epsilon,
        delta=delta_of(rho, design.epsilon),
        parts=tuple(parts),
        trusted=(
            *(_DRAWN, _CLIPPED),
            *([_STAGES.format("site" if sites else "stage")] if len(stages) > 1 else []),
            *([_EXACT] if design.neighbours == "outcome" else []),
        ),
        broken=tuple(broken),
    )


def _rho(design: EffectDesign, sums: NoisySums, n_functions: int, clip: float | None) -> float:
    """ρ = (Δ′/(hσ))²/2, Δ′ being Δ and what rounding adds; 0 for what is not protected."""
    name = sums.name.rpartition(".")[2]
    if design.neighbours == "outcome" and name in _OF_FEATURES:
        return 0.0
    apart = farthest(design, name, float(n_functions), 2.0 if clip is None else min(clip, 2.0))
    if name != "histograms" or sums.step != 1.0:  # whole counts are not rounded
        apart = apart * _IN_DOUBLES + sums.step * math.sqrt(len(sums.steps)) * _FINER
    noise = sums.step * sums.scale
    parts = apart / noise if noise > 0.0 else math.inf
    rho = parts * parts / 2.0
    return rho if rho >= 0.0 else math.inf  # numbers too great to be told from one another


def farthest(design: EffectDesign, name: str, p: float, clip: float) -> float:
    """Δ: how far neighbours' sums may be apart, before they are rounded."""
    bound, propensity = math.sqrt(p), design.propensity
    share = propensity.bound  # the least that e or 1 − e can be; t is 1 less that
    if propensity.kind == "value" and propensity.value is not None:
        share = min(propensity.value, 1.0 - propensity.value)
    by_outcome = design.neighbours == "outcome"
    moved = min(2.0 * clip, 2.0) if by_outcome else 2.0 * clip  # only y, or all of a residual
    score = moved / share if by_outcome else 2.0 * (2.0 + clip / share)
    return {
        "histograms": math.sqrt(2.0 * len(design.features)),
        "gram": _ROOT * p,
        "signed_gram": 2.0 * p,
        "treatment": bound,
        "outcomes": 2.0 * bound,
        "signed_outcomes": 2.0 * _ROOT * bound,
        "squares": 1.0,
        "squared_scores": 1.0,
        "treated_gram": _ROOT * (1.0 - share) ** 2 * p,
        "effects": (1.0 - share) * bound * moved,
        "residuals": (1.0 - share) * bound * moved,
        "scores": bound * score,
        "table": 2.0 * math.sqrt(1 + len(design.subgroups) + design.targeting),
    }.get(name, math.inf)


def epsilon_of(rho: float, delta: float) -> float:
    """The ε that ρ-zCDP implies at ``delta``, rounded up: of the best order that is found."""
    if rho in (0.0, math.inf):
        return rho
    least = _least(lambda above, rest: (above + 1.0) * rho + (rest - math.log(delta)) / above)
    return max(0.0, least) * _RAISED


def delta_of(rho: float, epsilon: float) -> float:
    """The δ that ρ-zCDP implies at ``epsilon``, rounded up: of the best order that is found."""
    if rho in (0.0, math.inf):
        return min(rho, 1.0)
    least = _least(lambda above, rest: above * ((above + 1.0) * rho - epsilon) + rest)
    return min(1.0, math.exp(min(least, 0.0)) * _RAISED)


def _least(function: Callable[[float, float], float]) -> float:
    """The least of a function of α − 1 and α ln(1 − 1/α) − ln(α − 1), nearly: every α holds."""

    def at(place: float) -> float:
        above = math.exp(place)
        return function(above, -(above + 1.0) * math.log1p(1.0 / above) - place)

    low, high = -24.0, 24.0
    for _ in range(80):  # it falls and then rises
        one, other = (2.0 * low + high) / 3.0, (low + 2.0 * high) / 3.0
        low, high = (low, other) if at(one) < at(other) else (one, high)
    return at(low)


def report_loss(report: SiteReport, path: Path) -> Loss:
    """Work out what a report costs at least: the ε of Laplace noise of ``noise_variance`` v.

    In a trial v = 2b²(1/N_t² + 1/N_c²) ≥ 16b²/N², b the scale of an arm's sum, which an outcome
    moves by B: B/b ≥ 4B/(N √v). A matched effect, which one may move by 2B/N at least and, where
    noise is that of the worst data, by B(1 + 1/N), has v = 2b².
    """
    high, n = report.outcome_bound, report.n_units
    moved = {"difference-in-means": 2.0 * _ROOT / n, "global-dp-matching": 1.0 + 1.0 / n}
    farthest = high * moved.get(report.estimator, 2.0 / n)
    noise = math.sqrt(report.noise_variance)
    least = _ROOT * farthest / noise if noise > 0.0 else math.inf
    rule = f"epsilon is less than what noise_variance gives, {least:.6g} at least"
    return Loss(
        path=path.absolute(),
        release_id=report.report_id,
        stated_epsilon=report.epsilon,
        stated_delta=report.delta,
        epsilon=least,
        delta=report.delta,
        parts=(Part(None, least, 0.0, "estimate", "least"),),
        trusted=(_DRAWN, _DIVIDED),
        broken=(rule,) if least > report.epsilon else (),
    )
