"""The results of `efficiency` as text for a terminal."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.lab.replication.efficiency.half import HalfRow, half_text
from flows.lab.replication.efficiency.noise import NoiseRow, cells, noise_text
from flows.runtime.terminal import table


@dataclass(frozen=True)
class EfficiencyRow:
    """The mean squared error of one estimator on one kind of release, from simulation."""

    epsilon: float
    delta: float
    effect_on: str
    """``everybody``, or ``half``: a segment that holds a random half of every cluster."""
    release: str
    estimator: str
    mse: float
    mse_std_error: float
    """The standard error of ``mse`` that is due to the number of repetitions."""
    privacy_mse: float
    """The mean squared error about the estimate without privacy from the same assignment."""
    ratio: float | None
    """``mse`` divided by that of ``ratio_to``."""
    ratio_std_error: float | None
    ratio_to: str | None
    repetitions: int
    mechanism: str
    levels: int
    strata_statistic: str
    statistic_share: float
    truncation_threshold: float | None
    resampling_probability: float | None
    noise_scale: float | None

    @property
    def threshold_in_shares(self) -> float | None:
        """γ K."""
        gamma = self.truncation_threshold
        return None if gamma is None else gamma * self.levels


_HEADS = {
    "everybody": "The effect on everybody; ratios to tau_q of the tuned Cluster-DP release",
    "half": "The effect on a random half; ratios to tau_q of Uniform-Prior-DP on the full grid",
}
_NOTES = (
    "Cluster-DP is tuned with the true outcomes known, over γ from 0.01/K to 0.6/K and 0.1 to 0.9 "
    "of epsilon for its counts. It is best at the end of both: where it is most like "
    "Uniform-Prior-DP, which it turns into without these bounds. Planned releases know sizes and a "
    "uniform guess alone.",
    "What is planned for everybody and a half weighs both effects alike (the sum of the logarithms "
    "of their variances), so it is less sharp for the half than what is planned for a half alone "
    "(overall_effect = false).",
)


def text_of(
    rows: Sequence[EfficiencyRow],
    noise: Sequence[NoiseRow],
    half: Sequence[HalfRow],
    figures: Sequence[Path],
    *,
    quick: bool,
) -> list[str]:
    """The results, line by line."""
    every = {row.repetitions for row in rows}
    n, few = max(every), min(every)
    lines = [
        "Experiment 1 of Javanmard, Mirrokni and Pouget-Abadie (2025), at equal sound epsilon",
        f"(delta {rows[0].delta:g}): 3,500 units in 3 clusters, 12 outcomes, a true effect of 1.",
        "Mean squared errors are about the true effect; ± is the standard error of the simulation.",
        f"{n:,} repetitions a row, {few:,} where tables are learnt"
        + (": a quick run, fewer epsilons and repetitions" if quick else ""),
    ]
    for effect_on, head in _HEADS.items():
        of_head = [row for row in rows if row.effect_on == effect_on]
        columns = ["epsilon", "release", "estimator", "mean squared error", "ratio"]
        lines += ["", head, *table(columns, [_error_cells(row) for row in of_head])]
    lines += ["", "how each release is made"]
    columns = ["epsilon", "release", "mechanism", "levels", "of strata", "its part", "γ K", "λ"]
    designs = {(row.epsilon, row.release): row for row in rows}.values()
    made = cells(
        designs,
        epsilon="g",
        release="",
        mechanism="",
        levels="",
        strata_statistic="",
        statistic_share=".1%",
        threshold_in_shares=".2g",
        resampling_probability=".5f",
    )
    lines += table(columns, made)
    lines += ["", *noise_text(noise), "", *half_text(half)]
    notes = [line for note in _NOTES for line in ("", *textwrap.wrap(note, 96))]
    return [*lines, *notes, "", *(f"figure: {path}" for path in figures)]


def _error_cells(row: EfficiencyRow) -> list[str]:
    error = ""
    if row.ratio is not None and row.ratio_std_error is not None:
        error = f"{100 * row.ratio:.3g} % ± {100 * row.ratio_std_error:.1g}"
    mse = f"{row.mse:.4g} ± {row.mse_std_error:.2g}"
    return [f"{row.epsilon:g}", row.release, row.estimator, mse, error]
