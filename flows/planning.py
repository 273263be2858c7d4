"""From a configuration and public sizes to the design that a release has.

``mechanism = "auto"`` with an epsilon is planned: grid, statistic of the strata and split of
epsilon follow from the sizes of the strata and the declared guess. The settled configuration then
has that grid, so what comes after knows nothing of plans.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flows.config import AnyDesign, Config
from privatizers.design import StatisticName
from privatizers.planner import Plan, Question, grids_of, plan

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
