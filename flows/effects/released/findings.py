"""What is known of who benefits, be it a model with noisy sums of its own or from a release."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final

from schemas.documents import fields_of, plain
from schemas.effects.model import Effect, SubgroupEffect

EFFECT: Final = tuple(one.name for one in fields(Effect))


def effects_json(
    ate: Effect | None,
    subgroups: Iterable[SubgroupEffect],
    importance: Iterable[tuple[str, float]],
) -> dict[str, Any]:
    """Return the average effect, those of subgroups, and what each feature matters, as JSON."""
    return {
        "ate": plain(ate),
        "subgroups": [effect_row(each) for each in subgroups],
        "importance": [{"feature": name, "importance": value} for name, value in importance],
    }


def effect_row(group: SubgroupEffect) -> dict[str, Any]:
    """Return a subgroup and the numbers of its effect beside it, None where it has none."""
    numbers = dict.fromkeys(EFFECT) if group.effect is None else fields_of(group.effect)
    return {"name": group.name, "level": group.level, **numbers, "refused": group.refused}
