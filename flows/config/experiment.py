"""The configuration: one TOML file an experiment, read strictly.

Unknown keys, wrong types and impossible values are errors that name the key. Nothing here reads
data. Paths in the file are relative to it.
"""

import itertools
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError

from flows.config.clusters import check_private_clusters
from flows.config.sections import (
    Arms,
    Columns,
    Ledger,
    Outcome,
    Privacy,
    PrivateClusters,
    Publish,
    Quarantine,
    Run,
    Section,
    Source,
)
from flows.config.toml_file import read_toml
from flows.runtime.paths import absolute, check_place
from privatizers.accounting.budget import Budget, total
from privatizers.domain.lattice import lattice_of
from privatizers.planning.aggregate_design import (
    SQUARE_SHARE,
    AggregateDesign,
    AggregateRequest,
    aggregate_design,
)
from privatizers.planning.design import Design, Request, check, design
from schemas.errors import ConfigError, in_short, shown

PERIOD_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
NO_PERIOD = "once"

AnyDesign = Design | AggregateDesign
"""A mechanism with its price: of one that publishes units, or of one that publishes none."""

_GREATEST = 1e70  # of a grid value: its fourth power stays within doubles
_LEAST = 1e-60  # of the grid's range: so does that of its inverse
_MOST_POINTS = 10_000  # of a grid: a plan takes time that grows faster than they do
_LONGEST_NAME = 100  # characters: two such names and an ending fit into the name of a file
_MOST_ARMS = 2_000  # each is compared with control, which takes time as the square of their number
_LEAST_SHARE = 1e-9  # of units, of an arm: no log has so many that one of them would be in it


class Config(Section):
    """One experiment: its log, grid, privacy parameters and places."""

    experiment: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    source: Source
    columns: Columns
    arms: Arms
    outcome: Outcome
    privacy: Privacy
    private_clusters: PrivateClusters | None = None
    publish: Publish = Publish()
    ledger: Ledger = Ledger()
    quarantine: Quarantine = Quarantine()
    run: Run = Run()
    directory: Path = Field(default=Path(), exclude=True)
    """The folder of the file; set by :func:`load`, not a key."""

    def path(self, relative: str) -> Path:
        """A path of the file, made absolute."""
        return absolute(self.directory, relative, shown(relative))

    @property
    def releases(self) -> Path:
        """The folder of this experiment's releases."""
        return self.path(self.publish.directory) / self.experiment

    @property
    def quarantined(self) -> Path:
        """The folder of this experiment's rows that were set aside."""
        return self.path(self.quarantine.directory) / self.experiment

    @property
    def spill_directory(self) -> Path:
        """Where a run puts rows that do not fit into memory; raw, and for a moment only."""
        return self.path(self.run.spill_directory or self.quarantine.directory)

    @property
    def population(self) -> str:
        """Who pays for the releases: experiments on the same people name the same."""
        return self.privacy.population or self.experiment

    @property
    def budget(self) -> Budget:
        """What the population may pay in all; infinite where nothing is declared."""
        declared = (self.privacy.budget_epsilon, self.privacy.budget_delta)
        return Budget(*(math.inf if one is None else one for one in declared))

    @property
    def is_planned(self) -> bool:
        """Whether a planner chooses the design, which takes the sizes of the strata."""
        return self.privacy.mechanism == "auto" and self.privacy.epsilon is not None

    @property
    def cluster_cost(self) -> Budget:
        """The part of a release's cost that private clusters take; nothing where there are none."""
        private = self.private_clusters
        if private is None:
            return Budget()
        return total((Budget(private.epsilon), Budget(private.centres_epsilon)))

    @property
    def cost(self) -> Budget:
        """What one release costs: as asked for, or as declared parameters come to."""
        if self.privacy.epsilon is not None:
            return Budget(self.privacy.epsilon, self.privacy.delta)
        declared = self.design()
        return Budget(declared.epsilon, declared.delta)

    def design(self) -> AnyDesign:
        """The mechanism and its parameters as declared, where nothing is planned.

        Its price is that of the whole release, private clusters included.
        """
        found, clusters = self.outcome_design(), self.cluster_cost
        if self.private_clusters is None:
            return found
        if self.privacy.epsilon is not None:
            return replace(found, epsilon=self.privacy.epsilon)
        return replace(found, epsilon=total((Budget(found.epsilon), clusters)).epsilon)

    def outcome_design(self) -> AnyDesign:
        """The same at the price of outcomes alone, given the clusters."""
        if self.is_planned:
            msg = "this design is planned: see flows.config.resolve"
            raise AssertionError(msg)
        request = self._request()
        if isinstance(request, AggregateRequest):
            return aggregate_design(request)
        return design(request)

    def _request(self) -> Request | AggregateRequest:
        privacy, support = self.privacy, self.outcome.support
        name, epsilon = privacy.mechanism, self._outcome_epsilon()
        if name == "noisy-histogram" or name == "noisy-horvitz-thompson":  # noqa: PLR1714 - narrows
            return AggregateRequest(
                mechanism=name,
                n_outcomes=len(support),
                n_treatments=len(self.arms.treatments),
                epsilon=epsilon,
                delta=privacy.delta,
                noise_scale=privacy.noise_scale,
                lattice=lattice_of(support),
                square_share=SQUARE_SHARE,
                resampling_probability=privacy.resampling_probability,
                truncation_threshold=privacy.truncation_threshold,
                strata_statistic=privacy.strata_statistic,
            )
        return Request(
            mechanism=name,
            n_outcomes=len(support),
            strata_statistic=privacy.strata_statistic,
            epsilon=epsilon,
            delta=privacy.delta,
            resampling_probability=privacy.resampling_probability,
            truncation_threshold=privacy.truncation_threshold,
            noise_scale=privacy.noise_scale,
            lattice=lattice_of(support),
        )

    def _outcome_epsilon(self) -> float | None:
        """What private clusters leave of ε, rounded down; None where parameters are declared."""
        epsilon = self.privacy.epsilon
        if epsilon is None or self.private_clusters is None:
            return epsilon
        return Budget(epsilon).left_after(self.cluster_cost).epsilon

    def checked(self) -> Self:
        """Return this configuration if its keys go together; raises ConfigError if not."""
        check_length("experiment", self.experiment)
        _check_places(self)
        _check_columns(self.columns, self.source.grain)
        _check_arms(self.arms)
        _check_outcome(self.outcome)
        _check_publish(self.publish)
        _check_budget(self.privacy)
        _check_grain(self)
        if self.private_clusters is not None:
            check_private_clusters(self, self.private_clusters)
        _check_planned(self)
        request = self._request()
        if isinstance(request, Request):
            check(request)
        if not self.is_planned:
            self.design()
        return self


def load(path: Path) -> Config:
    """Read and check a configuration file; raises ConfigError naming the key at fault."""
    content = read_toml(path)
    if "directory" in content:
        raise ConfigError("directory", "unknown key; remove it or correct its spelling")
    try:
        config = Config.model_validate(content)
    except ValidationError as error:
        raise _plain(error) from None
    return config.model_copy(update={"directory": path.absolute().parent}).checked()


def check_period(period: str | None, path: str, outcomes_path: str | None = None) -> str:
    """Return the period of a run; ``once`` where none is named and neither path needs one."""
    if period is None:
        for key, pattern in (("path", path), ("outcomes_path", outcomes_path or "")):
            if "{period}" in pattern:
                raise ConfigError(
                    "--period", f"missing: source.{key} holds {{period}}, so name the period"
                )
        return NO_PERIOD
    if not PERIOD_PATTERN.fullmatch(period):
        raise ConfigError(
            "--period",
            f"{shown(period)} must begin with a letter or digit and hold those, - and _ only",
        )
    check_length("--period", period)
    return period


def check_length(key: str, name: str) -> None:
    """Raise ConfigError where a name is too long to be part of a file's name."""
    if len(name) > _LONGEST_NAME:
        raise ConfigError(key, f"has {len(name):,} characters; at most {_LONGEST_NAME} can be")


def _plain(error: ValidationError) -> ConfigError:
    """Say the first of pydantic's findings in one line that names the key."""
    found = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")[0]
    steps = [str(part) for part in found["loc"] if not _is_branch(part)]
    key = in_short(".".join(steps)) or "configuration"
    if found["type"] == "extra_forbidden":
        return ConfigError(key, "unknown key; remove it or correct its spelling")
    if found["type"] == "missing":
        return ConfigError(key, "missing; it has to be given")
    message = found["msg"][0].lower() + found["msg"][1:]
    given = found["input"]
    return ConfigError(
        key, message if isinstance(given, dict) else f"{message}, not {shown(given)}"
    )


def _is_branch(part: int | str) -> bool:
    """Whether a step of pydantic's path names a branch of a union, not a key."""
    return isinstance(part, str) and ("[" in part or part in ("str", "int", "float", "tuple"))


def _check_places(config: Config) -> None:
    """Every path but the ledger's, which :mod:`flows.ledger.database` reads, can be one."""
    written = {
        "source.path": config.source.path,
        "source.outcomes_path": config.source.outcomes_path,
        "publish.directory": config.publish.directory,
        "publish.key_file": config.publish.key_file,
        "quarantine.directory": config.quarantine.directory,
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


def _check_arms(arms: Arms) -> None:
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
