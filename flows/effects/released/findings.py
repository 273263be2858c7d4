"""What is known of who benefits, be it a model with noisy sums of its own or from a release."""

from typing import Protocol

from schemas.effects.model import Curve, Effect, EffectDesign, NoisySums, SubgroupEffect


class Findings(Protocol):
    """What pages, tables and documents are made of."""

    @property
    def design(self) -> EffectDesign:
        """What was declared."""

    @property
    def n_rows(self) -> int:
        """All units."""

    @property
    def sums(self) -> tuple[NoisySums, ...]:
        """Noisy sums; none where it is from a release."""

    @property
    def degree(self) -> int:
        """Of the polynomials of numbers, 1 or 2."""

    @property
    def ate(self) -> Effect | None:
        """The average effect."""

    @property
    def subgroups(self) -> tuple[SubgroupEffect, ...]:
        """The effects of all subgroups."""

    @property
    def no_intervals(self) -> str | None:
        """Why there are no intervals, in words."""

    @property
    def importance(self) -> tuple[tuple[str, float], ...]:
        """Variance of each feature's curve, the greatest first."""

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The effect along each feature."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to be careful about, in words."""
