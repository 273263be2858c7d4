"""What the efficiency study releases; what is found of claims is in test_claims.py."""

from pathlib import Path

import numpy as np
import pytest

from flows.cli.main import run
from flows.lab.replication.efficiency.measured import planned, tuned
from flows.lab.replication.experiment_one import GRID, population


def test_the_planner_never_saw_an_outcome_and_spends_what_it_was_given() -> None:
    """What it chooses is the same in every run; so is what Cluster-DP is tuned to."""
    # By hand, for outcomes as guessed (variance 11.92): Σ b²/n² of the three clusters is 9.8e-7 and
    # Σ b²/n 5.7e-4. Twelve levels with 0.95 ε for sums, σ = 58 steps of 1, leave a variance of
    # 2·(2·58²·9.8e-7 + 11.92·5.7e-4) = 0.027. Three levels with 0.75 ε, σ = 13.3 steps of 5.5, add
    # 5 by rounding: 2·(2·73²·9.8e-7 + 16.9·5.7e-4) = 0.040. Squares are within the 5 % left.
    whole = planned(0.2, "planned for everybody")
    assert len(whole.grid) == 12
    assert whole.mechanism.parameters.strata_statistic == "means"
    assert 0.9 < whole.statistic_share < 0.96
    assert len(planned(0.2, "planned for a half alone", 0.5, overall=False).grid) < 4
    random = np.random.default_rng(1)
    kind = tuned(0.2, [population(random) for _ in range(4)], random)
    assert (len(kind.grid), kind.statistic_share) == (12, 0.1)


def test_the_experiment_is_the_papers() -> None:
    """Twelve outcomes from −5 to 6, an effect of 1 on everybody, and clusters that differ."""
    random = np.random.default_rng(1)
    drawn = [population(random) for _ in range(200)]
    for levels in drawn:
        assert levels.shape == (2, 3_500)
        assert set((levels[1] - levels[0]).tolist()) == {1}
        assert levels.min() >= 0
        assert levels.max() <= 11
    middles = np.array([GRID[one[0]][1_500:].mean() for one in drawn])
    step = 2 * np.sqrt(5.0) / 5
    assert middles.std() == pytest.approx(np.sqrt(4.5) / step, rel=0.15)  # but for what is cut off
    within = np.mean([GRID[one[0]][1_500:].var() for one in drawn])
    assert within == pytest.approx(0.5 / step**2 + 1 / 12, rel=0.15)


# what goes wrong


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = run(["replicate", *arguments])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("clusterdp: ")
    assert len(printed.err.splitlines()) == 1
    return code, printed.err


def test_an_unknown_name_is_answered_with_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    code, message = told(capsys, "experiment-9")
    assert code == 2
    assert "'experiment-9'" in message
    assert "efficiency" in message


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file", encoding="utf-8")
    for folder in (taken, taken / "within", Path("/proc/nowhere")):
        code, message = told(capsys, "efficiency", "--output", str(folder))
        assert code == 2
        assert str(folder) in message
    assert taken.read_text(encoding="utf-8") == "a file"
