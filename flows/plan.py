"""`clusterdp plan`: the design that a release would have, from public facts alone.

Reads who is where in the log, and no outcome; draws, charges and writes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from estimators.coverage import LEAST_COVERAGE, forecast_warning, segment_words
from flows.config.clusterings import (
    KEY,
    Clustering,
    Columns,
    candidates,
    compared,
    configured,
    in_order,
    with_clusters,
)
from flows.config.load import load, period_of
from flows.config.model.experiment import Config
from flows.config.model.sections import NamedOutcome
from flows.config.resolve import (
    ResolvedDesign,
    ResolvedRelease,
    question,
    question_after,
    resolve_release,
)
from flows.ledger.teachers import as_taught
from flows.orchestration.step import plain_step
from flows.raw.boundary.sealed import Sealed
from flows.raw.drawing.margin_cells import margin_facts
from flows.raw.ingest import ingest_without_outcomes, outcome_type_warnings
from flows.raw.spill.workspace import open_workspace
from flows.raw.units.crossed_clusters import crossed_clusters
from flows.raw.units.private_clusters import known_clusters, known_sizes
from flows.raw.units.rows import Rows
from flows.raw.validate import validate
from privatizers.accounting.budget import Budget
from privatizers.domain.lattice import lattice_of
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.design import MechanismName, Request, design
from privatizers.planning.forecast import forecast, forecast_range
from privatizers.planning.margin_split import (
    MarginFacts,
    as_clusters,
    forecast_margins,
    largest,
    with_sums,
)
from privatizers.planning.nights import MOST_NIGHTS, PooledPrediction, affordable, paid, pooled
from privatizers.planning.planner import Plan, rank_options, with_margins, with_more
from privatizers.planning.planner import plan as make_plan
from privatizers.planning.predictions import Prediction
from privatizers.planning.question import Option, Question
from schemas.arrays import Ints
from schemas.documents import fields_of, taken
from schemas.errors import ConfigError, InputError, shown
from schemas.released import taught_by
from schemas.roster import Roster

MORE_EPSILON = 1.0
"""What one more of it would buy is told."""

_SHOWN = 4  # runners-up of the planner's own kind
_TOLD = (
    *("strata_statistic", "resampling_probability", "truncation_threshold", "noise_scale"),
    *("statistic_epsilon", "learnt_from", "arm_counts_epsilon", "response_epsilon"),
)
"""The parameters of a mechanism that the document has."""


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
    pooled: tuple[tuple[str, PooledPrediction], ...]
    """Each with the name of its outcome."""

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
                    **_effect_json(metric, one, arms),
                    "sampling_std_error": one.sampling_std_error,
                    "privacy_std_error": one.privacy_std_error,
                    "std_error_returning": None if self.charges_once else one.most_std_error,
                }
                for metric, one in self.pooled
            ],
        }


def _effect_json(
    metric: str, one: Prediction | PooledPrediction, arms: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "metric": metric,
        "estimand": "ate" if one.segment_share is None else "segment ate",
        "arm": arms[one.arm],
        "segment_share": one.segment_share,
        "std_error": one.std_error,
    }


@dataclass(frozen=True)
class MarginEffect:
    """Standard errors of a declared value's effect; None where one is not known."""

    arm: int
    attribute: str
    value: str
    std_error: float | None
    without_margins: float | None
    """By the plan that would be made without margins."""
    as_cluster: float | None
    """Where the attribute was the cluster, and nothing else; None for values of two margins."""


@dataclass(frozen=True)
class OutcomePlan:
    """The design chosen or declared for one outcome, and what it is predicted to tell."""

    resolved_design: ResolvedDesign
    predicted: tuple[Prediction, ...]
    runners_up: tuple[Other, ...]
    one_more: Other | None
    """The plan for one more unit of ε of the release; None where parameters are declared, and for
    an outcome that is drawn together with another."""
    margins: tuple[MarginEffect, ...] = ()
    """What is predicted of declared values, where margins are planned."""
    ranges: tuple[tuple[float, float], ...] = ()
    """The least and the greatest standard error that each prediction may turn out to be, where
    nothing is known of outcomes: no guess was declared, and none was learnt."""

    @property
    def outcome(self) -> NamedOutcome:
        """The outcome as declared, its grid settled."""
        (outcome,) = self.resolved_design.config.outcomes
        return outcome

    def as_json(self, arms: tuple[str, ...]) -> dict[str, Any]:
        """What is told of the outcome's design."""
        mechanism, config = self.resolved_design.design.mechanism, self.resolved_design.config
        parameters, plan = mechanism.parameters, self.resolved_design.plan
        more = self.one_more
        return {
            "levels": parameters.n_outcomes,
            "outcomes": list(config.outcome.grid),
            **{name: getattr(parameters, name) for name in _TOLD},
            "drawn_together": self.resolved_design.is_drawn_together,
            "mechanism_reason": None if plan is None else plan.reason,
            "epsilon": self.resolved_design.design.epsilon,
            "delta": self.resolved_design.design.delta,
            "runners_up": [self._other(one, arms) for one in self.runners_up],
            "one_more_epsilon": None if more is None else self._other(more, arms),
            "margins_epsilon": parameters.margins_epsilon,
            "margins": [fields_of(one) | {"arm": arms[one.arm]} for one in self.margins],
        }

    def predicted_json(
        self, predictions: tuple[Prediction, ...], arms: tuple[str, ...]
    ) -> list[dict[str, Any]]:
        """The rows of predictions."""
        ranges = self.ranges if predictions is self.predicted else ()
        return [
            {
                **_effect_json(self.outcome.name, one, arms),
                "std_error_range": between,
                "interval_half_width": one.half_width,
                "coverage": one.coverage,
            }
            for one, between in zip_longest(predictions, ranges)
        ]

    def _other(self, one: Other, arms: tuple[str, ...]) -> dict[str, Any]:
        return fields_of(one) | {"predicted": self.predicted_json(one.predicted, arms)}


@dataclass(frozen=True)
class PlanResult:
    """The designs of all outcomes, what they are predicted to tell, and what else there is."""

    chosen: ResolvedRelease
    outcomes: tuple[OutcomePlan, ...]
    """In the order of the configuration."""
    roster: Roster
    arms: tuple[str, ...]
    nights: Nights | None = None
    """What several nights come to; None where nobody asked."""
    clusterings: tuple[Clustering, ...] = ()
    """Columns that may be the cluster, that of now among them, best first; none where nobody asked
    for any."""
    type_warnings: tuple[str, ...] = ()
    """Types of outcomes' columns that do not fit, as far as there are files of outcomes."""

    @property
    def predicted(self) -> tuple[Prediction, ...]:
        """What is predicted of all outcomes, one after the other."""
        return tuple(each for one in self.outcomes for each in one.predicted)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp plan --json``.

        The design of one outcome stands in it as such, that of several under ``metrics``.
        """
        first, *others = self.outcomes
        price = self.chosen.price
        designs = [
            {"metric": one.outcome.name, "label": one.outcome.label, **one.as_json(self.arms)}
            for one in self.outcomes
        ]
        alone = first.as_json(self.arms)
        if others:
            alone = dict.fromkeys(alone) | {"runners_up": []}
        return {
            "mechanism": self.chosen.mechanism,
            "guess_from": taught_by(self.chosen.config.guess_from),
            **alone,
            "epsilon": price.epsilon,
            "delta": price.delta,
            "metrics": designs,
            "n_units": self.roster.n_units,
            "n_clusters": self.roster.n_clusters,
            "predicted": [
                row for one in self.outcomes for row in one.predicted_json(one.predicted, self.arms)
            ],
            "nights": None if self.nights is None else self.nights.as_json(self.arms),
            "clusterings": [one.as_json() for one in self.clusterings],
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
        same_shares = self.chosen.config.arms.same_shares
        few = tuple(
            forecast_warning(coverage, segment_words(share), same_shares=same_shares)
            for share, coverage in least.items()
            if coverage < LEAST_COVERAGE
        )
        return (
            *self.roster.warnings,
            *self.chosen.config.margin_warnings,
            *few,
            *self.type_warnings,
        )


def plan(
    config: str | Path,
    period: str | None = None,
    *,
    nights: int | None = None,
    clusters: Sequence[str | Sequence[str]] = (),
) -> PlanResult:
    """The design that a release, or so many ``nights``, would have; reads no outcome.

    ``clusters`` are columns of the log, or several as one, that are compared as the cluster.
    """
    if nights is not None and not 1 <= nights <= MOST_NIGHTS:
        raise ConfigError("--nights", f"{shown(nights)} is not from 1 to {MOST_NIGHTS:,}")
    experiment = load(Path(config))
    if experiment.private_clusters is not None:
        raise ConfigError(
            "private_clusters",
            "nothing can be predicted: the sizes of clusters are private, and known only once a "
            "release has randomised and paid for them",
        )
    others = candidates(experiment, clusters)
    sizes, names, roster, margins = _who_is_where(experiment, period)
    plain = as_taught(experiment, _period(experiment, period))
    experiment = plain.told_apart(names)
    chosen = resolve_release(experiment, sizes, margins)
    outcomes = tuple(
        _planned(experiment, view, one, sizes, margins)
        for view, one in zip(chosen.config.views, chosen.outcomes, strict=True)
    )
    together = None
    if nights is not None:
        found = [(one.outcome.name, each) for one in outcomes for each in one.predicted]
        of_nights = tuple((metric, pooled(each, nights)) for metric, each in found)
        together = Nights(nights, experiment, of_nights)
    types = outcome_type_warnings(experiment.log_source, _period(experiment, period))
    clusterings = _clusterings(plain, period, sizes, others) if clusters else ()
    arms = experiment.arms.names
    return PlanResult(chosen, outcomes, roster, arms, together, clusterings, types)


def _clusterings(
    config: Config, period: str | None, sizes: Ints, others: list[Columns]
) -> tuple[Clustering, ...]:
    """What other columns would bring as the cluster; the log is read once for each."""
    now = configured(config, sizes)
    found = [now[0]]
    for columns in others:
        both = tuple(dict.fromkeys((*config.columns.clusters, *columns)))
        look = partial(crossed_clusters, columns=both, now=config.columns.clusters, other=columns)
        try:
            crossed, _ = _looked_at(with_clusters(config, both), period, look)
        except InputError as error:
            raise InputError(f"{KEY} {'+'.join(columns)}: {error}") from None
        found.append(compared(with_clusters(config, columns), crossed, now))
    return in_order(found)


def _planned(
    config: Config,
    view: Config,
    chosen: ResolvedDesign,
    sizes: Ints,
    margins: MarginFacts | None,
) -> OutcomePlan:
    """The plan of one outcome; ``view`` is the configuration of it alone, as it was settled."""
    made = _with_options(config, view, chosen, sizes, margins)
    declared = config.of_outcome(view.outcomes[0].name).outcome
    if declared.learnt is not None or not isinstance(declared.guess, str):
        return made
    asked = question(view.model_copy(update={"outcome": declared}), sizes)
    grid, mechanism = chosen.config.outcome.grid, chosen.design.mechanism
    ranges = forecast_range(asked, grid, mechanism, partial(_with_sums, chosen, margins))
    return replace(made, ranges=ranges)


def _with_sums(
    chosen: ResolvedDesign,
    margins: MarginFacts | None,
    predicted: tuple[Prediction, ...],
    asked: Question,
) -> tuple[Prediction, ...]:
    """Predictions as they are with the sums of margins, if there are any."""
    if margins is None or isinstance(chosen.design, AggregateDesign):
        return predicted
    return with_sums(predicted, margins, asked, chosen.config.outcome.grid, chosen.design.mechanism)


def _with_options(
    config: Config,
    view: Config,
    chosen: ResolvedDesign,
    sizes: Ints,
    margins: MarginFacts | None,
) -> OutcomePlan:
    """The same, with the next best designs, without the range of what it may come to."""
    plan, declared = chosen.plan, config.of_outcome(view.outcomes[0].name).outcome
    # Several outcomes have the mechanism that was chosen for all of them.
    settled = plan.option.mechanism if plan is not None and config.named_outcomes else None
    own = view.model_copy(update={"outcome": declared})
    asked = question_after(own, chosen, sizes, settled)
    grid = chosen.config.outcome.grid
    predicted = forecast(asked, grid, chosen.design.mechanism)
    if not predicted:
        raise ConfigError("arms.treatments", _nothing_to_compare(chosen))
    predicted = _with_sums(chosen, margins, predicted, asked)
    if plan is None:
        return OutcomePlan(chosen, predicted, (), None)
    told = () if margins is None else tuple(_of_margins(asked, plan, margins))
    shown = plan.runners_up[:_SHOWN]
    kinds = {one.mechanism for one in (plan.option, *shown)}
    unseen = [one for one in plan.runners_up[_SHOWN:] if one.mechanism not in kinds]
    runners_up = [_option(one) for one in (*shown, *unseen[:1])]
    if plan.option.mechanism == "cluster-optimal-dp" and asked.mechanism != "auto":
        runners_up.append(_option(rank_options(asked.alone("uniform-prior-dp"))[0]))
    else:
        runners_up += _with_own_priors(asked, grid)
    if chosen.is_drawn_together:  # more is planned apart
        return OutcomePlan(chosen, predicted, tuple(runners_up), None)
    added = MORE_EPSILON * view.cost.epsilon / config.cost.epsilon
    if margins is None or not told:
        more = _option(with_more(asked, added))
        return OutcomePlan(chosen, predicted, tuple(runners_up), more)
    of_more = replace(asked, epsilon=asked.epsilon + added)
    larger = with_margins(of_more, replace(plan, option=with_more(asked, added)), 1.0)
    best = larger.option
    sums = with_sums(best.predicted, margins, of_more, best.grid, larger.design.mechanism)
    more = replace(_option(best), predicted=sums)
    return OutcomePlan(chosen, predicted, tuple(runners_up), more, told)


def _of_margins(asked: Question, plan: Plan, margins: MarginFacts) -> Iterator[MarginEffect]:
    """What declared values have with the sums of margins, without, and as clusters."""
    asked = replace(asked, margin_shares=())
    alone = make_plan(asked)
    with_them, without = (
        forecast_margins(margins, asked, one.option.grid, one.design.mechanism)
        for one in (plan, alone)
    )
    as_cluster = []
    for margin in range(len(margins.attributes)):
        facts, sizes = as_clusters(margins, margin)
        of_these = replace(asked, sizes=sizes)
        best = make_plan(of_these)
        found = forecast_margins(facts, of_these, best.option.grid, best.design.mechanism)
        as_cluster.append(found.cells)
    clusters, nobody = np.concatenate(as_cluster, axis=1), np.inf
    cells = zip(margins.arms[0].margin.tolist(), margins.values, strict=True)
    named = [(margins.attributes[margin], value) for margin, value in cells]
    for arm in range(1, len(margins.arms)):
        rows = [
            (*name, *errors)
            for name, *errors in zip(
                named,
                with_them.cells[arm - 1],
                without.cells[arm - 1],
                clusters[arm - 1],
                strict=True,
            )
        ]
        for nth, pair in enumerate(largest(margins)):
            both = (" and ".join(of) for of in zip(*(named[one] for one in pair), strict=True))
            errors = (one.conjunctions[arm - 1, nth] for one in (with_them, without))
            rows.append((*both, *errors, nobody))
        for attribute, value, *variances in rows:
            known = (float(np.sqrt(one)) if np.isfinite(one) else None for one in variances)
            yield MarginEffect(arm, attribute, value, *known)


def _option(one: Option) -> Other:
    return Other(one.mechanism, len(one.grid), one.strata_statistic, one.predicted)


def _nothing_to_compare(chosen: ResolvedDesign) -> str:
    units = "2 units of a treatment arm and of control"
    if isinstance(chosen.design, AggregateDesign):
        return (
            f"no effect can be estimated: no cluster with a pool of its own has {units} (the "
            "others share one, which counts only with arms.same_shares = true)"
        )
    return f"no effect can be estimated: no cluster has {units}"


def resolved_release_of(config_path: Path, period: str | None) -> ResolvedRelease:
    """Return the designs of a release with its configuration, the grids in it settled.

    Who is in the log is read only where they are planned. Where clusters are private, the designs
    are what happens to outcomes once these are randomised, at the price of that alone: the rest of
    the release's price is exact by arithmetic
    (:attr:`privatizers.mechanisms.label_response.LabelResponse.guarantee`).
    """
    config = load(config_path)
    if not config.is_planned:
        declared = (ResolvedDesign(view, view.outcome_design(), None) for view in config.views)
        return ResolvedRelease(config, tuple(declared))
    sizes, _, _, margins = _who_is_where(config, period)
    return resolve_release(config, sizes, margins)


def _period(config: Config, period: str | None) -> str:
    return period_of(config.source, period)


def _who_is_where(
    config: Config, period: str | None
) -> tuple[Ints, tuple[str, ...], Roster, MarginFacts | None]:
    """Units by cluster and arm, shape [clusters, arms], clusters, and what else is public."""

    def looked(rows: Sealed[Rows]) -> tuple[Ints, tuple[str, ...], MarginFacts | None]:
        facts = config.log_facts
        return known_sizes(facts, rows), known_clusters(facts, rows), margin_facts(config, rows)

    (sizes, clusters, margins), roster = _looked_at(config, period, looked)
    return sizes, clusters, roster, margins


T = TypeVar("T")


def _looked_at(
    config: Config, period: str | None, look: Callable[[Sealed[Rows]], T]
) -> tuple[T, Roster]:
    """What is public of a log, and its roster."""
    period = _period(config, period)
    with open_workspace(config.spill) as workspace:
        log = plain_step(ingest_without_outcomes)(config.log_source, period, workspace)
        rows, _, roster = plain_step(validate)(config.log_facts, log, workspace)
        return look(rows), roster


def _with_own_priors(asked: Question, grid: tuple[float, ...]) -> tuple[Other, ...]:
    """What Cluster-DP and Cluster-Free-DP would tell on the same grid, at the same price."""
    names: tuple[MechanismName, ...] = ("cluster-dp", "cluster-free-dp")
    others = []
    for name in names:
        request = taken(
            Request,
            asked,
            mechanism=name,
            n_outcomes=len(grid),
            strata_statistic="counts",
            lattice=lattice_of(grid),
        )
        predicted = forecast(asked, grid, design(request).mechanism)
        others.append(Other(name, len(grid), "counts", predicted))
    return tuple(others)
