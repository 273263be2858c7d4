"""Resolving a configuration: the design of a release from public sizes.

With ``mechanism = "auto"``, or "cluster-optimal-dp", and an epsilon the design is planned: grid,
statistic of the strata and split of epsilon follow from the sizes of the strata and the declared
guess. The resolved configuration has that grid, so that the later steps need not know of plans.
"""

from dataclasses import dataclass, replace

import numpy as np

from estimators.published_guess import PublishedGuess
from flows.config.model.experiment import AnyDesign, Config
from flows.config.rules.joint import joint_designs, joint_problem, most_levels
from privatizers.accounting.budget import Budget
from privatizers.domain.strata import own_clusters, small_clusters_share
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from privatizers.mechanisms.parameters import AggregateParameters
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.design import StatisticName
from privatizers.planning.forecast import forecast
from privatizers.planning.grids import grids_of, optimal_grids_of
from privatizers.planning.guarded import guarded_plan
from privatizers.planning.margin_split import (
    KEPT,
    SHARES,
    MarginFacts,
    MarginForecast,
    best_share,
    forecast_margins,
    with_sums,
)
from privatizers.planning.outcome_shares import plan_shares
from privatizers.planning.planner import Plan, with_margins
from privatizers.planning.question import GuessesWithin, PlannedMechanism, Question, no_tables
from privatizers.planning.table_choice import reason, refusal, worth_tables
from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class ResolvedDesign:
    """The design of a release, and the configuration that goes with it."""

    config: Config
    """With the grid and guess of the plan, where there is one."""
    design: AnyDesign
    plan: Plan | None
    """None where the configuration leaves nothing to plan."""

    @property
    def is_drawn_together(self) -> bool:
        """Whether one output a unit tells of this outcome and another."""
        return isinstance(self.design.mechanism, PairedOptimalDP)


@dataclass(frozen=True)
class ResolvedRelease:
    """The designs of all outcomes of a release, and the configuration that goes with them."""

    config: Config
    """With the grids, guesses and shares of the plans, where there are any."""
    outcomes: tuple[ResolvedDesign, ...]
    """In the order of ``config.outcomes``, each with the configuration of its outcome alone."""

    @property
    def designs(self) -> tuple[AnyDesign, ...]:
        """The design of each outcome."""
        return tuple(one.design for one in self.outcomes)

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, the same for all outcomes."""
        return self.outcomes[0].design.mechanism.name

    @property
    def price(self) -> Budget:
        """The price of everything together: the ε asked for, or what parameters add up to."""
        return self.config.cost


def resolve_release(
    config: Config, sizes: Ints, margins: MarginFacts | None = None
) -> ResolvedRelease:
    """Choose the designs of all outcomes, and their shares of ε where these are to be planned.

    ``sizes`` are numbers of units, shape [clusters, arms], and ``margins`` public facts about the
    cells of margins, by which it is planned what these have of ε, if there are any. Raises
    ConfigError as :func:`resolve_design` does.
    """
    if not config.plans_margins or margins is None:
        return _resolve(config, sizes)
    tried = [_resolve(config.with_margins_share(0.0), sizes)]
    for share in SHARES:
        tried += [_with_margins(tried[0], config, share, kept, sizes) for kept in KEPT]
    forecasts = [margin_forecasts(config, one, sizes, margins) for one in tried]
    return tried[best_share(forecasts)]


def _with_margins(
    without: ResolvedRelease, config: Config, share: float, kept: float, sizes: Ints
) -> ResolvedRelease:
    """The designs of a release where margins have a ``share`` of ε, by the plans made without.

    The statistic of strata keeps so much of its own part, where the statistic is not asked for.
    """
    outcomes = []
    for view, one in zip(config.with_margins_share(share).views, without.outcomes, strict=True):
        asked = question(view.model_copy(update={"privacy": one.config.privacy}), sizes)
        if one.plan is None:
            raise AssertionError("margins are planned where designs are")
        plan = with_margins(asked, one.plan, kept if "none" in asked.statistics else 1.0)
        outcomes.append(ResolvedDesign(one.config.with_margins_share(share), plan.design, plan))
    return ResolvedRelease(without.config.with_margins_share(share), tuple(outcomes))


def margin_forecasts(
    config: Config, chosen: ResolvedRelease, sizes: Ints, margins: MarginFacts
) -> list[MarginForecast]:
    """Forecast what the designs of every outcome bring to the cells of margins."""
    found = []
    for view, one in zip(config.views, chosen.outcomes, strict=True):
        if not isinstance(one.design, AggregateDesign):
            asked, grid = question(view, sizes), one.config.outcome.grid
            found.append(forecast_margins(margins, asked, grid, one.design.mechanism))
    return found


def _resolve(config: Config, sizes: Ints) -> ResolvedRelease:
    """The same where it is settled what margins have."""
    if not config.named_outcomes:
        chosen = resolve_design(config, sizes)
        return ResolvedRelease(chosen.config, (chosen,))
    if config.is_planned and config.privacy.mechanism == "auto":
        return _of_one_mechanism(config, sizes)
    return _resolved(_with_shares(config, sizes), sizes)


def _resolved(
    settled: Config, sizes: Ints, mechanism: PlannedMechanism | None = None
) -> ResolvedRelease:
    """The designs of several outcomes at their shares, of one mechanism of "auto".

    Outcomes that are drawn together learn nothing, so their designs are made without.
    """
    if settled.privacy.joint != "no" and joint_problem(settled) is None:
        nothing = settled.privacy.model_copy(update={"learn_from": "nothing"})
        alike = _apart(settled.model_copy(update={"privacy": nothing}), sizes, mechanism)
        designs = joint_designs(alike.config, alike.designs)
        if designs is not None:
            outcomes = (
                replace(one, design=design, config=_as_asked(one.config, settled))
                for one, design in zip(alike.outcomes, designs, strict=True)
            )
            return ResolvedRelease(_as_asked(alike.config, settled), tuple(outcomes))
    return _apart(settled, sizes, mechanism)


def _as_asked(config: Config, settled: Config) -> Config:
    """A configuration that was made to learn nothing, as it was before."""
    kept = {"learn_from": settled.privacy.learn_from}
    return config.model_copy(update={"privacy": config.privacy.model_copy(update=kept)})


def _apart(settled: Config, sizes: Ints, mechanism: PlannedMechanism | None) -> ResolvedRelease:
    """The same for outcomes that are drawn by themselves."""
    outcomes = tuple(
        resolve_design(view, sizes, mechanism, most)
        for view, most in zip(settled.views, most_levels(settled), strict=True)
    )
    resolved = tuple(outcome for one in outcomes for outcome in one.config.outcomes)
    return ResolvedRelease(settled.model_copy(update={"named_outcomes": resolved}), outcomes)


def _of_one_mechanism(config: Config, sizes: Ints) -> ResolvedRelease:
    """The designs of several outcomes by "auto": a release has one mechanism for all of them.

    Tables only where every outcome can have them, and where they are worth it by all together.
    """
    name: PlannedMechanism = "uniform-prior-dp"
    uniform = _resolved(_with_shares(config, sizes, name), sizes, name)
    refused = no_tables(*(question(view, sizes) for view in config.views))
    if refused is None:
        name = "cluster-optimal-dp"
        shared = _with_shares(config, sizes, name)
        refused = no_tables(*(question(view, sizes) for view in shared.views))
    if refused is not None:
        return _because(uniform, refusal(refused))
    tables = _resolved(shared, sizes, name)
    options = [
        [one.plan.option for one in each.outcomes if one.plan is not None]
        for each in (tables, uniform)
    ]
    return _because(tables if worth_tables(*options) else uniform, reason(*options))


def _because(chosen: ResolvedRelease, why: str) -> ResolvedRelease:
    """The same designs, whose plans say why their mechanism was chosen."""
    outcomes = tuple(
        one if one.plan is None else replace(one, plan=replace(one.plan, reason=why))
        for one in chosen.outcomes
    )
    return replace(chosen, outcomes=outcomes)


def _with_shares(config: Config, sizes: Ints, mechanism: PlannedMechanism | None = None) -> Config:
    """The configuration with planned shares of ε, where they are "auto"."""
    if any(one.share != "auto" for one in config.named_outcomes):
        return config
    whole = config.cost
    questions = [
        replace(question(view, sizes, mechanism), epsilon=whole.epsilon, delta=whole.delta)
        for view in config.views
    ]
    outcomes = tuple(
        one.model_copy(update={"share": share})
        for one, share in zip(config.named_outcomes, plan_shares(questions), strict=True)
    )
    return config.model_copy(update={"named_outcomes": outcomes})


def resolve_design(
    config: Config,
    sizes: Ints,
    mechanism: PlannedMechanism | None = None,
    most: int | None = None,
) -> ResolvedDesign:
    """Choose the design of one outcome; ``sizes`` are numbers of units, shape [clusters, arms].

    With a ``mechanism`` "auto" has no other to choose. A planned grid has ``most`` points at most,
    if that is given. Raises ConfigError where no effect could be estimated with any design.
    """
    if not config.is_planned:
        return ResolvedDesign(config, config.design(), None)
    asked = question(config, sizes, mechanism)
    if most is not None:
        few = tuple(grid for grid in asked.grids if len(grid) <= most)
        asked = replace(asked, grids=few)
    chosen = guarded_plan(asked)
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
    if declared.learnt is not None and chosen.even_part is not None:
        outcome = outcome.taught(declared.learnt.mixed_with(chosen.even_part))
    return ResolvedDesign(config.model_copy(update={"outcome": outcome}), chosen.design, chosen)


def predicted_errors(
    config: Config, chosen: ResolvedRelease, sizes: Ints, margins: MarginFacts | None = None
) -> dict[tuple[str, str, str], float]:
    """The standard error of every arm's effect on everybody, as ``clusterdp plan`` predicts it.

    Keys are the names of the outcome, of the arm, and of the estimator that the prediction is for:
    the sharpest one that the design allows. ``config`` is as declared, ``sizes`` are numbers of
    units, shape [clusters, arms]; only public facts are used. Empty where clusters are private, as
    their sizes are not known when the design is made.
    """
    if config.private_clusters is not None:
        return {}
    found: dict[tuple[str, str, str], float] = {}
    for view, one in zip(config.views, chosen.outcomes, strict=True):
        asked, mechanism = question_after(view, one, sizes), one.design.mechanism
        asked = replace(asked, segment_shares=())
        parameters = mechanism.parameters
        alone = parameters.noise_scale is None and parameters.margins is None
        estimator = "tau_q" if alone else "combined"
        if isinstance(parameters, AggregateParameters):
            estimator = "horvitz_thompson" if parameters.differences else "histogram"
        grid = one.config.outcome.grid
        effects = forecast(asked, grid, mechanism)
        if margins is not None and not isinstance(one.design, AggregateDesign):
            effects = with_sums(effects, margins, asked, grid, one.design.mechanism)
        for effect in effects:
            key = view.outcomes[0].name, config.arms.names[effect.arm], estimator
            found[key] = effect.std_error
    return found


def question_after(
    config: Config, chosen: ResolvedDesign, sizes: Ints, mechanism: PlannedMechanism | None = None
) -> Question:
    """The same once a design was chosen: its tables have as much of an even guess as the plan."""
    asked, plan = question(config, sizes, mechanism), chosen.plan
    if plan is None or plan.even_part is None:
        return asked
    return replace(asked, even_part=plan.even_part)


def _within(
    learnt: PublishedGuess, values: Floats, sizes: Ints, min_stratum: int
) -> GuessesWithin | None:
    """What was learnt of strata; of clusters that share a pool, what was learnt of their arms.

    None where the clusters are not those that strata are told apart by.
    """
    if learnt.clusters is None or len(learnt.clusters) != len(sizes):
        return None
    pool_of = small_clusters_share(sizes, min_stratum)
    shares, at = learnt.of_strata(own_clusters(learnt.clusters, pool_of), values)
    n_units = np.zeros(shares.shape[:2], dtype=np.int64)
    np.add.at(n_units, at[pool_of], sizes)
    known = n_units > 0
    return GuessesWithin(shares[known], n_units[known])


def question(config: Config, sizes: Ints, mechanism: PlannedMechanism | None = None) -> Question:
    """The question to the planner, or, where parameters are declared, to a forecast.

    With a ``mechanism`` it is of that alone, where "auto" is declared.
    """
    outcome, privacy, statistic = config.outcome, config.privacy, config.privacy.strata_statistic
    support, continuous = outcome.support, outcome.values is None
    learnt = outcome.learnt
    grids: tuple[tuple[float, ...], ...] = (support,)
    table_grids = grids
    if outcome.levels == "auto":
        grids = grids_of(support, continuous=continuous)
        table_grids = optimal_grids_of(support, continuous=continuous)
    statistics: tuple[StatisticName, ...] = ("counts", "means", "none")
    tables = privacy.mechanism == "cluster-optimal-dp"
    if tables and privacy.learn_from == "strata":
        statistics = ("counts",)
    guess = np.array(outcome.weights if learnt is None else learnt.on(np.array(support)))
    asked = Question(
        epsilon=config.cost.epsilon,
        delta=privacy.delta,
        values=np.array(support),
        guess=guess,
        grids=grids,
        statistics=statistics if statistic == "auto" else (statistic,),
        sizes=sizes,
        min_stratum=privacy.min_stratum,
        same_shares=config.arms.same_shares,
        one_by_one=config.columns.assigned_by is None,
        segment_shares=privacy.segment_shares,
        overall=privacy.overall_effect,
        mechanism="auto",
        table_grids=table_grids,
        learn_from=privacy.learn_from,
        margin_shares=config.margin_shares,
        within=None
        if learnt is None
        else _within(learnt, np.array(support), sizes, privacy.min_stratum),
        even_part=None if learnt is None else learnt.even_part,
    )
    if tables:
        return asked.alone("cluster-optimal-dp")
    if privacy.mechanism != "auto":
        return asked.alone(mechanism or "uniform-prior-dp")
    return asked if mechanism is None else asked.alone(mechanism)
