"""What ratios of outcomes, and what decides, must be like; all that is wrong is told at once."""

import math
from collections.abc import Iterator
from typing import get_args

from flows.config.model.experiment import Config
from flows.config.model.sections import Metric, Outcome
from flows.config.rules.outcomes import name_problems, raise_found
from privatizers.planning.aggregate_design import AggregateName
from schemas.errors import ConfigError, did_you_mean, shown

_MOST_RATIOS = 100  # each is two estimates an arm more


def check_ratios(config: Config) -> None:
    """Raise ConfigError, with all that is found, unless each of ``[[ratios]]`` can be estimated.

    The outcomes keep their own rules, which were looked at before.
    """
    if not config.ratios:
        return
    if not config.named_outcomes:
        raise ConfigError(
            "ratios", "a ratio is of two outcomes: give them as [[outcomes]], in place of [outcome]"
        )
    if len(config.ratios) > _MOST_RATIOS:
        raise ConfigError(
            "ratios", f"{len(config.ratios):,} ratios; a release has at most {_MOST_RATIOS}"
        )
    if config.privacy.mechanism in get_args(AggregateName):
        raise ConfigError(
            "ratios",
            f'privacy.mechanism = "{config.privacy.mechanism}" publishes no units, and only these '
            "tell how two outcomes go together; take another mechanism, or leave ratios out",
        )
    raise_found(_ratio_problems(config))


def _ratio_problems(config: Config) -> Iterator[tuple[str, str]]:
    outcomes = {f"outcomes[{at}].name": one.name for at, one in enumerate(config.named_outcomes)}
    ratios = {f"ratios[{at}].name": one.name for at, one in enumerate(config.ratios)}
    yield from name_problems(ratios, outcomes)
    for at, one in enumerate(config.ratios):
        for key, name in {"numerator": one.numerator, "denominator": one.denominator}.items():
            if name in outcomes.values():
                continue
            listed = f"; there are {', '.join(map(shown, outcomes.values()))}"
            problem = f"is no outcome{did_you_mean(name, outcomes.values()) or listed}"
            if name in ratios.values():
                problem = "is a ratio itself; a ratio is of two outcomes"
            yield f"ratios[{at}].{key}", f"{shown(name)} {problem}"
        if one.numerator == one.denominator and one.numerator in outcomes.values():
            yield f"ratios[{at}].denominator", f"{shown(one.denominator)} is the numerator, too"


def check_decision(config: Config) -> None:
    """Raise ConfigError, with all that is found, unless what is declared can decide.

    The grids keep their own rules, which were looked at before.
    """
    raise_found(_decision_problems(config))


def _decision_problems(config: Config) -> Iterator[tuple[str, str]]:
    several = bool(config.named_outcomes)
    metrics: dict[str, Metric] = {
        f"outcomes[{at}]" if several else "outcome": one for at, one in enumerate(config.outcomes)
    }
    metrics |= {f"ratios[{at}]": one for at, one in enumerate(config.ratios)}
    for place, one in metrics.items():
        problem = _margin_problem(one)
        if problem is not None:
            yield f"{place}.margin", problem
    n_primary = sum(one.role == "primary" for one in metrics.values())
    if n_primary > 1 and config.decision is None:
        yield (
            "decision.primary",
            f'missing: there are {n_primary} primary outcomes; say "all" where an arm is to gain '
            'in each of them, "any" where a gain in one will do',
        )
    if n_primary == 0 and config.decision is not None:
        yield "decision.primary", 'no outcome or ratio has role = "primary"'


def _margin_problem(one: Metric) -> str | None:
    if one.margin is None:
        what = "of a guardrail, say the greatest harm that is acceptable, in its unit"
        return f"missing: {what}" if one.role == "guardrail" else None
    if one.role != "guardrail":
        return 'belongs to role = "guardrail"'
    low, high = one.ends if isinstance(one, Outcome) else (-math.inf, math.inf)
    if one.margin < high - low:
        return None
    return (
        f"{one.margin!r} is the range of outcomes or more, {low!r} to {high!r}: no harm could be "
        "that great. It is in the unit of the outcome, not in per cent"
    )
