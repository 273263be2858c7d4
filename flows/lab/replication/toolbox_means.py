"""The mean age of UCI's Adult data by every method of the toolbox, at a total ε of 1.

The running example of Near and Abuah's chapter on local sensitivity, on the training part of the
data (Becker and Kohavi 1996): 32,561 ages, declared to lie in [0, 125]. Everything that is spent is
counted: ε = 1 and δ = 1e-9 (the chapter's 1/n², rounded) a release, tests and bounds included.
Every method is as `privatizers/effects/toolbox/toolbox.md` proves it, not as the chapter prints it.
They differ in who is a neighbour, which a row says: people who come or go, or one person's value
replaced, with n public. The second is the weaker promise.

The ages are public, so errors are shown against their mean.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from flows.runtime.reading.table_files import read_table
from flows.runtime.terminal import table
from privatizers.effects.toolbox.bounded_mean import (
    AddRemoveMean,
    Bounds,
    mean_by_sum_and_count,
    mean_of_fixed_size,
)
from privatizers.effects.toolbox.lattice_gaussian import LatticeGaussian
from privatizers.effects.toolbox.propose_test_release import ProposeTestRelease
from privatizers.effects.toolbox.sample_aggregate import SampleAggregate, chunks_by_id
from privatizers.effects.toolbox.smooth_sensitivity import BoundThenNoise, SmoothLaplace
from privatizers.noise.lattice_laplace import power_of_two_step
from schemas.arrays import Floats
from schemas.documents import Document
from schemas.errors import InputError

NAME = "toolbox-means"
COLUMN = "age"
DATA = Path("uci_adult", "adult_train_32561.parquet")
EPSILON, DELTA = 1.0, 1e-9
AGES = Bounds(0.0, 125.0)
MEAN_AGES = Bounds(20.0, 80.0)
"""Of a chunk, as in the chapter."""
PROPOSED = 0.005
"""The chapter's proposal for how far one person moves the mean."""
CHUNKS = (600, 6000)
FULL, QUICK = 2000, 200
COMES_OR_GOES, REPLACED = "comes or goes", "is replaced"

log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class Method:
    """A way to the mean; None is ⊥."""

    name: str
    neighbours: str
    """What a person does whom it protects."""
    delta: float
    release: Callable[[], float | None]


@dataclass(frozen=True)
class ToolboxRow:
    """The error of one method over repetitions on the same data."""

    method: str
    neighbours: str
    epsilon: float
    delta: float
    rmse: float | None
    """Root of the mean squared error about the mean of the ages; None where all were ⊥."""
    rmse_std_error: float | None
    percent_error: float | None
    """Mean of |error| in parts of the mean, in percent."""
    ratio: float | None
    """``rmse`` over that of the first row."""
    refused: int
    repetitions: int


@dataclass(frozen=True)
class ToolboxReplication(Document):
    """All that was found, and the figure of it."""

    name: str = field(default=NAME, init=False)
    quick: bool
    n_rows: int
    mean: float
    rows: tuple[ToolboxRow, ...]
    figures: tuple[Path, ...]

    def text(self) -> str:
        """One screen for people."""
        head = [
            f"The mean of {self.n_rows:,} ages in [0, 125], which is {self.mean:.4f}, at a total",
            f"epsilon of {EPSILON:g}; {self.rows[0].repetitions:,} repetitions a row.",
            "± is the standard error of the repetitions; ratios are to the first row.",
            "",
        ]
        columns = ["method", "a person", "delta", "rms error", "error %", "ratio", "refused"]
        lines = table(columns, [_columns(one) for one in self.rows])
        return "\n".join([*head, *lines, "", *(f"figure: {path}" for path in self.figures)])


def replicate(folder: Path, *, quick: bool = False, data: Path | None = None) -> ToolboxReplication:
    """Release the mean by every method, again and again, and draw the errors into ``folder``.

    ``data`` is a CSV or Parquet file with a column ``age``; by default the file is looked for in
    the folder that the environment's CLUSTERDP_TEST_DATA names. Raises InputError where there is
    none, or where the folder cannot be written to, before anything is run.
    """
    from flows.lab.replication.plots import folder_for_figures  # noqa: PLC0415 - matplotlib

    source, named = data, os.environ.get("CLUSTERDP_TEST_DATA")
    if source is None and named is None:
        raise InputError(
            f"{NAME} needs UCI's Adult data, a CSV or Parquet file with a column {COLUMN!r}: name "
            f"it with --data, or set CLUSTERDP_TEST_DATA to a folder that holds {DATA}"
        )
    ages = read_ages(source or Path(named or "") / DATA)
    target = folder_for_figures(folder)
    rows = run(ages, QUICK if quick else FULL)
    return ToolboxReplication(quick, len(ages), float(ages.mean()), rows, (_draw(rows, target),))


def read_ages(path: Path) -> Floats:
    """Return the column ``age`` of a file, shape [n]. Raises InputError where it is not numbers."""
    frame = read_table(path)
    if COLUMN not in frame.columns:
        raise InputError(f"{path}: there is no column {COLUMN!r}")
    ages = frame[COLUMN].cast(pl.Float64, strict=False)
    unreadable = int((~ages.is_finite().fill_null(value=False)).sum())
    if unreadable or not len(ages):
        raise InputError(f"{path}: column {COLUMN!r} has {unreadable} values that are no numbers")
    return ages.to_numpy()


def methods(ages: Floats) -> tuple[Method, ...]:
    """Return every method, the plain noisy sum over a noisy count first."""
    mean = AddRemoveMean.of(ages, AGES)
    n = len(ages)
    moved = (AGES.upper - AGES.lower) / n * (1.0 + 2.0**-30)
    gaussian = LatticeGaussian(moved, EPSILON, DELTA)
    tested = ProposeTestRelease(PROPOSED, EPSILON, DELTA)
    bounded = BoundThenNoise(EPSILON, DELTA)
    at_once = SmoothLaplace(EPSILON, DELTA, power_of_two_step(PROPOSED))
    plain = partial(mean_by_sum_and_count, ages, AGES, EPSILON)
    found = [
        Method("sum over count", COMES_OR_GOES, 0.0, partial(plain, 0.0)),
        Method("sum over count, about the middle", COMES_OR_GOES, 0.0, plain),
        Method("propose-test-release", COMES_OR_GOES, DELTA, partial(tested.release, mean)),
        Method(
            "smooth sensitivity, bound first",
            COMES_OR_GOES,
            DELTA,
            lambda: bounded.release(mean).value,
        ),
        Method(
            "smooth sensitivity, 2S/epsilon", COMES_OR_GOES, DELTA, partial(at_once.release, mean)
        ),
    ]
    for k in CHUNKS:
        chunked = SampleAggregate(MEAN_AGES, k, EPSILON)
        answers = chunked.answers(np.mean, ages, chunks_by_id(np.arange(n), k))
        release = partial(mean_of_fixed_size, answers, MEAN_AGES, EPSILON)
        found.append(Method(f"sample and aggregate, {k} chunks", COMES_OR_GOES, 0.0, release))
    return (
        *found,
        Method("mean", REPLACED, 0.0, partial(mean_of_fixed_size, ages, AGES, EPSILON)),
        Method("mean, Gaussian", REPLACED, DELTA, partial(gaussian.release, mean.value)),
    )


def run(ages: Floats, repetitions: int) -> tuple[ToolboxRow, ...]:
    """Return the error of every method over so many releases."""
    rows: list[ToolboxRow] = []
    for method in methods(ages):
        log.info("%s …", method.name)
        answers = [method.release() for _ in range(repetitions)]
        errors = np.array([one for one in answers if one is not None]) - ages.mean()
        rows.append(
            _row(method, errors, repetitions, float(ages.mean()), rows[0] if rows else None)
        )
    return tuple(rows)


def _row(
    method: Method, errors: Floats, repetitions: int, mean: float, base: ToolboxRow | None
) -> ToolboxRow:
    refused = repetitions - len(errors)
    made = (method.name, method.neighbours, EPSILON, method.delta)
    if not len(errors):
        return ToolboxRow(*made, None, None, None, None, refused, repetitions)
    mse = float(np.mean(errors**2))
    rmse = float(np.sqrt(mse))
    spread = float(np.std(errors**2) / np.sqrt(len(errors)) / (2.0 * rmse))
    percent = 100.0 * float(np.mean(np.abs(errors))) / abs(mean)
    ratio = 1.0 if base is None or base.rmse is None else rmse / base.rmse
    return ToolboxRow(*made, rmse, spread, percent, ratio, refused, repetitions)


def _columns(one: ToolboxRow) -> list[str]:
    refused = f"{one.refused / one.repetitions:.1%}" if one.refused else ""
    if one.rmse is None or one.ratio is None or one.percent_error is None:
        return [one.method, one.neighbours, f"{one.delta:g}", "", "", "", refused]
    error = f"{one.rmse:.3g} ± {one.rmse_std_error:.1g}"
    numbers = [error, f"{one.percent_error:.3g}", f"{one.ratio:.3g}"]
    return [one.method, one.neighbours, f"{one.delta:g}", *numbers, refused]


def _draw(rows: tuple[ToolboxRow, ...], folder: Path) -> Path:
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes its time

    from flows.lab.replication.plots import plain_matplotlib, save_figure  # noqa: PLC0415 - likewise

    path = folder / f"{NAME}.svg"
    shown = [one for one in rows if one.rmse is not None][::-1]
    with plain_matplotlib({"svg.hashsalt": NAME}):
        figure = Figure(figsize=(8.5, 4.2), layout="constrained")
        axes = figure.subplots()
        for neighbours, color in ((COMES_OR_GOES, "C0"), (REPLACED, "C1")):
            of = [(y, one) for y, one in enumerate(shown) if one.neighbours == neighbours]
            axes.errorbar(
                [one.rmse or 0.0 for _, one in of],
                [y for y, _ in of],
                xerr=[2 * (one.rmse_std_error or 0.0) for _, one in of],
                fmt="o",
                color=color,
                label=f"a person {neighbours}",
            )
        axes.set_yticks(range(len(shown)), [one.method for one in shown])
        axes.set_xscale("log")
        axes.set_xlabel(f"root mean squared error of the mean age (epsilon {EPSILON:g})")
        axes.grid(linewidth=0.4)
        axes.legend(fontsize=8, frameon=False)
        save_figure(figure, path)
    return path
