"""What roles, margins and the rule of several primary outcomes must be like together."""

import math
from collections.abc import Iterator

from flows.config.model.experiment import Config
from flows.config.model.sections import Metric, Outcome
from flows.config.rules.outcomes import raise_found


def check_decision(config: Config) -> None:
    """Raise ConfigError, with all that is found, unless what is declared can decide.

    The grids keep their own rules, which were looked at before.
    """
    raise_found(_problems(config))


def _problems(config: Config) -> Iterator[tuple[str, str]]:
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
