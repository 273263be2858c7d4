"""Step 3, private: takes raw rows, returns tables that may be published."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from estimators.debias import debias_vector
from estimators.pool_statistics import (
    StatisticWeights,
    declared_weights,
    square_weight,
    statistic_noise,
)
from flows.config.experiment import AnyDesign, Config
from flows.ledger.units.account_key import read_assignment_key
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.drawing import tables
from flows.raw.drawing.aggregate_tables import release_aggregates
from flows.raw.drawing.strata_counts import count_strata
from flows.raw.drawing.unit_stream import OutcomeResponse, unit_table
from flows.raw.spill.workspace import Workspace
from flows.raw.units.private_clusters import with_randomised_clusters
from flows.raw.units.rows import Rows
from privatizers.domain.strata import Strata
from privatizers.mechanisms.mechanism import StrataRelease
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.design import Design
from schemas.arrays import Floats
from schemas.names import ReleaseName
from schemas.raw import OUTCOME, several
from schemas.released import ReleaseTables
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
    the mechanisms).
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
    outcomes = several(OUTCOME, len(designs))
    made = [
        _outcome_tables(view, private_rows, one, workspace, outcome)
        for view, one, outcome in zip(config.views, designs, outcomes, strict=True)
        if isinstance(one, Design)
    ]
    return ReleaseTables(
        manifest=manifest,
        outcomes=tables.joined(one.outcomes for one in made),
        pools=tables.joined(one.pools for one in made),
        strata=tables.strata_table(made[0].response.counts.strata),
        debias=tables.joined(one.debias for one in made),
        counts=tables.joined(one.counts for one in made),
        squares=tables.joined(one.squares for one in made),
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
    squares: pl.DataFrame
    response: OutcomeResponse


def _outcome_tables(
    config: Config, rows: Rows, design: Design, workspace: Workspace | None, outcome: str
) -> _OutcomeTables:
    """Draw the statistics of the outcome in one column, with noise that no other has."""
    grid = np.array(config.outcome.grid)
    found = count_strata(config, rows, design.mechanism, workspace, keep=True, outcome=outcome)
    strata = found.strata
    statistics = design.mechanism.strata(found.counts)
    response = statistics.response
    weights = debias_vector(grid, response.prior, response.resampling_probability)
    cells = tables.cells_table(strata, grid)
    noisy_means = _noisy_means(config, design, statistics, strata)
    return _OutcomeTables(
        outcomes=tables.grid_table(config),
        pools=_pools(config, strata, noisy_means, _weights(config, design, strata)),
        debias=_debias(config, cells, statistics, weights),
        counts=tables.counts_table(config, cells, statistics.noisy_counts),
        squares=tables.squares_table(config, design, found.counts, strata),
        response=OutcomeResponse(config, found, response, weights),
    )


def _weights(config: Config, design: Design, strata: Strata) -> StatisticWeights | None:
    """The weights of the statistics in the estimator ``combined``, from public facts alone.

    None where no statistics are published.
    """
    parameters = design.mechanism.parameters
    noise = statistic_noise(
        parameters.noise_scale, parameters.strata_statistic, tables.grid_step(config, design)
    )
    if noise is None:
        return None
    guess = np.array(config.outcome.weights)
    grid, prior = np.array(config.outcome.grid), design.mechanism.expected_prior(guess)
    rate, squares = parameters.resampling_probability, parameters.squares
    n = strata.cell_sizes.astype(np.float64)
    weights = declared_weights(grid, guess, prior, rate, noise, n)
    if squares is None:
        return weights
    _, arm = np.nonzero(strata.cell_of >= 0)
    variance = squares.variance(config.outcome.grid)
    of_arms = np.bincount(arm, n).astype(np.float64)
    of_square = square_weight(grid, guess, prior, rate, variance, of_arms[arm])
    return replace(weights, of_square=of_square)


def _noisy_means(
    config: Config, design: Design, statistics: StrataRelease, strata: Strata
) -> pl.Series:
    """y_1 + h S̃/n of every cell; null where no means are published."""
    step = tables.grid_step(config, design)
    if statistics.noisy_sums is None or step is None:
        return pl.Series([None] * len(strata.cell_sizes), dtype=pl.Float64)
    return pl.Series(config.outcome.grid[0] + step * statistics.noisy_sums / strata.cell_sizes)


def _pools(
    config: Config, strata: Strata, noisy_means: pl.Series, weights: StatisticWeights | None
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
        },
    )


def _debias(
    config: Config, cells: dict[str, pl.Series], statistics: StrataRelease, weights: Floats
) -> pl.DataFrame:
    return tables.by_metric(
        config,
        {
            **cells,
            "probability": pl.Series(statistics.response.prior.ravel()),
            "weight": pl.Series(weights.ravel()),
        },
    )
