"""What the authors found, looked for in the rows: what privacy adds, and who is better."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.lab.replication.cate.rows import CateRow

LARGE = 10_000
"""People: from how many on they say that flexible learners beat an average at ε = 1."""


@dataclass(frozen=True)
class CateFinding:
    """Of one learner in one set-up, at one n: errors with little privacy and with much.

    They found that privacy adds variance much more than bias ("often by about a factor of 10",
    against "at most 2"), and that at ε = 1 a learner needs over 10,000 people to beat an average.
    """

    set_up: str
    learner: str
    n: int
    strict_epsilon: float
    loose_epsilon: float
    variance_ratio: float
    """Variance at the strict ε over that at the loose one."""
    squared_bias_ratio: float | None
    """Squared bias likewise; None where an estimate is not above 0."""
    strict_over_average: float | None
    """Error at the strict ε over Var τ, which who knows the average has; None if all effects are
    equal."""
    beats_average_from: int | None
    """The least n from which on the error at the strict ε is below Var τ; None if there is none."""


COLUMNS = [
    "set-up", "learner", "n", "epsilon", "variance x", "squared bias x", "error/Var(tau)",
    "below it from n",
]  # fmt: skip


def findings(rows: Sequence[CateRow]) -> tuple[CateFinding, ...]:
    """Return one for each learner and set-up of ``rows`` with two ε at least."""
    cells: dict[tuple[str, str], list[CateRow]] = {}
    for row in rows:
        cells.setdefault((row.set_up, row.learner), []).append(row)
    return tuple(found for of in cells.values() for found in _finding(of))


def _finding(rows: Sequence[CateRow]) -> Iterator[CateFinding]:
    sizes = sorted({row.n for row in rows})
    n = next((size for size in sizes if size > LARGE), sizes[-1])
    at_n = sorted((row for row in rows if row.n == n), key=lambda row: row.epsilon)
    strict, loose = at_n[0], at_n[-1]
    if strict.epsilon == loose.epsilon:
        return
    are_above = min(strict.squared_bias, loose.squared_bias) > 0.0
    bias = strict.squared_bias / loose.squared_bias if are_above else None
    spread = strict.effect_variance
    yield CateFinding(
        set_up=strict.set_up,
        learner=strict.learner,
        n=n,
        strict_epsilon=strict.epsilon,
        loose_epsilon=loose.epsilon,
        variance_ratio=strict.variance / loose.variance,
        squared_bias_ratio=bias,
        strict_over_average=strict.mse / spread if spread else None,
        beats_average_from=_beats(rows, strict.epsilon),
    )


def _beats(rows: Sequence[CateRow], epsilon: float) -> int | None:
    least = None
    for row in sorted((row for row in rows if row.epsilon == epsilon), key=lambda row: -row.n):
        if row.mse >= row.effect_variance:
            break
        least = row.n
    return least


def as_cells(finding: CateFinding) -> list[str]:
    """The finding as a line of a table."""
    bias, over = finding.squared_bias_ratio, finding.strict_over_average
    least = finding.beats_average_from
    return [
        finding.set_up,
        finding.learner,
        f"{finding.n:,}",
        f"{finding.loose_epsilon:g} to {finding.strict_epsilon:g}",
        f"{finding.variance_ratio:.3g}",
        "" if bias is None else f"{bias:.2g}",
        "" if over is None else f"{over:.3g}",
        "" if least is None else f"{least:,}",
    ]
