"""Bugs that were planted in the private step or in a mechanism, each caught by a named check.

A check accuses sound code with a probability of at most 1e-4 an audit, and the tests of sound code
below make 11 audits. A planted bug is missed with far less: the events that show it are many
standard errors beyond their limits (`privatizers/audit/audit.md` has the table). What no sampling
sees, a table of draws that is 2⁻⁵³ off, is in `tests/privatizers/noise/test_alias_tables.py`, which
adds up every table exactly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from estimators.response.pool_statistics import ResponseNoise
from flows.config.model.experiment import AnyDesign, Config
from flows.raw.audit import private_step as audited
from flows.raw.audit.private_step import StepEffort, audit_step, checks_of_step
from flows.raw.drawing import unit_stream
from flows.raw.drawing.strata_counts import LEVEL, StrataCounts, count_strata
from flows.raw.privatize import response_noise
from flows.raw.units.rows import Rows
from privatizers.accounting.accountant import pure_epsilon
from privatizers.audit import mechanism_laws as audit_mechanism
from privatizers.audit.audit import AuditResult, audit
from privatizers.audit.checks import Check
from privatizers.audit.mechanism_laws import aggregate_laws, mechanism_laws
from privatizers.audit.optimal_laws import optimal_laws
from privatizers.audit.sampling import Effort
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms import label_response
from privatizers.mechanisms import noisy_counts as counts
from privatizers.mechanisms import noisy_squares as squares
from privatizers.mechanisms.cluster_dp import noisy_prior
from privatizers.mechanisms.label_response import LabelResponse
from privatizers.mechanisms.mechanism import StrataRelease
from privatizers.mechanisms.noisy_counts import NoisyCounts
from privatizers.mechanisms.parameters import Parameters, event_of
from privatizers.mechanisms.prior import realised_prior, truncated_prior
from privatizers.mechanisms.randomised_response import RandomisedResponse, ResponseTables
from privatizers.noise.randomness import discrete_laplace, random_words
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.design import Design, Request, design
from privatizers.planning.optimal_design import OptimalDesign
from schemas.arrays import Floats, Ints
from tests.conftest import Builder, Section

Plant = Callable[[pytest.MonkeyPatch], None]

EFFORT = Effort(noised_cells=4_000_000, units=1_000_000, calls=100)
STEP = StepEffort(units=100_000, clusters=300, again=60)
CONFIDENCE = 0.9999
"""That of audits, where none is named."""

BOUND = "no bound from samples exceeds the claim"


# what is planted


def raw_prior(patch: pytest.MonkeyPatch) -> None:
    """The prior is made of the raw counts."""

    def broken(raw: Ints, parameters: Parameters) -> StrataRelease:
        honest, gamma = noisy_prior(raw, parameters), parameters.truncation_threshold
        prior = realised_prior(truncated_prior(raw, raw.sum(axis=1), gamma), gamma)
        return StrataRelease(
            honest.noisy_counts, RandomisedResponse(parameters.resampling_probability, prior)
        )

    patch.setattr("privatizers.mechanisms.cluster_dp.noisy_prior", broken)


def shared_noise(patch: pytest.MonkeyPatch) -> None:
    """Two arms of a pool get the same noise."""

    def broken(self: NoisyCounts, raw: Ints) -> Ints:
        half = (len(raw) + 1) // 2
        noise = discrete_laplace(half * raw.shape[1], self.noise_scale).reshape(half, -1)
        return raw + np.repeat(noise, 2, axis=0)[: len(raw)]

    patch.setattr(NoisyCounts, "noised", broken)


def short_rate(patch: pytest.MonkeyPatch) -> None:
    """Outcomes are resampled 3 % less often than is published."""
    honest = ResponseTables.draw

    def broken(self: ResponseTables, levels: Ints, strata: Ints) -> NDArray[np.unsignedinteger]:
        return honest(
            replace(self, resampling_probability=0.97 * self.resampling_probability), levels, strata
        )

    patch.setattr(ResponseTables, "draw", broken)


def short_labels(patch: pytest.MonkeyPatch) -> None:
    """Private clusters are resampled 5 % less often than they should be."""
    honest = LabelResponse.draw

    def broken(self: LabelResponse, labels: Ints) -> NDArray[np.unsignedinteger]:
        again = random_words(len(labels)) < np.uint64(0.05 * 2**53)
        return np.where(again, labels, honest(self, labels)).astype(np.uint8)

    patch.setattr(label_response.LabelResponse, "draw", broken)


def carried_remainders(patch: pytest.MonkeyPatch) -> None:
    """What rounding leaves of one outcome is carried to the next."""

    def broken(values: Floats, grid: Floats) -> Ints:
        lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
        share = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
        whole = np.floor(np.cumsum(share) + random_words(1)[0] * 2.0**-53)
        carried: Ints = lower + np.diff(whole, prepend=0.0).astype(np.int64)
        return carried

    patch.setattr("flows.raw.drawing.strata_counts.stochastic_levels", broken)


def ordered_by_outcome(patch: pytest.MonkeyPatch) -> None:
    """Units stand in the order of their outcomes."""
    honest = unit_stream._with_levels

    def broken(rows: Rows, found: Sequence[StrataCounts], facts: tuple[str, ...]) -> Any:
        yield pl.concat(honest(rows, found, facts)).sort(LEVEL, maintain_order=True)

    patch.setattr("flows.raw.drawing.unit_stream._with_levels", broken)


def raw_shared_pool(patch: pytest.MonkeyPatch) -> None:
    """The counts of the shared pool, which comes last, are published as they are."""
    honest = NoisyCounts.noised

    def broken(self: NoisyCounts, raw: Ints) -> Ints:
        noisy = honest(self, raw)
        noisy[-2:] = raw[-2:]
        return noisy

    patch.setattr(NoisyCounts, "noised", broken)


def raw_weights(patch: pytest.MonkeyPatch) -> None:
    """What a mean weighs in a combination is worked out from the outcomes, not from the guess."""
    seen: list[Ints] = []

    def looking(*given: Any, **named: Any) -> StrataCounts:
        found = count_strata(*given, **named)
        seen.append(found.counts.sum(axis=0))
        return found

    def broken(design: Design | OptimalDesign, grid: Floats, _: Floats) -> ResponseNoise:
        return response_noise(design, grid, seen[-1] / seen[-1].sum())

    patch.setattr("flows.raw.privatize.count_strata", looking)
    patch.setattr("flows.raw.privatize.response_noise", broken)


def short_noise(patch: pytest.MonkeyPatch) -> None:
    """The noise of counts is 30 % short."""
    patch.setattr(counts, "discrete_laplace", lambda n, scale: discrete_laplace(n, 0.7 * scale))


def one_raw_cell(patch: pytest.MonkeyPatch) -> None:
    """The count of the lowest outcome is published as it is."""
    honest = NoisyCounts.noised

    def broken(self: NoisyCounts, raw: Ints) -> Ints:
        noisy = honest(self, raw)
        noisy[:, 0] = raw[:, 0]
        return noisy

    patch.setattr(NoisyCounts, "noised", broken)


def no_threshold(patch: pytest.MonkeyPatch) -> None:
    """Priors go as low as the noisy counts do, under γ."""

    def broken(noisy: Ints, sizes: Ints, _: float) -> Floats:
        return truncated_prior(noisy, sizes, 2.0**-40)

    patch.setattr("privatizers.mechanisms.cluster_dp.truncated_prior", broken)
    patch.setattr(
        "privatizers.mechanisms.cluster_dp.realised_prior",
        lambda prior, _: realised_prior(prior, 0.0),
    )


def raw_last_unit(patch: pytest.MonkeyPatch) -> None:
    """The last unit of a batch is published as it is."""
    honest = ResponseTables.draw

    def broken(self: ResponseTables, levels: Ints, strata: Ints) -> NDArray[np.unsignedinteger]:
        drawn = honest(self, levels, strata)
        drawn[-1:] = levels[-1:]
        return drawn

    patch.setattr(ResponseTables, "draw", broken)


def repeated_noise(patch: pytest.MonkeyPatch) -> None:
    """A thirteenth: every call draws the same noise."""
    kept: dict[tuple[int, float], Ints] = {}

    def broken(size: int, scale: float) -> Ints:
        return kept.setdefault((size, scale), discrete_laplace(size, scale)).copy()

    patch.setattr(counts, "discrete_laplace", broken)


# what catches it


@dataclass(frozen=True)
class Bug:
    """A planted bug, and the checks that have to fail by it."""

    plant: Plant
    in_mechanism: tuple[str, ...] = ()
    """Of the audit of the mechanism."""
    in_step: tuple[str, ...] = ()
    """Of the audit of the whole private step."""
    sections: dict[str, Section] = field(default_factory=dict)
    """Of the configuration."""


PRIVATE: dict[str, Section] = {
    "privacy": {"mechanism": "uniform-prior-dp", "epsilon": 2.0},
    "arms": {"same_shares": True},
    "private_clusters": {"epsilon": 1.0, "labels": ["a", "b", "c", "d", "e"]},
}
CONTINUOUS: dict[str, Section] = {
    "outcome": {"values": None, "low": 0.0, "high": 3.0, "levels": 4, "rounding": "stochastic"}
}
WEIGHTED: dict[str, Section] = {"privacy": {"mechanism": "uniform-prior-dp", "epsilon": 2.0}}

BUGS = (
    Bug(raw_prior, (audit_mechanism.PRIOR,), (audited.FOLLOWS,)),
    Bug(shared_noise, (BOUND, audit_mechanism.NOISE), (audited.LARGE_NOISE,)),
    Bug(short_rate, (audit_mechanism.RESPONSE,), (audited.LARGE_DRAWS,)),
    Bug(short_labels, (), (audited.LABELS,), PRIVATE),
    Bug(carried_remainders, (), (audited.ROUNDED,), CONTINUOUS),
    Bug(ordered_by_outcome, (), (audited.PUBLIC,)),
    Bug(raw_shared_pool, (), (audited.REPEATED,)),
    Bug(raw_weights, (), (audited.PUBLIC,), WEIGHTED),
    Bug(short_noise, (audit_mechanism.NOISE,), (audited.LARGE_NOISE,)),
    Bug(one_raw_cell, (BOUND, audit_mechanism.NOISE), (audited.LARGE_NOISE,)),
    Bug(no_threshold, (BOUND, audit_mechanism.PRIOR), (audited.FOLLOWS,)),
    Bug(raw_last_unit, (), (audited.REPEATED,)),
    Bug(repeated_noise, (audit_mechanism.NOISE,), (audited.REPEATED,)),
)


def prepared(experiment: Builder, sections: dict[str, Section]) -> tuple[Config, AnyDesign]:
    config = experiment(**sections).load()
    return config, config.outcome_design()


def of_mechanism(design: AnyDesign) -> AuditResult:
    return audit(design.mechanism, design.epsilon, design.delta, effort=EFFORT)


def laws_of(design: AnyDesign) -> list[Check]:
    """The laws that an audit of the mechanism checks, as it does, without its bounds."""
    error = (1 - CONFIDENCE) / 2
    if isinstance(design, AggregateDesign):
        return aggregate_laws(design.mechanism, EFFORT, error)
    if isinstance(design, OptimalDesign):
        return optimal_laws(design.mechanism, EFFORT, error)
    return mechanism_laws(design.mechanism, EFFORT, error)


def in_step(config: Config, design: AnyDesign, name: str) -> Check:
    """This check of an audit of the private step; those after it are left out."""
    checks = checks_of_step(config, design, confidence=CONFIDENCE, effort=STEP)
    return next(check for check in checks if check.name == name)


def failed(checks: list[Check] | tuple[Check, ...]) -> set[str]:
    return {check.name for check in checks if not check.holds}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(
    bug: Bug, experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, design = prepared(experiment, bug.sections)
    bug.plant(monkeypatch)
    if BOUND in bug.in_mechanism:
        found = of_mechanism(design)
        assert not found.holds
        assert set(bug.in_mechanism) <= failed(found.checks)
    elif bug.in_mechanism:
        assert set(bug.in_mechanism) <= failed(laws_of(design))
    for name in bug.in_step:
        assert not in_step(config, design, name).holds


SOUND: dict[str, dict[str, Section]] = {
    "cluster-dp": {},
    "continuous": CONTINUOUS,
    "private clusters": PRIVATE,
    "nearest": {"outcome": {"values": [0.0, 1.0, 5.0], "rounding": "nearest"}},
    "hashed": {"publish": {"unit_id": "keyed-hash", "key_file": "there-is-no.key"}},
    "delta": {"privacy": {"mechanism": "cluster-free-dp", "epsilon": 1.0, "delta": 1e-3}},
    "means": {"privacy": {"mechanism": "uniform-prior-dp", "strata_statistic": "means"}},
    "none": {"privacy": {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}},
    "two counts": {"outcome": {"values": [0, 1]}, "arms": {"treatments": ["mail", "phone"]}},
    "public facts": {"columns": {"attributes": ["a", "b"], "assigned_by": "home"}},
    "histogram": {"privacy": {"mechanism": "noisy-histogram"}},
    "differences": {"privacy": {"mechanism": "noisy-horvitz-thompson", "min_stratum": 1}},
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_code_passes_every_check(name: str, experiment: Builder) -> None:
    config, design = prepared(experiment, SOUND[name])
    for check in audit_step(config, design, effort=STEP):
        assert check.holds, f"{check.name}: {check.evidence}"


# sums of squares, which a release draws beside its mechanism


def short_square_noise(patch: pytest.MonkeyPatch) -> None:
    """The noise of sums of squares is 30 % short."""
    patch.setattr(squares, "discrete_laplace", lambda n, scale: discrete_laplace(n, 0.7 * scale))


def raw_squares(patch: pytest.MonkeyPatch) -> None:
    """Sums of squares are published as they are."""
    patch.setattr(squares, "discrete_laplace", lambda n, _: np.zeros(n, dtype=np.int64))


def test_noise_of_squares_that_is_short_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    short_square_noise(monkeypatch)
    found = audit(with_squares().mechanism, 2.0, effort=EFFORT)
    assert failed(found.checks) == {audit_mechanism.NOISE}


def test_squares_without_noise_are_caught_in_a_whole_release(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, design = prepared(experiment, SOUND["differences"])
    assert design.mechanism.parameters.squares is not None
    raw_squares(monkeypatch)
    assert not in_step(config, design, audited.REPEATED).holds
    assert audit_mechanism.NOISE in failed(laws_of(design))


def test_squares_that_nobody_pays_for_are_caught() -> None:
    """By the exact loss: from an end to the middle moves sum and squares together."""
    chosen = with_squares()
    price = pure_epsilon(event_of(replace(chosen.mechanism.parameters, squares=None)))
    found = audit(chosen.mechanism, price, effort=EFFORT)
    assert not found.holds
    assert price < found.exact_epsilon <= 2.0
    assert audit(chosen.mechanism, 2.0, effort=EFFORT).holds


def with_squares() -> Design:
    """On three levels, where half of what a sum moves goes with all that the squares do."""
    request = Request(
        "uniform-prior-dp", 3, "means", epsilon=2.0, lattice=Lattice((0, 1, 2)), square_share=0.5
    )
    return design(request)
