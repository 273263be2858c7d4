"""What the literature claims, what we find when we run it again, and a verdict on each.

A claim is a fact of print: where it stands, the figure there, and between which bounds our own has
to lie for it to hold, or to hold in part. An experiment measures its claims, and nothing else knows
an answer: a claim that nothing was measured for was not tried, with the reason.
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.random import Generator, default_rng

from flows.lab.replication.panels import Panel
from flows.runtime.terminal import table
from schemas.arrays import Floats
from schemas.documents import Document

Guarantee = Literal["printed", "sound", "none"]
"""Whose epsilon our figure is at: the paper's own accounting, the product's, or no matter whose."""
Verdict = Literal["holds", "in part", "does not hold", "not tried here"]
Bounds = tuple[float, float]
Measured = Mapping[str, tuple[float, float]]
"""Our figure and its Monte Carlo standard error (0 where it is exact), by the key of a claim."""

TABLE: Final = Path(__file__).with_suffix(".csv")
"""The table of claims, a line each."""
VARIABLE: Final = "CLUSTERDP_TEST_DATA"
"""Of the environment: a folder with data sets, where none is named."""
_SEED: Final = 2025


@dataclass(frozen=True)
class Claim:
    """What is printed somewhere, and what of our own would agree with it."""

    key: str
    source: str
    claim: str
    printed: str
    guarantee: Guarantee
    holds: Bounds
    """Our figure lies here, ends included, where the claim holds."""
    in_part: Bounds | None
    """The same for a claim that holds in part."""
    why: str
    """One line on what is found."""

    def verdict(self, ours: float) -> Verdict:
        """What our figure says of it."""
        low, high = self.holds
        if low <= ours <= high:
            return "holds"
        low, high = self.in_part or (inf, -inf)
        return "in part" if low <= ours <= high else "does not hold"


@dataclass(frozen=True)
class Row:
    """A claim with what was found; ``ours`` is None where it was not tried."""

    source: str
    claim: str
    printed: str
    ours: float | None
    std_error: float | None
    """Of Monte Carlo; 0 where ``ours`` is exact."""
    guarantee: Guarantee
    verdict: Verdict
    why: str

    @property
    def number(self) -> str:
        """Our figure with its error, for people."""
        if self.ours is None or self.std_error is None:
            return "–"
        if not self.std_error:
            return _plain(self.ours, 5)
        return f"{_plain(self.ours, 4)} ± {_plain(self.std_error, 1)}"


def _plain(value: float, digits: int) -> str:
    """So many digits, and no exponent where it is no very small number."""
    return f"{value:,.0f}" if abs(value) >= 10.0**digits else f"{value:,.{digits}g}"


class NotTriedError(Exception):
    """What an experiment needs is not here; the message says what."""


@dataclass(frozen=True)
class Run:
    """How an experiment is to be run."""

    quick: bool
    data: Path | None
    """A folder with data sets; None for those that need none."""
    full: bool = False
    """As many settings and repetitions as are printed, which may take hours."""
    random: Generator = field(default_factory=lambda: default_rng(_SEED))

    def file(self, path: Path) -> Path:
        """Return a file of the data folder. Raises NotTriedError where it is not there."""
        if self.data is None or not (self.data / path).is_file():
            raise NotTriedError(f"needs {path} in a folder named with --data")
        return self.data / path


Found = tuple[Measured, tuple[Panel, ...]]
"""What was measured, and panels for the figure."""
Measure = Callable[[Run], Found]


def claims_of(experiment: str) -> dict[str, list[Claim]]:
    """Return the claims of an experiment, by the part of it that measures them, from claims.csv."""
    found: dict[str, list[Claim]] = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["experiment"] == experiment:
                found.setdefault(row["part"], []).append(_claim(row))
    return found


def _claim(row: dict[str, str]) -> Claim:
    of = {one.name: row[one.name] for one in fields(Claim) if one.name in row}
    holds, in_part = ((row[f"{of}least"], row[f"{of}most"]) for of in ("", "in_part_"))
    partly = _bounds(*in_part) if any(in_part) else None
    return Claim(**of, holds=_bounds(*holds), in_part=partly)  # type: ignore[arg-type] # a test reads all


def _bounds(low: str, high: str) -> Bounds:
    return float(low or "-inf"), float(high or "inf")


def judged(
    claims: Iterable[Claim], measure: Measure, run: Run
) -> tuple[list[Row], tuple[Panel, ...]]:
    """Measure claims, and judge every one."""
    try:
        measured, panels = measure(run)
    except NotTriedError as reason:
        return [_row(one, None, str(reason)) for one in claims], ()
    return [_row(one, measured[one.key], one.why) for one in claims], panels


def _row(one: Claim, found: tuple[float, float] | None, why: str) -> Row:
    ours, error = (None, None) if found is None else map(float, found)
    verdict = "not tried here" if ours is None else one.verdict(ours)
    return Row(one.source, one.claim, one.printed, ours, error, one.guarantee, verdict, why)


@dataclass(frozen=True)
class Replication(Document):
    """What was found of one experiment, or of all."""

    name: str
    quick: bool
    claims: tuple[Row, ...]
    panels: tuple[Panel, ...]
    """What figures show."""
    figures: tuple[Path, ...]

    def text(self) -> str:
        """A line a claim, and how many have which verdict."""
        lines = table(
            ["source", "claim", "printed", "ours", "epsilon", "verdict"],
            [
                [one.source, one.claim, one.printed, one.number, one.guarantee, one.verdict]
                for one in self.claims
            ],
        )
        figures = [f"figure: {path}" for path in self.figures]
        return "\n".join([*lines, "", tally(self.claims), "", *figures])


def jackknife(value: Callable[..., float], *draws: Floats) -> tuple[float, float]:
    """Return a value of means, and its standard error, leaving out one draw at a time.

    ``draws`` have the shape [n, ...], draws of one row being of the same people; ``value`` is given
    the mean of each.
    """
    n, sums = len(draws[0]), [one.sum(axis=0) for one in draws]
    left = [
        value(*((total - one[at]) / (n - 1) for total, one in zip(sums, draws, strict=True)))
        for at in range(n)
    ]
    return value(*(total / n for total in sums)), float(np.sqrt((n - 1) * np.var(left)))


def paired_ratio(above: Floats, below: Floats) -> tuple[float, float]:
    """Return the ratio of means, of several settings the geometric mean, and its standard error."""
    return jackknife(geometric, above, below)


def geometric(above: Floats, below: Floats) -> float:
    """The geometric mean of ratios."""
    return float(np.exp(np.mean(np.log(above / below))))


def mean_of(values: Floats) -> tuple[float, float]:
    """Return the mean and its standard error; shape [n]."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def tally(rows: Iterable[Row]) -> str:
    """How many claims there are with each verdict."""
    verdicts = [one.verdict for one in rows]
    counts = (f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts))
    return f"{len(verdicts)} claims: {', '.join(counts)}."
