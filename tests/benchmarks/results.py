"""What was measured: runs of the contenders of a case, their medians and ratios."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.benchmarks.cases import Case, Contender
from tests.benchmarks.measure import Run


@dataclass(frozen=True)
class Spread:
    """A median, and the least and greatest of what it is of."""

    median: float
    least: float
    greatest: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        return Spread(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Measured:
    """The runs of one contender, in the order of the rounds."""

    contender: Contender
    runs: tuple[Run, ...]
    ratio: Spread
    """Of its time to the baseline's in the same round: the median of these ratios."""

    @property
    def seconds(self) -> Spread:
        return Spread.of([run.seconds for run in self.runs])

    @property
    def per_row(self) -> float:
        """Nanoseconds a row, the median."""
        return statistics.median(run.seconds_per_row for run in self.runs) * 1e9

    @property
    def peak_bytes(self) -> int:
        """The greatest of all rounds."""
        return max(run.peak_bytes for run in self.runs)

    @property
    def bytes_before(self) -> int:
        return int(statistics.median(run.bytes_before for run in self.runs))

    def detail(self, name: str) -> float | None:
        """The median of one of the details; None where no run has it."""
        values = [run.details[name] for run in self.runs if name in run.details]
        return statistics.median(values) if values else None

    @property
    def noise_share(self) -> float | None:
        """Seconds of discrete Laplace noise per second of the run, the median."""
        found = [run.details["noise"] / run.seconds for run in self.runs if "noise" in run.details]
        return statistics.median(found) if found else None

    @property
    def steps(self) -> dict[str, float]:
        """Seconds of each step of a flow, medians, in their order."""
        names = [name for name in self.runs[0].details if name.startswith("step ")]
        return {name.removeprefix("step "): self.detail(name) or 0.0 for name in names}


@dataclass(frozen=True)
class Result:
    """A case with what was measured, or why it could not be."""

    case: Case
    measured: tuple[Measured, ...] = ()
    failure: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "title": self.case.title,
            "baseline": self.case.baseline.name,
            "ratio_of": "seconds per row" if self.case.per_row else "seconds",
            "failure": self.failure,
            "contenders": [
                {
                    "name": one.contender.name,
                    "rows": one.contender.rows,
                    "seconds": asdict(one.seconds),
                    "nanoseconds_per_row": one.per_row,
                    "ratio": asdict(one.ratio),
                    "peak_bytes": one.peak_bytes,
                    "bytes_before": one.bytes_before,
                    "noise_share": one.noise_share,
                    "runs": [asdict(run) for run in one.runs],
                }
                for one in self.measured
            ],
        }


def result_of(case: Case, rounds: Sequence[Sequence[Run]]) -> Result:
    """Bring rounds (a run of each contender, in their order) into medians and ratios."""
    by_contender = list(zip(*rounds, strict=True))

    def time_of(run: Run) -> float:
        return run.seconds_per_row if case.per_row else run.seconds

    return Result(
        case,
        tuple(
            Measured(
                contender,
                tuple(runs),
                Spread.of(
                    [
                        time_of(run) / time_of(base)
                        for run, base in zip(runs, by_contender[0], strict=True)
                    ]
                ),
            )
            for contender, runs in zip(case.contenders, by_contender, strict=True)
        ),
    )
