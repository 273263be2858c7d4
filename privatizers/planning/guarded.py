"""Plans by a guess that was learnt: a wrong one costs a bounded part of the variance.

Whatever outcomes are, they are a mixture of those that are all alike, and what the response adds is
linear in them. So it is asked of people who all have one outcome, value by value, what the plan
would cost them beside the one for an even guess, which is what there would be otherwise.
"""

from dataclasses import replace

import numpy as np

from estimators.published_guess import LADDER, evened
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.optimal_response.learnt_guess import MOST_TABLE_NOISE
from privatizers.planning.forecast import forecast
from privatizers.planning.planner import Plan, plan
from privatizers.planning.question import Question
from schemas.arrays import Floats

MOST_VARIANCE = 2.0
"""The same of the geometric mean of effects' variances, for the value that a plan suits least."""

_DOUBT = 1e-3
"""How many are even then, after all: without any variance there would be nothing to forecast."""

_MOST_VALUES = 25
"""Values that everybody may have in turn, spread over all that there are."""


def guarded_plan(question: Question) -> Plan:
    """Choose a design as :func:`plan`; of a guess that was learnt, with enough of an even one.

    η is the least step from ``question.even_part`` up at which the noise of the table for the
    value x that it suits least, max_x noise_x, is at most 4 times that of the table for an even
    guess, and the geometric mean of all effects' variances, where everybody has the value that the
    plan suits least, at most twice that by the plan for an even guess. At η = 1 it is that plan,
    as where it has narrower intervals though the guess be right: at a small ε little is learnt.
    Errors are as in :func:`plan`.
    """
    least = question.even_part
    if not least:
        return plan(question)
    of_even = question.with_part(1.0)
    even = replace(plan(of_even), even_part=1.0)
    most = _most_variance(of_even, even) + np.log(MOST_VARIANCE)
    parts, found = [least, *(one for one in LADDER if least < one < 1.0)], even
    middle = 0  # mostly the least is safe
    while parts:  # the more of an even guess, the safer: by halves
        asked = question.with_part(parts[middle])
        chosen = replace(plan(asked), even_part=parts[middle])
        is_safe = _table_is_safe(chosen) and _most_variance(asked, chosen) <= most
        found = chosen if is_safe else found
        parts = parts[:middle] if is_safe else parts[middle + 1 :]
        middle = len(parts) // 2
    if question.within is not None:  # whose tables are told by no one guess
        return found
    plans = [(question.with_part(found.even_part or 1.0), found), (of_even, even)]
    widths = [_mean_square(one, plan, question.guess, "half_width") for one, plan in plans]
    return found if widths[0] < widths[1] else even


def _table_is_safe(chosen: Plan) -> bool:
    mechanism = chosen.design.mechanism
    if not isinstance(mechanism, ClusterOptimalDP):
        return True
    size = len(chosen.guess)
    parameters = replace(mechanism.parameters, guess=(1.0 / size,) * size)
    even = replace(mechanism, parameters=parameters)
    most, of_even = (
        max(one.response_noise(everybody).of_mean for everybody in np.eye(size))
        for one in (mechanism, even)
    )
    return most <= MOST_TABLE_NOISE * of_even


def _most_variance(asked: Question, chosen: Plan) -> float:
    """The greatest mean of ln V over all effects, whatever one value everybody has."""
    size = len(asked.values)
    at = np.unique(np.linspace(0, size - 1, min(size, _MOST_VALUES)).round().astype(np.int64))
    every = evened(np.eye(size)[at], _DOUBT)
    return max(_mean_square(asked, chosen, everybody, "std_error") for everybody in every)


def _mean_square(asked: Question, chosen: Plan, truth: Floats, name: str) -> float:
    """The mean of ln x² over all effects that matter, x being what is predicted under ``name``."""
    predicted = forecast(asked, chosen.option.grid, chosen.design.mechanism, truth)
    matter = [one for one in predicted if asked.overall or one.segment_share is not None]
    return float(np.mean([2.0 * np.log(getattr(one, name)) for one in matter]))
