"""Made-up logs of any size, written in chunks, so that 100 million rows are never in memory.

Unit ids are distinct and in no order: a one-to-one scrambling of the row's number. Outcomes are
Poisson and depend on arm and cluster. The same size gives the same log.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.arrays import Ints

CHUNK = 5_000_000
"""Rows of a file, at most."""

_BITS = 62
_MASK = np.uint64((1 << _BITS) - 1)
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03))
_DAY = 86_400_000_000  # microseconds
_BEGIN = 1_788_220_800_000_000  # 2026-09-01, in microseconds since 1970


@dataclass(frozen=True)
class UnitLog:
    """A log with a row for every unit."""

    n_units: int
    n_clusters: int = 1_000
    ids: str = ""
    """``text``, ``hex`` (as UUIDs are written), or integers."""
    units_per_stratum: int | None = None
    """Exactly so many in each (cluster, arm), instead of a random cluster and arm."""
    n_outcomes: int = 1
    """The columns ``clicks``, ``clicks_2``, …, all of one distribution."""

    @property
    def outcomes(self) -> list[str]:
        return ["clicks", *(f"clicks_{nth}" for nth in range(2, self.n_outcomes + 1))]

    def write(self, folder: Path) -> Path:
        """Write Parquet files into ``folder`` unless they are there; returns their glob."""

        def chunk(start: int, size: int) -> pl.DataFrame:
            generator = np.random.default_rng([1, start])
            cluster, arm = self._places(generator, start, size)
            mean = 2.0 + cluster % 10 / 10 + 0.3 * arm
            return pl.DataFrame(
                {
                    "customer_id": scrambled_ids(np.arange(start, start + size), self.ids),
                    "region": _names("r", cluster, self.n_clusters),
                    "variant": pl.Series(["none", "mail"]).gather(arm),
                    **{name: generator.poisson(mean).astype(np.int32) for name in self.outcomes},
                }
            )

        return write_log(folder, self.n_units, chunk)

    def _places(self, generator: np.random.Generator, start: int, size: int) -> tuple[Ints, Ints]:
        if self.units_per_stratum is not None:
            stratum = np.arange(start, start + size) // self.units_per_stratum
            return stratum // 2, stratum % 2
        return generator.integers(0, self.n_clusters, size), generator.integers(0, 2, size)


@dataclass(frozen=True)
class EventLog:
    """Exposures (each unit's first, and for every second unit a later one) and outcome events.

    Exposures take place within a day, outcome events within 14 days from then, so that a window of
    seven days holds about half of them.
    """

    n_units: int
    n_events: int
    """Exposures and outcome events together; five times ``n_units``, say."""
    n_clusters: int = 1_000

    @property
    def n_exposures(self) -> int:
        return self.n_units + self.n_units // 2

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write Parquet files into ``folder``; returns the globs of exposures and of outcomes."""
        exposures = write_log(folder / "exposures", self.n_exposures, self._exposures)
        return exposures, write_log(
            folder / "outcomes", self.n_events - self.n_exposures, self._outcomes
        )

    def _exposures(self, start: int, size: int) -> pl.DataFrame:
        generator = np.random.default_rng([2, start])
        row = np.arange(start, start + size)
        again = row >= self.n_units
        unit = np.where(again, (row - self.n_units) * 2, row)
        cluster, arm = unit * 7_919 % self.n_clusters, unit * 104_729 // 64 % 2
        moment = generator.integers(0, _DAY, size) + np.where(again, _DAY, 0)
        return pl.DataFrame(
            {
                "customer_id": scrambled_ids(unit),
                "region": _names("r", cluster, self.n_clusters),
                "variant": pl.Series(["none", "mail"]).gather(arm),
                "ts": _moments(moment),
            }
        )

    def _outcomes(self, start: int, size: int) -> pl.DataFrame:
        generator = np.random.default_rng([3, start])
        unit = generator.integers(0, self.n_units, size)
        moment = generator.integers(0, 14 * _DAY, size)
        return pl.DataFrame({"customer_id": scrambled_ids(unit), "ts": _moments(moment)})


def scrambled_ids(numbers: Ints, kind: str = "") -> pl.Series:
    """Ids in [0, 2⁶²), as integers, text or UUIDs; other numbers (below 2⁶²) have other ids.

    Each step can be undone (an odd factor modulo 2⁶², a shifted exclusive or), so no id repeats,
    whatever chunk it is made in.
    """
    mixed = numbers.astype(np.uint64)
    for factor in _ODD:
        mixed = mixed * factor & _MASK
        mixed ^= mixed >> np.uint64(31)
    ids = pl.Series(mixed.astype(np.int64))
    if kind == "hex":
        return _uuids(mixed)
    return "c" + ids.cast(pl.String) if kind == "text" else ids


def _uuids(numbers: NDArray[np.uint64]) -> pl.Series:
    """Each number as a UUID is written: itself, and once more scrambled, in 32 digits."""
    words = np.stack([numbers << np.uint64(2), numbers * _ODD[1]], axis=1)
    digits = np.frombuffer(words.astype(">u8").tobytes().hex().encode(), np.uint8).reshape(-1, 32)
    text = np.full((len(numbers), 36), ord("-"), np.uint8)
    places = [place for place in range(36) if place not in (8, 13, 18, 23)]
    text[:, places] = digits
    return pl.Series(text.view("S36").ravel()).cast(pl.String)


def _names(letter: str, codes: Ints, size: int) -> pl.Series:
    width = len(str(size - 1))
    if size <= 10_000:
        return pl.Series([f"{letter}{code:0{width}}" for code in range(size)]).gather(codes)
    return letter + pl.Series(codes).cast(pl.String).str.zfill(width)


def _moments(microseconds: Ints) -> pl.Series:
    return pl.Series(microseconds + _BEGIN).cast(pl.Datetime("us"))


def write_log(folder: Path, rows: int, chunk: Callable[[int, int], pl.DataFrame]) -> Path:
    """Write ``rows`` rows; a folder of this name is complete, as it gets its name at the end."""
    if not folder.exists():
        half = folder.with_name(folder.name + ".half")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        for number, start in enumerate(range(0, rows, CHUNK)):
            size = min(CHUNK, rows - start)
            chunk(start, size).write_parquet(half / f"part-{number:04}.parquet")
        half.rename(folder)
    return folder / "*.parquet"
