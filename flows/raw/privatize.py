"""Step 3, private: takes raw rows, returns tables that may be published."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from estimators.response.debias import debias_vector
from estimators.response.pool_statistics import (
    ResponseNoise,
    StatisticWeights,
    declared_weights,
    statistic_noise,
    statistic_weight,
)
from flows.config.model.experiment import AnyDesign, Config
from flows.ledger.units.account_key import read_assignment_key
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.drawing import tables
from flows.raw.drawing.aggregate_tables import release_aggregates
from flows.raw.drawing.strata_counts import StrataCounts, count_strata
from flows.raw.drawing.unit_stream import OutcomeResponse, unit_table
from flows.raw.spill.workspace import Workspace
from flows.raw.units.private_clusters import with_randomised_clusters
from flows.raw.units.rows import Rows
from privatizers.domain.strata import Strata
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP, OptimalRelease
from privatizers.mechanisms.mechanism import StrataRelease
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP, check_pairing
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.design import Design
from privatizers.planning.optimal_design import OptimalDesign
from schemas.arrays import Floats
from schemas.names import ReleaseName
from schemas.raw import OUTCOME, several
from schemas.released import ReleaseTables, no_rows
from schemas.roster import Roster


@values_free
def privatize(
    config: Config,
    rows: Sealed[Rows],
    design: AnyDesign | Sequence[AnyDesign],
    name: ReleaseName,
    workspace: Workspace | None = None,
    roster: Roster | None = None,
) -> ReleaseTables:
    """Make the tables of the release ``name``, every outcome randomised.

    The steps, in this order: randomise clusters, where they are private, so that no later step sees
    raw ones; round outcomes onto the grid, once; count them by (pool, arm); let the mechanism draw
    the statistics of the strata. Each unit's outcome is drawn when the table ``units`` is read, in
    the order of released ids. For a design without units, :func:`release_aggregates` does the steps
    after the first. The counts in ``roster``, of rows in quarantine, are published as they are.

    Of several outcomes each has a ``design`` of the same mechanism, in the order of
    ``config.outcomes``, and draws of its own: the guarantee adds up (``several_outcomes.md`` beside
    the mechanisms). Two may share a table instead, and one draw a unit (``paired_optimal_dp.md``).
    """
    raw, designs = rows.open(), tuple(design) if isinstance(design, Sequence) else (design,)
    aggregates = [one for one in designs if isinstance(one, AggregateDesign)]
    for each in aggregates:  # before the first draw
        each.mechanism.check_sizes(
            raw.sizes, config.privacy.min_stratum, exact=config.private_clusters is None
        )
    private_rows = with_randomised_clusters(config, raw, workspace)
    if aggregates:
        return release_aggregates(config, private_rows, aggregates, name, workspace, roster)
    # These read keys, so they come before the draws that follow.
    grouped = config.columns.assigned_by is not None
    assignment_key = read_assignment_key(config, begun=True) if grouped else None
    manifest = tables.manifest_of(config, private_rows, designs, name, roster)
    for one in designs:
        tables.check_squares_fit(one, private_rows.sizes)
    check_pairing([one.mechanism for one in designs])
    outcomes = several(OUTCOME, len(designs))
    made = [
        _outcome_tables(view, private_rows, one, workspace, outcome)
        for view, one, outcome in zip(config.views, designs, outcomes, strict=True)
        if not isinstance(one, AggregateDesign)
    ]
    return ReleaseTables(
        manifest=manifest,
        outcomes=tables.joined(one.outcomes for one in made),
        pools=tables.joined(one.pools for one in made),
        strata=tables.strata_table(made[0].response.counts.strata),
        debias=tables.joined(one.debias for one in made),
        counts=tables.joined(one.counts for one in made),
        arm_counts=tables.joined(one.arm_counts for one in made),
        squares=tables.joined(one.squares for one in made),
        randomiser=tables.joined(one.randomiser for one in made),
        units=unit_table(
            config, private_rows, [one.response for one in made], workspace, assignment_key
        ),
    )


@dataclass(frozen=True)
class _OutcomeTables:
    """What is published of one outcome, and how each unit's is drawn."""

    outcomes: pl.DataFrame
    pools: pl.DataFrame
    debias: pl.DataFrame
    counts: pl.DataFrame
    arm_counts: pl.DataFrame
    squares: pl.DataFrame
    randomiser: pl.DataFrame
    response: OutcomeResponse


def _outcome_tables(
    config: Config,
    rows: Rows,
    design: Design | OptimalDesign,
    workspace: Workspace | None,
    outcome: str,
) -> _OutcomeTables:
    """Draw the statistics of the outcome in one column, with noise that no other has."""
    found = count_strata(config, rows, design.mechanism, workspace, keep=True, outcome=outcome)
    strata = found.strata
    drawn = _drawn(config, design, found)
    statistics = drawn.statistics
    noisy_means = _noisy_means(config, design, statistics, strata)
    cells = tables.cells_table(strata, np.array(config.outcome.grid))
    shared = isinstance(design.mechanism, PairedOptimalDP)
    response = OutcomeResponse(
        config, found, statistics.response, drawn.outputs, drawn.weights, shared
    )
    return _OutcomeTables(
        outcomes=tables.grid_table(config),
        pools=_pools(config, strata, drawn, noisy_means, _weights(config, design, strata)),
        debias=_debias(config, strata, drawn),
        counts=tables.counts_table(config, cells, statistics.noisy_counts),
        arm_counts=no_rows("arm_counts")
        if isinstance(statistics, StrataRelease)
        else tables.arm_counts_table(config, design, strata, statistics.noisy_arms),
        squares=tables.squares_table(config, design, found.counts, strata),
        randomiser=no_rows("randomiser")
        if isinstance(statistics, StrataRelease) or not isinstance(design, OptimalDesign)
        else tables.randomiser_table(config, design, statistics.response),
        response=response,
    )


@dataclass(frozen=True)
class _Drawn:
    """What is drawn of strata, and what the positions that units are drawn to count as."""

    statistics: StrataRelease | OptimalRelease
    outputs: Floats
    """What a position stands for in the release, shape [J]."""
    probability: Floats
    """What ``debias`` says of each cell and position, shape [S, J]."""
    weights: Floats
    """Debiased values, likewise."""

    @property
    def table_of(self) -> pl.Series:
        """The table that each cell's units are drawn by; null where by none."""
        if isinstance(self.statistics, StrataRelease):
            return pl.Series([None] * len(self.weights), dtype=pl.Int64)
        return pl.Series(self.statistics.response.table_of.astype(np.int64))


def _drawn(config: Config, design: Design | OptimalDesign, found: StrataCounts) -> _Drawn:
    if isinstance(design, OptimalDesign):
        _, arm = np.nonzero(found.strata.cell_of >= 0)
        learnt = design.mechanism.strata(found.counts, arm)
        response = learnt.response
        outputs = np.arange(response.n_outputs, dtype=np.float64)
        return _Drawn(learnt, outputs, response.likely[response.table_of], response.weights)
    grid = np.array(config.outcome.grid)
    statistics = design.mechanism.strata(found.counts)
    prior, rate = statistics.response.prior, statistics.response.resampling_probability
    return _Drawn(statistics, grid, prior, debias_vector(grid, prior, rate))


def _weights(
    config: Config, design: Design | OptimalDesign, strata: Strata
) -> StatisticWeights | None:
    """The weights of the statistics in the estimator ``combined``, from public facts alone.

    None where no statistics are published.
    """
    parameters = design.mechanism.parameters
    noise = statistic_noise(
        parameters.noise_scale, parameters.strata_statistic, tables.grid_step(config, design)
    )
    if noise is None:
        return None
    grid, guess = np.array(config.outcome.grid), np.array(config.outcome.weights)
    n, squares = strata.cell_sizes.astype(np.float64), parameters.squares
    response = response_noise(design, grid, guess)
    weights = declared_weights(grid, response, noise, n)
    if squares is None:
        return weights
    _, arm = np.nonzero(strata.cell_of >= 0)
    of_arms = np.bincount(arm, n).astype(np.float64)
    variance = squares.variance(config.outcome.grid)
    return replace(weights, of_square=statistic_weight(of_arms[arm], response.of_square, variance))


def response_noise(design: Design | OptimalDesign, grid: Floats, guess: Floats) -> ResponseNoise:
    """What the response adds to a unit's variance by the declared guess."""
    mechanism = design.mechanism
    if isinstance(mechanism, ClusterOptimalDP):
        return mechanism.response_noise(guess)
    rate = mechanism.parameters.resampling_probability
    return ResponseNoise.of_prior(grid, guess, mechanism.expected_prior(guess), rate)


def _noisy_means(
    config: Config,
    design: Design | OptimalDesign,
    statistics: StrataRelease | OptimalRelease,
    strata: Strata,
) -> pl.Series:
    """y_1 + h S̃/n of every cell; null where no means are published."""
    step = tables.grid_step(config, design)
    if statistics.noisy_sums is None or step is None:
        return pl.Series([None] * len(strata.cell_sizes), dtype=pl.Float64)
    return pl.Series(config.outcome.grid[0] + step * statistics.noisy_sums / strata.cell_sizes)


def _pools(
    config: Config,
    strata: Strata,
    drawn: _Drawn,
    noisy_means: pl.Series,
    weights: StatisticWeights | None,
) -> pl.DataFrame:
    pool, arm = np.nonzero(strata.cell_of >= 0)
    nothing = pl.Series([None] * len(pool), dtype=pl.Float64)
    return tables.by_metric(
        config,
        {
            "pool": tables.named(strata.pools, pool),
            "arm": tables.named(strata.arms, arm),
            "n_units": pl.Series(strata.cell_sizes),
            "noisy_mean": noisy_means,
            "noisy_difference": nothing,
            "mean_weight": nothing if weights is None else pl.Series(weights.of_mean),
            "square_weight": nothing if weights is None else pl.Series(weights.of_square),
            "table": drawn.table_of,
        },
    )


def _debias(config: Config, strata: Strata, drawn: _Drawn) -> pl.DataFrame:
    return tables.by_metric(
        config,
        {
            **tables.cells_table(strata, drawn.outputs),
            "probability": pl.Series(drawn.probability.ravel()),
            "weight": pl.Series(drawn.weights.ravel()),
            "table": drawn.table_of.gather(
                np.repeat(np.arange(len(drawn.weights)), len(drawn.outputs))
            ),
        },
    )
