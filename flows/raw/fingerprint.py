"""Keyed digests of what a release is made from, by which a later run knows the same again.

They depend on outcomes: without the key anybody could try out logs until one fits. It is made on
first use and kept with the rows that were set aside, on the ledger's private side.
"""

import hmac
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config.model.declared import LogFacts
from flows.ledger.rules import Fingerprint
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.units.rows import Rows, positions
from flows.runtime.progress import Progress
from flows.runtime.reading.key_files import kept_key
from schemas.canonical_ids import text_buffers
from schemas.raw import ARM, CLUSTER, OUTCOME, PAYER, UNIT, several

KEY_FILE = "digest.key"
_LOST = (
    "without it a period that was published can no longer be told to be unchanged, and counts as "
    "in conflict"
)


@dataclass(frozen=True)
class Stretch:
    """A stretch of what is digested: its length in bytes, and it, in pieces."""

    length: int
    pieces: Iterable[bytes | memoryview]


@values_free
def fingerprint(facts: LogFacts, rows: Sealed[Rows], settings: bytes, folder: Path) -> Fingerprint:
    """Digest the kept ``rows``, their unit ids alone, and the settings that can affect a release.

    ``settings`` is one spelling of these, and the key lies in ``folder``. Each digest is ``k-`` and
    a short name of the key, a colon, and HMAC-SHA-256 in hexadecimals. Rows may have come in any
    order and from any files; text and integer ids are never the same. Raises InputError where the
    key cannot be read or made.
    """
    kept = rows.open()
    ids = unit_parts(kept.unit_type, kept.n_units, lambda: kept.columns(UNIT))
    public = tuple(name for name in facts.facts if name != PAYER)
    others = _other_parts(kept, facts.n_outcomes, public)
    return digested(folder, ids, others, settings, n_units=kept.n_units)


def digested(
    folder: Path,
    units: Iterable[Stretch],
    others: Iterable[Stretch],
    settings: bytes,
    *,
    n_units: int,
    of: bytes = b"",
) -> Fingerprint:
    """Digest unit ids, what else the rows hold, and settings, under the key in the quarantine.

    ``of`` tells things of another kind apart, those of a site say.
    """
    key = kept_key(folder / KEY_FILE, "a ledger's digests", _LOST)
    which = f"k-{hmac.digest(key, b'which key', 'sha256').hex()[:8]}:"
    of_rows, of_units, of_settings = (hmac.new(key, digestmod="sha256") for _ in range(3))
    with ThreadPoolExecutor(1) as pool, Progress("recognising the rows", 2 * n_units) as done:
        digest = partial(_digest, pool)
        digest([of_rows], [whole(of + b"rows")])
        digest([of_units], [whole(of + b"units")])
        digest([of_rows, of_units], units)
        done.advance(n_units)
        digest([of_rows], others)
        digest([of_settings], [whole(of + b"settings"), whole(settings)])
    return Fingerprint(*(which + code.hexdigest() for code in (of_rows, of_units, of_settings)))


def _digest(pool: ThreadPoolExecutor, codes: list[hmac.HMAC], parts: Iterable[Stretch]) -> None:
    """Feed all parts to the codes, each behind its length, so that no others give the same."""
    first, *others = codes
    for part in parts:
        for piece in chain([part.length.to_bytes(8, "little")], part.pieces):
            waiting = [pool.submit(code.update, piece) for code in others]  # hashing needs no lock
            first.update(piece)
            for one in waiting:
                one.result()


def whole(piece: bytes) -> Stretch:
    """A stretch in one piece."""
    return Stretch(len(piece), [piece])


def unit_parts(
    kind: pl.DataType, n_units: int, columns: Callable[[], Iterator[pl.Series]]
) -> Iterator[Stretch]:
    """Type, number and values of the unit ids, which ``columns`` yields, some after the other."""
    count = whole(str(n_units).encode())
    if kind == pl.String:
        yield from (whole(b"text"), count)
        yield from _text(columns, n_units)
        return
    yield from (whole(b"uint64" if kind == pl.UInt64 else b"int64"), count)
    yield Stretch(8 * n_units, (bytes_of(units.to_numpy()) for units in columns()))


def _other_parts(rows: Rows, n_outcomes: int, facts: tuple[str, ...]) -> Iterator[Stretch]:
    """What the kept rows hold besides their unit ids; files and row numbers do not matter."""
    used = [arm for arm, size in zip(rows.arms, rows.sizes.sum(axis=0), strict=True) if size]
    yield from _labels(rows, ARM, used)
    yield from _labels(rows, CLUSTER, list(rows.clusters))
    for name in several(OUTCOME, n_outcomes):
        outcomes = (column.to_numpy() + 0.0 for column in rows.columns(name))  # no zero is -0.0
        yield Stretch(8 * rows.n_units, (bytes_of(values) for values in outcomes))
    for name in facts:
        yield from _fact(rows, name)


def _fact(rows: Rows, name: str) -> Iterator[Stretch]:
    """The type of a public fact, which rows have a value, and the values, 0 or "" for none."""
    kind = rows.parts[0].column(name, 0, 0).dtype
    yield whole(str(kind).encode())
    known = (column.is_not_null().to_numpy() for column in rows.columns(name))
    yield Stretch(rows.n_units, (bytes_of(some) for some in known))
    if kind == pl.String:
        yield from _text(lambda: (some.fill_null("") for some in rows.columns(name)), rows.n_units)
        return
    size = {pl.Boolean: 1, pl.Date: 4}.get(type(kind), 8)
    yield Stretch(size * rows.n_units, map(_numbers, rows.columns(name)))


def _numbers(values: pl.Series) -> memoryview:
    physical = values.cast(pl.UInt8) if values.dtype == pl.Boolean else values.to_physical()
    numbers = physical.fill_null(0).to_numpy()
    return bytes_of(numbers + 0.0 if physical.dtype.is_float() else numbers)  # no zero is -0.0


def _labels(rows: Rows, column: str, used: list[str]) -> Iterator[Stretch]:
    """The distinct names, sorted, and the position of each row's among them."""
    names = pl.Series(used, dtype=pl.String).sort()
    yield from _text(lambda: iter([names]), len(names))
    known = pl.Series(rows.arms if column == ARM else rows.clusters, dtype=pl.String)
    place_of = positions(known.cast(pl.Enum(names), strict=False).fill_null(names[0]))
    codes = (place_of[positions(labels)] for labels in rows.columns(column))
    yield Stretch(4 * rows.n_units, (bytes_of(code) for code in codes))


def _text(texts: Callable[[], Iterator[pl.Series]], count: int) -> Iterator[Stretch]:
    """Where each of ``count`` texts begins and ends, and all of them in one piece, in UTF-8."""
    size = sum(int(some.str.len_bytes().cast(pl.Int64).sum()) for some in texts())
    yield Stretch(8 * (count + 1), _ends(texts()))
    yield Stretch(size, (_content(chunk) for some in texts() for chunk in some.get_chunks()))


def _ends(texts: Iterator[pl.Series]) -> Iterator[memoryview]:
    begun = 0
    yield bytes_of(np.zeros(1, np.int64))
    for some in texts:
        ends = np.cumsum(some.str.len_bytes().to_numpy(), dtype=np.int64) + begun
        yield bytes_of(ends)
        begun = int(ends[-1]) if len(ends) else begun


def _content(texts: pl.Series) -> memoryview:
    """The bytes of all texts, which are not null and may be part of a larger memory."""
    content, ends = text_buffers(texts)
    return content[ends[0] : ends[-1]].data


def bytes_of(values: NDArray[np.generic]) -> memoryview:
    """The values in little-endian order."""
    ordered = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(ordered).view(np.uint8).data
