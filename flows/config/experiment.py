"""The configuration of an experiment, and what follows from it; paths are relative to its file."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

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
from flows.runtime.paths import absolute
from privatizers.accounting.budget import Budget, total
from privatizers.domain.lattice import lattice_of
from privatizers.planning.aggregate_design import (
    SQUARE_SHARE,
    AggregateDesign,
    AggregateRequest,
    aggregate_design,
)
from privatizers.planning.design import Design, Request, design
from schemas.errors import shown

AnyDesign = Design | AggregateDesign
"""A mechanism with its price: of one that publishes units, or of one that publishes none."""


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
    """The folder of the file, which is no key of it."""

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
        request = self.request()
        if isinstance(request, AggregateRequest):
            return aggregate_design(request)
        return design(request)

    def request(self) -> Request | AggregateRequest:
        """What is asked of the mechanism, as its design takes it."""
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
