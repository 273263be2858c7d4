"""An audit of releases of several outcomes: sound ones pass, planted faults are found."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from flows.audit import _audit_several
from flows.config.model.experiment import Config
from flows.config.resolve import ResolvedRelease
from flows.plan import resolved_release_of
from flows.raw.audit.private_step import StepEffort, audit_step
from flows.raw.audit.several_outcomes import Whole, apart, sampled_bound
from flows.raw.drawing import unit_stream
from privatizers.accounting.budget import Budget
from privatizers.audit.sampling import Effort
from privatizers.audit.several_outcomes import joint_loss
from privatizers.mechanisms.noisy_counts import NoisyCounts
from schemas.arrays import Ints, Levels
from tests.conftest import Builder, Section

pytestmark = pytest.mark.statistical

ERROR = 1e-6
UNITS, CLUSTERS = 40_000, 300


def release(experiment: Builder, **privacy: Any) -> ResolvedRelease:
    outcomes: list[Section] = [
        {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
        {"name": "more", "column": "clicks", "values": [0, 1, 2, 3]},
        {"name": "any", "column": "clicks", "values": [0, 1]},
    ]
    columns = {"outcome": None}
    privacy = {"mechanism": "uniform-prior-dp", "strata_statistic": "counts", **privacy}
    built = experiment(outcome=None, outcomes=outcomes, columns=columns, privacy=privacy)
    return resolved_release_of(built.config, None)


def whole(found: ResolvedRelease) -> Whole:
    return Whole(found.config, found.designs)


MECHANISMS: dict[str, Section] = {
    "counts": {},
    "a prior of its own": {"mechanism": "cluster-dp", "strata_statistic": "auto"},
    "means": {"strata_statistic": "means"},
    "nothing of strata": {"strata_statistic": "none"},
    "a delta": {"delta": 1e-5},
    "no units": {"mechanism": "noisy-histogram", "strata_statistic": "auto"},
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_is_sound_passes(experiment: Builder, name: str) -> None:
    """False alarms: at most 1 in 10⁶ for each."""
    found = release(experiment, **MECHANISMS[name])
    check = apart(whole(found), UNITS, CLUSTERS, ERROR)
    assert check.holds, check.evidence
    bound, n_samples = sampled_bound(whole(found), UNITS, ERROR)
    assert bound.epsilon <= 2.0
    if name == "nothing of strata":  # draws of single units, the best seen of all
        assert bound.epsilon > 0.5
    assert n_samples > 1_000


def shared_coins(patch: pytest.MonkeyPatch) -> None:
    """Of each unit all outcomes are kept, or none."""
    honest = unit_stream._OutcomeDrawing.places
    kept: list[np.ndarray] = []

    def broken(self: Any, levels: Levels, cells: Any) -> Any:
        places = honest(self, levels, cells)
        size = len(self.outputs)
        true = cells.astype(np.int64) * size + levels
        if self.name == "clicks":
            kept[:] = [places == true]
            return places
        other = cells.astype(np.int64) * size + (levels + 1) % size
        return np.where(kept[0], true, other).astype(places.dtype)

    patch.setattr(unit_stream._OutcomeDrawing, "places", broken)


def shared_noise(patch: pytest.MonkeyPatch) -> None:
    """Statistics of the same shape have the same noise."""
    honest = NoisyCounts.noised
    seen: dict[tuple[int, ...], Ints] = {}

    def broken(self: NoisyCounts, counts: Ints) -> Ints:
        noise = seen.setdefault(counts.shape, honest(self, counts) - counts)
        return counts + noise

    patch.setattr(NoisyCounts, "noised", broken)


@pytest.mark.parametrize("fault", [shared_coins, shared_noise])
def test_what_two_outcomes_share_is_found(
    experiment: Builder,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
) -> None:
    found = release(experiment)
    fault(monkeypatch)
    check = apart(whole(found), UNITS, CLUSTERS, ERROR)
    assert not check.holds
    assert "clicks and " in check.evidence


def test_a_price_left_out_of_the_claim_is_found(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every outcome is released at all of ε, as if it were alone; the claim is ε."""

    def undivided(self: Config) -> tuple[Budget, ...]:
        return (Budget(self.privacy.epsilon or 0.0),) * len(self.named_outcomes)

    monkeypatch.setattr(Config, "_parts", undivided)
    found = release(experiment)
    stated = found.price.epsilon
    exact = joint_loss([one.mechanism for one in found.designs], stated)
    assert stated == 2.0
    assert exact.epsilon == pytest.approx(6.0)
    assert not exact.check.holds


def test_an_audit_of_all_looks_at_each(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less effort than the program's."""
    monkeypatch.setattr("flows.audit.UNDER_TWO_MINUTES", Effort(400_000, 100_000, 100))
    quick = StepEffort(units=30_000, clusters=200, again=40)
    monkeypatch.setattr("flows.audit.audit_step", partial(audit_step, effort=quick))
    found = _audit_several(release(experiment))
    assert found.holds, [check for check in found.checks if not check.holds]
    document = found.as_json()
    assert document["exact_epsilon"] == document["claimed_epsilon"] == 2.0
    assert [one["metric"] for one in document["metrics"]] == ["clicks", "more", "any"]
    names = [check["name"] for check in document["checks"]]
    assert len(set(names)) == len(names)
    assert sum(name.startswith("more: ") for name in names) == len(names) / 3 - 1


def test_ratios_are_no_outcomes_of_their_own(experiment: Builder) -> None:
    """False alarms: at most 1 in 10⁶."""
    outcomes: list[Section] = [
        {"name": name, "column": "clicks", "values": [0, 1, 2, 3]} for name in ("clicks", "more")
    ]
    ratio: Section = {"name": "each", "numerator": "clicks", "denominator": "more"}
    privacy = {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}
    built = experiment(
        outcome=None, outcomes=outcomes, ratios=[ratio], columns={"outcome": None}, privacy=privacy
    )
    check = apart(whole(resolved_release_of(built.config, None)), UNITS, CLUSTERS, ERROR)
    assert check.holds, check
