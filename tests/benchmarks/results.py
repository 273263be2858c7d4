"""What was measured: runs of the contenders of a case, their medians and ratios."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.benchmarks.case import Case, Contender
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
    processor_ratio: Spread
    """The same of processor seconds, which say less of waiting and more on a busy machine."""

    @property
    def seconds(self) -> Spread:
        return Spread.of([run.seconds for run in self.runs])

    @property
    def per_row(self) -> float:
        """Nanoseconds a row, the median."""
        return statistics.median(run.seconds / run.rows for run in self.runs) * 1e9

    @property
    def processor(self) -> Spread:
        return Spread.of([run.processor for run in self.runs])

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
    load: float = 0.0
    """Of the machine when the first round began."""

    @property
    def is_quiet(self) -> bool:
        """Whether times can be compared: the baseline's are within 10 % of their median."""
        seconds = self.measured[0].seconds
        near = 0.1 * seconds.median
        return seconds.greatest - near <= seconds.median <= seconds.least + near

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "title": self.case.title,
            "baseline": self.case.baseline.name,
            "ratio_of": "seconds per row" if self.case.per_row else "seconds",
            "failure": self.failure,
            "load": self.load,
            "is_quiet": self.is_quiet if self.measured else None,
            "contenders": [
                {
                    "name": one.contender.name,
                    "rows": one.contender.rows,
                    "seconds": asdict(one.seconds),
                    "processor_seconds": asdict(one.processor),
                    "nanoseconds_per_row": one.per_row,
                    "ratio": asdict(one.ratio),
                    "processor_ratio": asdict(one.processor_ratio),
                    "peak_bytes": one.peak_bytes,
                    "bytes_before": one.bytes_before,
                    "noise_share": one.noise_share,
                    "runs": [asdict(run) for run in one.runs],
                }
                for one in self.measured
            ],
        }


def result_of(case: Case, rounds: Sequence[Sequence[Run]], load: float = 0.0) -> Result:
    """Bring rounds (a run of each contender, in their order) into medians and ratios."""
    by_contender = [tuple(runs) for runs in zip(*rounds, strict=True)]
    return Result(
        case,
        tuple(
            Measured(
                contender,
                runs,
                _ratio(case, runs, by_contender[0], lambda run: run.seconds),
                _ratio(case, runs, by_contender[0], lambda run: run.processor),
            )
            for contender, runs in zip(case.contenders, by_contender, strict=True)
        ),
        load=load,
    )


def _ratio(
    case: Case, runs: Sequence[Run], base: Sequence[Run], cost: Callable[[Run], float]
) -> Spread:
    """What runs cost over what the baseline's of the same rounds did, by the row if so compared."""
    costs, of_base = (
        [cost(run) / (run.rows if case.per_row else 1) for run in some] for some in (runs, base)
    )
    return Spread.of([one / max(other, 1e-9) for one, other in zip(costs, of_base, strict=True)])
