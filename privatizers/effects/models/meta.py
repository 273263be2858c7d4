"""Algorithm 1 of Niu et al. (2022) with sound stages: the DR-, R- and S-learner.

    rows → parts, at random → a stage on each part, told what earlier stages released

Guarantee: (ε, δ)-DP for one row replaced (or its outcome), the design's ε and δ. Each stage is
ρ-zCDP in the rows of its part, ρ being the greatest for (ε, δ); a row is in one part
(:mod:`privatizers.effects.models.partition`), so all stages together cost what one costs
(:func:`privatizers.effects.models.stages.price`). Everything else is post-processing:
:func:`estimators.effects.models.meta_fit.fit` recomputes the effect from the sums.

The moment effect model, which asks all rows everything, has less error: k queries on all rows cost
noise of √k, k parts cost noise of k and k times the sampling variance. These are for comparison.
"""

import math
from collections.abc import Iterable

from estimators.concentrated import concentrated_rho
from estimators.effects.models.meta_known import KnownSums
from estimators.effects.models.meta_plan import MetaLearner, stages
from privatizers.accounting.events import ConcentratedNoise, Disjoint
from privatizers.effects.models.lattice_sums import PARTS_OF_RHO, check_rows
from privatizers.effects.models.partition import Batches
from privatizers.effects.models.stages import MomentStage, run
from schemas.effects.model import EffectDesign, NoisySums


def moment_stages(learner: MetaLearner, design: EffectDesign) -> tuple[MomentStage, ...]:
    """Return the stages of a learner, each of the price of the whole."""
    rho = concentrated_rho(design.epsilon, design.delta) * PARTS_OF_RHO
    return tuple(MomentStage(plan, rho) for plan in stages(learner, design))


def draw_sums(
    learner: MetaLearner, design: EffectDesign, n_rows: int, batches: Batches
) -> tuple[NoisySums, ...]:
    """Draw all sums of ``learner`` over ``n_rows`` units, in the order of its stages.

    ``batches`` is called once a pass, at most two a stage, and gives the same rows each time, in
    batches of :data:`~privatizers.effects.models.lattice_sums.BATCH` rows at most. Rows that are
    not complete count as zeros.
    """
    check_rows(n_rows)
    made = moment_stages(learner, design)
    known = KnownSums(learner, design, n_rows)
    return tuple(run(made, n_rows, batches, known).sums.values())


def stand_in(learner: MetaLearner, design: EffectDesign, n_rows: int) -> tuple[NoisySums, ...]:
    """Return sums of the shape of :func:`draw_sums`, of no row and without a draw.

    What can fail for a design fails here, before anything is drawn.
    """
    check_rows(n_rows)
    known = KnownSums(learner, design, n_rows)
    for stage in moment_stages(learner, design):
        known = stage.stand_in(known)
    return tuple(known.sums.values())


def event(sums: Iterable[NoisySums]) -> Disjoint:
    """Return what was done to a unit's row (or its outcome), for the accountant, stage by stage.

    A stage whose sums are all exact did nothing to what is protected, and is not there.
    """
    by_stage: dict[str, list[float]] = {}
    for each in sums:
        by_stage.setdefault(each.name.partition(".")[0], []).append(each.rho)
    rhos = [math.fsum(parts) for parts in by_stage.values()]
    return Disjoint(tuple(ConcentratedNoise(rho) for rho in rhos if rho))
