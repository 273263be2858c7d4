"""How far what a statistical test saw lay from what it expects, in standard errors.

A statistical test asserts through one of the functions here. Each says what was seen, what is
expected and its standard error (or a p-value, which is turned into the standard normal with that
much above it), fails where that is too far, and notes the distance under the test's name. A run of
tests ends with the farthest of them, beside what as many standard normals would show: a standard
error that is too small is seen there long before its test fails. What is broken on purpose is held
to :func:`distance` alone, which notes nothing.

The false-alarm rate of a check follows: within 5 standard errors 6e-7 where errors are normal,
within 4.5 7e-6, within 4 6e-5 (:func:`false_alarm`); a p-value above 1e-6 1e-6.
"""

import argparse
import csv
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import NormalDist
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from schemas.arrays import Floats

Numbers = Floats | float
Expected = Numbers | tuple[float, float]
"""What is expected; a pair where no more is known than between which numbers it lies."""

RECORD = Path(__file__).parents[1] / "statistical" / "distances.csv"
RUNS = 10

_NORMAL = NormalDist()
_DISTANCES = "distances in standard errors"
_FARTHEST, _FEWEST = 5, 30
"""So many are shown at the end of a run, if it has so many at least."""

_RUN, _INTO = "CLUSTERDP_TEST_RUN", "CLUSTERDP_TEST_DISTANCES"
"""Variables: a number that changes every seed of numpy's, and a file that distances go into."""

ALARM = 1e-4
"""How often a record of sound tests has one whose distances seem to lie to one side."""

_noted: list[float] = []


def _with_other_seeds(run: int) -> None:
    """Let generators of a seed draw otherwise in every run, or most tests would see the same."""
    honest = np.random.default_rng

    def other(seed: Any = None) -> np.random.Generator:
        is_seed = isinstance(seed, int | list | tuple | np.integer)
        return honest([*np.atleast_1d(seed), run] if is_seed else seed)

    np.random.default_rng = other


if _RUN in os.environ:
    _with_other_seeds(int(os.environ[_RUN]))


def mean_error(values: Floats) -> float:
    """The standard error of the mean of ``values``."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def share_error(share: float, n: int) -> float:
    """The standard error of a share of ``n``."""
    return float(np.sqrt(share * (1.0 - share) / n))


def distance(found: Numbers, expected: Expected, error: Numbers) -> Floats:
    """(found − expected) / error; 0 for what lies between what is expected."""
    low, high = expected if isinstance(expected, tuple) else (expected, expected)
    off = np.asarray(found) - np.clip(found, low, high)
    with np.errstate(invalid="ignore", divide="ignore"):
        apart: Floats = np.where(off == 0.0, 0.0, off / np.asarray(error))
    return apart


def false_alarm(within: float) -> float:
    """How often a standard normal is farther from 0."""
    return 2.0 * _NORMAL.cdf(-within)


def assert_near(found: Numbers, expected: Expected, error: Numbers, within: float) -> None:
    """``found`` is fewer than ``within`` standard errors from what is expected, each of it."""
    apart = _note(distance(found, expected, error))
    told = f"found {found} where {expected} is expected, with a standard error of {error}"
    assert (np.abs(apart) < within).all(), f"{told}: {apart} of them off, and {within} are allowed"


def assert_mean(values: Floats, expected: float, within: float) -> None:
    """The mean of ``values`` is fewer than ``within`` of its standard errors from ``expected``."""
    assert_near(float(values.mean()), expected, mean_error(values), within)


def assert_between(
    found: Numbers, bounds: tuple[float, float], expected: Expected, error: Numbers
) -> None:
    """``found`` is within fixed bounds, so many standard errors from what is expected."""
    apart = _note(distance(found, expected, error))
    low, high = bounds
    told = f"found {found}, {apart} standard errors from {expected}"
    inside = (low < np.asarray(found)) & (np.asarray(found) < high)
    assert inside.all(), f"{told}, where {low} to {high} is allowed"


def assert_p_value(
    p_value: Numbers, least: float, *, most: float = 1.0, is_bound: bool = False
) -> None:
    """The p-value is above ``least``, and no greater than ``most``, each of it.

    ``is_bound``: it is the true one or more (what is seen comes in steps, or is expected to be no
    worse than it is tested for), so that what is small alone tells something.
    """
    kept = np.clip(np.atleast_1d(np.asarray(p_value, dtype=np.float64)), 1e-300, 1 - 2.0**-53)
    apart = -np.array([_NORMAL.inv_cdf(float(one)) for one in kept.ravel()])
    _note(np.maximum(apart, 0.0) if is_bound else apart)
    told = f"a p-value of {p_value}, where {least} to {most} is allowed"
    assert ((least < np.asarray(p_value)) & (np.asarray(p_value) <= most)).all(), told


def _note(apart: Floats) -> Floats:
    _noted.extend(np.ravel(apart).tolist())
    return apart


# a run of tests


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Keep with the test what it notes, whether it passes or fails; xdist's controller gets it."""
    _noted.clear()
    try:
        return (yield)
    finally:
        if _noted:
            pyfuncitem.user_properties.append((_DISTANCES, [*_noted]))


_OWN = "tests/support/"
"""Tests of this page, which need distances that are none."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the farthest; what is as expected as can be known (0) is none of them."""
    reports = [
        one
        for how in ("passed", "failed")
        for one in terminalreporter.stats.get(how, ())
        if not one.nodeid.startswith(_OWN)
    ]
    told = {one.nodeid: dict(one.user_properties).get(_DISTANCES, []) for one in reports}
    found = [(apart, name) for name, each in told.items() for apart in each if apart]
    if len(found) >= _FEWEST:
        terminalreporter.section(f"farthest of {len(found)} distances, in standard errors")
        for line in farthest(found):
            terminalreporter.line(line)
    if into := os.environ.get(_INTO):
        each = {(name, at): [x] for name, of in told.items() for at, x in enumerate(of)}
        write_record(Path(into), each)


def farthest(found: Iterable[tuple[float, str]]) -> Iterator[str]:
    """A line for each, with the median of the first, second … of as many standard normals."""
    ordered = sorted(found, key=lambda one: -abs(one[0]))
    for nth, (apart, name) in enumerate(ordered[:_FARTHEST]):
        usual = -_NORMAL.inv_cdf((nth + 0.7) / (len(ordered) + 0.4) / 2.0)
        yield f"{apart:+.2f} (of normals: {usual:.2f}) {name}"


# the record of ten runs

Record = dict[tuple[str, int], list[float]]
"""Distances of several runs, by the test's name and the place of the check in it."""


def read_record(path: Path = RECORD) -> Record:
    """The record; the last column is as long as there are runs."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))[1:]
    return {(name, int(at)): [float(x) for x in runs.split()] for name, at, runs in lines}


def write_record(path: Path, record: Record) -> None:
    """Put it in place of what there is, in order."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["test", "check", "distances in standard errors, a run each"])
        for (name, at), runs in sorted(record.items()):
            writer.writerow([name, at, " ".join(f"{one:.2f}" for one in runs)])


def one_sided(record: Record, alarm: float) -> list[str]:
    """Checks whose distances lie to one side: a mean that is beyond ``alarm`` for all of them.

    Distances that are the same in every run (all is seeded) count as one.
    """
    most = -_NORMAL.inv_cdf(alarm / len(record) / 2.0)
    sums = {key: float(np.mean(of)) * len({*of}) ** 0.5 for key, of in record.items()}
    return [f"{name} {at}: {x:+.1f}" for (name, at), x in sums.items() if abs(x) > most]


def run_again(asked: list[str], n_runs: int) -> Iterator[Record]:
    """What these tests noted so far, after each run with other seeds, whether they pass or fail."""
    found: Record = {}
    for run in range(1, n_runs + 1):
        with TemporaryDirectory() as folder:
            into = Path(folder) / RECORD.name
            told = {**os.environ, _RUN: str(run), _INTO: str(into)}
            command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-m", "not soak", *asked]
            subprocess.run(command, env=told, check=False)
            for key, of in read_record(into).items():
                found.setdefault(key, []).extend(of)
        yield found


def main(arguments: list[str]) -> None:
    """Run tests again and put their distances into the record, in place of what it had of them."""
    parser = argparse.ArgumentParser("python -m tests.support.distances", description=main.__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("tests", nargs="*", help="as for pytest; those of the record, if none")
    asked = parser.parse_args(arguments)
    tests = asked.tests or sorted({name.partition("[")[0] for name, _ in read_record()})
    for found in run_again(tests, asked.runs):
        ran = {name for name, _ in found}
        others = {key: of for key, of in read_record().items() if key[0] not in ran}
        write_record(RECORD, others | found)
    told = one_sided(read_record(), ALARM) or ["no distances lie to one side"]
    print(*told, sep="\n")  # noqa: T201 - a command


if __name__ == "__main__":
    main(sys.argv[1:])
