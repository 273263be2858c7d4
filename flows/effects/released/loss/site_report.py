"""What a site's report costs at least, worked out from the noise that it says its effect has.

A report says how much variance noise adds to its effect, and not by which numbers of units and
parts of ε: so the least is found of all that there may be.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flows.released.loss.loss import Loss, Part
from schemas.effects.site import SiteReport
from schemas.errors import InputError

_ROOT: Final = math.sqrt(2.0)
_TRUSTED: Final = (
    "That noise was drawn as the report says, once, from chance that nobody knows.",
    "How epsilon was divided, and the noise on the variance: the report does not say, so it costs "
    "what is worked out at least.",
)


def report_loss(report: SiteReport, path: Path) -> Loss:
    """Work out what a report costs at least."""
    least = least_epsilon(report)
    rule = f"epsilon is less than what noise_variance gives, {least:.6g} at least"
    return Loss(
        path=path.absolute(),
        release_id=report.report_id,
        stated_epsilon=report.epsilon,
        stated_delta=report.delta,
        epsilon=least,
        delta=report.delta,
        parts=(Part(None, least, 0.0, "estimate", "least"),),
        trusted=_TRUSTED,
        broken=(rule,) if least > report.epsilon else (),
    )


def check_reports(paths: Sequence[Path], reports: Sequence[SiteReport]) -> None:
    """Raise InputError where a report costs more than it says."""
    for path, report in zip(paths, reports, strict=True):
        for rule in report_loss(report, path).broken:
            raise InputError(f"{path}: costs more than it says: {rule}; ask the site for another")


def least_epsilon(report: SiteReport) -> float:
    """The least ε that Laplace noise of ``noise_variance`` v on the effect costs.

    In a trial v = 2b²(1/N_t² + 1/N_c²) ≥ 16b²/N², b the scale of an arm's sum, which an outcome
    moves by B: B/b ≥ 4B/(N √v). A matched effect, which one may move by 2B/N at least and, where
    noise is that of the worst data, by B(1 + 1/N), has v = 2b².
    """
    high, n = report.outcome_bound, report.n_units
    moved = {"difference-in-means": 2.0 * _ROOT / n, "global-dp-matching": 1.0 + 1.0 / n}
    farthest = high * moved.get(report.estimator, 2.0 / n)
    if report.noise_variance == 0.0:
        return math.inf
    return _ROOT * farthest / math.sqrt(report.noise_variance)
