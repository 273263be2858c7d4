"""The means of the toolbox, run as a stranger would: errors are what the formulas say.

Noise is not seeded. Errors have to be within 6 of their standard errors of what is predicted, for
noise with the tails of Laplace's: that fails by chance less than once in 10⁶ runs.
"""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.lab.replication.toolbox_means import (
    AGES,
    CHUNKS,
    COLUMN,
    COMES_OR_GOES,
    DATA,
    DELTA,
    EPSILON,
    FULL,
    NAME,
    PROPOSED,
    QUICK,
    REPLACED,
    ToolboxReplication,
    methods,
    read_ages,
    replicate,
    run,
)
from privatizers.effects.toolbox.lattice_gaussian import continuous_sigma
from schemas.errors import InputError
from tests.statistical.simulate import real_data
from tests.support.distances import assert_between, mean_error

pytestmark = pytest.mark.statistical

N = 30_000
REPETITIONS = 600
SPARE = 0.27
"""Of a root mean squared error: √(5/600)/2 is its standard error for Laplace noise."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> ToolboxReplication:
    """A quick run on made-up ages, from a CSV file."""
    folder = tmp_path_factory.mktemp("toolbox")
    ages = np.random.default_rng(8).integers(17, 91, N)
    path = folder / "people.csv"
    pl.DataFrame({COLUMN: ages, "other": ages}).write_csv(path)
    return replicate(folder / "figures", quick=True, data=path)


def test_there_is_a_row_for_every_method_next_to_a_plain_sum_over_a_count(
    found: ToolboxReplication,
) -> None:
    names = [one.method for one in found.rows]
    assert names == [
        "sum over count",
        "sum over count, about the middle",
        "propose-test-release",
        "smooth sensitivity, bound first",
        "smooth sensitivity, 2S/epsilon",
        *(f"sample and aggregate, {k} chunks" for k in CHUNKS),
        "mean",
        "mean, Gaussian",
    ]
    assert found.rows[0].ratio == 1.0
    assert {one.epsilon for one in found.rows} == {EPSILON}
    assert {one.delta for one in found.rows} == {0.0, DELTA}
    assert {one.repetitions for one in found.rows} == {QUICK}
    assert {one.neighbours for one in found.rows} == {COMES_OR_GOES, REPLACED}


def test_the_document_is_json_and_the_figure_is_there(found: ToolboxReplication) -> None:
    document = json.loads(json.dumps(found.as_json()))
    assert document["name"] == NAME
    assert document["quick"] is True
    assert document["n_rows"] == N
    assert len(document["rows"]) == len(found.rows)
    (figure,) = found.figures
    assert figure.name == f"{NAME}.svg"
    svg = figure.read_text(encoding="utf-8")
    assert svg.startswith("<?xml")
    assert "propose-test-release" in svg


def test_the_text_is_a_screen(found: ToolboxReplication) -> None:
    text = found.text()
    assert all(one.method in text for one in found.rows)
    assert max(len(line) for line in text.splitlines()) <= 110


def test_errors_are_what_the_formulas_say() -> None:
    """Noise 30 % off would be noticed."""
    ages = np.random.default_rng(8).integers(17, 91, N).astype(np.float64)
    laplace, width, mean, share = math.sqrt(2.0), 125.0, float(ages.mean()), EPSILON / 2
    predicted = {
        "sum over count": laplace * math.hypot(width, mean) / (N * share),
        "sum over count, about the middle": laplace * math.hypot(62.5, mean - 62.5) / (N * share),
        "propose-test-release": laplace * PROPOSED / share,
        "smooth sensitivity, 2S/epsilon": laplace * 2 * (width / N) / EPSILON,
        "mean": laplace * width / (N * EPSILON),
        "mean, Gaussian": continuous_sigma(EPSILON, DELTA) * width / N,
    }
    by_name = {one.name: one for one in methods(ages)}
    for name, size in predicted.items():
        found = [by_name[name].release() for _ in range(REPETITIONS)]
        errors = np.array([one for one in found if one is not None]) - mean
        assert len(errors) == REPETITIONS
        found_size = math.sqrt(np.mean(errors**2)) / size
        assert_between(found_size, (1 - SPARE, 1 + SPARE), 1.0, mean_error(errors**2) / size**2 / 2)


def test_data_that_no_proposal_fits_are_refused_and_shown_as_such() -> None:
    """20 ages: a person moves the mean by 125/20, far above the proposal; passing has 1e-9."""
    rows = run(np.full(20, 40.0), 30)
    (refused,) = (one for one in rows if one.method == "propose-test-release")
    assert (refused.refused, refused.rmse, refused.ratio) == (30, None, None)
    shown = ToolboxReplication(True, 20, 40.0, rows, ()).text()
    assert "100.0%" in shown


def test_the_whole_run_is_longer() -> None:
    assert FULL >= 10 * QUICK
    assert (AGES.lower, AGES.upper) == (0.0, 125.0)


def test_without_data_it_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTERDP_TEST_DATA", raising=False)
    with pytest.raises(InputError, match="--data"):
        replicate(tmp_path, quick=True)
    monkeypatch.setenv("CLUSTERDP_TEST_DATA", str(tmp_path))
    with pytest.raises(InputError, match="there is no such file"):
        replicate(tmp_path, quick=True)


def test_a_file_without_ages_is_refused_without_telling_one(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("years\n3\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column 'age'"):
        replicate(tmp_path, quick=True, data=path)
    path.write_text("age\n31\nforty\n\n", encoding="utf-8")
    with pytest.raises(InputError, match="values that are no numbers") as refusal:
        replicate(tmp_path, quick=True, data=path)
    assert "forty" not in str(refusal.value)


def test_it_reads_the_real_ages() -> None:
    ages = read_ages(real_data(str(DATA)))
    assert len(ages) == 32_561
    assert ages.mean() == pytest.approx(38.5816, abs=1e-4)
