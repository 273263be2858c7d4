"""The units of a log as the accounts know them: keyed digests of their ids, and their arms.

Nothing here reads an outcome. What is digested is the id as in the log, before any hashing for
release, under a key of the ledger's population.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl

from flows.config.model.experiment import Config
from flows.ledger.members import AccountKey, Members
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.units.rows import Rows, positions
from privatizers.noise.keyed_digests import keyed_digests
from schemas.arrays import Words
from schemas.raw import ARM, PAYER, UNIT


@values_free
def digest_units(config: Config, rows: Sealed[Rows], key: AccountKey) -> Members:
    """Digest the units of a log, or who pays for them, in the order of its rows."""
    raw = rows.open()
    digests = np.empty(raw.n_units, dtype=np.uint64)
    arms = np.empty(raw.n_units, dtype=np.uint16)
    begun = 0
    who = UNIT if config.columns.privacy_unit is None else PAYER
    for units, labels in zip(raw.columns(who), raw.columns(ARM), strict=True):
        end = begun + len(units)
        digests[begun:end] = digests_of_ids(key.secret, units)
        arms[begun:end] = positions(labels)
        begun = end
    return Members(digests, arms, config.experiment, raw.arms, key.fingerprint)


def digests_of_ids(secret: bytes, units: pl.Series) -> Words:
    """Digest each id, text or an integer, none of them null; shape [n].

    An integer is digested as its decimal digits, so that 7 and "7" are one unit.
    """
    array = units.cast(pl.String).rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, ends, content = array.buffers()
    offsets = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
    text = np.frombuffer(content or b"", np.uint8)
    middle = len(units) // 2
    halves = offsets[: middle + 1], offsets[middle:]
    with ThreadPoolExecutor(len(halves)) as pool:  # most of it needs no lock
        found = pool.map(lambda ends: keyed_digests(secret, text, ends), halves)
        return np.concatenate(list(found))
