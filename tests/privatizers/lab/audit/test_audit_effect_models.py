"""The audit of effect models: sound code passes, and each planted fault is caught.

Sound code is accused with a probability of at most 1e-4 an audit.
"""

from collections.abc import Iterable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from estimators.effects.models.basis import Basis
from estimators.effects.models.moments import Nuisance
from privatizers.effects.models import moments
from privatizers.effects.models.lattice_sums import Query, drawn_sums
from privatizers.effects.models.moments import KnownMoments, released
from privatizers.effects.models.rows import EffectRows
from privatizers.lab.audit import effect_models
from privatizers.lab.audit.effect_models import Draw, EffectsAudit, audit_effects
from schemas.arrays import Ints
from schemas.effects.model import EffectDesign, NoisySums, Propensity
from tests.support.effect_rows import DESIGN

pytestmark = pytest.mark.statistical

COLUMN = replace(DESIGN, propensity=Propensity("column", None, 0.1))


def audit(design: EffectDesign = DESIGN, **planted: object) -> EffectsAudit:
    """By functions of a run as they are, but for those that are ``planted``."""
    with patch.dict(vars(effect_models), {"_N_BASES": 1, "_N_CANDIDATES": 300, **planted}):
        return audit_effects(design)


def audit_but_of_the_law(design: EffectDesign = DESIGN, **planted: object) -> EffectsAudit:
    """Without 20,000 draws of each sum, which take most of the time and tell of noise alone."""
    return audit(design, _laws=lambda _: (), **planted)


def failing(found: EffectsAudit) -> str:
    assert not found.holds
    return " | ".join(f"{c.name}: {c.evidence}" for c in found.checks if not c.holds)


@pytest.mark.parametrize("neighbours", ["row", "outcome"])
@pytest.mark.parametrize("kind", ["value", "column", "learn"])
def test_sound_code_passes_and_comes_near_the_claim(kind: str, neighbours: str) -> None:
    propensity = {
        "value": DESIGN.propensity,
        "column": COLUMN.propensity,
        "learn": Propensity("learn"),
    }[kind]
    found = audit(replace(DESIGN, propensity=propensity, neighbours=neighbours, epsilon=1.0))  # type: ignore[arg-type] # a parameter is any text
    assert found.holds, failing(found)
    # A learnt propensity need not come near its bound, for which the noise of two sums is made.
    least = 0.25 if kind == "learn" else 0.5
    assert found.rho >= found.attained_rho > least * found.rho


@pytest.mark.parametrize("name", ["gram", "outcomes", "squares", "histograms", "table"])
def test_a_sensitivity_a_tenth_short(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    sound = moments._size_and_sensitivity

    def short(known: KnownMoments, asked: str) -> tuple[int, float]:
        size, sensitivity = sound(known, asked)
        return size, sensitivity * (0.9 if asked == name else 1.0)

    monkeypatch.setattr(moments, "_size_and_sensitivity", short)
    assert "no farther apart" in failing(audit_but_of_the_law(COLUMN))


def test_rows_that_are_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def trimmed(self: Basis, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        phi = self.values(features)
        return phi, np.ones(len(phi))

    monkeypatch.setattr(Basis, "weighted", trimmed)
    assert "no farther apart" in failing(audit_but_of_the_law())


def test_a_propensity_column_that_is_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(_: Nuisance, __: np.ndarray, declared: np.ndarray) -> np.ndarray:
        return (declared - 0.5) * 1.2 + 0.5

    monkeypatch.setattr(Nuisance, "propensities", wide)
    assert "no farther apart" in failing(audit_but_of_the_law(COLUMN))


def test_a_statistic_that_decides_is_read_before_it_is_noised() -> None:
    def peeking(
        known: KnownMoments, stage: tuple[str, ...], batches: Iterable[EffectRows], draw: Draw
    ) -> KnownMoments:
        rows = list(batches)
        after = released(known, stage, rows, draw)
        if after.nuisance is None or known.nuisance is not None:
            return after
        spread = float(np.concatenate([each.outcome for each in rows]).std())
        return replace(after, nuisance=replace(after.nuisance, clip=spread))

    assert "chosen by noised sums alone" in failing(audit_but_of_the_law(released=peeking))


def test_a_faulty_row_that_is_dropped_from_n() -> None:
    def dropping(
        known: KnownMoments, stage: tuple[str, ...], batches: Iterable[EffectRows], draw: Draw
    ) -> KnownMoments:
        rows = list(batches)
        n_complete = sum(int(each.complete.sum()) for each in rows)
        return released(replace(known, n_rows=n_complete), stage, rows, draw)

    assert "chosen by noised sums alone" in failing(audit_but_of_the_law(released=dropping))


def test_noise_thirty_percent_short() -> None:
    def short(query: Query, steps: Ints) -> NoisySums:
        made = drawn_sums(replace(query, rho=query.rho / 0.49), steps)
        return replace(made, rho=query.rho, scale=query.scale)

    assert "follows its law" in failing(audit(drawn_sums=short))


def test_one_noise_for_all_entries() -> None:
    def shared(query: Query, steps: Ints) -> NoisySums:
        made = drawn_sums(query, np.zeros(1, dtype=np.int64))
        return replace(made, steps=steps + made.steps[0])

    assert "follows its law" in failing(audit(drawn_sums=shared))


def test_scales_that_cost_more_than_they_say() -> None:
    def cheap(query: Query, steps: Ints) -> NoisySums:
        return replace(drawn_sums(query, steps), rho=query.rho * 2.0)

    assert "costs at most" in failing(audit_but_of_the_law(drawn_sums=cheap))
