"""Resolving a configuration: the design of a release from public sizes.

With ``mechanism = "auto"`` and an epsilon the design is planned: the grid, the statistic of the
strata and the split of epsilon follow from the sizes of the strata and the declared guess. The
resolved configuration has that grid, so that the later steps need not know of plans.
"""

from dataclasses import dataclass, replace

import numpy as np

from flows.config.experiment import AnyDesign, Config
from privatizers.mechanisms.parameters import AggregateParameters, Parameters
from privatizers.planning.design import StatisticName
from privatizers.planning.forecast import forecast
from privatizers.planning.grids import grids_of
from privatizers.planning.planner import Plan, Question, plan
from schemas.arrays import Ints


@dataclass(frozen=True)
class ResolvedDesign:
    """The design of a release, and the configuration that goes with it."""

    config: Config
    """With the grid and guess of the plan, where there is one."""
    design: AnyDesign
    plan: Plan | None
    """None where the configuration leaves nothing to plan."""


def resolve_design(config: Config, sizes: Ints) -> ResolvedDesign:
    """Choose the design of a release; ``sizes`` are numbers of units, shape [clusters, arms].

    Raises ConfigError where no effect could be estimated with any design.
    """
    if not config.is_planned:
        return ResolvedDesign(config, config.design(), None)
    chosen = plan(question(config, sizes))
    declared, grid = config.outcome, chosen.option.grid
    keeps_texts = bool(declared.texts) and grid == declared.support
    outcome = declared.model_copy(
        update={
            "values": declared.values if keeps_texts else grid,
            "scores": declared.scores if keeps_texts else None,
            "low": None,
            "high": None,
            "levels": None,
            "missing": declared.missing_value,
            "guess": chosen.guess,
        }
    )
    return ResolvedDesign(config.model_copy(update={"outcome": outcome}), chosen.design, chosen)


def predicted_errors(
    config: Config, chosen: ResolvedDesign, sizes: Ints
) -> dict[tuple[str, str], float]:
    """The standard error of every arm's effect on everybody, as ``clusterdp plan`` predicts it.

    Keys are the names of the arm and of the estimator that the prediction is for: the sharpest one
    that the design allows. ``config`` is as declared, ``sizes`` are numbers of units, shape
    [clusters, arms]; only public facts are used. Empty where clusters are private, as their sizes
    are not known when the design is made.
    """
    if config.private_clusters is not None:
        return {}
    asked = replace(question(config, sizes), segment_shares=())
    mechanism = chosen.design.mechanism
    estimator = _sharpest(mechanism.parameters)
    return {
        (config.arms.names[effect.arm], estimator): effect.std_error
        for effect in forecast(asked, chosen.config.outcome.grid, mechanism)
    }


def _sharpest(parameters: Parameters | AggregateParameters) -> str:
    """The name of the estimator that uses everything that a mechanism publishes."""
    if isinstance(parameters, AggregateParameters):
        return "horvitz_thompson" if parameters.differences else "histogram"
    return "tau_q" if parameters.noise_scale is None else "combined"


def question(config: Config, sizes: Ints) -> Question:
    """The question to the planner, or, where parameters are declared, to a forecast."""
    outcome, privacy = config.outcome, config.privacy
    support = outcome.support
    grids: tuple[tuple[float, ...], ...] = (support,)
    if outcome.levels == "auto":
        grids = grids_of(support, continuous=outcome.values is None)
    statistic = privacy.strata_statistic
    statistics: tuple[StatisticName, ...] = ("counts", "means", "none")
    return Question(
        epsilon=config.cost.epsilon,
        delta=privacy.delta,
        values=np.array(support),
        guess=np.array(outcome.weights),
        grids=grids,
        statistics=statistics if statistic == "auto" else (statistic,),
        sizes=sizes,
        min_stratum=privacy.min_stratum,
        same_shares=config.arms.same_shares,
        segment_shares=privacy.segment_shares,
        overall=privacy.overall_effect,
    )
