"""What outcomes must be like, and what several of them must be like together.

The rules are those of one outcome. Of several each is looked at in a view of its own
(:attr:`flows.config.model.experiment.Config.views`), and the errors name its keys.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal

from flows.config.model.experiment import Config
from flows.config.model.sections import Outcome
from privatizers.accounting.budget import written
from privatizers.domain.lattice import lattice_of
from privatizers.planning.design import Request, check, check_range, check_workable
from privatizers.planning.optimal_design import OptimalRequest, check_optimal
from schemas.errors import ConfigError, SeveralConfigError, shown
from schemas.names import metric_problem

_GREATEST = 1e70  # of a grid value: its fourth power stays within doubles
_LEAST = 1e-60  # of the grid's range: so does that of its inverse
_MOST_POINTS = 10_000  # of a grid: a plan takes time that grows faster than they do
_MOST_OUTCOMES = 100  # each is two columns of every release
_PLANNED = '"auto" (or "cluster-optimal-dp")'


def check_form(config: Config) -> None:
    """Raise ConfigError unless there is ``[outcome]`` or ``[[outcomes]]``, and not both."""
    given = config.model_fields_set
    if "named_outcomes" not in given:
        if "outcome" not in given:
            raise ConfigError("outcome", MISSING)
        return
    if "outcome" in given:
        raise ConfigError("outcome", "given together with [[outcomes]]: give the one or the other")
    if not config.named_outcomes:
        raise ConfigError("outcomes", "empty: name at least one outcome")
    if len(config.named_outcomes) > _MOST_OUTCOMES:
        raise ConfigError(
            "outcomes",
            f"{len(config.named_outcomes):,} outcomes; a release has at most {_MOST_OUTCOMES}",
        )
    if config.columns.outcome:
        raise ConfigError(
            "columns.outcome", "belongs to [outcome]; each of [[outcomes]] has a column of its own"
        )


MISSING = "missing; it has to be given"
"""What is said of a key that has to be there."""


def check_several(config: Config) -> None:
    """Raise ConfigError, with all that is found, unless each of ``[[outcomes]]`` can be released.

    Names and shares are looked at first, as the rest is told of an outcome at its part of epsilon.
    """
    outcomes, privacy = config.named_outcomes, config.privacy
    raise_found(
        name_problems({f"outcomes[{at}].name": one.name for at, one in enumerate(outcomes)})
    )
    check_range("epsilon", privacy.epsilon, 0, math.inf)
    check_workable("epsilon", privacy.epsilon, 1e-9, 700.0)
    if not 0 <= privacy.delta < 1:
        raise ConfigError("privacy.delta", f"{privacy.delta!r} is not at least 0 and less than 1")
    raise_found(_share_problems(config))
    raise_found(_problems(config))


def raise_found(found: Iterable[tuple[str, str]]) -> None:
    """Raise ConfigError with all problems found, each once, if any: keys and what is wrong."""
    problems = list(dict.fromkeys(found))
    if problems:
        raise SeveralConfigError.of(problems)


def name_problems(
    names: Mapping[str, str], taken: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """What is wrong with names of metrics, by their keys, beside those that are ``taken``."""
    seen = {name.lower(): key for key, name in (taken or {}).items()}
    for key, name in names.items():
        problem = metric_problem(name)
        if problem is None and name.lower() in seen:
            problem = f"is {seen[name.lower()]} already (capitals do not count)"
        if problem is not None:
            yield key, f"{shown(name)} {problem}"
        seen.setdefault(name.lower(), key)


def _share_problems(config: Config) -> Iterator[tuple[str, str]]:
    outcomes = config.named_outcomes
    given = {number: one.share for number, one in enumerate(outcomes) if one.share is not None}
    if not given:
        return
    if config.privacy.epsilon is None:
        for number in given:
            yield (
                f"outcomes[{number}].share",
                "divides privacy.epsilon, and parameters are given in its place: each outcome has "
                "these, and pays for them",
            )
        return
    planned = [number for number, share in given.items() if share == "auto"]
    if planned:
        problem = f'"auto" needs privacy.mechanism = {_PLANNED}'
        if len(planned) < len(outcomes):
            problem = '"auto" is for all outcomes or for none: their shares are planned together'
        if len(planned) < len(outcomes) or not config.is_planned:
            yield f"outcomes[{planned[0]}].share", problem
    elif min(config.shares()) <= 0 or sum(config.shares()) > 1:
        whole = sum((written(float(one)) for one in given.values() if one != "auto"), Decimal(0))
        left = len(outcomes) - len(given)
        why = f", which leaves nothing for the {left} outcome(s) without a share"
        if whole > 1 or not left:
            why = "; they may add up to 1 at most"
        problem = f"the parts of epsilon add up to {whole.normalize():f}{why}"
        yield f"outcomes[{max(given)}].share", problem


def _problems(config: Config) -> Iterator[tuple[str, str]]:
    """What is wrong with each outcome: the first thing of each rule, under its own keys."""
    several = ((check_columns, check_grain), (check_outcome, check_planned_grid, check_design))
    for number, view in enumerate(config.views):
        for rules in several:
            try:
                for rule in rules:
                    rule(view)
            except ConfigError as error:
                yield _of_one(error, number, view.privacy.epsilon)


def _of_one(error: ConfigError, number: int, epsilon: float | None) -> tuple[str, str]:
    """An error of a view as one of the outcome of this number."""
    place = f"outcomes[{number}]"
    if error.key == "privacy.epsilon" and epsilon is not None:
        return f"{place}.share", f"a part of {epsilon!r} of epsilon is not enough: {error.problem}"
    key, problem = (
        re.sub(
            r"\boutcome\.(?=[a-z])", f"{place}.", text.replace("columns.outcome", f"{place}.column")
        )
        for text in (error.key, error.problem)
    )
    return place if key == "outcome" else key, problem


def check_planned_grid(config: Config) -> None:
    """What a planned grid needs."""
    if config.outcome.levels != "auto":
        return
    if not config.is_planned:
        raise ConfigError(
            "outcome.levels",
            f'"auto" needs mechanism = {_PLANNED} and an epsilon, from which the grid is planned, '
            "and clusters that are not private",
        )
    if config.outcome.rounding != "stochastic":
        raise ConfigError(
            "outcome.rounding",
            '"nearest" would shift means on a planned, coarser grid: use "stochastic"',
        )


def check_design(config: Config) -> None:
    """Parameters that a design can be made of."""
    request = config.request()
    if isinstance(request, Request):
        check(request)
    if isinstance(request, OptimalRequest):
        if config.outcome.levels == "auto":  # the ends, in place of what the grid is planned for
            ends = (request.grid[0], request.grid[-1])
            request = replace(request, grid=ends, lattice=lattice_of(ends))
        check_optimal(request)
    if not config.is_planned:
        config.design()


# columns and grain


def check_columns(config: Config) -> None:
    """No column means two things in one log; of grain "event" there are two logs."""
    columns, grain = config.columns, config.source.grain
    if columns.cluster == ():
        raise ConfigError("columns.cluster", "an empty list; leave the key out for no clusters")
    exposures: dict[str, str | None] = {"unit": columns.unit, "arm": columns.arm}
    clusters = {
        f"cluster[{position}]" if len(columns.clusters) > 1 else "cluster": name
        for position, name in enumerate(columns.clusters)
    }
    if grain == "event":
        _check_distinct({**exposures, **clusters, "time": columns.time})
        _check_distinct(
            {
                "outcome_unit" if columns.outcome_unit else "unit": columns.unit_of_events,
                "outcome_time" if columns.outcome_time else "time": columns.time_of_events or None,
                "outcome": columns.outcome or None,
                "event": columns.event,
            }
        )
        return
    for key in ("event", "outcome_time", "outcome_unit"):
        if getattr(columns, key) is not None:
            raise ConfigError(f"columns.{key}", 'belongs to grain = "event"')
    if not columns.outcome:
        raise ConfigError("columns.outcome", "missing; it has to be given")
    _check_distinct({**exposures, "outcome": columns.outcome, **clusters})


def _check_distinct(named: dict[str, str | None]) -> None:
    seen: dict[str, str] = {}
    for key, name in named.items():
        if name is None:
            continue
        if name in seen:
            raise ConfigError(f"columns.{key}", f"{shown(name)} is columns.{seen[name]} already")
        seen[name] = key


# the grid


def check_outcome(config: Config) -> None:
    """A grid, and public rules that bring every outcome onto it."""
    outcome = config.outcome
    _check_range(outcome)
    _check_points(outcome)
    _check_texts(outcome)
    if outcome.texts and outcome.decimal is not None:
        raise ConfigError("outcome.decimal", "belongs to numbers, and outcome.values are texts")
    grid = outcome.support
    key = "values" if outcome.values is not None else "levels"
    _check_grid(grid, f"outcome.{'scores' if outcome.scores is not None else key}")
    if not grid[0] <= outcome.missing_value <= grid[-1]:
        raise ConfigError("outcome.missing", f"{outcome.missing} lies outside the grid")
    guess = outcome.guess
    if isinstance(guess, tuple) and (len(guess) != len(grid) or min(guess) < 0 or max(guess) == 0):
        raise ConfigError("outcome.guess", f"not {len(grid)} weights, none below 0 and not all 0")


def _check_texts(outcome: Outcome) -> None:
    """Texts in place of numbers differ, could be found in a log, and have a number each."""
    texts, missing = outcome.texts, outcome.missing
    if not texts:
        if outcome.scores is not None:
            raise ConfigError("outcome.scores", "belongs to values that are texts; leave it out")
        if isinstance(missing, str):
            problem = "is text, and outcome.values are numbers"
            raise ConfigError("outcome.missing", f"{shown(missing)} {problem}")
        return
    for text, times in Counter(texts).items():
        if not text or text != text.strip():
            raise ConfigError(
                "outcome.values",
                f"{shown(text)} is empty or has blanks around it, which are ignored in the log",
            )
        if times > 1:
            raise ConfigError("outcome.values", f"{shown(text)} is there twice")
    if outcome.scores is None and len(texts) > 2:
        what = f"which numbers the {len(texts)} texts of outcome.values stand for, increasing"
        raise ConfigError("outcome.scores", f"missing: say {what}")
    if outcome.scores is not None and len(outcome.scores) != len(texts):
        numbers = f"{len(outcome.scores)} numbers for {len(texts)} texts"
        raise ConfigError("outcome.scores", f"{numbers} in outcome.values")
    if isinstance(missing, str) and missing not in texts:
        raise ConfigError("outcome.missing", f"{shown(missing)} is none of outcome.values")


def _check_range(outcome: Outcome) -> None:
    ranged = [key for key in ("low", "high", "levels") if getattr(outcome, key) is not None]
    coarser = outcome.levels == "auto"  # which goes with values, too
    if outcome.values is not None and ranged != ["levels"] * coarser:
        raise ConfigError(f"outcome.{ranged[0]}", "given together with values: give one of them")
    if outcome.values is None and len(ranged) < 3:
        raise ConfigError("outcome", "give either values, or low, high and levels")
    if isinstance(outcome.levels, int) and outcome.levels < 2:
        raise ConfigError("outcome.levels", f"{shown(outcome.levels)} is fewer than 2")
    if outcome.low is not None and outcome.high is not None and outcome.low >= outcome.high:
        raise ConfigError("outcome.high", f"{outcome.high} is not above outcome.low {outcome.low}")


def _check_points(outcome: Outcome) -> None:
    """No more points than can be planned for, told before any is made."""
    points = {
        "values": len(outcome.values or ()),
        "levels": outcome.levels if isinstance(outcome.levels, int) else 0,
        "guess": 0 if isinstance(outcome.guess, str) else len(outcome.guess),
    }
    for key, number in points.items():
        if number > _MOST_POINTS:
            problem = f"{shown(number)} points; a grid has at most {_MOST_POINTS:,}"
            raise ConfigError(f"outcome.{key}", problem)


def _check_grid(grid: tuple[float, ...], key: str) -> None:
    if len(grid) < 2:
        raise ConfigError(key, f"the grid has {len(grid)} point(s): at least 2 are needed")
    if any(upper <= lower for lower, upper in itertools.pairwise(grid)):
        raise ConfigError(key, "the grid must increase from value to value, without repeats")
    if max(-grid[0], grid[-1]) > _GREATEST:
        raise ConfigError(key, f"values beyond ±{_GREATEST:g} cannot be computed with")
    if grid[-1] - grid[0] < _LEAST:
        raise ConfigError(key, f"a range of less than {_LEAST:g} cannot be computed with")


# events


def check_grain(config: Config) -> None:
    """What grain "event" needs, and what nothing else may have."""
    source, columns, outcome = config.source, config.columns, config.outcome
    where = "outcomes_path" if source.table is None else "outcomes_table"
    of_events = {
        f"source.{where}": getattr(source, where),
        "columns.time": columns.time,
        "outcome.aggregate": outcome.aggregate,
    }
    if source.grain == "unit":
        more = {"source.window": source.window, "outcome.cap": outcome.cap}
        for key, value in {**of_events, **more}.items():
            if value is not None:
                raise ConfigError(key, 'belongs to grain = "event"')
        return
    if source.repeated != "set_aside":
        raise ConfigError(
            "source.repeated",
            'belongs to grain = "unit": of exposures, which may repeat, the first in time counts',
        )
    for key, value in of_events.items():
        if value is None:
            raise ConfigError(key, 'missing: grain = "event" needs it')
    if outcome.aggregate in ("sum", "max") and not columns.outcome:
        raise ConfigError(
            "columns.outcome", f'missing: aggregate = "{outcome.aggregate}" needs a value of events'
        )
    _ = source.window_microseconds  # raises where it is no time
    cap = outcome.cap
    if cap is not None and not (outcome.ends[0] < cap and -cap < outcome.ends[1]):
        raise ConfigError(
            "outcome.cap", f"{cap!r} would bring every outcome to one end of the grid"
        )
