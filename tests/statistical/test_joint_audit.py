"""Audits of two outcomes that are drawn together: sound code passes, planted faults are found.

An audit accuses sound code with a probability of at most 1e-4. The planted faults are exact, or
many standard errors beyond their limit.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from flows.audit import _audit_several
from flows.config.resolve import ResolvedRelease
from flows.plan import resolved_release_of
from flows.raw.audit.private_step import StepEffort, checks_of_step
from flows.raw.audit.several_outcomes import TOGETHER, Whole, apart
from flows.raw.drawing import unit_stream
from flows.raw.drawing.strata_counts import Cells
from privatizers.audit.several_outcomes import JOINT, joint_loss
from privatizers.mechanisms import paired_optimal_dp
from privatizers.optimal_response import pair_table as tables
from privatizers.optimal_response.pairs import PairedGrid
from schemas.arrays import Integers, Levels
from tests.conftest import Builder, Section

pytestmark = pytest.mark.statistical

OUTCOMES: list[Section] = [
    {"name": "visit", "column": "clicks", "values": [0, 3]},
    {"name": "clicks", "column": "clicks", "values": [0, 1, 3]},
]
STEP = StepEffort(units=60_000, clusters=100, again=40)


@pytest.fixture(autouse=True)
def _no_tables_from_elsewhere() -> Iterator[None]:
    """Tables that were solved are kept; those of a planted fault are not to outlive it."""
    tables.pair_table.cache_clear()
    yield
    tables.pair_table.cache_clear()


def prepared(experiment: Builder, statistic: str = "counts") -> ResolvedRelease:
    built = experiment(
        outcome=None,
        outcomes=OUTCOMES,
        columns={"outcome": None},
        privacy={
            "mechanism": "cluster-optimal-dp",
            "epsilon": 2.0,
            "joint": "yes",
            "strata_statistic": statistic,
        },
    )
    return resolved_release_of(built.config, None)


@pytest.mark.soak  # the whole audit, as `clusterdp audit` makes it
@pytest.mark.parametrize("statistic", ["counts", "none"])
def test_a_sound_release_holds_and_its_claim_is_reached(
    experiment: Builder, statistic: str
) -> None:
    found = _audit_several(prepared(experiment, statistic))
    assert found.holds, [check for check in found.checks if not check.holds]
    assert found.together.epsilon == pytest.approx(2.0, abs=1e-9)
    assert found.together.claimed_epsilon == 2.0


def test_the_private_step_is_drawn_as_published(experiment: Builder) -> None:
    release = prepared(experiment)
    found = list(checks_of_step(release.config, release.designs, effort=STEP))
    assert all(check.holds for check in found), [one for one in found if not one.holds]
    assert TOGETHER in {check.name for check in found}


def test_a_table_that_keeps_one_per_cent_more_is_found(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = tables.pair_table

    def broken(first: PairedGrid, second: PairedGrid) -> tables.PairTable:
        more = [PairedGrid(one.values, one.guess, 1.01 * one.epsilon) for one in (first, second)]
        made = honest(*more)
        return tables.PairTable(first, second, made.units, made.values)

    monkeypatch.setattr(paired_optimal_dp, "pair_table", broken)
    release = prepared(experiment, "none")
    mechanisms = [design.mechanism for design in release.designs]
    found = joint_loss(mechanisms, 2.0)
    assert (found.check.name, found.check.holds) == (JOINT, False)
    assert found.epsilon == pytest.approx(2.02, abs=1e-6)
    checks = checks_of_step(release.config, release.designs, effort=STEP)
    assert any(not one.holds and "follow from" in one.name for one in checks)


def test_outcomes_that_are_drawn_twice_are_found(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit in fifty is drawn once more for the second outcome: that would cost ε twice."""
    release = prepared(experiment)
    whole = Whole(release.config, release.designs)
    assert apart(whole, 30_000, 100, 1e-4).holds
    honest = unit_stream._OutcomeDrawing.placed
    n_values = len(release.config.views[1].outcome.grid)

    def broken(self: unit_stream._OutcomeDrawing, drawn: Levels, cells: Cells) -> Integers:
        if self.name == "clicks":
            again = self.tables.draw(np.full(len(drawn), n_values), cells)
            drawn = np.where(np.arange(len(drawn)) % 50, drawn, again).astype(drawn.dtype)
        return honest(self, drawn, cells)

    monkeypatch.setattr(unit_stream._OutcomeDrawing, "placed", broken)
    assert not apart(whole, 30_000, 100, 1e-4).holds
