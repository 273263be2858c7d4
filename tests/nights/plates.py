"""Files of releases that cost a night next to nothing: printed from one that the program has made.

The first release of its kind is written and estimated by the program's own steps. Those that follow
are copies with their own id, period and revision, so that all that reads them finds a release. What
was drawn is the same in all of them: nights are about ledgers, names and words.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import duckdb

from flows.released.estimates.release import Forecast, MadeEstimates, estimate
from flows.released.publish import FileDraft, new_draft, publish
from flows.runtime.files import cannot_write
from schemas.released import Manifest, ReleaseTables
from tests.nights.wire import Wire

_OWN = "release_id = ?, period = ?, revision = ?, created_at = ?"
_SMALL_BLOCKS = {"default_block_size": 1 << 14}
"""In place of 256 KB: files are a fifth as large, and each step of a life reads or copies them."""
Kind = tuple[object, ...]


@dataclass
class Sheet:
    """The file of a night: a draft where it is the first of its kind, else a copy."""

    path: Path
    memory: int | None
    _open: ExitStack
    draft: FileDraft | None = None

    def make(self, tables: ReleaseTables) -> None:
        """Write a draft by the program's own step, into blocks that hold little."""
        with patch("flows.released.publish.memory_limit", lambda _: _SMALL_BLOCKS):
            self.draft = self._open.enter_context(new_draft(self.path, self.memory))
        publish(tables, self.draft)

    def close(self) -> None:
        """Close the file."""
        self._open.close()


@contextmanager
def new_sheet(path: Path, memory: int | None, n_rows: int) -> Iterator[Sheet]:
    """Name the file of a night, in place of making a draft."""
    with ExitStack() as stack:
        yield Sheet(path, memory, stack)


@dataclass
class Plates:
    """The files by kind, in a folder; they outlive a life."""

    folder: Path
    _known: dict[Kind, tuple[Path, MadeEstimates]] = field(default_factory=dict)
    _now: tuple[Kind, Manifest] | None = None

    def publish(self, wire: Wire, tables: ReleaseTables, sheet: Sheet) -> None:
        """Write a draft, in place of the step of that name."""
        manifest = tables.manifest
        kind: Kind = (manifest.experiment, manifest.account, manifest.n_units)
        self._now = kind, manifest
        known = self._known.get(kind)
        try:
            wire.act("write", lambda: None)
        except OSError as error:  # told as the step itself tells it
            raise cannot_write(sheet.path.parent.parent, error.strerror) from None
        if known is None:
            sheet.make(tables)
            return
        shutil.copyfile(known[0], sheet.path)
        with duckdb.connect(str(sheet.path), config={"threads": 1}) as connection:
            created = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
            own = [manifest.release_id, manifest.period, manifest.revision, created]
            connection.execute(f"UPDATE release SET {_OWN}", own)

    def estimate(self, sheet: Sheet, forecast: Forecast | None) -> MadeEstimates:
        """Estimate from a draft, in place of the step of that name."""
        assert self._now is not None
        kind, manifest = self._now
        if kind not in self._known:
            assert sheet.draft is not None
            made = estimate(sheet.draft, forecast)
            sheet.close()
            kept = self.folder / f"{manifest.release_id}.{len(self._known)}"
            shutil.copyfile(sheet.path, kept)
            self._known[kind] = kept, made
        return self._known[kind][1]
