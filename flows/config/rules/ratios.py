"""What ratios of outcomes must be like; all that is wrong is told at once."""

from collections.abc import Iterator
from typing import get_args

from flows.config.model.experiment import Config
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
    raise_found(_problems(config))


def _problems(config: Config) -> Iterator[tuple[str, str]]:
    outcomes = {f"outcomes[{at}].name": one.name for at, one in enumerate(config.named_outcomes)}
    ratios = {f"ratios[{at}].name": one.name for at, one in enumerate(config.ratios)}
    yield from name_problems(ratios, outcomes)
    for at, one in enumerate(config.ratios):
        for key, name in {"numerator": one.numerator, "denominator": one.denominator}.items():
            if name in ratios.values():
                problem = "is a ratio itself; a ratio is of two outcomes"
            else:
                listed = f"; there are {', '.join(map(shown, outcomes.values()))}"
                problem = f"is no outcome{did_you_mean(name, outcomes.values()) or listed}"
            if name not in outcomes.values():
                yield f"ratios[{at}].{key}", f"{shown(name)} {problem}"
        if one.numerator == one.denominator and one.numerator in outcomes.values():
            yield f"ratios[{at}].denominator", f"{shown(one.denominator)} is the numerator, too"
