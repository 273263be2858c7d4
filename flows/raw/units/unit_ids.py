"""Unit ids as they are released: as in the log, or hashed under a key."""

import hashlib
from pathlib import Path

import polars as pl

from flows.config.unit_id_key import read_key
from flows.runtime.engine import engine

_BLOCK = 64  # bytes of a block of SHA-256
_HMAC = """
    SELECT position, sha256($outer || unhex(sha256($inner || encode(id)))) AS hashed
    FROM given
"""


def released_ids(key_file: Path | None, units: pl.Series) -> pl.Series:
    """Return the released id of each of ``units`` (text or integers, shape [n]), in their order.

    With the key in ``key_file`` (``publish.key_file``) that is, in lower-case hexadecimals,

        HMAC-SHA-256(key, id) = H((key ⊕ opad) ‖ H((key ⊕ ipad) ‖ id))      (RFC 2104),

    of the id as UTF-8 text, integers in decimal; null stays null. They stay as they are where
    there is None. Raises ConfigError where the key cannot be used.
    """
    key = read_key(key_file)
    return units if key is None else _hashed(key.secret, units)


def _hashed(secret: bytes, units: pl.Series) -> pl.Series:
    """HMAC of all ids at once, by DuckDB: in memory, the key and ids no part of a statement."""
    if len(secret) > _BLOCK:
        secret = hashlib.sha256(secret).digest()
    key = secret.ljust(_BLOCK, b"\0")
    pads = {
        "inner": bytes(byte ^ 0x36 for byte in key),
        "outer": bytes(byte ^ 0x5C for byte in key),
    }
    given = pl.DataFrame({"id": units.cast(pl.String)}).with_row_index("position")
    with engine({"temp_directory": ""}) as connection:
        connection.register("given", given.to_arrow())
        found = pl.DataFrame(connection.sql(_HMAC, params=pads).to_arrow_table())
    if not found["position"].equals(given["position"]):  # DuckDB keeps the order, by default
        found = found.sort("position")
    return found["hashed"].alias(units.name)
