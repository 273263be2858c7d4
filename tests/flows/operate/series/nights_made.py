"""Nights of an experiment, released for tests: of new people, and of people who come back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tests.conftest import Experiment, a_log, build_experiment

DAYS = ("2026-11-01", "2026-11-02", "2026-11-04")
"""A day is missing."""
N_UNITS = 240


def nights(
    folder: Path, *, step: int = N_UNITS, days: Sequence[str] = DAYS, **sections: Any
) -> Experiment:
    """Release a log a day; ``step`` is by how many units each day's people are others."""
    logs = {f"logs/{day}.parquet": night_log(place * step) for place, day in enumerate(days)}
    given = {"source": {"path": "logs/{period}.parquet"}, **sections}
    built = build_experiment(folder, logs, **given)
    for day in days:
        built.run(day)
    return built


def night_log(first: int) -> pl.DataFrame:
    """A log of :data:`N_UNITS` of the units there are, from this one on."""
    return a_log(first + N_UNITS).slice(first)
