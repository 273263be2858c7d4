"""What was randomised, where that is not the unit: households, shops or days, say.

All of it is public. Of such a group nothing but a digest is kept: one without a secret while rows
are read, so that rows of a group can be told to be one, and of that another under the account's key
in the release. Nobody without the key can tell from the latter which group it is.
"""

import numpy as np
import polars as pl

from flows.raw.reading.columns import label
from flows.raw.reading.stores import LogFile
from flows.raw.units.account_digests import digests_of_ids
from flows.raw.units.rows import Rows
from privatizers.noise.keyed_digests import keyed_digests
from schemas.arrays import Bools, Words
from schemas.raw import ARM, ASSIGNED

KEY = "columns.assigned_by"
_NO_SECRET = bytes(32)
_WORD = 8  # bytes


def assigned(frame: pl.DataFrame, path: LogFile, name: str) -> pl.Expr:
    """A digest (UInt64) of what was randomised, from text or an integer; null where it is missing.

    Raises InputError where the column is of any other type.
    """
    groups = label(frame, path, name, "assigned_by")
    digests = groups.fill_null("").map_batches(
        lambda ids: pl.Series(digests_of_ids(_NO_SECRET, ids)),
        return_dtype=pl.UInt64,
        is_elementwise=True,
    )
    return pl.when(groups.is_not_null()).then(digests)


def in_several_arms(rows: Rows) -> Bools:
    """Whether what each row was randomised with has rows in more than one arm; shape [n].

    Takes 20 bytes a row, whatever the log's size.
    """
    groups = np.empty(rows.n_units, dtype=np.uint64)
    arms = np.empty(rows.n_units, dtype=np.uint16)
    for name, values in ((ASSIGNED, groups), (ARM, arms)):
        for (_, of_part), column in zip(rows.by_part(values), rows.columns(name), strict=True):
            of_part[:] = column.to_physical().to_numpy()
    order = np.argsort(groups)
    begins = np.flatnonzero(np.diff(groups[order], prepend=~groups[order[:1]]))
    of_groups = arms[order]
    mixed = np.minimum.reduceat(of_groups, begins) != np.maximum.reduceat(of_groups, begins)
    found = np.empty(len(order), dtype=np.bool_)
    found[order] = np.repeat(mixed, np.diff(np.append(begins, len(order))))
    return found


def released_groups(secret: bytes, groups: pl.Series) -> Words:
    """What ``assigned_to`` says of these digests in a release, shape [n].

    That is the first 8 bytes of AES-256-CMAC(secret, digest), see
    :mod:`privatizers.noise.keyed_digests`.
    """
    words = np.ascontiguousarray(groups.to_numpy(), dtype="<u8")
    ends = np.arange(0, _WORD * (len(words) + 1), _WORD)
    return keyed_digests(secret, words.view(np.uint8), ends)
