"""Audits of Cluster-Optimal-DP: sound code passes, and faults planted in it are found.

An audit accuses sound code with a probability of at most 1e-4; the tests of sound code below make
17 of them. A planted fault is missed with far less: what shows it is exact, or many standard
errors beyond its limit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from estimators.response.pool_statistics import ResponseNoise
from flows.audit import SeveralAudit, _audit_several
from flows.config.model.experiment import AnyDesign, Config
from flows.plan import resolved_release_of
from flows.raw.audit import private_step as audited
from flows.raw.audit.noise_laws import learns
from flows.raw.audit.private_step import StepEffort, audit_step, checks_of_step
from privatizers.accounting.accountant import delta_at
from privatizers.accounting.events import BoundedResponse, Event
from privatizers.audit import mechanism_laws as audit_mechanism
from privatizers.audit.audit import AuditResult, audit
from privatizers.audit.checks import Check
from privatizers.audit.optimal_laws import TABLES, optimal_laws
from privatizers.audit.sampling import Effort
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP, OptimalRelease
from privatizers.mechanisms.noisy_counts import NoisyCounts
from privatizers.noise.randomness import random_words
from privatizers.optimal_response import learnt_guess
from privatizers.optimal_response.programme import Randomiser
from privatizers.optimal_response.response import OptimalResponse, OutputTables
from privatizers.optimal_response.whole_numbers import ResponseTable, table_of
from privatizers.planning.optimal_design import OptimalDesign, OptimalRequest, optimal_design
from schemas.arrays import Floats, Integers, Ints, Levels
from tests.conftest import Builder, Section

pytestmark = pytest.mark.statistical

Plant = Callable[[pytest.MonkeyPatch], None]

EFFORT = Effort(noised_cells=2_000_000, units=1_000_000, calls=60)
MANY_UNITS = Effort(noised_cells=2_000_000, units=8_000_000, calls=60)
"""With them 1 % of draws is 15 standard errors; the usual effort has as many."""
LITTLE = Effort(noised_cells=30_000, units=30_000, calls=20)
STEP = StepEffort(units=60_000, clusters=100, again=40)
LARGE_STEP = StepEffort(units=1_500_000, clusters=100, again=10)
EXACT = "the exact loss of small releases is within the claim"
BOUND = "no bound from samples exceeds the claim"
PRIVACY: Section = {
    "mechanism": "cluster-optimal-dp",
    "epsilon": 2.0,
    "strata_statistic": "counts",
}
OPTIMAL: dict[str, Section] = {"privacy": PRIVACY}
ARMS: Section = {"strata_statistic": "none", "learn_from": "arms"}


@pytest.fixture(autouse=True)
def _no_tables_from_elsewhere() -> Iterator[None]:
    """Tables that were solved are kept; those of a planted fault are not to outlive it."""
    learnt_guess._solved.cache_clear()
    yield
    learnt_guess._solved.cache_clear()


def designed(k: int, epsilon: float, **asked: Any) -> OptimalDesign:
    grid = tuple(float(value) for value in range(k))
    return optimal_design(OptimalRequest(grid, (1 / k,) * k, epsilon, **asked))


def counted(k: int, epsilon: float, **asked: Any) -> OptimalDesign:
    """Counts of strata are published."""
    return designed(k, epsilon, strata_statistic="counts", **asked)


def failed(checks: list[Check] | tuple[Check, ...]) -> set[str]:
    return {check.name for check in checks if not check.holds}


def audited_mechanism(design: OptimalDesign, effort: Effort = EFFORT) -> AuditResult:
    return audit(design.mechanism, design.epsilon, design.delta, effort=effort)


SOUND: dict[str, OptimalDesign] = {
    "counts": counted(4, 2.0),
    "complement": counted(2, 1.0),
    "nothing": designed(3, 3.0, strata_statistic="none", learn_from="nothing"),
    "means": designed(
        3, 1.5, strata_statistic="means", lattice=Lattice((0, 1, 2)), statistic_share=0.3
    ),
    "much for counts": counted(3, 4.0, statistic_share=0.5),
    "a delta": counted(3, 1.0, delta=1e-4, statistic_share=0.2),
    "arms": designed(3, 2.0, arms_share=0.2),
    "arms beside counts": counted(3, 2.0, learn_from="arms", statistic_share=0.3, arms_share=0.2),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_mechanism_holds_and_its_claim_is_nearly_reached(name: str) -> None:
    found = audited_mechanism(SOUND[name])
    assert found.holds, [check for check in found.checks if not check.holds]
    if SOUND[name].delta == 0.0:
        assert found.exact_epsilon == pytest.approx(found.claimed_epsilon, abs=1e-9)
        assert found.sampled_lower_bound > 0.7 * found.claimed_epsilon


# what is planted


def one_per_cent_over(patch: pytest.MonkeyPatch) -> None:
    """Tables are solved for an ε that is 1 % over what they should keep."""

    def broken(values: Floats, guess: Floats, epsilon: float, _: Randomiser) -> ResponseTable:
        return table_of(values, guess, 1.01 * epsilon)

    patch.setattr(learnt_guess, "table_of", broken)


def raw_guess(patch: pytest.MonkeyPatch) -> None:
    """Tables are learnt from raw counts; the noisy ones are published."""
    honest = ClusterOptimalDP.strata

    def broken(self: ClusterOptimalDP, counts: Ints, group: Ints | None = None) -> OptimalRelease:
        noisy = honest(self, counts, group)
        arm = np.zeros(len(counts), dtype=np.int64) if group is None else group
        of_arms = np.zeros((int(arm.max()) + 1, counts.shape[1]), dtype=np.int64)
        np.add.at(of_arms, arm, counts)
        learnt = None if noisy.noisy_arms is None else of_arms
        response = self.response(counts, counts.sum(axis=1), group, learnt)
        return replace(noisy, response=response)

    patch.setattr(ClusterOptimalDP, "strata", broken)


def learnt_weights(patch: pytest.MonkeyPatch) -> None:
    """What a mean weighs in a combination is worked out from the learnt tables."""
    honest, seen = ClusterOptimalDP.response, list[OptimalResponse]()

    def watching(self: ClusterOptimalDP, *published: Any) -> OptimalResponse:
        seen.append(honest(self, *published))
        return seen[-1]

    def broken(self: ClusterOptimalDP, guess: Floats) -> ResponseNoise:
        response = seen[-1] if seen else self._public(1)
        functions, occurs = response.functions, guess @ response.probabilities[-1]
        return ResponseNoise(
            float(occurs @ functions.noise[-1]), float(occurs @ functions.square_noise[-1])
        )

    patch.setattr(ClusterOptimalDP, "response", watching)
    patch.setattr(ClusterOptimalDP, "response_noise", broken)


def kept_more_often(patch: pytest.MonkeyPatch) -> None:
    """With 1 % a unit gets the output that its outcome has likelier than any other outcome."""
    honest, tables = OutputTables.draw, OptimalResponse.tables
    telling: list[Ints] = []

    def watching(self: OptimalResponse) -> OutputTables:
        least = self.units.min(axis=1, keepdims=True)
        telling[:] = [np.argmax(np.where(self.units > 1.5 * least, self.units, 0), axis=2)]
        return tables(self)

    def broken(self: OutputTables, levels: Integers, strata: Integers) -> Levels:
        drawn = honest(self, levels, strata)
        again = random_words(len(drawn)) < np.uint64(0.01 * 2**53)
        kept = telling[0][self.table_of[strata.astype(np.int64)], levels.astype(np.int64)]
        return np.where(again, kept, drawn).astype(drawn.dtype)

    patch.setattr(OptimalResponse, "tables", watching)
    patch.setattr(OutputTables, "draw", broken)


def arms_with_less_noise(patch: pytest.MonkeyPatch) -> None:
    """Counts of arms get 30 % less noise than is stated; nothing of strata is published."""
    honest = NoisyCounts.noised

    def broken(self: NoisyCounts, counts: Ints) -> Ints:
        return honest(replace(self, noise_scale=0.7 * self.noise_scale), counts)

    patch.setattr(NoisyCounts, "noised", broken)


@dataclass(frozen=True)
class Fault:
    """A planted fault, and the checks that have to fail by it."""

    plant: Plant
    in_mechanism: frozenset[str]
    in_step: str
    effort: StepEffort = field(default=STEP)
    privacy: Section = field(default_factory=dict)
    """How the private step is asked for besides."""

    def __str__(self) -> str:
        return f"{self.plant.__name__}{'-arms' if self.privacy else ''}"


FAULTS = (
    Fault(one_per_cent_over, frozenset({EXACT, TABLES}), audited.FOLLOWS),
    Fault(raw_guess, frozenset({TABLES}), audited.FOLLOWS),
    Fault(raw_guess, frozenset({TABLES}), audited.FOLLOWS, privacy=ARMS),
    Fault(
        arms_with_less_noise,
        frozenset({audit_mechanism.NOISE}),
        audited.REPEATED,
        StepEffort(units=20_000, clusters=100, again=400),
        privacy=ARMS,
    ),
    Fault(learnt_weights, frozenset({TABLES}), audited.PUBLIC),
    Fault(kept_more_often, frozenset({audit_mechanism.RESPONSE}), audited.LARGE_DRAWS, LARGE_STEP),
)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found_in_the_mechanism(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault.plant(monkeypatch)
    chosen = designed(3, 2.0) if fault.privacy else counted(3, 2.0)
    if EXACT in fault.in_mechanism:
        assert fault.in_mechanism <= failed(audited_mechanism(chosen, LITTLE).checks)
    else:
        assert failed(optimal_laws(chosen.mechanism, MANY_UNITS, 5e-5)) == fault.in_mechanism


@pytest.mark.parametrize("publish", [counted, designed], ids=["of strata", "of arms"])
def test_counts_that_are_forgotten_in_the_claim_are_found(
    publish: Callable[[int, float], OptimalDesign],
) -> None:
    """What is claimed is the ε of the tables alone."""
    chosen = publish(3, 2.0)
    price = chosen.mechanism.parameters.response_epsilon
    found = audit(chosen.mechanism, price, effort=LITTLE)
    assert EXACT in failed(found.checks)
    assert found.exact_epsilon == pytest.approx(2.0, abs=1e-9)


def test_counts_that_are_forgotten_when_epsilon_is_split_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of ε is given to the tables, and what would notice it at once is broken, too."""

    def all_of_it(epsilon: float, _: float, __: Event | None) -> float:
        return epsilon

    def of_tables(_: Event, epsilon: float) -> float:
        return delta_at(BoundedResponse(epsilon), epsilon)

    monkeypatch.setattr("privatizers.planning.optimal_design.calibrate_bounded", all_of_it)
    with pytest.raises(AssertionError, match="calibration exceeded"):
        counted(3, 2.0)
    monkeypatch.setattr("privatizers.planning.optimal_design.delta_at", of_tables)
    chosen = counted(3, 2.0)
    found = audited_mechanism(chosen, LITTLE)
    assert EXACT in failed(found.checks)
    scale = chosen.mechanism.parameters.noise_scale
    assert scale is not None
    assert found.exact_epsilon == pytest.approx(2.0 + 2 / scale, abs=1e-9)


def test_a_guess_of_raw_counts_is_shown_by_a_bound_where_it_tells_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Raw counts decide a table's very numbers, so two data sets have different tables.

    Shrunk, as guesses are, raw counts of small strata decide next to nothing: then it is the tables
    alone that show it.
    """

    def unshrunk(counts: Ints, n_units: Floats, known: Floats, prior: Floats) -> Floats:
        shares = learnt_guess.on_simplex(counts / n_units[:, np.newaxis])
        return learnt_guess.mixed(shares, known, np.full(prior.shape, 1 / prior.shape[1]))

    raw_guess(monkeypatch)
    monkeypatch.setattr(learnt_guess, "shrunk", unshrunk)
    chosen = counted(3, 1.0, statistic_share=0.2)
    found = audited_mechanism(chosen, Effort(noised_cells=200_000, units=200_000, calls=300))
    assert {BOUND, TABLES} <= failed(found.checks)
    assert "noise of the table" in found.evidence


# the whole private step


def prepared(experiment: Builder, **sections: Section) -> tuple[Config, AnyDesign]:
    release = resolved_release_of(experiment(**{**OPTIMAL, **sections}).config, None)
    (chosen,) = release.outcomes
    return chosen.config, chosen.design


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found_in_the_private_step(
    fault: Fault, experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, design = prepared(experiment, privacy={**PRIVACY, **fault.privacy})
    assert isinstance(design, OptimalDesign)
    assert learns(design)
    learnt_guess._solved.cache_clear()
    fault.plant(monkeypatch)
    checks = checks_of_step(config, design, effort=fault.effort)
    assert not next(check for check in checks if check.name == fault.in_step).holds


STEPS: dict[str, dict[str, Section]] = {
    "counts": {},
    "two values": {"outcome": {"values": [0, 1]}},
    "means": {"privacy": {**PRIVACY, "strata_statistic": "means"}},
    "a plan's own": {"privacy": {**PRIVACY, "strata_statistic": "auto"}},
    "nothing of strata": {"privacy": {**PRIVACY, "strata_statistic": "none"}},
    "arms beside counts": {"privacy": {**PRIVACY, "learn_from": "arms"}},
    "nothing learnt": {"privacy": {**PRIVACY, "learn_from": "nothing"}},
    "private clusters": {
        "arms": {"same_shares": True},
        "private_clusters": {"epsilon": 1.0, "labels": ["a", "b", "c", "d", "e"]},
    },
}


@pytest.mark.parametrize("name", STEPS)
def test_a_sound_private_step_passes_every_check(name: str, experiment: Builder) -> None:
    config, design = prepared(experiment, **STEPS[name])
    for check in audit_step(config, design, effort=STEP):
        assert check.holds, f"{check.name}: {check.evidence}"


def test_of_several_outcomes_each_is_audited_and_all_together(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.audit.UNDER_TWO_MINUTES", EFFORT)
    quick = StepEffort(units=30_000, clusters=100, again=40)
    monkeypatch.setattr("flows.audit.audit_step", partial(audit_step, effort=quick))
    outcomes: list[Section] = [
        {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
        {"name": "any", "column": "clicks", "values": [0, 1]},
    ]
    built = experiment(outcome=None, outcomes=outcomes, columns={"outcome": None}, **OPTIMAL)
    found: SeveralAudit = _audit_several(resolved_release_of(built.config, None))
    assert found.holds, [check for check in found.checks if not check.holds]
    document = found.as_json()
    assert document["mechanism"] == "cluster-optimal-dp"
    assert document["exact_epsilon"] == pytest.approx(2.0, abs=1e-9)
