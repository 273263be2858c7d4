"""Rows that do not fit into memory, on a small scale; and the files that runs write for them."""

from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

BATCH = 150


class Spilled(NamedTuple):
    """A file of rows in a workspace, and what its name begins with."""

    path: Path
    name: str


def read_small_pieces(patch: pytest.MonkeyPatch) -> None:
    """Read small batches, and sample a sorted run as often as a long one is."""
    patch.setattr("flows.raw.reading.sources.BATCH", BATCH)
    patch.setattr("flows.raw.spill.sorted_runs._SAMPLED", 16)


def note_spilled(patch: pytest.MonkeyPatch) -> list[Spilled]:
    """Note every file of rows that is written into a workspace, in their order."""
    from flows.raw.spill import workspace  # noqa: PLC0415 - costs a unit test too much

    written: list[Spilled] = []
    write_frame = workspace.write_frame

    def noted(frame: pl.DataFrame, folder: Path, name: str) -> Path:
        path = write_frame(frame, folder, name)
        written.append(Spilled(path, name))
        return path

    patch.setattr(workspace, "write_frame", noted)
    return written
