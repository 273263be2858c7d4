"""The benchmark of plans: very many clusters planned for, and their tables solved."""

import numpy as np

from tests.benchmarks.case import Case, Contender, Place
from tests.benchmarks.measure import Job
from tests.benchmarks.watch import Watch

_KINDS = {"even": "100 units each", "skewed": "sizes as of a Pareto law"}


def plans_case(word: str, place: Place, n_clusters: int) -> Case:
    """The same clusters planned for by the uniform prior and by tables, two arms each."""

    def contender(mechanism: str, sizes: str) -> Contender:
        arguments = {"mechanism": mechanism, "n_clusters": n_clusters, "sizes": sizes}
        name = f"clusterdp: {mechanism}, {_KINDS[sizes]}"
        job = Job("planned_tables", arguments)
        return Contender(name, job, n_clusters, is_ours=mechanism != "uniform-prior-dp")

    return Case(
        word,
        f"{n_clusters:,} clusters of two arms: a grid, a statistic and a split of epsilon planned, "
        "and what counts of that many strata are randomised by",
        (
            contender("uniform-prior-dp", "even"),
            contender("cluster-optimal-dp", "even"),
            contender("auto", "even"),
            contender("uniform-prior-dp", "skewed"),
            contender("cluster-optimal-dp", "skewed"),
            contender("auto", "skewed"),
        ),
        per_row=False,
    )


def planned_tables(
    watch: Watch, work: str, prefect_home: str | None, mechanism: str, n_clusters: int, sizes: str
) -> int:
    """A plan for continuous outcomes, and what a release of made-up counts is drawn from."""
    from privatizers.domain.strata import lay_out  # noqa: PLC0415 - other jobs need none of it
    from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP  # noqa: PLC0415 - likewise
    from privatizers.planning.grids import even_grid, grids_of, optimal_grids_of  # noqa: PLC0415 - likewise
    from privatizers.planning.planner import plan  # noqa: PLC0415 - likewise
    from privatizers.planning.question import Question  # noqa: PLC0415 - likewise

    random = np.random.default_rng(n_clusters)
    units = np.full((n_clusters, 2), 100)
    if sizes == "skewed":
        units = np.minimum(20 + 20 * random.pareto(1.1, (n_clusters, 1)), 1e5).astype(np.int64)
        units = np.repeat(units, 2, axis=1)
    values = even_grid(0.0, 500.0, 501)
    guess = np.full(len(values), 1.0 / len(values))
    asked = Question(
        epsilon=4.0,
        delta=0.0,
        values=np.array(values),
        guess=guess,
        grids=grids_of(values, continuous=True),
        statistics=("counts", "means", "none"),
        sizes=units,
        segment_shares=(0.1, 0.5),
        mechanism="auto",
        table_grids=optimal_grids_of(values, continuous=True),
    )
    if mechanism != "auto":
        asked = asked.alone(
            "uniform-prior-dp" if mechanism == "uniform-prior-dp" else "cluster-optimal-dp"
        )
    with watch:
        chosen = plan(asked)
        drawn = chosen.design.mechanism
        names = [str(nth) for nth in range(n_clusters)]
        strata = lay_out(names, ["none", "mail"], units, drawn.pool_of(units, asked.min_stratum))
        shares = np.exp(-0.5 * np.arange(len(chosen.option.grid)))
        counts = random.multinomial(strata.cell_sizes, shares / shares.sum())
        if isinstance(drawn, ClusterOptimalDP):
            drawn.strata(counts, np.nonzero(strata.cell_of >= 0)[1])
        else:
            drawn.strata(counts)
    watch.details["levels"] = len(chosen.option.grid)
    return n_clusters
