"""The configuration of an experiment, and what follows from it; paths are relative to its file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PrivateAttr

from estimators.published_guess import PublishedGuess
from flows.config.model.declared import Declared, LogFacts, LogSource, Spill, Terms
from flows.config.model.notify import NotifySection
from flows.config.model.retention import RetentionSection
from flows.config.model.schedule import ScheduleSection, schedule_of
from flows.config.model.sections import (
    Arms,
    Columns,
    DecisionSection,
    LedgerSection,
    NamedOutcome,
    Outcome,
    Privacy,
    PrivateClusters,
    Publish,
    Quarantine,
    RatioMetric,
    Run,
    SourceSection,
    as_tuple,
)
from flows.schedule.periods import Schedule
from privatizers.accounting.budget import Budget, of_group, parts_of, total, written
from privatizers.domain.lattice import lattice_of
from privatizers.planning.aggregate_design import (
    SQUARE_SHARE,
    AggregateDesign,
    AggregateRequest,
    aggregate_design,
)
from privatizers.planning.design import MARGINS_SHARE, Design, Request, design
from privatizers.planning.optimal_design import OptimalDesign, OptimalRequest, optimal_design
from schemas.names import NAME
from schemas.tables import MARGIN_OF, UNNAMED

AnyDesign = Design | OptimalDesign | AggregateDesign
"""A mechanism with its price: of one that publishes units, or of one that publishes none."""


class Config(Declared):
    """One experiment: its log, arms, grid, privacy parameters and folders."""

    experiment: Annotated[str, Field(pattern=f"^{NAME}$")]
    """The name of the experiment: letters, digits, - and _."""
    source: SourceSection
    columns: Columns
    arms: Arms
    outcome: Outcome = Outcome()
    named_outcomes: Annotated[tuple[NamedOutcome, ...], BeforeValidator(as_tuple)] = Field(
        default=(), alias="outcomes"
    )
    """Several outcomes under one epsilon, in place of ``[outcome]`` and ``columns.outcome``."""
    ratios: Annotated[tuple[RatioMetric, ...], BeforeValidator(as_tuple)] = ()
    """Ratios of two of these outcomes' means, estimated from what is published of them."""
    decision: DecisionSection | None = None
    """The rule by which primary outcomes decide; needed where there are several."""
    privacy: Privacy
    private_clusters: PrivateClusters | None = None
    schedule: ScheduleSection | None = None
    publish: Publish = Publish()
    ledger: LedgerSection = LedgerSection()
    quarantine: Quarantine = Quarantine()
    run: Run = Run()
    notify: NotifySection | None = None
    retention: RetentionSection | None = None
    directory: Path = Field(default=Path(), exclude=True)
    """The folder that the configuration file is in; not a key of the file."""
    _has_private_sizes: bool = PrivateAttr(default=False)
    """Whether this is the view of one outcome where clusters are private."""
    _margins_share: float | None = PrivateAttr(default=None)
    """What margins have of ε, once that was planned."""

    @property
    def terms(self) -> Terms:
        """Who pays for a release, each by itself or all alike, and how much."""
        privacy = self.privacy
        return replace(
            super().terms,
            by_unit=privacy.account == "unit",
            once=privacy.returning == "set_aside",
            spares=privacy.spent == "set_aside",
            rows_each=privacy.rows_each,
        )

    @property
    def calendar(self) -> Schedule | None:
        """When releases are due; None where no schedule is declared."""
        return None if self.schedule is None else schedule_of(self.schedule, self._window)

    @property
    def _window(self) -> int | None:
        return self.source.window_microseconds if self.source.grain == "event" else None

    @property
    def needs_account_key(self) -> bool:
        """Whether digests under the ledger's key are made: of units that pay, or of groups."""
        return self.terms.by_unit or self.columns.assigned_by is not None

    @property
    def spill_directory(self) -> Path:
        """The folder for raw rows that do not fit into memory, while a run lives."""
        return self.path(self.run.spill_directory or self.quarantine.directory)

    @property
    def spill(self) -> Spill:
        """Where rows go that do not fit into memory, and who works on them."""
        return Spill(self.spill_directory, self.run.memory_limit, self.run.workers)

    @property
    def log_source(self) -> LogSource:
        """Where its logs are, and how their rows are read."""
        return LogSource(
            directory=self.directory,
            source=self.source,
            columns=self.columns,
            arms=self.arms.names,
            outcomes=self.outcomes,
            private_clusters=self.private_clusters,
            calendar=self.calendar,
            events_may_be_absent=self.schedule is not None
            and self.schedule.events == "may_be_absent",
        )

    @property
    def log_facts(self) -> LogFacts:
        """What judges the rows of its logs."""
        private, columns = self.private_clusters, self.columns
        of_events = self.source.grain == "event"
        return LogFacts(
            arms=self.arms.names,
            unit_column=columns.unit,
            arm_column=columns.arm,
            at_most=self.quarantine.at_most,
            facts=columns.facts,
            shares=self.arms.expected_shares,
            clusters="public" if private is None else "private",
            n_clusters=None if private is None else len(private.names),
            asks_for_groups=bool(columns.clusters) and private is None and not columns.assigned_by,
            outcomes=self.outcomes if of_events else (),
            n_outcomes=len(self.outcomes),
            of_events=of_events,
            window=self._window,
            refuses_odd_arms=self.arms.sample_ratio == "refuse",
            ids=self.source.ids,
            first_counts=self.source.repeated == "first",
        )

    def with_margins_share(self, share: float) -> "Config":
        """The same where margins have this part of ε; without margins where that is 0."""
        settled = self.model_copy()
        settled._margins_share = share
        return settled

    def taught(self, guesses: Mapping[str, PublishedGuess]) -> "Config":
        """The same with what earlier releases tell of outcomes, by name; without, where nothing."""
        if not self.named_outcomes:
            (only,) = self.outcomes
            return self.model_copy(update={"outcome": self.outcome.taught(guesses.get(only.name))})
        named = tuple(one.taught(guesses.get(one.name)) for one in self.named_outcomes)
        return self.model_copy(update={"named_outcomes": named})

    def told_apart(self, clusters: Sequence[str]) -> "Config":
        """The same for these clusters, in this order, each with what was learnt of itself."""
        found = {
            one.name: replace(one.learnt, clusters=tuple(clusters))
            for one in self.outcomes
            if one.learnt is not None
        }
        return self.taught(found) if found else self

    @property
    def guess_from(self) -> str:
        """The releases that have taught the guess, and the digests of their files."""
        found = (one.learnt.guess_from for one in self.outcomes if one.learnt is not None)
        return ", ".join(dict.fromkeys(each for one in found for each in one.split(", ")))

    @property
    def is_planned(self) -> bool:
        """Whether the planner chooses the design, for which it needs the sizes of the strata."""
        if self.privacy.epsilon is None:
            return False
        if self.privacy.mechanism == "cluster-optimal-dp":
            return self.private_clusters is None and not self._has_private_sizes
        return self.privacy.mechanism == "auto"

    @property
    def cluster_cost(self) -> Budget:
        """The part of a release's cost that private clusters take; 0 where clusters are public."""
        private = self.private_clusters
        if private is None:
            return Budget()
        return total((Budget(private.epsilon), Budget(private.centres_epsilon)))

    @property
    def cost(self) -> Budget:
        """The cost of one release: the declared epsilon, or that of the declared parameters.

        The parameters are those of every outcome: what they cost is added up.
        """
        if self.privacy.epsilon is not None:
            return Budget(self.privacy.epsilon, self.privacy.delta)
        if not self.named_outcomes:
            declared = self.design()
            return Budget(declared.epsilon, declared.delta)
        return total([self.cluster_cost, *(one.cost for one in self.views)])

    @property
    def charged(self) -> Budget:
        """What one who pays is charged for a release: the cost of all its rows together."""
        rows_each = self.privacy.rows_each
        return self.cost if rows_each is None else of_group(self.cost, rows_each)

    @property
    def outcomes(self) -> tuple[NamedOutcome, ...]:
        """All outcomes in their order: one called ``outcome`` where there is ``[outcome]``."""
        if self.named_outcomes:
            return self.named_outcomes
        if isinstance(self.outcome, NamedOutcome):  # in a view of one of several
            return (self.outcome,)
        declared = {name: getattr(self.outcome, name) for name in Outcome.model_fields}
        only = NamedOutcome.model_construct(name=UNNAMED, column=self.columns.outcome, **declared)
        return (only.taught(self.outcome.learnt),)

    @property
    def decision_rule(self) -> str | None:
        """How primary outcomes and ratios decide together; None where there are none.

        One alone is under the rule "all", unless the other is declared.
        """
        roles = [*(one.role for one in self.outcomes), *(one.role for one in self.ratios)]
        if "primary" not in roles:
            return None
        return "all" if self.decision is None else self.decision.primary

    @property
    def views(self) -> "tuple[Config, ...]":
        """The configuration of each outcome alone, in their order; see :meth:`of_outcome`."""
        if not self.named_outcomes:
            return (self,)
        whole = Budget(self._outcome_epsilon() or 0.0, self.privacy.delta)
        return tuple(map(self._view, self.named_outcomes, parts_of(whole, self.shares())))

    def of_outcome(self, name: str) -> "Config":
        """The configuration of one outcome alone, by its name, at its part of ε and δ.

        Of ``[outcome]`` it is this configuration. Of several it has no private clusters, as these
        are randomised, and paid for, once for all. Raises KeyError where there is no such outcome.
        """
        found = dict(zip((one.name for one in self.outcomes), self.views, strict=True))
        return found[name]

    def shares(self) -> tuple[Fraction, ...]:
        """The part of ε of each outcome, of what private clusters leave; at most 1 together.

        Those without a share divide evenly what the others leave, and so do all before they are
        planned ("auto"). Some may be 0 or less where shares are wrong; see
        :mod:`flows.config.rules.outcomes`.
        """
        given = [
            None if one.share in (None, "auto") else Fraction(written(float(one.share or 0.0)))
            for one in self.outcomes
        ]
        left = 1 - sum((share for share in given if share is not None), Fraction(0))
        return tuple(left / given.count(None) if share is None else share for share in given)

    def _view(self, outcome: NamedOutcome, part: Budget) -> "Config":
        epsilon = None if self.privacy.epsilon is None else part.epsilon
        privacy = {"epsilon": epsilon, "delta": part.delta}
        view = self.model_copy(
            update={
                "outcome": outcome,
                "named_outcomes": (),
                "ratios": (),
                "columns": self.columns.model_copy(update={"outcome": outcome.column}),
                "privacy": self.privacy.model_copy(update=privacy),
                "private_clusters": None,
            }
        )
        view._has_private_sizes = self._has_private_sizes or self.private_clusters is not None
        return view

    def design(self) -> AnyDesign:
        """The mechanism and its parameters as declared, where nothing is planned.

        Its price is that of the whole release, private clusters included.
        """
        of_outcomes, clusters = self.outcome_design(), self.cluster_cost
        if self.private_clusters is None:
            return of_outcomes
        if self.privacy.epsilon is not None:
            return replace(of_outcomes, epsilon=self.privacy.epsilon)
        return replace(of_outcomes, epsilon=total((Budget(of_outcomes.epsilon), clusters)).epsilon)

    def outcome_design(self) -> AnyDesign:
        """The declared design at the price of the outcomes alone, without private clusters."""
        if self.is_planned:
            raise AssertionError("this design is planned: see flows.config.resolve")
        request = self.request()
        if isinstance(request, AggregateRequest):
            return aggregate_design(request)
        if isinstance(request, OptimalRequest):
            return optimal_design(request)
        return design(request)

    def request(self) -> Request | OptimalRequest | AggregateRequest:
        """The declared mechanism and parameters of one outcome, from which its design is made."""
        if self.named_outcomes:
            raise AssertionError("several outcomes have a design each: see Config.of_outcome")
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
            )
        if name == "cluster-optimal-dp":
            return OptimalRequest(
                grid=support,
                guess=self.outcome.weights,
                epsilon=epsilon,
                delta=privacy.delta,
                strata_statistic=privacy.strata_statistic,
                lattice=lattice_of(support),
                learn_from=privacy.learn_from,
                margin_shares=self.margin_shares,
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
            margin_shares=self.margin_shares,
        )

    @property
    def margins(self) -> tuple[tuple[str, ...], ...]:
        """The attributes of each margin whose sums are published, in their order."""
        if self._margins_share == 0.0:
            return ()
        return tuple(
            tuple(name.strip() for name in margin.split(MARGIN_OF.strip()))
            if isinstance(margin, str)
            else margin
            for margin in self.privacy.margins
        )

    @property
    def margin_warnings(self) -> tuple[str, ...]:
        """That declared margins were given nothing, where that was planned."""
        if self.margins or not self.privacy.margins:
            return ()
        return (
            "privacy.margins: no part of epsilon makes declared values sharper here, so that the "
            "release has no sums of them; `clusterdp plan` shows what each would have",
        )

    @property
    def margin_shares(self) -> tuple[float, ...]:
        """The part of an outcome's ε that pays for each margin."""
        given = self.privacy.margins
        weights = list(given.values()) if isinstance(given, dict) else [1.0] * len(given)
        share = MARGINS_SHARE if self._margins_share is None else self._margins_share
        return tuple(share * weight / sum(weights) for weight in weights if share > 0)

    @property
    def plans_margins(self) -> bool:
        """Whether it is yet to be planned what margins have of ε."""
        return bool(self.margins) and self.is_planned and self._margins_share is None

    def _outcome_epsilon(self) -> float | None:
        """The ε left after private clusters, rounded down; None where parameters are declared."""
        epsilon = self.privacy.epsilon
        if epsilon is None or self.private_clusters is None:
            return epsilon
        return Budget(epsilon).left_after(self.cluster_cost).epsilon
