"""What an effect model costs by its scales, and models that claim less."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from estimators.concentrated import concentrated_delta, concentrated_epsilon
from estimators.effects.models.fit import fit_learner
from flows.cli.main import run
from flows.effects.released.loss import delta_of, epsilon_of
from flows.effects.released.model_file import ModelFile, read_with_loss, write_model
from privatizers.effects.models import meta, moments
from schemas.effects.file import guarantee
from schemas.effects.model import EffectDesign, Learner, Neighbours, NoisySums, Propensity
from tests.flows.effects.released.test_model_file import (
    HEAD,
    N_ROWS,
    a_design,
    altered,
    written,
)

LEARNERS: list[Learner] = ["moments", "dr", "r", "s"]
PROPENSITIES = [Propensity("value", 0.4), Propensity("column"), Propensity("learn")]
NEIGHBOURS: list[Neighbours] = ["row", "outcome"]


def nothing_summed(learner: Learner, design: EffectDesign) -> tuple[NoisySums, ...]:
    """Sums as a run would publish them, of no row."""
    if learner == "moments":
        return moments.stand_in(design, N_ROWS)
    return meta.stand_in(learner, design, N_ROWS)


@pytest.mark.parametrize("rho", [1e-4, 0.03, 0.5, 3.0])
def test_concentrated_noise_costs_what_others_compute(rho: float) -> None:
    for delta in (1e-9, 1e-6, 1e-3):
        assert epsilon_of(rho, delta) == pytest.approx(concentrated_epsilon(rho, delta), rel=1e-11)
        known = concentrated_delta(rho, 10.0 * rho)
        assert delta_of(rho, 10.0 * rho) == pytest.approx(known, rel=1e-9)


@pytest.mark.parametrize(
    ("learner", "propensity", "neighbours"),
    list(itertools.product(LEARNERS, PROPENSITIES, NEIGHBOURS)),
)
def test_a_model_costs_what_was_planned(
    learner: Learner, propensity: Propensity, neighbours: Neighbours, tmp_path: Path
) -> None:
    design = a_design(propensity, neighbours)
    sums = nothing_summed(learner, design)
    model = fit_learner(learner, design, N_ROWS, sums)
    path = written(tmp_path, ModelFile(replace(HEAD, learner=learner), model))
    _, loss = read_with_loss(path)
    assert loss.broken == ()
    assert loss.epsilon <= design.epsilon
    assert loss.epsilon == pytest.approx(design.epsilon, rel=1e-9)
    assert loss.delta <= design.delta
    assert loss.delta == pytest.approx(design.delta, rel=1e-9)


Change = Callable[[dict[str, Any]], None]


def claims(epsilon: float, delta: float) -> Change:
    def change(content: dict[str, Any]) -> None:
        design = replace(a_design(), epsilon=epsilon, delta=delta)
        content.update(epsilon=epsilon, delta=delta, guarantee=guarantee(design))

    return change


def with_little_noise(folder: Path, share: float) -> Path:
    """A model that follows from its sums, whose noise is ``share`` of what its claim takes."""
    design = a_design()
    sums = tuple(replace(one, scale=one.scale * share) for one in moments.stand_in(design, N_ROWS))
    path = folder / "model.json"
    write_model(ModelFile(HEAD, fit_learner("moments", design, N_ROWS, sums)), path)
    return path


def test_a_model_that_claims_less_is_refused_by_all_who_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = altered(written(tmp_path), claims(0.01, 1e-9), sign=True)
    table = tmp_path / "table.csv"
    table.write_text("age,income,sex\n40,5000,f\n")
    page, out = tmp_path / "page.html", tmp_path / "out.csv"
    for command in (
        ["report", str(path), "-o", str(page)],
        ["cate-predict", str(path), str(table), "-o", str(out)],
    ):
        assert run(command) == 2
        assert "costs more than it says: epsilon and delta are less" in capsys.readouterr().err
    assert not page.exists()
    assert not out.exists()
    assert run(["verify", "--loss", str(path), "--json"]) == 4
    (found,) = json.loads(capsys.readouterr().out)["releases"]
    assert (found["holds"], found["stated_epsilon"]) == (False, 0.01)
    assert found["recomputed_epsilon"] > 1.0
    assert [one["name"] for one in found["parts"]][-1] == "table"


@pytest.mark.parametrize("share", [0.0, 1e-250, 1e-6, 0.999])
def test_a_model_with_too_little_noise_is_found_by_its_scales(tmp_path: Path, share: float) -> None:
    _, loss = read_with_loss(with_little_noise(tmp_path, share))
    assert not loss.holds
    assert loss.broken[0].startswith("sums: rho of histograms is less than its scale gives")
    assert loss.broken[-1] == "epsilon and delta are less than what the scales of sums give"


def test_the_least_change_toward_more_loss_is_found(tmp_path: Path) -> None:
    """Its sums' rounding leaves a few parts in 10¹² over, and no more."""
    _, loss = read_with_loss(with_little_noise(tmp_path, 1.0 - 1e-10))
    assert not loss.holds
