"""Step 3, private: takes raw rows, returns tables that may be published."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from estimators.response.debias import debias_vector, noise_of_outcomes
from estimators.response.pool_statistics import (
    declared_weights,
    statistic_noise,
    statistic_weight,
)
from estimators.strata.shares import own_sizes
from flows.config.model.experiment import AnyDesign, Config
from flows.config.model.sections import NamedOutcome
from flows.ledger.place import ledger_place
from flows.ledger.units.account_key import read_assignment_key
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.drawing import tables
from flows.raw.drawing.margin_cells import Margins, Numbers, margins_of
from flows.raw.drawing.strata_counts import StrataCounts, count_strata
from flows.raw.drawing.unit_stream import OutcomeResponse, empty_units, unit_table
from flows.raw.spill.workspace import Workspace
from flows.raw.units.private_clusters import with_randomised_clusters
from flows.raw.units.rows import Rows
from privatizers.domain.strata import Strata, clusters_together
from privatizers.mechanisms.aggregate_mechanism import AggregateRelease
from privatizers.mechanisms.cluster_optimal_dp import OptimalRelease
from privatizers.mechanisms.mechanism import StrataRelease
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP, check_pairing
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.design import Design
from privatizers.planning.optimal_design import OptimalDesign
from schemas.arrays import Floats
from schemas.names import ReleaseName
from schemas.raw import OUTCOME, attribute_columns, several
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
    numbers: Sealed[Numbers] | None = None,
) -> ReleaseTables:
    """Make the tables of the release ``name``, every outcome randomised.

    The steps, in this order: randomise clusters, where they are private, so that no later step sees
    raw ones; round outcomes onto the grid, once; count them by (pool, arm); let the mechanism draw
    the statistics of the strata. Each unit's outcome is drawn when the table ``units`` is read, in
    the order of released ids; of a design without units nothing depends on the order of rows. The
    counts in ``roster``, of rows in quarantine, are published as they are. ``numbers`` are those of
    the values of margins, where they are known already.

    Of several outcomes each has a ``design`` of the same mechanism, in the order of
    ``config.outcomes``, and draws of its own: the guarantee adds up (``several_outcomes.md`` beside
    the mechanisms). Two may share a table instead, and one draw a unit (``paired_optimal_dp.md``).
    """
    raw, designs = rows.open(), tuple(design) if isinstance(design, Sequence) else (design,)
    for one in designs:  # before the first draw
        if isinstance(one, AggregateDesign):
            one.mechanism.check_sizes(
                raw.sizes, config.privacy.min_stratum, exact=config.private_clusters is None
            )
    private_rows = with_randomised_clusters(config.private_clusters, raw, workspace)
    # These read keys, so they come before the draws that follow.
    manifest = tables.manifest_of(config, private_rows, designs, name, roster)
    assigned = None
    if config.columns.assigned_by is not None and not isinstance(designs[0], AggregateDesign):
        assigned = read_assignment_key(ledger_place(config), config.population, begun=True)
    for one in designs:
        if one.mechanism.parameters.squares is not None:  # an arm's sum has to fit into 64 bits
            largest = int(private_rows.sizes.sum(axis=0).max())
            one.mechanism.parameters.squares.check_room(largest)
    check_pairing([one.mechanism for one in designs])
    columns, few = several(OUTCOME, len(designs)), config.privacy.min_stratum
    attributes = config.columns.named_attributes
    named = dict(zip(attributes, attribute_columns(len(attributes)), strict=True))
    known = None if numbers is None else numbers.open()
    margins = margins_of(private_rows, config.margins, named, few, workspace, known)
    made = [
        _outcome_tables(outcome, private_rows, one, workspace, few, column, margins)
        for outcome, one, column in zip(config.outcomes, designs, columns, strict=True)
    ]
    responses = [one.response for one in made if one.response is not None]
    return ReleaseTables(
        manifest=manifest,
        strata=tables.strata_table(made[0].strata, _own_sizes(config, private_rows, designs)),
        units=unit_table(
            private_rows,
            responses,
            workspace,
            manifest.attributes,
            config.id_key_path,
            assigned,
            margins,
        )
        if responses
        else empty_units(tuple(metric.metric for metric in manifest.outcomes)),
        **tables.joined([one.frames for one in made]),
    )


@dataclass(frozen=True)
class _OutcomeTables:
    """What is published of one outcome."""

    frames: dict[str, pl.DataFrame]
    """By the tables of a release, without those that have no row."""
    strata: Strata
    response: OutcomeResponse | None
    """How each unit's is drawn; None where no units are published."""


def _outcome_tables(
    outcome: NamedOutcome,
    rows: Rows,
    design: AnyDesign,
    workspace: Workspace | None,
    min_stratum: int,
    column: str,
    margins: Margins,
) -> _OutcomeTables:
    """Draw the statistics of the outcome in one column, with noise that no other has."""
    mechanism, keep = design.mechanism, not isinstance(design, AggregateDesign)
    counted = count_strata(
        outcome,
        rows,
        mechanism,
        workspace,
        min_stratum,
        keep=keep,
        column=column,
        margins=margins,
    )
    strata, response = counted.strata, None
    statistics: StrataRelease | OptimalRelease | AggregateRelease
    frames: dict[str, pl.DataFrame] = {}
    if isinstance(design, AggregateDesign):
        statistics = design.mechanism.statistics(counted.counts, strata.cell_of)
        of_pools = _of_aggregates(outcome, design, statistics, strata)
    else:
        statistics, frames, response = _drawn(outcome, design, counted)
        of_pools = _weights(outcome, design, strata) | {"table": _table_of(strata, statistics)}
    step = tables.grid_step(outcome, design)
    if "counts" not in frames and statistics.noisy_counts is not None:
        cells = tables.cells_table(strata, np.array(outcome.grid))
        frames |= tables.counts_table(outcome.name, cells, statistics.noisy_counts)
    frames |= {
        "outcomes": tables.by_metric(outcome.name, {"outcome": pl.Series(np.array(outcome.grid))}),
        "pools": tables.pools_table(outcome, strata, step, statistics.noisy_sums, **of_pools),
        **tables.squares_table(outcome, design, counted.counts, strata),
        **tables.margins_table(outcome, design, strata.arms, margins.cells, counted.sums),
        **tables.guess_table(outcome),
    }
    return _OutcomeTables(frames, strata, response)


def _drawn(
    outcome: NamedOutcome, design: Design | OptimalDesign, counted: StrataCounts
) -> tuple[StrataRelease | OptimalRelease, dict[str, pl.DataFrame], OutcomeResponse]:
    """What is drawn of strata, the tables by which, and how units are drawn."""
    strata, grid = counted.strata, np.array(outcome.grid)
    statistics: StrataRelease | OptimalRelease
    order = None
    if isinstance(design, OptimalDesign):
        _, arm = np.nonzero(strata.cell_of >= 0)
        guesses = tables.published_guesses(outcome, design, strata)
        statistics = design.mechanism.strata(counted.counts, arm, guesses)
        optimal = statistics.response
        outputs = np.arange(optimal.n_outputs, dtype=np.float64)
        probability, weights = optimal.likely[optimal.table_of], optimal.weights
        noise = optimal.functions.noise[optimal.table_of]
        order = tables.by_output(arm, len(outputs))
        frames = tables.arm_counts_table(outcome, design, strata, statistics.noisy_arms)
        frames |= tables.randomiser_table(outcome.name, design, optimal)
    else:
        statistics = design.mechanism.strata(counted.counts)
        outputs, probability, frames = grid, statistics.response.prior, {}
        rate = statistics.response.resampling_probability
        weights = debias_vector(grid, probability, rate)
        noise = noise_of_outcomes(grid, probability, rate)
    cells = tables.cells_table(strata, outputs)
    numbers = {
        "probability": pl.Series(probability.ravel()),
        "weight": pl.Series(weights.ravel()),
        "noise_variance": pl.Series(noise.ravel()),
        "table": _table_of(strata, statistics, len(outputs)),
    }
    debias = tables.by_metric(outcome.name, cells | numbers)
    frames["debias"] = debias if order is None else debias[order]
    if order is None:  # rows of counts are about the same
        frames |= tables.counts_table(outcome.name, cells, statistics.noisy_counts)
    shared = isinstance(design.mechanism, PairedOptimalDP)
    response = OutcomeResponse(outcome, counted, statistics.response, outputs, shared)
    return statistics, frames, response


def _table_of(
    strata: Strata, statistics: StrataRelease | OptimalRelease, times: int = 1
) -> pl.Series:
    """The table that each cell's units are drawn by, so many times; null where by none."""
    if isinstance(statistics, StrataRelease):
        return tables.nothing(len(strata.cell_sizes) * times, pl.Int64)
    return pl.Series(np.repeat(statistics.response.table_of.astype(np.int64), times))


def _weights(
    outcome: NamedOutcome, design: Design | OptimalDesign, strata: Strata
) -> dict[str, pl.Series]:
    """The weights of the statistics in the estimator ``combined``, from public facts alone.

    None where no statistics are published.
    """
    parameters = design.mechanism.parameters
    noise = statistic_noise(
        parameters.noise_scale, parameters.strata_statistic, tables.grid_step(outcome, design)
    )
    if noise is None:
        return {}
    grid, guess = np.array(outcome.grid), np.array(outcome.weights)
    n, squares = strata.cell_sizes.astype(np.float64), parameters.squares
    response = tables.response_noise(design, grid, guess)
    within = tables.noise_within(outcome, design, strata) or response
    weights = declared_weights(grid, within, noise, n)
    of_square = weights.of_square
    if squares is not None:
        _, arm = np.nonzero(strata.cell_of >= 0)
        of_arms = np.bincount(arm, n).astype(np.float64)
        variance = squares.variance(outcome.grid)
        of_square = statistic_weight(of_arms[arm], response.of_square, variance)
    return {"mean_weight": pl.Series(weights.of_mean), "square_weight": pl.Series(of_square)}


def _own_sizes(config: Config, rows: Rows, designs: Sequence[AnyDesign]) -> Floats:
    """How far ``combined`` counts each cluster by an arm's own units, from public facts alone.

    0 unless arm shares are the same in all clusters, and each unit was assigned by itself.
    """
    noise, sizes = [], rows.sizes
    for outcome, one in zip(config.outcomes, designs, strict=True):
        if not isinstance(one, AggregateDesign):
            grid, guess = np.array(outcome.grid), np.array(outcome.weights)
            spread = float(guess @ (grid - guess @ grid) ** 2)
            of_mean = tables.response_noise(one, grid, guess).of_mean
            noise.append(of_mean / spread if spread > 0 else np.inf)
    alike = config.arms.same_shares and config.columns.assigned_by is None
    if not (alike and noise):
        return np.zeros(len(sizes))
    few, pool_of = config.privacy.min_stratum, designs[0].mechanism.pool_of
    return own_sizes(sizes, 0, clusters_together(sizes, few, pool_of), np.array(noise))


def _of_aggregates(
    outcome: NamedOutcome, design: AggregateDesign, statistics: AggregateRelease, strata: Strata
) -> dict[str, pl.Series]:
    """Statistics of each (pool, arm), but means; those of means and of squares have weight 1."""
    size, step = len(strata.cell_sizes), tables.grid_step(outcome, design)
    differences, columns = statistics.noisy_differences, dict[str, pl.Series]()
    if differences is not None and step is not None:
        of_pools = np.full(size, np.nan)
        places = strata.cell_of[differences.pool, 1]
        of_pools[places] = step * (differences.noisy / differences.divisor)
        columns["noisy_difference"] = pl.Series(of_pools).fill_nan(None)
    has_counts = statistics.noisy_counts is not None
    published = {
        "mean_weight": has_counts or statistics.noisy_sums is not None,
        "square_weight": has_counts or design.mechanism.parameters.squares is not None,
    }
    one = pl.repeat(1.0, size, dtype=pl.Float64, eager=True)
    return columns | {name: one for name, is_published in published.items() if is_published}
