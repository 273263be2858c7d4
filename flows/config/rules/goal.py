"""What roles, margins and the rule of several primary outcomes must be like together."""

from collections.abc import Iterator, Mapping

from flows.config.model.experiment import Config
from flows.config.model.sections import Outcome, RatioMetric
from schemas.errors import ConfigError, SeveralConfigError


def check_decision(config: Config) -> None:
    """Raise ConfigError, with all that is found, unless what is declared can decide.

    The grids keep their own rules, which were looked at before.
    """
    problems = [*_goal_problems(config), *_rule_problems(config)]
    if len(problems) == 1:
        raise ConfigError(*problems[0])
    if problems:
        raise SeveralConfigError.of(problems)


def _goal_problems(config: Config) -> Iterator[tuple[str, str]]:
    for place, one in _placed(config).items():
        if one.role == "guardrail" and one.margin is None:
            yield (
                f"{place}.margin",
                "missing: of a guardrail, say the greatest harm that is acceptable, in its unit",
            )
        elif one.role != "guardrail" and one.margin is not None:
            yield f"{place}.margin", 'belongs to role = "guardrail"'
        elif isinstance(one, Outcome) and one.margin is not None:
            low, high = one.ends
            if one.margin >= high - low:
                yield (
                    f"{place}.margin",
                    f"{one.margin!r} is the range of outcomes or more, {low!r} to {high!r}: no "
                    "harm could be that great. It is in the unit of the outcome, not in per cent",
                )


def _placed(config: Config) -> Mapping[str, Outcome | RatioMetric]:
    """Outcomes and ratios by their places in the file."""
    several = bool(config.named_outcomes)
    outcomes: dict[str, Outcome | RatioMetric] = {
        f"outcomes[{at}]" if several else "outcome": one for at, one in enumerate(config.outcomes)
    }
    return outcomes | {f"ratios[{at}]": one for at, one in enumerate(config.ratios)}


def _rule_problems(config: Config) -> Iterator[tuple[str, str]]:
    n_primary = sum(one.role == "primary" for one in _placed(config).values())
    if n_primary > 1 and config.decision is None:
        yield (
            "decision.primary",
            f'missing: there are {n_primary} primary outcomes; say "all" where an arm is to gain '
            'in each of them, "any" where a gain in one will do',
        )
    if n_primary == 0 and config.decision is not None:
        yield "decision.primary", 'no outcome or ratio has role = "primary"'
