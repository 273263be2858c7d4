"""What ratios of outcomes must be like; all that is wrong is told at once."""

from collections.abc import Iterable, Iterator
from typing import get_args

from flows.config.model.experiment import Config
from privatizers.planning.aggregate_design import AggregateName
from schemas.errors import ConfigError, SeveralConfigError, did_you_mean, shown
from schemas.names import metric_problem

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
    found = list(dict.fromkeys(_problems(config)))
    if found:
        raise SeveralConfigError.of(found)


def _problems(config: Config) -> Iterator[tuple[str, str]]:
    outcomes = [one.name for one in config.named_outcomes]
    ratios = [one.name for one in config.ratios]
    taken = {name.lower(): f"outcomes[{at}].name" for at, name in enumerate(outcomes)}
    for at, one in enumerate(config.ratios):
        place, low = f"ratios[{at}]", one.name.lower()
        problem = metric_problem(one.name)
        if problem is None and low in taken:
            problem = f"is {taken[low]} already (capitals do not count)"
        if problem is not None:
            yield f"{place}.name", f"{shown(one.name)} {problem}"
        taken.setdefault(low, f"{place}.name")
        for key in ("numerator", "denominator"):
            name = getattr(one, key)
            if name not in outcomes:
                yield f"{place}.{key}", f"{shown(name)} {_unknown(name, outcomes, ratios)}"
        if one.numerator == one.denominator and one.numerator in outcomes:
            yield f"{place}.denominator", f"{shown(one.denominator)} is the numerator, too"


def _unknown(name: str, outcomes: Iterable[str], ratios: Iterable[str]) -> str:
    if name in ratios:
        return "is a ratio itself; a ratio is of two outcomes"
    listed = f"; there are {', '.join(map(shown, outcomes))}"
    return f"is no outcome{did_you_mean(name, outcomes) or listed}"
