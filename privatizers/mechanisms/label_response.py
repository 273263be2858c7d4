"""Private clusters: each unit's cluster is randomised before anything else uses it.

k-ary randomised response over k declared labels at ε₁ (Remark 2.1 of Javanmard, Mirrokni and
Pouget-Abadie 2025, where it holds). Strata, sizes, pools and weights are then computed from the
randomised labels, and outcomes are protected at ε₂ within them: ε₁ + ε₂ for a unit's outcome and
cluster together. Proof, and why clusters that are found privately are not enough:
`label_response.md`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privatizers.accounting.accountant import calibrate, pure_epsilon
from privatizers.accounting.events import Response
from privatizers.accounting.rounding import realised_threshold
from privatizers.mechanisms.prior import realised_prior, uniform_prior
from privatizers.mechanisms.randomised_response import RandomisedResponse, ResponseTables
from schemas.arrays import Integers, Levels


@dataclass(frozen=True)
class LabelResponse:
    """Randomised response over k labels: kept with probability 1 − λ, else drawn uniformly.

    P(l̃ = l) = 1 − λ + λ/k and λ/k for each other label, to k 2⁻⁵³. With λ = k/(e^ε₁ + k − 1) these
    are e^ε₁/(e^ε₁ + k − 1) and 1/(e^ε₁ + k − 1).

    Guarantee: ln(1 + (1 − λ)/(λ γ)) for a unit's label, γ the least share of a label as realised
    (1/k, rounded down to a multiple of 2⁻⁵³); δ = 0.
    """

    n_labels: int
    """k, at least 2."""
    resampling_probability: float
    """λ, a multiple of 2⁻⁵³."""

    def __post_init__(self) -> None:
        """Refuse a single label, which cannot be confused with another."""
        if self.n_labels < 2:
            raise ValueError(f"{self.n_labels} label: at least 2 are needed")

    @classmethod
    def of(cls, n_labels: int, epsilon: float) -> "LabelResponse":
        """Return the response of the least λ, a multiple of 2⁻⁵³, that costs at most ``epsilon``.

        The cost is compared with 60 digits, and with the lesser of the double and the decimal
        number that it prints as.

        Raises:
            ConfigError: ``epsilon`` is too small for any such λ.
        """
        return cls(n_labels, calibrate(epsilon, 0.0, _least_share(n_labels)))

    @property
    def event(self) -> Response:
        """The event that the `accountant` prices."""
        return Response(self.resampling_probability, _least_share(self.n_labels))

    @property
    def guarantee(self) -> float:
        """The pure ε of a label, rounded up to a double."""
        return pure_epsilon(self.event)

    @cached_property
    def _tables(self) -> ResponseTables:
        prior = realised_prior(uniform_prior(1, self.n_labels), _least_share(self.n_labels))
        return RandomisedResponse(self.resampling_probability, prior).tables()

    def draw(self, labels: Integers) -> Levels:
        """Return the randomised label of every unit: positions 0 … k − 1 in and out, shape [n].

        Draws from the operating system, two words of 53 bits a unit. Call it once a release: a
        second draw of the same labels costs ε₁ again.

        Raises:
            ValueError: A position is out of range; the error does not say whose.
        """
        everywhere = np.broadcast_to(np.uint8(0), len(labels))  # all units have one prior
        return self._tables.draw(labels, everywhere)


def _least_share(n_labels: int) -> float:
    return realised_threshold(1 / n_labels, n_labels)
