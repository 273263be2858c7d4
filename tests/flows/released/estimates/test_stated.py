"""Estimates that a file states and its units do not give are an error wherever they are shown."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flows.cli.main import run
from flows.released.estimates.stated import read_checked
from schemas.errors import InputError
from tests.conftest import EXACT, Builder, a_log, build_experiment

pytestmark = pytest.mark.release  # most of them release


@pytest.mark.parametrize(
    "privacy",
    [
        {"mechanism": "cluster-dp"},
        {"mechanism": "uniform-prior-dp", "strata_statistic": "means"},
        {"mechanism": "noisy-histogram"},
        {"mechanism": "noisy-horvitz-thompson"},
        EXACT,
    ],
)
def test_what_is_released_states_what_its_units_give(
    experiment: Builder, privacy: dict[str, Any]
) -> None:
    read_checked(experiment(privacy=privacy).run().path)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_experiment(tmp_path_factory.mktemp("sound") / "e").run().path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("estimate = estimate + 0.001 * std_error", "mail, tau_q: estimate "),
        ("std_error = std_error * 0.999", "mail, tau_q: std_error "),
        (
            "ci_lower = NULL, ci_upper = NULL",
            "mail, tau_q: ci_lower None",
        ),
        ("p_value = 0.001", "mail, tau_q: p_value 0.001, and it is "),
        ("n_units = n_units - 1", "mail, tau_q: n_units 239, and it is 240"),
        ("estimator = 'sharper'", "mail, sharper: "),
        ("none", "mail, tau_q: is not stated, and it is "),
    ],
)
def test_what_was_changed_is_named_beside_what_it_is(
    sound: Path, tmp_path: Path, change: str, says: str
) -> None:
    path = changed(sound, tmp_path, change)
    with pytest.raises(InputError, match="states estimates that its own units") as caught:
        read_checked(path)
    assert says in str(caught.value)


def test_commands_refuse_what_was_changed_and_estimate_makes_its_own(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One change is enough here: it is asked above whether each is found."""
    path = changed(sound, tmp_path, "estimate = estimate + 0.001 * std_error")
    for command in (["inspect", str(path)], ["report", str(path), "-o", str(tmp_path / "x.html")]):
        assert run(command) == 2
        told = capsys.readouterr()
        assert "states estimates that its own units and statistics do not give" in told.err
        assert told.out == ""
    assert not (tmp_path / "x.html").exists()
    assert run(["estimate", str(path)]) == 0  # made from the units


def changed(path: Path, folder: Path, change: str) -> Path:
    copy = folder / "changed.duckdb"
    shutil.copy(path, copy)
    copy.chmod(0o644)
    with duckdb.connect(str(copy)) as connection:
        what = "DELETE FROM estimates" if change == "none" else f"UPDATE estimates SET {change}"
        connection.execute(f"{what} WHERE estimator = 'tau_q'")
    return copy


def test_the_order_of_sums_is_no_difference(experiment: Builder, tmp_path: Path) -> None:
    path = changed(
        experiment(a_log(2_000)).run().path, tmp_path, f"estimate = estimate * {1 + 4e-16!r}"
    )
    read_checked(path)
