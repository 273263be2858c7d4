"""What the keys of a configuration must be like together; every error names a key."""

import itertools
from collections import Counter

from flows.config.clusters import check_private_clusters
from flows.config.experiment import Config
from flows.config.public_facts import check_public_facts
from flows.config.sections import Arms, Columns, Outcome, Privacy, Publish, Quarantine
from flows.runtime.paths import absolute, check_place
from privatizers.planning.design import Request, check
from schemas.errors import ConfigError, shown

_GREATEST = 1e70  # of a grid value: its fourth power stays within doubles
_LEAST = 1e-60  # of the grid's range: so does that of its inverse
_MOST_POINTS = 10_000  # of a grid: a plan takes time that grows faster than they do
_LONGEST_NAME = 100  # characters: two such names and an ending fit into the name of a file
_MOST_ARMS = 2_000  # each is compared with control, which takes time as the square of their number
_OF_RELEASES = "belongs to the configuration of a release; leave the key out"
_LEAST_SHARE = 1e-9  # of units, of an arm: no log has so many that one of them would be in it


def check_config(config: Config) -> None:
    """Raise ConfigError unless the keys go together."""
    check_length("experiment", config.experiment)
    _check_places(config)
    _check_columns(config.columns, config.source.grain)
    check_arms(config.arms)
    _check_outcome(config.outcome)
    _check_publish(config.publish)
    _check_budget(config.privacy)
    _check_account(config.privacy)
    _check_payers(config)
    _check_without_units(config.privacy)
    _check_grain(config)
    check_public_facts(config)
    if config.private_clusters is not None:
        check_private_clusters(config, config.private_clusters)
    _check_planned(config)
    request = config.request()
    if isinstance(request, Request):
        check(request)
    if not config.is_planned:
        config.design()


def check_length(key: str, name: str) -> None:
    """Raise ConfigError where a name is too long to be part of a file's name."""
    if len(name) > _LONGEST_NAME:
        raise ConfigError(key, f"has {len(name):,} characters; at most {_LONGEST_NAME} can be")


def _check_places(config: Config) -> None:
    """Every path but the ledger's, which :mod:`flows.ledger.database` reads, can be one."""
    written = {
        "source.path": config.source.path,
        "source.outcomes_path": config.source.outcomes_path,
        "publish.directory": config.publish.directory,
        "publish.key_file": config.publish.key_file,
        "publish.signing_key": config.publish.signing_key,
        "quarantine.directory": config.quarantine.directory,
        "ledger.key_file": config.ledger.key_file,
        "run.spill_directory": config.run.spill_directory,
    }
    for key, path in written.items():
        if path is None:
            continue
        if key.startswith("source."):  # a pattern: what it matches is found out later
            absolute(config.directory, path, key)
        else:
            check_place(config.directory, path, key)


def _check_columns(columns: Columns, grain: str = "unit") -> None:
    """No column means two things in one log; of grain "event" there are two logs."""
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


def check_arms(arms: Arms) -> None:
    """Raise ConfigError for arms that cannot be: repeated, unnamed, or without a share."""
    if not arms.treatments:
        raise ConfigError("arms.treatments", "empty: name at least one treatment arm")
    if len(arms.names) > _MOST_ARMS:
        raise ConfigError(
            "arms.treatments",
            f"{len(arms.names):,} arms with control; at most {_MOST_ARMS:,} can be",
        )
    for name, times in Counter(arms.names).items():
        if not name:
            raise ConfigError("arms.treatments", "an arm's name is empty")
        if times > 1:
            raise ConfigError("arms.treatments", f"{shown(name)} is named twice (control counts)")
    _check_shares(arms)
    if arms.sample_ratio == "refuse" and arms.shares == "undeclared":
        raise ConfigError(
            "arms.sample_ratio",
            '"refuse" needs intended shares, and arms.shares is "undeclared": declare them, or '
            "leave one of the two keys out",
        )


def check_no_guards(quarantine: Quarantine, arms: Arms | None = None) -> None:
    """Raise ConfigError where a site or an effect model has a guard that releases alone have."""
    if quarantine.at_most is not None:
        raise ConfigError("quarantine.at_most", _OF_RELEASES)
    if arms is not None and arms.sample_ratio != "warn":
        raise ConfigError("arms.sample_ratio", _OF_RELEASES)


def _check_shares(arms: Arms) -> None:
    if isinstance(arms.shares, dict):
        if set(arms.shares) != set(arms.names):
            raise ConfigError("arms.shares", "must name each declared arm once, and no other")
        if any(share <= 0 for share in arms.shares.values()):
            raise ConfigError("arms.shares", "every share must be greater than 0")
        for name, share in zip(arms.names, arms.expected_shares or (), strict=True):
            if share < _LEAST_SHARE:
                raise ConfigError(
                    "arms.shares",
                    f"{shown(name)} has less than {_LEAST_SHARE:g} of all: nobody would be in it",
                )


def _check_outcome(outcome: Outcome) -> None:
    _check_range(outcome)
    _check_points(outcome)
    grid = outcome.support
    _check_grid(grid, "outcome.values" if outcome.values is not None else "outcome.levels")
    if not grid[0] <= outcome.missing_value <= grid[-1]:
        raise ConfigError("outcome.missing", f"{outcome.missing} lies outside the grid")
    guess = outcome.guess
    if isinstance(guess, tuple) and (len(guess) != len(grid) or min(guess) < 0 or max(guess) == 0):
        raise ConfigError("outcome.guess", f"not {len(grid)} weights, none below 0 and not all 0")


def _check_range(outcome: Outcome) -> None:
    """Either values, or low, high and levels."""
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
    guess = () if outcome.guess == "uniform" else outcome.guess
    points = {
        "values": len(outcome.values or ()),
        "levels": outcome.levels if isinstance(outcome.levels, int) else 0,
        "guess": len(guess),
    }
    for key, number in points.items():
        if number > _MOST_POINTS:
            raise ConfigError(
                f"outcome.{key}", f"{shown(number)} points; a grid has at most {_MOST_POINTS:,}"
            )


def _check_grid(grid: tuple[float, ...], key: str) -> None:
    if len(grid) < 2:
        raise ConfigError(key, f"the grid has {len(grid)} point(s): at least 2 are needed")
    if any(upper <= lower for lower, upper in itertools.pairwise(grid)):
        raise ConfigError(key, "the grid must increase from value to value, without repeats")
    if max(-grid[0], grid[-1]) > _GREATEST:
        raise ConfigError(key, f"values beyond ±{_GREATEST:g} cannot be computed with")
    if grid[-1] - grid[0] < _LEAST:
        raise ConfigError(key, f"a range of less than {_LEAST:g} cannot be computed with")


def _check_budget(privacy: Privacy) -> None:
    if privacy.population is not None and not privacy.population.strip():
        raise ConfigError(
            "privacy.population", "empty; leave the key out for the experiment's name"
        )
    for key in ("budget_epsilon", "budget_delta"):
        amount = getattr(privacy, key)
        if amount is not None and amount < 0:
            raise ConfigError(f"privacy.{key}", f"{amount!r} is below 0")


def _check_payers(config: Config) -> None:
    """Who pays, and for how many rows, go together."""
    column, rows_each = config.columns.privacy_unit, config.privacy.rows_each
    if column is not None and rows_each is None:
        raise ConfigError(
            "privacy.rows_each",
            "missing: with columns.privacy_unit, say how many rows of one are released at most; "
            "each pays that many times the price",
        )
    if column is None and rows_each is not None:
        raise ConfigError("privacy.rows_each", "belongs to columns.privacy_unit, which is missing")
    if column is not None and config.privacy.account == "population":
        raise ConfigError(
            "columns.privacy_unit",
            'needs privacy.account = "unit": an account of the population does not know who was '
            "in a release",
        )


def _check_account(privacy: Privacy) -> None:
    """What only accounts by unit can do."""
    if privacy.account == "unit":
        return
    for key, default in (("returning", "charge"), ("spent", "refuse")):
        if getattr(privacy, key) != default:
            raise ConfigError(
                f"privacy.{key}",
                f'"{getattr(privacy, key)}" needs account = "unit": an account of the population '
                "does not know who was in a release",
            )


def _check_without_units(privacy: Privacy) -> None:
    """What a mechanism that publishes no units has no use for."""
    name = privacy.mechanism
    if name not in ("noisy-histogram", "noisy-horvitz-thompson"):
        return
    for key in ("resampling_probability", "truncation_threshold"):
        if getattr(privacy, key) is not None:
            raise ConfigError(
                f"privacy.{key}",
                f"does not go with {name}: it publishes no units, so no outcome is resampled; "
                "leave the key out",
            )
    if privacy.strata_statistic != "auto":
        raise ConfigError(
            "privacy.strata_statistic",
            f'"{privacy.strata_statistic}" does not go with {name}, which says itself what it '
            "publishes of the strata; leave the key out",
        )


def _check_planned(config: Config) -> None:
    """What a planner needs, and what needs a planner."""
    if config.outcome.levels == "auto":
        if not config.is_planned:
            raise ConfigError(
                "outcome.levels",
                '"auto" needs mechanism = "auto" and an epsilon, from which the grid is planned',
            )
        if config.outcome.rounding != "stochastic":
            raise ConfigError(
                "outcome.rounding",
                '"nearest" would shift means on a planned, coarser grid: use "stochastic"',
            )
    if not (config.privacy.overall_effect or config.privacy.segment_shares):
        raise ConfigError(
            "privacy.overall_effect",
            "false, and segment_shares is empty: that leaves nothing to plan for",
        )
    for share in config.privacy.segment_shares:
        if not 0 < share < 1:
            raise ConfigError(
                "privacy.segment_shares", f"{share!r} is not strictly between 0 and 1"
            )


def _check_publish(publish: Publish) -> None:
    """A key for hashed ids, and no other."""
    if publish.unit_id == "keyed-hash" and publish.key_file is None:
        raise ConfigError("publish.key_file", 'missing: unit_id = "keyed-hash" needs a key')
    if publish.unit_id == "plain" and publish.key_file is not None:
        raise ConfigError("publish.key_file", 'belongs to unit_id = "keyed-hash"')


def _check_grain(config: Config) -> None:
    """What grain "event" needs, and what nothing else may have."""
    source, columns, outcome = config.source, config.columns, config.outcome
    of_events = {
        "source.outcomes_path": source.outcomes_path,
        "columns.time": columns.time,
        "outcome.aggregate": outcome.aggregate,
    }
    if source.grain == "unit":
        for key, value in {
            **of_events,
            "source.window": source.window,
            "outcome.cap": outcome.cap,
        }.items():
            if value is not None:
                raise ConfigError(key, 'belongs to grain = "event"')
        return
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
