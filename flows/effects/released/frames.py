"""Who benefits, as polars frames for the front door in Python."""

from dataclasses import asdict

import polars as pl

from flows.effects.released.findings import EFFECT, Findings, effect_row

_EFFECT = dict.fromkeys(EFFECT, pl.Float64)


def ate_frame(found: Findings) -> pl.DataFrame:
    """The average effect: one row, or none where there is no interval."""
    return pl.DataFrame([] if found.ate is None else [asdict(found.ate)], schema=_EFFECT)


def subgroups_frame(found: Findings) -> pl.DataFrame:
    """A row a subgroup; its effect is null where ``refused`` says why there is none."""
    rows = [effect_row(one) for one in found.subgroups]
    texts = {"name": pl.String, "level": pl.String}
    return pl.DataFrame(rows, schema=texts | _EFFECT | {"refused": pl.String})


def curves_frame(found: Findings) -> pl.DataFrame:
    """A row a point of a curve: a number's ``at``, or a ``level``."""
    rows = [
        {
            "feature": curve.feature,
            "at": None if isinstance(at, str) else at,
            "level": at if isinstance(at, str) else None,
            "effect": float(curve.effects[place]),
            "noise_std_error": None
            if curve.noise_std_errors is None
            else float(curve.noise_std_errors[place]),
        }
        for curve in found.curves
        for place, at in enumerate(curve.at)
    ]
    kinds: dict[str, type[pl.DataType]] = {"feature": pl.String, "at": pl.Float64}
    kinds |= {"level": pl.String, "effect": pl.Float64, "noise_std_error": pl.Float64}
    return pl.DataFrame(rows, schema=kinds)


def importance_frame(found: Findings) -> pl.DataFrame:
    """A row a feature, the greatest first."""
    schema = {"feature": pl.String, "importance": pl.Float64}
    return pl.DataFrame(list(found.importance), schema=schema, orient="row")
