"""Whether priors, tables, weights and unit values follow from the noisy counts that are published.

They are made again from these, by the functions of the mechanism. What a table keeps of ε is for
:mod:`flows.released.loss`.
"""

import numpy as np
import polars as pl

from estimators.response.debias import debias_vector
from flows.config.model.experiment import AnyDesign, Config
from flows.lab.raw.published import DRAWN, FileTables
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from privatizers.mechanisms.prior import realised_prior, truncated_prior, uniform_prior
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.design import Design
from privatizers.planning.optimal_design import OptimalDesign
from schemas.arrays import Floats, Ints


def problems_of(config: Config, design: AnyDesign, release: FileTables) -> list[str]:
    """What is published of one outcome and does not follow from noisy counts and parameters."""
    if isinstance(design, AggregateDesign):
        return []
    if isinstance(design, OptimalDesign):
        return _of_tables(config, design.mechanism, release)
    return _of_prior(design, release)


def _of_prior(design: Design, release: FileTables) -> list[str]:
    grid, parameters = release.grid, design.mechanism.parameters
    prior, weight = (release.by_level("debias", name, grid) for name in ("probability", "weight"))
    if prior is None or weight is None:
        return ["there are no priors or weights"]
    rate, gamma = parameters.resampling_probability, parameters.truncation_threshold
    noisy = release.by_level("counts", "noisy_count", grid)
    if design.mechanism.name == "uniform-prior-dp" or noisy is None:
        stated = uniform_prior(*prior.shape)
    else:
        sizes = release.frames["pools"]["n_units"].to_numpy()
        stated = truncated_prior(noisy.astype(np.int64), sizes, gamma)
    problems = []
    if not np.array_equal(prior, realised_prior(stated, gamma)):
        problems.append("priors are not those of the noisy counts")
    if (release.metric.resampling_probability, release.metric.truncation_threshold) != (
        rate,
        gamma,
    ):
        problems.append("the rate or the threshold that is published is not the one of the design")
    if not np.array_equal(weight, debias_vector(grid, prior, rate)):
        problems.append("weights are not those of the published priors and rate")
    return problems + _of_units(release, weight, grid)


def _of_tables(config: Config, mechanism: ClusterOptimalDP, release: FileTables) -> list[str]:
    """Problems with response tables, which must be those that the mechanism makes of the counts."""
    arms = config.arms.names
    noisy = release.by_level("counts", "noisy_count", release.grid)
    of_arms = release.of_arms("arm_counts", "noisy_count", arms)
    sizes = release.frames["pools"]["n_units"].to_numpy().astype(np.int64)
    arm = release.cells["arm"].cast(pl.Enum(arms)).to_physical().to_numpy().astype(np.int64)
    stated = mechanism.response(
        None if noisy is None else noisy.astype(np.int64),
        sizes,
        arm,
        None if of_arms is None else of_arms.astype(np.int64),
    )
    outputs = np.arange(stated.n_outputs, dtype=np.float64)
    likely, values = (
        release.by_level("debias", name, outputs) for name in ("probability", "weight")
    )
    if likely is None or values is None:
        return ["there are no outputs or values"]
    order, tables = _rows_as_published(mechanism), release.response_tables()
    problems = []
    if not np.array_equal(tables, stated.probabilities[stated.table_of][:, order]):
        problems.append("response tables are not those of the published counts")
    if not np.array_equal(values, stated.weights):
        problems.append("values of outputs are not those of the published counts")
    if not np.array_equal(likely, stated.likely[stated.table_of]):
        problems.append("probabilities of outputs are not those of the published counts")
    return problems + _of_units(release, values, outputs)


def _rows_as_published(mechanism: ClusterOptimalDP) -> Ints:
    """The rows of the mechanism's table in the order of the file: by this outcome first."""
    if not isinstance(mechanism, PairedOptimalDP):
        return np.arange(mechanism.parameters.n_outcomes)
    first, second = (len(one.values) for one in mechanism.pair)
    rows = np.arange(first * second).reshape(first, second)
    return (rows if mechanism.place == 0 else rows.T).ravel()


def _of_units(release: FileTables, values: Floats, outputs: Floats) -> list[str]:
    """Whether a unit's debiased outcome is what its randomised one counts as in its cell."""
    cell = release.cells_of(release.units["cluster"], release.units["arm"])
    output = np.searchsorted(outputs, release.units[DRAWN[0]].to_numpy())
    if np.array_equal(values[cell, output], release.units[DRAWN[1]].to_numpy()):
        return []
    return ["a unit's debiased outcome is not what its randomised one counts as"]
