"""What is known of who benefits, be it a model with noisy sums of its own or from a release."""

from dataclasses import fields
from typing import Any, Final, Protocol

from schemas.documents import fields_of, plain
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


EFFECT: Final = tuple(one.name for one in fields(Effect))


def effects_json(found: Findings) -> dict[str, Any]:
    """Return the average effect, those of subgroups, and what each feature matters, as JSON."""
    return {
        "ate": plain(found.ate),
        "subgroups": [effect_row(each) for each in found.subgroups],
        "importance": [
            {"feature": feature, "importance": value} for feature, value in found.importance
        ],
    }


def effect_row(group: SubgroupEffect) -> dict[str, Any]:
    """Return a subgroup and the numbers of its effect beside it, None where it has none."""
    numbers = dict.fromkeys(EFFECT) if group.effect is None else fields_of(group.effect)
    return {"name": group.name, "level": group.level, **numbers, "refused": group.refused}
