"""What a site's report costs at least, and reports that claim less."""

import math
from pathlib import Path

import numpy as np
import pytest

from flows.cli.main import run
from flows.effects.released.loss import report_loss
from flows.effects.released.site_report import write_report
from privatizers.effects.sites.dp_matching import GlobalMatching, SmoothMatching
from privatizers.effects.sites.matching import SitePeople
from privatizers.effects.sites.randomised_trial import RandomisedTrial, SiteEffect
from schemas.effects.site import SiteReport
from tests.site_reports import a_report

HIGH = 3.0


def report_of(drawn: SiteEffect, design: str) -> SiteReport:
    return a_report(
        design=design,
        estimator=drawn.estimator,
        noise_variance=drawn.noise_variance,
        n_units=drawn.n_units,
        epsilon=drawn.epsilon,
        delta=drawn.delta,
        outcome_high=HIGH,
        outcome_bound=HIGH,
    )


@pytest.mark.parametrize(("treated", "is_least"), [(50, True), (20, False)])
def test_a_trial_costs_what_its_noise_gives(treated: int, is_least: bool) -> None:
    arms = np.arange(100) < treated
    drawn = RandomisedTrial(0.7, HIGH).report(arms, np.ones(100))
    least = report_loss(report_of(drawn, "trial"), Path("report.json")).epsilon
    assert least <= 0.7
    assert (least == pytest.approx(0.7, rel=1e-5)) == is_least


@pytest.mark.parametrize("mechanism", [GlobalMatching(2.0, HIGH), SmoothMatching(2.0, 1e-6, HIGH)])
def test_a_matched_effect_costs_at_least_what_its_noise_gives(
    mechanism: GlobalMatching | SmoothMatching,
) -> None:
    cells = np.arange(400) % 4
    drawn = mechanism.report(SitePeople(cells, np.arange(400) // 4 % 2 == 0, np.ones(400), 4))
    loss = report_loss(report_of(drawn, "matching"), Path("report.json"))
    assert loss.broken == ()
    assert 0.0 < loss.epsilon <= 2.0
    if isinstance(mechanism, GlobalMatching):
        assert loss.epsilon == pytest.approx(1.0, rel=1e-5)  # half of it is the effect's


def test_reports_that_claim_less_are_not_aggregated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "north.json", tmp_path / "south.json"]
    write_report(a_report(), paths[0])
    write_report(a_report("south", epsilon=0.1), paths[1])
    given = [str(path) for path in paths]
    assert run(["aggregate", *given]) == 2
    assert f"{paths[1]}: costs more than it says: epsilon is less" in capsys.readouterr().err
    assert run(["verify", "--loss", *given]) == 4
    told = capsys.readouterr().out
    assert told.count("COSTS MORE THAN IT SAYS") == 1
    assert "least" in told


def test_a_report_without_noise_costs_everything() -> None:
    assert math.isinf(report_loss(a_report(noise_variance=0.0), Path("report.json")).epsilon)
