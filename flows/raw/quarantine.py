"""Rows that are set aside: gathered without their outcome, kept where the operator alone looks."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl
import pyarrow.parquet as pq

from flows.raw.boundary.guard import errors_as, values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.reading.header import MOST_LABELS
from flows.raw.reading.parallel import in_batches
from flows.raw.reading.stores import LogFile
from flows.raw.spill.sorted_runs import Handed, SortedRuns, parts
from flows.raw.spill.unit_order import sort_rows
from flows.raw.spill.workspace import Workspace
from flows.runtime.files import private_directory, replace_file
from schemas.errors import ClusterdpError
from schemas.raw import ARM, FILE, NOT_DECLARED, PLACE, PUBLIC_COLUMNS, ROW, RULE, UNIT

_PLACE = "place"
_GROUP = 1 << 17  # rows of a row group, however many came at once: the same rows, the same bytes


HandedFaults = tuple[Handed, Counter[str]]
"""Rows with a fault that somebody else found, and how many of them break each rule."""


class FaultyRows:
    """Rows with a fault, as they are found; what does not fit into memory goes to the workspace."""

    def __init__(self, workspace: Workspace | None) -> None:
        """Begin without rows."""
        self._workspace = workspace
        self._runs = SortedRuns(workspace, "aside", by=_PLACE)
        self.by_rule: Counter[str] = Counter()

    @property
    def n_rows(self) -> int:
        """How many rows were set aside."""
        return self._runs.n_rows

    def add(self, rows: pl.DataFrame) -> None:
        """Take rows with their :data:`~schemas.raw.RULE` and public columns, as text.

        Those of a site come without a cluster, which is made of covariates there.
        """
        self.by_rule.update(dict(rows.group_by(RULE).len().iter_rows()))
        kept = [name for name in PUBLIC_COLUMNS if name in rows.columns]
        self._runs.add(rows.select(RULE, *kept, PLACE.alias(_PLACE)))

    def handed_over(self) -> HandedFaults:
        """These rows for who asked for them, as :meth:`SortedRuns.handed_over`."""
        return self._runs.handed_over(), self.by_rule

    def take_over(self, given: HandedFaults) -> None:
        """Take the rows that somebody else has handed over, too."""
        rows, by_rule = given
        self._runs.take_over(rows)
        self.by_rule.update(by_rule)

    def frames(self) -> Iterator[pl.DataFrame]:
        """The rows, in the order of the log, part by part; once, as they are held no longer."""
        for (part,) in parts([self._runs], self._workspace):
            if part is not None:
                yield sort_rows(part, _PLACE).drop(_PLACE)

    def undeclared(self) -> list[str]:
        """The labels of arms that nobody declared; none where they are too many for arms.

        To be asked in place of :meth:`frames`, as the rows are gone then.
        """
        labels: set[str] = set()
        for frame in self.frames():
            labels.update(frame.filter(pl.col(RULE) == NOT_DECLARED)[ARM].unique())
            if len(labels) > MOST_LABELS:
                return []
        return sorted(labels)


@dataclass(frozen=True)
class Quarantined:
    """The rows that were set aside, without their outcome, and the files they came from."""

    faulty_rows: FaultyRows
    files: tuple[LogFile, ...]


@values_free
def write_quarantine(
    folder: Path, aside: Sealed[Quarantined], release_id: str, *, says_how_much: bool = True
) -> None:
    """Keep what was set aside of a release where the operator alone can read it (mode 0600).

    ``RELEASE_ID.parquet`` in the quarantine folder has the file, row number, rule and public
    columns of each row. Where nothing was set aside, that of an earlier attempt at this release is
    removed; but of effect models there always is one, since whether a row is faulty is private
    there. Raises ClusterdpError where it cannot be written (a full disk, say).
    """
    found = aside.open()
    path = folder / f"{release_id}.parquet"
    if found.faulty_rows.n_rows == 0 and says_how_much:
        path.unlink(missing_ok=True)
        return
    private_directory(path.parent)

    def failed(error: OSError) -> ClusterdpError:
        reason = error.strerror
        return ClusterdpError(f"{path}: cannot keep the rows that were set aside here ({reason})")

    # How much there is to write may be private: then no run may fail by it.
    allowed = errors_as(failed, OSError) if says_how_much else suppress(OSError)
    with allowed, replace_file(path, mode=0o600) as file:
        _write(file, found)
        file.flush()
        os.fsync(file.fileno())


def _write(file: IO[bytes], found: Quarantined) -> None:
    names = pl.Series([str(path) for path in found.files])
    with ExitStack() as stack:  # a writer that is left open complains when it is taken apart
        writer: pq.ParquetWriter | None = None
        for frame in in_batches(found.faulty_rows.frames(), _GROUP):
            named = frame.with_columns(names.gather(frame[FILE]).alias(FILE))
            table = named.to_arrow(compat_level=pl.CompatLevel.oldest())
            writer = writer or stack.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)
        if writer is None:
            nothing = pl.DataFrame(schema=dict.fromkeys((RULE, UNIT, FILE), pl.String))
            nothing.with_columns(pl.lit(0).alias(ROW)).write_parquet(file)
