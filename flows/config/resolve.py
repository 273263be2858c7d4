"""From a configuration and public sizes to the design that a release has.

``mechanism = "auto"`` with an epsilon is planned: grid, statistic of the strata and split of
epsilon follow from the sizes of the strata and the declared guess. The settled configuration then
has that grid, so what comes after knows nothing of plans.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flows.config.experiment import AnyDesign, Config
from privatizers.mechanisms.parameters import AggregateParameters, Parameters
from privatizers.planning.design import StatisticName
from privatizers.planning.forecast import forecast
from privatizers.planning.grids import grids_of
from privatizers.planning.planner import Plan, Question, plan

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Settled:
    """What a release is made with."""

    config: Config
    """With the grid and guess that were chosen, where they were."""
    design: AnyDesign
    plan: Plan | None
    """None where the configuration leaves nothing to plan."""


def settled(config: Config, sizes: Ints) -> Settled:
    """Settle what a release is made with; ``sizes`` are units, shape [clusters, arms].

    Raises ConfigError where no effect could be estimated by any plan.
    """
    if not config.is_planned:
        return Settled(config, config.design(), None)
    found = plan(question(config, sizes))
    outcome = config.outcome.model_copy(
        update={
            "values": found.option.grid,
            "low": None,
            "high": None,
            "levels": None,
            "missing": config.outcome.missing_value,
            "guess": found.guess,
        }
    )
    return Settled(config.model_copy(update={"outcome": outcome}), found.design, found)


def foreseen(config: Config, chosen: Settled, sizes: Ints) -> dict[tuple[str, str], float]:
    """The standard error of every arm's effect on everybody, as ``clusterdp plan`` predicts it.

    By the arm's name and that of the estimator that the prediction is for: the sharpest that the
    design has. ``config`` is as declared, ``sizes`` are units, shape [clusters, arms]; public facts
    alone. Empty where clusters are private: their sizes are not known when the design is made.
    """
    if config.private_clusters is not None:
        return {}
    asked = replace(question(config, sizes), segment_shares=())
    mechanism = chosen.design.mechanism
    found = forecast(asked, chosen.config.outcome.grid, mechanism)
    estimator = _sharpest(mechanism.parameters)
    return {(config.arms.names[one.arm], estimator): one.std_error for one in found}


def _sharpest(parameters: Parameters | AggregateParameters) -> str:
    """The estimator that uses all that a mechanism publishes."""
    if isinstance(parameters, AggregateParameters):
        return "horvitz_thompson" if parameters.differences else "histogram"
    return "tau_q" if parameters.noise_scale is None else "combined"


def question(config: Config, sizes: Ints) -> Question:
    """What the planner is asked; where parameters are declared, what a forecast is asked."""
    outcome, privacy = config.outcome, config.privacy
    support = outcome.support
    grids: tuple[tuple[float, ...], ...] = (support,)
    if outcome.levels == "auto":
        grids = grids_of(support, continuous=outcome.values is None)
    asked = privacy.strata_statistic
    statistics: tuple[StatisticName, ...] = ("counts", "means", "none")
    return Question(
        epsilon=config.cost.epsilon,
        delta=privacy.delta,
        values=np.array(support),
        guess=np.array(outcome.weights),
        grids=grids,
        statistics=statistics if asked == "auto" else (asked,),
        sizes=sizes,
        min_stratum=privacy.min_stratum,
        same_shares=config.arms.same_shares,
        segment_shares=privacy.segment_shares,
        overall=privacy.overall_effect,
    )
