"""`clusterdp plan`: the design that a release would have, from public facts alone.

Reads who is where in the log, and no outcome; draws, charges and writes nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimators.coverage import LEAST_COVERAGE, forecast_warning, segment_words
from flows.config.experiment import AnyDesign, Config
from flows.config.load import check_period, load
from flows.config.resolve import ResolvedDesign, question, resolve_design
from flows.orchestration.step import plain_step
from flows.raw.ingest import ingest_without_outcomes
from flows.raw.spill.workspace import open_workspace
from flows.raw.units.private_clusters import known_sizes
from flows.raw.validate import validate
from privatizers.accounting.budget import Budget
from privatizers.domain.lattice import lattice_of
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.design import MechanismName, Request, StatisticName, design
from privatizers.planning.forecast import forecast
from privatizers.planning.nights import MOST_NIGHTS, PooledPrediction, affordable, paid, pooled
from privatizers.planning.planner import Prediction, Question, with_more
from schemas.arrays import Ints
from schemas.errors import ConfigError, shown
from schemas.roster import Roster

MORE_EPSILON = 1.0
"""What one more of it would buy is told."""

_SHOWN = 4  # runners-up of the planner's own kind


@dataclass(frozen=True)
class Other:
    """A design that was not chosen, and what it is predicted to tell."""

    mechanism: str
    levels: int
    strata_statistic: str
    predicted: tuple[Prediction, ...]


@dataclass(frozen=True)
class Nights:
    """What releases of several nights would cost and tell together, each like the one planned."""

    n_nights: int
    config: Config
    pooled: tuple[PooledPrediction, ...]

    @property
    def charges_once(self) -> bool:
        """Whether everyone is released once, so that nobody is in two nights."""
        return self.config.privacy.returning == "set_aside"

    @property
    def cost(self) -> Budget:
        """The most that one who pays is charged in all nights; the budget is not looked at."""
        return paid(self.config.charged, 1 if self.charges_once else self.n_nights)

    @property
    def least_cost(self) -> Budget:
        """What one who pays is charged who is in one night alone."""
        everybody = self.config.privacy.account == "population"
        return paid(self.config.charged, self.n_nights if everybody else 1)

    @property
    def n_affordable(self) -> int | None:
        """How many releases one can pay who has paid for none; None where nothing limits it."""
        return affordable(self.config.charged, self.config.budget)

    def as_json(self, arms: tuple[str, ...]) -> dict[str, Any]:
        """What ``nights`` is in the document of ``clusterdp plan --nights --json``."""
        least, most = self.least_cost, self.cost
        return {
            "n_nights": self.n_nights,
            "account": self.config.privacy.account,
            "returning": self.config.privacy.returning,
            "epsilon_in_one_night": least.epsilon,
            "delta_in_one_night": least.delta,
            "epsilon_in_every_night": most.epsilon,
            "delta_in_every_night": most.delta,
            "n_affordable": self.n_affordable,
            "pooled": [
                {
                    "estimand": "ate" if one.segment_share is None else "segment ate",
                    "arm": arms[one.arm],
                    "segment_share": one.segment_share,
                    "std_error": one.std_error,
                    "sampling_std_error": one.sampling_std_error,
                    "privacy_std_error": one.privacy_std_error,
                    "std_error_returning": None if self.charges_once else one.most_std_error,
                }
                for one in self.pooled
            ],
        }


@dataclass(frozen=True)
class PlanResult:
    """The design chosen or declared, what it is predicted to tell, and what else there is."""

    resolved_design: ResolvedDesign
    roster: Roster
    arms: tuple[str, ...]
    predicted: tuple[Prediction, ...]
    runners_up: tuple[Other, ...]
    one_more: Other | None
    """The plan for one more unit of ε; None where parameters are declared."""
    nights: Nights | None = None
    """What several nights come to; None where nobody asked."""

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp plan --json``."""
        mechanism, config = self.resolved_design.design.mechanism, self.resolved_design.config
        parameters = mechanism.parameters
        return {
            "mechanism": mechanism.name,
            "levels": parameters.n_outcomes,
            "outcomes": list(config.outcome.grid),
            "strata_statistic": parameters.strata_statistic,
            "resampling_probability": parameters.resampling_probability,
            "truncation_threshold": parameters.truncation_threshold,
            "noise_scale": parameters.noise_scale,
            "epsilon": self.resolved_design.design.epsilon,
            "delta": self.resolved_design.design.delta,
            "n_units": self.roster.n_units,
            "n_clusters": self.roster.n_clusters,
            "predicted": self._predicted(self.predicted),
            "runners_up": [self._other(one) for one in self.runners_up],
            "one_more_epsilon": None if self.one_more is None else self._other(self.one_more),
            "nights": None if self.nights is None else self.nights.as_json(self.arms),
            "warnings": list(self.warnings),
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to look into, from public facts: effects that will compare few people, too."""
        least: dict[float | None, float] = {}
        for one in self.predicted:
            if one.coverage is not None:
                so_far = least.get(one.segment_share, 1.0)
                least[one.segment_share] = min(so_far, one.coverage)
        same_shares = self.resolved_design.config.arms.same_shares
        few = tuple(
            forecast_warning(coverage, segment_words(share), same_shares=same_shares)
            for share, coverage in least.items()
            if coverage < LEAST_COVERAGE
        )
        return (*self.roster.warnings, *few)

    def _other(self, one: Other) -> dict[str, Any]:
        return {
            "mechanism": one.mechanism,
            "levels": one.levels,
            "strata_statistic": one.strata_statistic,
            "predicted": self._predicted(one.predicted),
        }

    def _predicted(self, predictions: tuple[Prediction, ...]) -> list[dict[str, Any]]:
        return [
            {
                "estimand": "ate" if one.segment_share is None else "segment ate",
                "arm": self.arms[one.arm],
                "segment_share": one.segment_share,
                "std_error": one.std_error,
                "interval_half_width": one.half_width,
                "coverage": one.coverage,
            }
            for one in predictions
        ]


def plan(config_path: Path, period: str | None, nights: int | None = None) -> PlanResult:
    """Plan a release of ``period``; raises what a release would raise for all but outcomes.

    With ``nights`` it says besides what so many releases like it come to.
    """
    if nights is not None and not 1 <= nights <= MOST_NIGHTS:
        raise ConfigError("--nights", f"{shown(nights)} is not from 1 to {MOST_NIGHTS:,}")
    config = load(config_path)
    if config.private_clusters is not None:
        raise ConfigError(
            "private_clusters",
            "nothing can be predicted: the sizes of clusters are private, and known only once a "
            "release has randomised and paid for them",
        )
    sizes, roster = _who_is_where(config, period)
    chosen, asked = resolve_design(config, sizes), question(config, sizes)
    predicted = forecast(asked, chosen.config.outcome.grid, chosen.design.mechanism)
    if not predicted:
        raise ConfigError("arms.treatments", _nothing_to_compare(chosen))
    runners_up: tuple[Other, ...] = ()
    one_more: Other | None = None
    if chosen.plan is not None:
        own = (
            Other("uniform-prior-dp", len(one.grid), one.strata_statistic, one.predicted)
            for one in chosen.plan.runners_up[:_SHOWN]
        )
        runners_up = (*own, *_with_own_priors(asked, chosen.config.outcome.grid))
        more = with_more(asked, MORE_EPSILON)
        one_more = Other("uniform-prior-dp", len(more.grid), more.strata_statistic, more.predicted)
    together = None
    if nights is not None:
        together = Nights(nights, config, tuple(pooled(one, nights) for one in predicted))
    return PlanResult(chosen, roster, config.arms.names, predicted, runners_up, one_more, together)


def _nothing_to_compare(chosen: ResolvedDesign) -> str:
    units = "2 units of a treatment arm and of control"
    if isinstance(chosen.design, AggregateDesign):
        return (
            f"no effect can be estimated: no cluster with a pool of its own has {units} (the "
            "others share one, which counts only with arms.same_shares = true)"
        )
    return f"no effect can be estimated: no cluster has {units}"


def design_of(config_path: Path, period: str | None) -> AnyDesign:
    """Return the design of a release; who is in the log is read only where it is planned."""
    return resolved_design_of(config_path, period).design


def resolved_design_of(config_path: Path, period: str | None) -> ResolvedDesign:
    """Return the design of a release with its configuration, the grid in it settled.

    Who is in the log is read only where it is planned. Where clusters are private, the design is
    what happens to outcomes once these are randomised, at the price of that alone: the rest of the
    release's price is exact by arithmetic
    (:attr:`privatizers.mechanisms.label_response.LabelResponse.guarantee`).
    """
    config = load(config_path)
    if not config.is_planned:
        return ResolvedDesign(config, config.outcome_design(), None)
    return resolve_design(config, _who_is_where(config, period)[0])


def _who_is_where(config: Config, period: str | None) -> tuple[Ints, Roster]:
    """Units by cluster and arm, shape [clusters, arms], and what else is public of a log."""
    period = check_period(period, config.source.path, config.source.outcomes_path)
    with open_workspace(config) as workspace:
        log = plain_step(ingest_without_outcomes)(config, period)
        rows, _, roster = plain_step(validate)(config, log, workspace)
        return known_sizes(config, rows), roster


def _with_own_priors(asked: Question, grid: tuple[float, ...]) -> tuple[Other, ...]:
    """What Cluster-DP and Cluster-Free-DP would tell on the same grid, at the same price."""
    names: tuple[MechanismName, ...] = ("cluster-dp", "cluster-free-dp")
    statistic: StatisticName = "counts"
    others = []
    for name in names:
        request = Request(
            name,
            len(grid),
            statistic,
            epsilon=asked.epsilon,
            delta=asked.delta,
            lattice=lattice_of(grid),
        )
        mechanism = design(request).mechanism
        others.append(Other(name, len(grid), statistic, forecast(asked, grid, mechanism)))
    return tuple(others)
