"""Randomised response with a prior: the draw for every unit, and what it costs.

Each unit keeps its outcome with probability 1 − λ, else draws from q̃ of its stratum
(Algorithms 1 and 2 of Javanmard, Mirrokni and Pouget-Abadie 2025).
"""

from dataclasses import dataclass

import numpy as np

from privatizers.noise.alias_tables import AliasTables, alias_tables, chosen
from privatizers.noise.randomness import UNIT, random_words
from schemas.arrays import Floats, Integers, Ints, Levels

_BATCH = 1 << 15  # words, entries and levels of a batch stay in the processor's cache


@dataclass(frozen=True)
class ResponseTables:
    """A randomised response made ready, to draw any number of rows at any number of times.

    Nothing is kept between draws, so several threads may use the same tables at once.
    """

    resampling_probability: float
    priors: AliasTables

    def draw(self, levels: Integers, strata: Integers) -> Levels:
        """Return the randomised level of every unit, of the least unsigned type that holds K.

        Law, arguments and errors are those of :meth:`RandomisedResponse.draw`.
        """
        self._check(levels, strata)
        rate = np.uint64(round(self.resampling_probability * UNIT))
        drawn = np.empty(len(levels), dtype=self.priors.level_type)
        for start in range(0, len(levels), _BATCH):
            part = slice(start, start + _BATCH)
            kept = levels[part].astype(drawn.dtype)
            resampled = random_words(len(kept)) < rate
            fresh = self.priors.outcomes(random_words(len(kept)), strata[part])
            drawn[part] = chosen(resampled, fresh, kept)
        return drawn

    def _check(self, levels: Integers, strata: Integers) -> None:
        """Refuse what no table has a place for, without a word on whose it is."""
        for name, indices, count in (
            ("level is not on the grid", levels, self.priors.n_outcomes),
            ("unit's stratum has no prior", strata, len(self.priors.entries)),
        ):
            if len(indices) and not (indices.min() >= 0 and indices.max() < count):
                raise ValueError(f"a {name}")


@dataclass(frozen=True)
class RandomisedResponse:
    """Randomised response over strata with a prior each.

    ``resampling_probability`` λ and every entry of ``prior`` q̃ (shape [S, K], rows adding up to
    one) are multiples of 2⁻⁵³, so what is drawn has exactly the probabilities that are published.

    Guarantee: ln(1 + (1 − λ)/(λ γ)), γ the least entry any prior may have (Theorem 3.1's second
    term).
    """

    resampling_probability: float
    prior: Floats

    def tables(self) -> ResponseTables:
        """Make ready to draw: once, for rows that come batch by batch.

        It takes 8 S Kp bytes, Kp the power of two from K on: 128 MB for a million strata of 12
        outcomes, and about 2 s. Raises ValueError for a prior that is not as the class says.
        """
        return ResponseTables(self.resampling_probability, alias_tables(self.prior))

    def draw(self, levels: Integers, strata: Integers) -> Ints:
        """Return the randomised level of every unit.

        P(ỹ = j | y = i) = (1 − λ)·1{i = j} + λ q̃_j,

        where ``levels`` are positions on the grid (0 … K − 1) and ``strata`` rows of q̃, whole
        numbers of any type, both of shape [n]. Two 53-bit words a unit: the first decides whether
        to resample, the second where the draw falls (`alias_tables.py`).

        The short form of :meth:`tables` and :meth:`ResponseTables.draw`: tables are built at every
        call, for the strata from the first to the last that occur, and levels are widened so that
        arithmetic on them cannot overflow. Raises ValueError for a level or stratum that there is
        none of.
        """
        first = max(0, int(strata.min())) if len(strata) else 0
        stop = int(strata.max()) + 1 if len(strata) else 0
        here = RandomisedResponse(self.resampling_probability, self.prior[first:stop])
        drawn = here.tables().draw(levels, strata - first if first else strata)
        return drawn.astype(np.int64)
