"""The tables of a release that every mechanism makes in the same way.

All but the sums of squares, which are drawn here, are made of public facts or of drawn numbers.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import polars as pl

from estimators.response.pool_statistics import ResponseNoise, StrataNoise
from flows.config.model.experiment import AnyDesign, Config
from flows.config.model.sections import NamedOutcome
from flows.config.unit_id_key import read_key
from flows.raw.drawing.margin_cells import MarginCells
from flows.raw.units.rows import Rows
from privatizers.accounting.accountant import delta_at, epsilon_at
from privatizers.accounting.budget import Budget
from privatizers.domain.strata import Strata, own_clusters
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from privatizers.mechanisms.parameters import event_of
from privatizers.mechanisms.statistics.noisy_squares import counts_of_arms
from privatizers.optimal_response.response import OptimalResponse
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.design import Design
from privatizers.planning.forecast import planned_noise
from privatizers.planning.optimal_design import OptimalDesign
from schemas.arrays import Floats, Integers, Ints
from schemas.documents import taken
from schemas.names import ReleaseName
from schemas.released import (
    ALL,
    NEIGHBOURS,
    NEIGHBOURS_WITH_CLUSTERS,
    SCHEMA_VERSION,
    Manifest,
    Metric,
    Ratio,
    no_rows,
)
from schemas.roster import Roster
from schemas.tables import MARGIN_OF

_package_version = functools.cache(functools.partial(version, "clusterdp"))
"""The version that is installed, looked up once a process."""

OF_OUTCOMES = (
    *("outcomes", "pools", "debias", "counts", "arm_counts", "squares", "margins", "randomiser"),
    "guess",
)
"""The tables of a release whose rows are of one outcome each."""

_TOGETHER = 1 << 10
"""Cells of one arm whose rows of ``debias`` stand together."""


def manifest_of(
    config: Config,
    rows: Rows,
    designs: Sequence[AnyDesign],
    name: ReleaseName,
    roster: Roster | None,
) -> Manifest:
    """The row of ``release`` and the rows of ``metrics``; ``rows`` have the published clusters.

    ``designs`` are those of the outcomes, in their order.
    """
    # What it states, private clusters included: as asked for, or as computed.
    price: Budget | AnyDesign = config.cost if config.named_outcomes else designs[0]
    private, budget = config.private_clusters, config.budget.epsilon
    key = read_key(config.id_key_path)
    account_key = None if roster is None else roster.account_key_fingerprint
    by_unit = account_key is not None
    most = max(config.privacy.rows_each or 1, 1 if roster is None else roster.most_paid)
    return taken(
        Manifest,
        name,
        price,
        created_at=datetime.now(UTC).replace(tzinfo=None, microsecond=0),
        mechanism=designs[0].mechanism.name,
        neighbours=NEIGHBOURS if private is None else NEIGHBOURS_WITH_CLUSTERS,
        cluster_epsilon=None if private is None else private.epsilon,
        control=config.arms.control,
        same_shares=config.arms.same_shares,
        n_units=rows.n_units,
        n_clusters=len(rows.clusters),
        n_set_aside=None if roster is None else roster.quarantined,
        sample_ratio_p=None if roster is None else roster.sample_ratio_p,
        n_returning=None if roster is None else roster.n_returning,
        n_arm_changed=None if roster is None else roster.n_arm_changed,
        account="unit" if by_unit else "population",
        returning=config.privacy.returning if by_unit else None,
        rows_each=None if most == 1 and config.privacy.rows_each is None else most,
        budget_epsilon=None if math.isinf(budget) else budget,
        unit_id_key_fingerprint=None if key is None else key.fingerprint,
        account_key_fingerprint=account_key,
        schema_version=SCHEMA_VERSION,
        package_version=_package_version(),
        metrics=(
            *_metrics_of(config, designs),
            *(taken(Ratio, one, metric=one.name, **one.goal) for one in config.ratios),
        ),
        attributes=tuple(config.columns.named_attributes),
        margins=tuple(map(MARGIN_OF.join, config.margins)),
        decision=config.decision_rule,
        assigned=config.columns.assigned_by is not None,
        guess_from=config.guess_from,
    )


def _metrics_of(config: Config, designs: Sequence[AnyDesign]) -> Iterator[Metric]:
    """The rows of all outcomes; two that are drawn together name each other.

    An outcome's price does not include that of private clusters.
    """
    names = [one.name for one in config.outcomes]
    for view, design in zip(config.views, designs, strict=True):
        mechanism, (outcome,) = design.mechanism, view.outcomes
        priced = design if config.private_clusters is None else view.outcome_design()
        loss = event_of(priced.mechanism.parameters)
        yield taken(
            Metric,
            mechanism.parameters,
            outcome,
            metric=outcome.name,
            epsilon=priced.epsilon,
            delta=priced.delta,
            grid_step=grid_step(outcome, design),
            texts=outcome.texts_in_words,
            drawn_with=names[1 - mechanism.place]
            if isinstance(mechanism, PairedOptimalDP)
            else None,
            # What is rounded up may lie a digit above; that epsilon suffices is what δ says.
            computed_epsilon=min(priced.epsilon, epsilon_at(loss, priced.delta)),
            computed_delta=delta_at(loss, priced.epsilon),
            missing=outcome.missing_value,
            unit_noise=None
            if isinstance(design, AggregateDesign) or mechanism.parameters.margins is None
            else response_noise(design, np.array(outcome.grid), np.array(outcome.weights)).of_mean,
            **outcome.goal,
        )


def by_metric(metric: str, columns: dict[str, pl.Series]) -> pl.DataFrame:
    """A table of one outcome: a column ``metric`` with its name, then these columns."""
    name = pl.Series("metric", [metric], dtype=pl.Enum([metric]))
    frame = pl.DataFrame(columns)
    return frame.insert_column(0, name.new_from_index(0, frame.height))


def joined(outcomes: Sequence[dict[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """The tables of all outcomes as one each, in their order; labels of a type stay as they are.

    An Enum of pools or arms has the same names for all, as they share their strata; that of metrics
    gets the names of all.
    """
    metrics = pl.Enum([frames["outcomes"]["metric"][0] for frames in outcomes])
    return {
        table: pl.concat(
            frames[table].with_columns(pl.col("metric").cast(metrics))
            for frames in outcomes
            if table in frames
        )
        if any(table in frames for frames in outcomes)
        else no_rows(table)
        for table in OF_OUTCOMES
    }


def cells_table(strata: Strata, grid: Floats) -> dict[str, pl.Series]:
    """Pool, arm and outcome: a row for every (pool, arm) with units and every value of the grid.

    Names are positions in a list of them, which are repeated and written in less time than text.
    """
    shape = (len(strata.cell_sizes), len(grid))
    positions = zip(np.nonzero(strata.cell_of >= 0), (strata.pools, strata.arms), strict=True)
    pool, arm = (
        pl.Series(np.repeat(at.astype(np.min_scalar_type(len(names))), len(grid))).cat.to(
            pl.Enum(names)
        )
        for at, names in positions
    )
    return {
        "pool": pool,
        "arm": arm,
        "outcome": pl.Series(np.broadcast_to(grid, shape).ravel()),
    }


def randomiser_table(
    metric: str, design: AnyDesign, response: OptimalResponse
) -> dict[str, pl.DataFrame]:
    """A row for each output of each value of the grid, table after table.

    Of two outcomes that are drawn together, for each pair of values. In this order, which the run
    relies on when it reads them.
    """
    probabilities = response.probabilities
    inputs, mechanism = response.tables_used[0].inputs, design.mechanism
    n_tables, n_inputs, n_outputs = probabilities.shape
    others = nothing(probabilities.size)
    if isinstance(mechanism, PairedOptimalDP):
        of_other = mechanism.table.sides[1 - mechanism.place].inputs
        order = np.lexsort((of_other, inputs))  # pairs stand in the order of the first outcome's
        probabilities, inputs = probabilities[:, order], inputs[order]
        others = pl.Series(np.tile(np.repeat(of_other[order], n_outputs), n_tables))
    drawn = {
        "table": pl.Series(np.repeat(np.arange(n_tables), n_inputs * n_outputs)),
        "outcome": pl.Series(np.tile(np.repeat(inputs, n_outputs), n_tables)),
        "output": pl.Series(np.tile(np.arange(n_outputs, dtype=np.float64), n_tables * n_inputs)),
        "probability": pl.Series(probabilities.ravel()),
        "other_outcome": others,
    }
    return {"randomiser": by_metric(metric, drawn)}


def by_output(arm: Ints, n_outputs: int) -> Ints:
    """The places of rows of ``debias``, cell by cell, in the order in which they are written.

    Cells of one arm, which share a table as a rule, stand together, output by output, so that a
    file has a number of theirs once and not once a cell; in groups, each with all outputs, so that
    it has few pools at a time. ``arm`` is that of each cell, shape [S]; the result has the shape
    [S J]. The order follows from public facts alone.
    """
    cells = np.argsort(arm, kind="stable")
    groups = np.array_split(cells, -(-len(cells) // _TOGETHER))
    outputs = np.arange(n_outputs)[:, np.newaxis]
    return np.concatenate([(group * n_outputs + outputs).ravel() for group in groups])


def counts_table(
    metric: str, cells: dict[str, pl.Series], noisy: Ints | None
) -> dict[str, pl.DataFrame]:
    """A row for each of the ``noisy`` counts, shape [S, K]; no table where it is None.

    ``cells`` are those of the grid, see :func:`cells_table`.
    """
    if noisy is None:
        return {}
    return {"counts": by_metric(metric, {**cells, "noisy_count": pl.Series(noisy.ravel())})}


def arm_counts_table(
    outcome: NamedOutcome, design: AnyDesign, strata: Strata, noisy: Ints | None
) -> dict[str, pl.DataFrame]:
    """A row for each of the ``noisy`` counts of whole arms, shape [A, K]; no table without them.

    Arms without units have none.
    """
    counts = design.mechanism.parameters.arm_counts
    if noisy is None or counts is None:
        return {}
    has_units = np.flatnonzero((strata.cell_of >= 0).any(axis=0))
    grid = np.array(outcome.grid)
    columns = {
        "arm": named(strata.arms, np.repeat(has_units, len(grid))),
        "outcome": pl.Series(np.tile(grid, len(has_units))),
        "noisy_count": pl.Series(noisy[has_units].ravel()),
        "noise_scale": pl.Series(np.full(len(has_units) * len(grid), counts.noise_scale)),
    }
    return {"arm_counts": by_metric(outcome.name, columns)}


def pools_table(
    outcome: NamedOutcome,
    strata: Strata,
    step: float | None,
    noisy_sums: Ints | None,
    **others: pl.Series,
) -> pl.DataFrame:
    """A row for each (pool, arm) with units; what is neither published nor given is null.

    A mean is y_1 + h S̃/n, h the ``step`` of the grid.
    """
    pool, arm = np.nonzero(strata.cell_of >= 0)
    numbers = ("noisy_mean", "noisy_difference", "mean_weight", "square_weight")
    columns = {
        "pool": named(strata.pools, pool),
        "arm": named(strata.arms, arm),
        "n_units": pl.Series(strata.cell_sizes),
        **dict.fromkeys(numbers, nothing(len(pool))),
        "table": nothing(len(pool), pl.Int64),
    }
    if noisy_sums is not None and step is not None:
        means = outcome.grid[0] + step * noisy_sums / strata.cell_sizes
        columns["noisy_mean"] = pl.Series(means)
    return by_metric(outcome.name, columns | others)


def squares_table(
    outcome: NamedOutcome, design: AnyDesign, counts: Ints, strata: Strata
) -> dict[str, pl.DataFrame]:
    """Draw the noisy sum of squares of each arm from the ``counts`` of cells, shape [S, K].

    No table where the design publishes none.
    """
    squares = design.mechanism.parameters.squares
    if squares is None:
        return {}
    of_arms = counts_of_arms(counts, strata)
    drawn = squares.released(squares.noised(of_arms), of_arms.sum(axis=1), outcome.grid)
    size = len(strata.arms)
    columns = {
        "arm": pl.Series(strata.arms, dtype=pl.String),
        "noisy_square": pl.Series(drawn.noisy_square),
        "noise_scale": pl.Series([drawn.noise_scale] * size, dtype=pl.Float64),
        "centre": pl.Series([drawn.centre] * size, dtype=pl.Float64),
    }
    return {"squares": by_metric(outcome.name, columns)}


def margins_table(
    outcome: NamedOutcome,
    design: AnyDesign,
    arms: list[str],
    cells: Sequence[MarginCells],
    sums: Sequence[Ints],
) -> dict[str, pl.DataFrame]:
    """Draw the noisy sum of each cell and arm that has units, margin by margin.

    ``sums`` are those of ``cells``, in grid steps above the lowest outcome. No table where the
    design publishes none.
    """
    margins = design.mechanism.parameters.margins
    if margins is None:
        return {}
    step, made = margins.lattice.step_of(outcome.grid), []
    for at, (of, total) in enumerate(zip(cells, sums, strict=True)):
        cell, arm = np.nonzero(of.sizes)
        n_units = of.sizes[cell, arm]
        drawn = margins.noised(at, total[cell, arm])
        columns = {
            "margin": pl.Series(np.full(len(cell), at)),
            "attribute": pl.Series([of.attribute]).new_from_index(0, len(cell)),
            "cell": pl.Series(cell),
            "value": named(list(of.values), cell),
            "arm": named(arms, arm),
            "n_units": pl.Series(n_units),
            "noisy_sum": pl.Series(outcome.grid[0] * n_units + step * drawn),
            "noise_scale": pl.Series(np.full(len(cell), step * margins.noise_scales[at])),
        }
        made.append(by_metric(outcome.name, columns))
    return {"margins": pl.concat(made)}


def guess_table(outcome: NamedOutcome) -> dict[str, pl.DataFrame]:
    """A row for each value, arm and cluster of a guess that was learnt; none of a declared one."""
    if outcome.learnt is None:
        return {}
    guess = outcome.learnt.mixed
    clusters, of_clusters = zip((ALL, guess.of_arms), *guess.of_clusters, strict=True)
    shares = np.array(of_clusters)
    cluster, arm, value = (at.ravel() for at in np.indices(shares.shape))
    columns = {
        "cluster": named(list(clusters), cluster),
        "arm": named(list(guess.arms), arm),
        "outcome": pl.Series(np.array(guess.values)[value]),
        "probability": pl.Series(shares.ravel()),
    }
    return {"guess": by_metric(outcome.name, columns)}


def nothing(size: int, kind: type[pl.DataType] = pl.Float64) -> pl.Series:
    """So many nulls."""
    return pl.Series([None], dtype=kind).new_from_index(0, size)


def named(names: list[str], positions: Integers) -> pl.Series:
    """The names at these positions, shape [n]."""
    return pl.Series(names, dtype=pl.String).gather(positions)


def grid_step(outcome: NamedOutcome, design: AnyDesign) -> float | None:
    """The width of a grid step, where sums counted in steps are published; else None."""
    lattice = design.mechanism.parameters.lattice
    return None if lattice is None else lattice.step_of(outcome.grid)


def published_guesses(
    outcome: NamedOutcome, design: Design | OptimalDesign, strata: Strata
) -> Floats | None:
    """The guess of each cell that earlier releases have taught, shape [cells, K].

    A pool of one cluster has its guess, one of several that of the arm. None where nobody asks for
    the guesses of cells, or none was learnt.
    """
    learnt, mechanism = outcome.learnt, design.mechanism
    if not isinstance(mechanism, ClusterOptimalDP) or not mechanism.has_published_tables:
        return None
    if learnt is None or learnt.clusters is None:
        return None
    clusters = own_clusters(strata.clusters, strata.pool_of)
    shares, at = learnt.mixed.of_strata(clusters, np.array(outcome.grid))
    pool, arm = np.nonzero(strata.cell_of >= 0)
    found: Floats = shares[at[pool], arm]
    return found


def noise_within(
    outcome: NamedOutcome, design: Design | OptimalDesign, strata: Strata
) -> StrataNoise | None:
    """What the response adds to a unit's variance in each cell, by guesses that were published."""
    guesses = published_guesses(outcome, design, strata)
    if guesses is None or not isinstance(design.mechanism, ClusterOptimalDP):
        return None
    return design.mechanism.noise_within(guesses, guesses, strata.cell_sizes)


def response_noise(design: Design | OptimalDesign, grid: Floats, guess: Floats) -> ResponseNoise:
    """What the response adds to a unit's variance by the declared guess."""
    return planned_noise(design.mechanism, grid, guess)


def strata_table(strata: Strata, own_sizes: Floats) -> pl.DataFrame:
    """A row for each (cluster, arm) that has units, with its pool.

    ``own_sizes`` are those of clusters (:func:`estimators.strata.shares.own_sizes`).
    """
    cluster, arm = np.nonzero(strata.sizes)
    return pl.DataFrame(
        {
            "cluster": named(strata.clusters, cluster),
            "arm": named(strata.arms, arm),
            "pool": named(strata.pools, strata.pool_of[cluster]),
            "n_units": strata.sizes[cluster, arm],
            "own_sizes": own_sizes[cluster],
        }
    )
