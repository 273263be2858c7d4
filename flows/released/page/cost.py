"""What privacy costs, in people and in odds; and what another ε would do to the intervals."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from estimators.ends import response_rate
from flows.released.page.contents import Contents
from flows.released.page.results import Answered, Estimated
from flows.released.page.rows import Group
from flows.released.page.words import (
    NONE,
    exactly,
    grouped,
    number,
    rounded_down,
    rounded_up,
    said,
    shown,
)
from schemas.arrays import Floats
from schemas.released import Manifest, Metric, Ratio

PRIORS: Floats = np.array([0.01, 0.1, 0.5, 0.9])
"""Suspicions that the meaning of ε is shown for."""
EPSILONS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, math.inf)
"""Other ε than the release's own that its page has."""
_LARGEST: Final = 300.0
"""Of any greater ε numbers have no place for the noise."""
_WEAK: Final = 7.0
"""Above this ε a factor is next to no protection."""


def odds_after(prior: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Least and greatest probability that a suspicion of ``prior`` can have after the release.

    Its odds p/(1 − p) are divided, or multiplied, by e^ε at most.
    """
    factor = math.exp(min(epsilon, 700.0))
    return prior / (prior + (1 - prior) * factor), prior / (prior + (1 - prior) / factor)


def odds_words(epsilon: float) -> str:
    """By how much the odds of a suspicion can be multiplied, e^ε."""
    return shown(math.exp(epsilon), 3) if epsilon < 700 else "more than 10³⁰⁰"


def sentence(manifest: Manifest, what: str = "the file") -> Markup:
    """Return what ε means for a person, in a sentence."""
    least, most = (float(one[0]) for one in odds_after(np.array([0.5]), manifest.epsilon))
    n_outcomes = len(manifest.outcomes)
    whole = {1: "", 2: ", both outcomes together"}.get(
        n_outcomes, f", all {n_outcomes} outcomes together"
    )
    delta = f", but for a chance of about δ = {shown(manifest.delta)}" if manifest.delta > 0 else ""
    weak = " So large a factor is next to no protection." if manifest.epsilon > _WEAK else ""
    return said(
        f"Whoever reads {what} can multiply the odds of a guess about one person’s ",
        f"outcome{'s' if n_outcomes > 1 else ''} by {odds_words(manifest.epsilon)} at most (ε = ",
        number(manifest.epsilon),
        f"{whole}{delta}): a guess of 50 % stays between ",
        f"{rounded_down(least)} and {rounded_up(most)}.{weak}",
    )


def costs(groups: Sequence[Group], n_whole: int, who: str, told: Markup) -> dict[str, Any]:
    """Return what privacy costs: of ``n_whole`` people the part that is lost to noise, by metric.

    It is the mean share of the variance of a metric's estimates that is due to noise.
    """
    bars = []
    for group in groups:
        known = [one for one in group.findings if one.of and one.of["std_error"]]
        shares = [1 - one.unprotected**2 for one in known]
        if shares:
            share = float(np.mean(shares))
            lost = exactly(share, grouped(round(float(f"{share * n_whole:.3g}"))))
            text = said(lost, " of ", grouped(n_whole))
            bars.append({"name": group.name, "remain": round(100 * (1 - share)), "lost": text})
    return {"who": who, "bars": bars, "sentence": told}


def cost_facts(contents: Contents, found: Sequence[Answered]) -> dict[str, Any]:
    """Return what privacy costs in each metric; in groups, where these were assigned."""
    groups = sum((contents.assigned or {}).values()) if contents.is_clustered else 0
    n_whole, who = (groups, "groups") if groups else (contents.manifest.n_units, "people")
    return costs([one.group for one in found], n_whole, who, sentence(contents.manifest))


# another ε


def noise_at(metric: Metric, estimator: str, epsilon: float) -> float:
    """Return how the variance of noise goes with ε, but for a factor: as it is known beforehand.

    Of noise on counts, means and differences 1/ε²; of randomised outcomes λ(2 − λ)/(1 − λ)², λ
    being that of K outcomes and the uniform prior (:func:`estimators.ends.response_rate`).
    """
    if estimator != "tau_q":
        return epsilon**-2
    rate = response_rate(min(epsilon, _LARGEST), metric.n_outcomes)
    return rate * (2 - rate) / (1 - rate) ** 2


def half_width(contents: Contents, one: Answered, times: float) -> float | None:
    """Forecast half the interval of the first arm with ``times`` the ε; None where there is none.

    The noise of both estimators together is taken for that of two that know nothing of each
    other: 1/v = 1/v₁ + 1/v₂.
    """
    lead = one.leads[0] if one.leads else None
    if lead is None or lead["ci_lower"] is None or not lead["std_error"]:
        return None
    metric = one.contents.metric
    of = metric.numerator if isinstance(metric, Ratio) else metric.metric
    outcome = next(each for each in contents.manifest.outcomes if each.metric == of)
    alone = [row for row in one.contents.estimates if row["arm"] == lead["arm"]]
    parts: list[Estimated] = [row for row in alone if row["estimator"] != "combined"] or [lead]
    noises = {row["estimator"]: row["privacy_std_error"] ** 2 for row in parts}
    if math.isinf(times) or min(noises.values()) <= 0:
        ratio = 0.0
    else:
        epsilon = outcome.epsilon
        now = sum(1 / noise for noise in noises.values())
        then = sum(
            noise_at(outcome, name, epsilon) / noise_at(outcome, name, epsilon * times) / noise
            for name, noise in noises.items()
        )
        ratio = now / then
    whole, noise = lead["std_error"] ** 2, lead["privacy_std_error"] ** 2
    half = (lead["ci_upper"] - lead["ci_lower"]) / 2
    return float(half * math.sqrt(max(whole - noise + noise * ratio, 0.0) / whole))


def forecasts(
    contents: Contents, found: Sequence[Answered], epsilons: Iterable[float]
) -> list[dict[str, Any]]:
    """Return what each ε would mean, for whoever suspects and for the intervals, in its order.

    The release's own is among them; ∞ is no noise.
    """
    own, rows = contents.manifest.epsilon, []
    for epsilon in sorted({own, *epsilons}):
        most = rounded_up(float(odds_after(np.array([0.5]), epsilon)[1][0]))
        told: dict[str, Any] = {"epsilon": shown(epsilon), "isOwn": epsilon == own}
        told |= {"odds": odds_words(epsilon), "most": most}
        if epsilon == math.inf:
            told |= {"epsilon": "no noise", "odds": NONE, "most": NONE}
        halves = [(one.contents.scale, half_width(contents, one, epsilon / own)) for one in found]
        shown_halves = [
            NONE if half is None else f"± {shown(scale.factor * half, 2)}" for scale, half in halves
        ]
        rows.append(told | {"halves": shown_halves})
    return rows
