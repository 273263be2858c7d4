"""Keyed digests of what a release is made from, by which a later run knows the same again.

They depend on outcomes: without the key anybody could try out logs until one fits. It is made on
first use and kept with the rows that were set aside, on the ledger's private side.
"""

import hmac
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from flows.charges import Fingerprint
from flows.config import AnyDesign, Config
from flows.files import folder_lock, private_directory, sync_directory
from flows.key import read_key
from flows.raw.guard import values_free
from flows.raw.sealed import Sealed
from privatizers.randomness import secret_key
from schemas.errors import InputError
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT

KEY_FILE = "digest.key"
_KEY_SIZE = 32
_LOST = (
    "without it a period that was published can no longer be told to be unchanged, and counts as "
    "in conflict"
)

Part = bytes | memoryview


@values_free
def fingerprint(config: Config, rows: Sealed[pl.DataFrame], design: AnyDesign) -> Fingerprint:
    """Digest the kept ``rows``, their unit ids alone, and the settings that can affect a release.

    Each is ``k-`` and a short name of the key, a colon, and HMAC-SHA-256 in hexadecimals. Rows may
    come in any order and from any files; text and integer ids are never the same. Raises
    InputError where the key cannot be read or made.
    """
    frame = rows.open().sort(UNIT)  # no work where they are sorted already
    key = _digest_key(config.path(config.quarantine.directory) / KEY_FILE)
    which = f"k-{hmac.digest(key, b'which key', 'sha256').hex()[:8]}:"
    units = _unit_parts(frame[UNIT])
    return Fingerprint(
        rows=which + _digest(key, [b"rows", *units, *_other_parts(frame)]),
        units=which + _digest(key, [b"units", *units]),
        settings=which + _digest(key, [b"settings", _settings(config, design)]),
    )


def _digest(key: bytes, parts: Iterable[Part]) -> str:
    """HMAC of all parts, each behind its length, so that no other parts give the same stream."""
    code = hmac.new(key, digestmod="sha256")
    for part in parts:
        code.update(len(part).to_bytes(8, "little"))
        code.update(part)
    return code.hexdigest()


def _unit_parts(units: pl.Series) -> list[Part]:
    """Type, number and values of the unit ids."""
    count = str(len(units)).encode()
    if units.dtype == pl.String:
        return [b"text", count, *_text(units)]
    values = units.to_numpy()
    return [values.dtype.name.encode(), count, _bytes(values)]  # int64 or uint64


def _other_parts(frame: pl.DataFrame) -> list[Part]:
    """What the kept rows hold besides their unit ids; files and row numbers do not matter."""
    outcomes = frame[OUTCOME].to_numpy() + 0.0  # makes a zero of -0.0
    return [*_labels(frame[ARM]), *_labels(frame[CLUSTER]), _bytes(outcomes)]


def _labels(labels: pl.Series) -> list[Part]:
    """The distinct names, sorted, and the position of each row's among them."""
    names = labels.unique().sort()
    codes = labels.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.uint32)
    return [*_text(names), _bytes(codes)]


def _text(text: pl.Series) -> list[Part]:
    """Where each text begins and ends, and all of them in one piece, in UTF-8."""
    return _pieces(text.to_arrow(compat_level=pl.CompatLevel.oldest()))  # in one chunk


def _pieces(array: pa.LargeStringArray) -> list[Part]:
    """The same of an array without nulls, which may be part of a larger one's memory."""
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    start, stop = (int(end) for end in ends[[0, -1]])
    return [_bytes(ends - start), memoryview(content)[start:stop] if stop > start else b""]


def _bytes(values: NDArray[np.generic]) -> memoryview:
    """The values in little-endian order."""
    ordered = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(ordered).view(np.uint8).data


def _settings(config: Config, design: AnyDesign) -> bytes:
    """Everything that can affect a release of given rows, spelt in one way."""
    arms, outcome, key = config.arms, config.outcome, read_key(config)
    parameters = design.mechanism.parameters
    document = {
        "experiment": config.experiment,
        "control": arms.control,
        "treatments": arms.treatments,
        "same_shares": arms.same_shares,
        "grid": outcome.grid,
        "missing": outcome.missing_value,
        "rounding": outcome.rounding,
        "guess": outcome.guess,
        "mechanism": design.mechanism.name,
        "resampling_probability": parameters.resampling_probability,
        "truncation_threshold": parameters.truncation_threshold,
        "noise_scale": parameters.noise_scale,
        "strata_statistic": parameters.strata_statistic,
        "epsilon": design.epsilon,
        "delta": design.delta,
        "min_stratum": config.privacy.min_stratum,
        "unit_id": config.publish.unit_id,
        "unit_id_key": key.name if key else None,
    }
    return json.dumps(document, sort_keys=True, allow_nan=False).encode()


# the key


def _digest_key(path: Path) -> bytes:
    """Read the key, or make it where there is none; never another where there is one."""
    try:
        if not path.exists():
            _make_key(path)
        if _half_of(path).exists():  # of a run that was killed right after the key had its name
            with folder_lock(path.parent):
                _half_of(path).unlink(missing_ok=True)
        key = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: this key cannot be read or made ({error.strerror}); correct its permissions "
            f"or its folder's ({_LOST})"
        ) from None
    if len(key) != _KEY_SIZE:
        raise InputError(
            f"{path}: this key is damaged ({len(key)} bytes, not {_KEY_SIZE}); put it back from a "
            f"copy, or move it away for a new one to be made ({_LOST})"
        )
    return key


def _half_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.half-written")


def _make_key(path: Path) -> None:
    """Make a key whole or not at all; of several processes at once, the first one's stays."""
    private_directory(path.parent)
    with folder_lock(path.parent):
        half = _half_of(path)
        half.unlink(missing_ok=True)  # of a run that was killed: the lock is ours
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret_key())
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(half)  # which, unlike a renaming, overwrites nothing
        half.unlink()
        sync_directory(path.parent)
