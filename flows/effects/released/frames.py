"""Who benefits, as polars frames for the front door in Python."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import polars as pl

from flows.effects.released.findings import EFFECT, effect_row

if TYPE_CHECKING:
    from flows.effects.released.from_release import Findings

_EFFECT = dict.fromkeys(EFFECT, pl.Float64)


def ate_frame(found: "Findings") -> pl.DataFrame:
    """The average effect: one row, or none where there is no interval."""
    return pl.DataFrame([] if found.ate is None else [asdict(found.ate)], schema=_EFFECT)


def subgroups_frame(found: "Findings") -> pl.DataFrame:
    """A row a subgroup; its effect is null where ``refused`` says why there is none."""
    rows = [effect_row(one) for one in found.subgroups]
    texts = {"name": pl.String, "level": pl.String}
    return pl.DataFrame(rows, schema=texts | _EFFECT | {"refused": pl.String})


def curves_frame(found: "Findings") -> pl.DataFrame:
    """A row a point of a curve: a number's ``at``, or a ``level``."""
    kinds: dict[str, type[pl.DataType]] = {"feature": pl.String, "at": pl.Float64}
    kinds |= {"level": pl.String, "effect": pl.Float64, "noise_std_error": pl.Float64}
    rows: list[tuple[object, ...]] = []
    for curve in found.curves:
        of_noise = curve.noise_std_errors
        errors = [None] * len(curve.at) if of_noise is None else of_noise.tolist()
        for at, effect, error in zip(curve.at, curve.effects.tolist(), errors, strict=True):
            place = (None, at) if isinstance(at, str) else (at, None)
            rows.append((curve.feature, *place, effect, error))
    return pl.DataFrame(rows, schema=kinds, orient="row")


def importance_frame(found: "Findings") -> pl.DataFrame:
    """A row a feature, the greatest first."""
    schema = {"feature": pl.String, "importance": pl.Float64}
    return pl.DataFrame(list(found.importance), schema=schema, orient="row")
