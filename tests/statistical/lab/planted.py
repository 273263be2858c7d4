"""Bugs that are planted in the code of a release; the tests beside this plant each, and audit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from estimators.response.pool_statistics import ResponseNoise
from flows.config.model import experiment
from flows.raw import validate
from flows.raw.drawing import unit_stream
from flows.raw.drawing.strata_counts import LEVEL, StrataCounts, cells_of, count_strata
from flows.raw.drawing.tables import response_noise
from flows.raw.units.roster import roster_of
from flows.raw.units.rows import Rows
from privatizers.accounting.budget import Budget
from privatizers.mechanisms import label_response, paired_optimal_dp, parameters
from privatizers.mechanisms.cluster_dp import noisy_prior
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP, OptimalRelease
from privatizers.mechanisms.label_response import LabelResponse
from privatizers.mechanisms.mechanism import StrataRelease
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.prior import realised_prior, truncated_prior
from privatizers.mechanisms.randomised_response import RandomisedResponse, ResponseTables
from privatizers.mechanisms.statistics import margin_sums
from privatizers.mechanisms.statistics import noisy_counts as counts
from privatizers.mechanisms.statistics import noisy_squares as squares
from privatizers.mechanisms.statistics.noisy_counts import NoisyCounts
from privatizers.noise.randomness import discrete_laplace, random_words
from privatizers.optimal_response import learnt_guess
from privatizers.optimal_response import pair_table as tables
from privatizers.optimal_response.pairs import PairedGrid
from privatizers.optimal_response.programme import Randomiser
from privatizers.optimal_response.response import OptimalResponse, OutputTables
from privatizers.optimal_response.whole_numbers import ResponseTable, table_of
from privatizers.planning.design import Design
from privatizers.planning.optimal_design import OptimalDesign
from schemas.arrays import Floats, Integers, Ints, Levels
from schemas.raw import OUTCOME, numbered
from schemas.roster import Roster

Plant = Callable[[pytest.MonkeyPatch], None]


# of priors, noise and draws


def raw_prior(patch: pytest.MonkeyPatch) -> None:
    """The prior is made of the raw counts."""

    def broken(raw: Ints, parameters: Parameters) -> StrataRelease:
        honest, gamma = noisy_prior(raw, parameters), parameters.truncation_threshold
        prior = realised_prior(truncated_prior(raw, raw.sum(axis=1), gamma), gamma)
        return StrataRelease(
            honest.noisy_counts, RandomisedResponse(parameters.resampling_probability, prior)
        )

    patch.setattr("privatizers.mechanisms.cluster_dp.noisy_prior", broken)


def shared_noise(patch: pytest.MonkeyPatch) -> None:
    """Two arms of a pool get the same noise."""

    def broken(self: NoisyCounts, raw: Ints) -> Ints:
        half = (len(raw) + 1) // 2
        noise = discrete_laplace(half * raw.shape[1], self.noise_scale).reshape(half, -1)
        return raw + np.repeat(noise, 2, axis=0)[: len(raw)]

    patch.setattr(NoisyCounts, "noised", broken)


def short_rate(patch: pytest.MonkeyPatch) -> None:
    """Outcomes are resampled 3 % less often than is published."""
    honest = ResponseTables.draw

    def broken(self: ResponseTables, levels: Ints, strata: Ints) -> NDArray[np.unsignedinteger]:
        return honest(
            replace(self, resampling_probability=0.97 * self.resampling_probability), levels, strata
        )

    patch.setattr(ResponseTables, "draw", broken)


def short_labels(patch: pytest.MonkeyPatch) -> None:
    """Private clusters are resampled 5 % less often than they should be."""
    honest = LabelResponse.draw

    def broken(self: LabelResponse, labels: Ints) -> NDArray[np.unsignedinteger]:
        again = random_words(len(labels)) < np.uint64(0.05 * 2**53)
        return np.where(again, labels, honest(self, labels)).astype(np.uint8)

    patch.setattr(label_response.LabelResponse, "draw", broken)


def carried_remainders(patch: pytest.MonkeyPatch) -> None:
    """What rounding leaves of one outcome is carried to the next."""

    def broken(values: Floats, grid: Floats) -> Ints:
        lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
        share = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
        whole = np.floor(np.cumsum(share) + random_words(1)[0] * 2.0**-53)
        carried: Ints = lower + np.diff(whole, prepend=0.0).astype(np.int64)
        return carried

    patch.setattr("flows.raw.drawing.strata_counts.stochastic_levels", broken)


def ordered_by_outcome(patch: pytest.MonkeyPatch) -> None:
    """Units stand in the order of their outcomes."""
    honest = unit_stream._with_levels

    def broken(*given: Any) -> Any:
        yield pl.concat(honest(*given)).sort(LEVEL, maintain_order=True)

    patch.setattr("flows.raw.drawing.unit_stream._with_levels", broken)


def raw_shared_pool(patch: pytest.MonkeyPatch) -> None:
    """The counts of the shared pool, which comes last, are published as they are."""
    honest = NoisyCounts.noised

    def broken(self: NoisyCounts, raw: Ints) -> Ints:
        noisy = honest(self, raw)
        noisy[-2:] = raw[-2:]
        return noisy

    patch.setattr(NoisyCounts, "noised", broken)


def raw_weights(patch: pytest.MonkeyPatch) -> None:
    """What a mean weighs in a combination is worked out from the outcomes, not from the guess."""
    seen: list[Ints] = []

    def looking(*given: Any, **named: Any) -> StrataCounts:
        found = count_strata(*given, **named)
        seen.append(found.counts.sum(axis=0))
        return found

    def broken(design: Design | OptimalDesign, grid: Floats, _: Floats) -> ResponseNoise:
        return response_noise(design, grid, seen[-1] / seen[-1].sum())

    patch.setattr("flows.raw.privatize.count_strata", looking)
    patch.setattr("flows.raw.drawing.tables.response_noise", broken)


def short_noise(patch: pytest.MonkeyPatch) -> None:
    """The noise of counts is 30 % short."""
    patch.setattr(counts, "discrete_laplace", lambda n, scale: discrete_laplace(n, 0.7 * scale))


def one_raw_cell(patch: pytest.MonkeyPatch) -> None:
    """The count of the lowest outcome is published as it is."""
    honest = NoisyCounts.noised

    def broken(self: NoisyCounts, raw: Ints) -> Ints:
        noisy = honest(self, raw)
        noisy[:, 0] = raw[:, 0]
        return noisy

    patch.setattr(NoisyCounts, "noised", broken)


def no_threshold(patch: pytest.MonkeyPatch) -> None:
    """Priors go as low as the noisy counts do, under γ."""

    def broken(noisy: Ints, sizes: Ints, _: float) -> Floats:
        return truncated_prior(noisy, sizes, 2.0**-40)

    patch.setattr("privatizers.mechanisms.cluster_dp.truncated_prior", broken)
    patch.setattr(
        "privatizers.mechanisms.cluster_dp.realised_prior",
        lambda prior, _: realised_prior(prior, 0.0),
    )


def raw_last_unit(patch: pytest.MonkeyPatch) -> None:
    """The last unit of a batch is published as it is."""
    honest = ResponseTables.draw

    def broken(self: ResponseTables, levels: Ints, strata: Ints) -> NDArray[np.unsignedinteger]:
        drawn = honest(self, levels, strata)
        drawn[-1:] = levels[-1:]
        return drawn

    patch.setattr(ResponseTables, "draw", broken)


def repeated_noise(patch: pytest.MonkeyPatch) -> None:
    """A thirteenth: every call draws the same noise."""
    kept: dict[tuple[int, float], Ints] = {}

    def broken(size: int, scale: float) -> Ints:
        return kept.setdefault((size, scale), discrete_laplace(size, scale)).copy()

    patch.setattr(counts, "discrete_laplace", broken)


def short_square_noise(patch: pytest.MonkeyPatch) -> None:
    """The noise of sums of squares is 30 % short."""
    patch.setattr(squares, "discrete_laplace", lambda n, scale: discrete_laplace(n, 0.7 * scale))


def raw_squares(patch: pytest.MonkeyPatch) -> None:
    """Sums of squares are published as they are."""
    patch.setattr(squares, "discrete_laplace", lambda n, _: np.zeros(n, dtype=np.int64))


def half_margin_noise(patch: pytest.MonkeyPatch) -> None:
    """Sums of margins have half the noise that is stated."""
    patch.setattr(margin_sums, "discrete_laplace", lambda n, scale: discrete_laplace(n, scale / 2))


def unpaid_margins(patch: pytest.MonkeyPatch) -> None:
    """Sums of margins are published, and all of ε goes to everything else."""
    honest = parameters._statistics

    def broken(published: Any) -> Any:
        return honest(replace(published, margins=None))

    patch.setattr(parameters, "_statistics", broken)


# of learnt tables


def one_per_cent_over(patch: pytest.MonkeyPatch) -> None:
    """Tables are solved for an ε that is 1 % over what they should keep."""

    def broken(values: Floats, guess: Floats, epsilon: float, _: Randomiser) -> ResponseTable:
        return table_of(values, guess, 1.01 * epsilon)

    patch.setattr(learnt_guess, "table_of", broken)


def raw_guess(patch: pytest.MonkeyPatch) -> None:
    """Tables are learnt from raw counts; the noisy ones are published."""
    honest = ClusterOptimalDP.strata

    def broken(
        self: ClusterOptimalDP, counts: Ints, group: Ints | None = None, _: Floats | None = None
    ) -> OptimalRelease:
        noisy = honest(self, counts, group)
        arm = np.zeros(len(counts), dtype=np.int64) if group is None else group
        of_arms = np.zeros((int(arm.max()) + 1, counts.shape[1]), dtype=np.int64)
        np.add.at(of_arms, arm, counts)
        learnt = None if noisy.noisy_arms is None else of_arms
        response = self.response(counts, counts.sum(axis=1), group, learnt)
        return replace(noisy, response=response)

    patch.setattr(ClusterOptimalDP, "strata", broken)


def learnt_weights(patch: pytest.MonkeyPatch) -> None:
    """What a mean weighs in a combination is worked out from the learnt tables."""
    honest, seen = ClusterOptimalDP.response, list[OptimalResponse]()

    def watching(self: ClusterOptimalDP, *published: Any) -> OptimalResponse:
        seen.append(honest(self, *published))
        return seen[-1]

    def broken(self: ClusterOptimalDP, guess: Floats) -> ResponseNoise:
        response = seen[-1] if seen else self._public(1)
        functions, occurs = response.functions, guess @ response.probabilities[-1]
        return ResponseNoise(
            float(occurs @ functions.noise[-1]), float(occurs @ functions.square_noise[-1])
        )

    patch.setattr(ClusterOptimalDP, "response", watching)
    patch.setattr(ClusterOptimalDP, "response_noise", broken)


def kept_more_often(patch: pytest.MonkeyPatch) -> None:
    """With 1 % a unit gets the output that its outcome has likelier than any other outcome."""
    honest, tables = OutputTables.draw, OptimalResponse.tables
    telling: list[Ints] = []

    def watching(self: OptimalResponse) -> OutputTables:
        least = self.units.min(axis=1, keepdims=True)
        telling[:] = [np.argmax(np.where(self.units > 1.5 * least, self.units, 0), axis=2)]
        return tables(self)

    def broken(self: OutputTables, levels: Integers, strata: Integers) -> Levels:
        drawn = honest(self, levels, strata)
        again = random_words(len(drawn)) < np.uint64(0.01 * 2**53)
        kept = telling[0][self.table_of[strata.astype(np.int64)], levels.astype(np.int64)]
        return np.where(again, kept, drawn).astype(drawn.dtype)

    patch.setattr(OptimalResponse, "tables", watching)
    patch.setattr(OutputTables, "draw", broken)


def arms_with_less_noise(patch: pytest.MonkeyPatch) -> None:
    """Counts of arms get 30 % less noise than is stated; nothing of strata is published."""
    honest = NoisyCounts.noised

    def broken(self: NoisyCounts, counts: Ints) -> Ints:
        return honest(replace(self, noise_scale=0.7 * self.noise_scale), counts)

    patch.setattr(NoisyCounts, "noised", broken)


# of several outcomes


def shared_coins(patch: pytest.MonkeyPatch) -> None:
    """Of each unit all outcomes are kept, or none."""
    honest = unit_stream._OutcomeDrawing.places
    kept: list[np.ndarray] = []

    def broken(self: Any, levels: Levels, cells: Any) -> Any:
        places = honest(self, levels, cells)
        size = len(self.outputs)
        if self.name == "clicks":
            kept[:] = [places == levels]
            return places
        return np.where(kept[0], levels, (levels + 1) % size).astype(places.dtype)

    patch.setattr(unit_stream._OutcomeDrawing, "places", broken)


def undivided_shares(patch: pytest.MonkeyPatch) -> None:
    """Every outcome is released at all of ε, as if it were alone; the claim is ε."""

    def broken(whole: Budget, shares: Sequence[Fraction]) -> tuple[Budget, ...]:
        return (Budget(whole.epsilon),) * len(shares)

    patch.setattr(experiment, "parts_of", broken)


def pair_over(patch: pytest.MonkeyPatch) -> None:
    """The table of a pair of outcomes is solved at 1.04 ε."""
    honest = tables.pair_table

    def broken(first: PairedGrid, second: PairedGrid) -> tables.PairTable:
        more = [PairedGrid(one.values, one.guess, 1.04 * one.epsilon) for one in (first, second)]
        made = honest(*more)
        return tables.PairTable(first, second, made.units, made.values)

    patch.setattr(paired_optimal_dp, "pair_table", broken)


def drawn_twice(patch: pytest.MonkeyPatch) -> None:
    """One unit in fifty is drawn once more for the second outcome: that would cost ε twice."""
    honest = unit_stream._Drawing.drawn

    def broken(self: unit_stream._Drawing, frame: pl.DataFrame) -> pl.DataFrame:
        drawn, cells = honest(self, frame), cells_of(frame, self.cells)
        name = numbered(unit_stream._PLACE, 1)
        again = self.outcomes[0].tables.draw(np.zeros(len(cells), dtype=np.int64), cells)
        once = np.arange(len(cells)) % 50 > 0
        second = np.where(once, drawn[name].to_numpy(), again).astype(again.dtype)
        return drawn.with_columns(pl.Series(name, second))

    patch.setattr(unit_stream._Drawing, "drawn", broken)


# in one place alone


def _less_noise(honest: Any, self: NoisyCounts, raw: Ints, where: Any) -> Ints:
    """Noisy counts, those ``where`` with noise of half the scale."""
    noisy: Ints = honest(self, raw)
    less = honest(replace(self, noise_scale=self.noise_scale / 2), raw)
    return np.where(where[:, np.newaxis], less, noisy)


def half_noise_in_one_stratum(patch: pytest.MonkeyPatch) -> None:
    """The noise of the third stratum is halved."""
    honest = NoisyCounts.noised

    def broken(self: NoisyCounts, raw: Ints) -> Ints:
        return _less_noise(honest, self, raw, np.arange(len(raw)) == 2)

    patch.setattr(NoisyCounts, "noised", broken)


def half_noise_of_large_pools(patch: pytest.MonkeyPatch) -> None:
    """The noise of pools with over 5,000 units is halved."""
    honest = NoisyCounts.noised

    def broken(self: NoisyCounts, raw: Ints) -> Ints:
        return _less_noise(honest, self, raw, raw.sum(axis=1) > 5_000)

    patch.setattr(NoisyCounts, "noised", broken)


def learnt_from_another_arm(patch: pytest.MonkeyPatch) -> None:
    """Tables of the first arm are learnt from the raw counts of the second."""
    honest = ClusterOptimalDP.strata

    def broken(
        self: ClusterOptimalDP, raw: Ints, group: Ints | None = None, _: Floats | None = None
    ) -> OptimalRelease:
        made = honest(self, raw, group)
        if group is None or made.noisy_counts is None:
            return made
        guess = made.noisy_counts.copy()
        guess[group == 0] = np.resize(raw[group == 1], guess[group == 0].shape)
        response = self.response(guess, raw.sum(axis=1), group, made.noisy_arms)
        return replace(made, response=response)

    patch.setattr(ClusterOptimalDP, "strata", broken)


# of the ledger


def household_pays_once(patch: pytest.MonkeyPatch) -> None:
    """Whoever pays for several rows is charged for one."""

    def broken(cost: Budget, _: int) -> Budget:
        return cost

    patch.setattr("flows.ledger.rules.of_group", broken)
    patch.setattr("flows.config.model.experiment.of_group", broken)


# of what is public


def set_aside_by_outcome(patch: pytest.MonkeyPatch) -> None:
    """One of the units with the lowest outcome is left out."""
    honest = validate._Judge._finished

    def broken(self: Any, rows: pl.DataFrame) -> pl.DataFrame:
        made = honest(self, rows)
        if made.is_empty():
            return made
        return made.filter(pl.Series(np.arange(made.height) != int(made[OUTCOME].arg_min() or 0)))

    patch.setattr(validate._Judge, "_finished", broken)


def _roster(patch: pytest.MonkeyPatch, change: Callable[[Roster, float], Roster]) -> None:
    """Change what is told of a log, knowing the mean outcome."""
    honest = roster_of

    def broken(config: Any, rows: Rows, by_rule: dict[str, int]) -> Roster:
        found = pl.concat([frame[OUTCOME] for frame in rows.frames()])
        mean = found.mean()
        assert isinstance(mean, float)
        return change(honest(config, rows, by_rule), mean)

    patch.setattr(validate, "roster_of", broken)


def sample_ratio_by_outcome(patch: pytest.MonkeyPatch) -> None:
    """The p-value of the arm sizes hangs on outcomes a little."""
    _roster(patch, lambda roster, mean: replace(roster, sample_ratio_p=0.5 + 1e-6 * mean))


def warning_by_outcome(patch: pytest.MonkeyPatch) -> None:
    """A warning is told where most outcomes are the lowest."""
    _roster(patch, lambda one, mean: replace(one, notes=("few clicks",)) if mean < 0.5 else one)


def failing_by_outcome(patch: pytest.MonkeyPatch) -> None:
    """The run fails where all outcomes are the lowest."""

    def change(roster: Roster, mean: float) -> Roster:
        if mean == 0.0:
            raise ZeroDivisionError
        return roster

    _roster(patch, change)


def workers_order_by_outcome(patch: pytest.MonkeyPatch) -> None:
    """Units stand in the order of their outcomes, where workers draw ids as they are."""
    honest = unit_stream._drawn_by_workers

    def broken(drawing: Any, parts: Any, workspace: Any) -> Iterator[pl.DataFrame]:
        if drawing.config.publish.unit_id == "keyed-hash":
            yield from honest(drawing, parts, workspace)
            return
        for part, levels in parts:
            frame = drawing.frame(part, levels)
            yield drawing.drawn(frame.sort(LEVEL, maintain_order=True))

    patch.setattr(unit_stream, "_drawn_by_workers", broken)


def hashed_order_by_outcome(patch: pytest.MonkeyPatch) -> None:
    """Units stand in the order of their outcomes, where ids are hashed in memory."""
    honest = unit_stream._with_hashed_ids

    def broken(*given: Any) -> Iterator[pl.DataFrame]:
        yield pl.concat(honest(*given)).sort(LEVEL, maintain_order=True)

    patch.setattr(unit_stream, "_with_hashed_ids", broken)


def kept_noise(patch: pytest.MonkeyPatch) -> None:
    """The noise of one period is that of the next."""
    honest = NoisyCounts.noised
    seen: dict[tuple[int, ...], Ints] = {}

    def broken(self: NoisyCounts, raw: Ints) -> Ints:
        return raw + seen.setdefault(raw.shape, honest(self, raw) - raw)

    patch.setattr(NoisyCounts, "noised", broken)
