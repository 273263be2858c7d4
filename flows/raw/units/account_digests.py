"""The units of a log as the accounts know them: keyed digests of their ids, and their arms.

Nothing here reads an outcome. What is digested is the id as in the log, before any hashing for
release, in the form that ``source.ids`` says, under a key of the ledger's population.
"""

import hmac
from collections.abc import Callable, Collection
from functools import partial

import numpy as np
import polars as pl

from flows.config.model.declared import Terms
from flows.ledger.members import AccountKey, Members, mark_of
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.units.rows import Rows, positions
from flows.runtime.threads import by_pieces
from privatizers.noise.keyed_digests import keyed_blocks, keyed_digests
from schemas.arrays import Words
from schemas.canonical_ids import Ids, spelt, text_buffers
from schemas.raw import ARM, PAYER, UNIT

_NOBODYS = AccountKey(bytes(32), "")
_NUMBERS = b"whole numbers"  # what their key is made of
_PIECE = 1 << 16  # ids that are digested at once


@values_free
def digest_units(
    terms: Terms, ids: Ids, rows: Sealed[Rows], key: AccountKey, known: Collection[str] = ()
) -> Members:
    """Digest the units of a log, or who pays for them, in the order of its rows.

    ``ids`` is their form. Registers with a mark among ``known`` can be read beside tonight's, if it
    is one of this key.
    """
    raw, by_household = rows.open(), terms.rows_each is not None
    who = PAYER if by_household else UNIT

    def digested(of: Callable[[pl.Series], Words]) -> Words:
        digests = np.empty(raw.n_units, dtype=np.uint64)
        for (_, of_part), units in zip(raw.by_part(digests), raw.columns(who), strict=True):
            of_part[:] = of(units)
        return digests

    alike = not by_household and raw.unit_type.is_integer()  # in all forms that are sought
    arms = np.concatenate([positions(labels) for labels in raw.columns(ARM)])
    others = {
        mark: tuple(map(digested, ways[:1] if alike else ways))
        for mark, ways in _other_forms(key, ids).items()
        if mark in known
    }
    return Members(
        digested(partial(_digests, key.secret, ids=ids)),
        arms.astype(np.uint16),
        terms.experiment,
        raw.arms,
        key.fingerprint,
        ids=ids,
        others=others,
        by_household=by_household,
    )


@values_free
def count_units(terms: Terms, ids: Ids, rows: Sealed[Rows]) -> Members | None:
    """The units of a log where nobody has an account of their own; to count who is in it twice.

    None where nobody can be: ids that are numbers, or that are exact, differ.
    """
    alone = terms.rows_each is None and ids == "canonical"
    if not alone or rows.open().unit_type.is_integer():
        return None
    return digest_units(terms, ids, rows, _NOBODYS)


def _other_forms(key: AccountKey, ids: Ids) -> dict[str, tuple[Callable[[pl.Series], Words], ...]]:
    """How ids of tonight are sought in registers that were digested otherwise, by their marks.

    An id is looked for as it is written and, where the register keeps spellings apart, in tonight's
    form too. So nobody whose id is spelt as then is missed; nor, in canonical registers, anybody.
    """
    exact, canonical = (partial(_digests, key.secret, ids=form) for form in ("exact", "canonical"))
    written = partial(digests_of_ids, key.secret)
    if ids == "exact":
        return {
            mark_of(key.fingerprint, None): (written,),
            mark_of(key.fingerprint, "canonical"): (canonical,),
        }
    return {
        mark_of(key.fingerprint, None): (written, lambda u: written(spelt(u, ids).written())),
        mark_of(key.fingerprint, "exact"): (exact, canonical),
    }


def _digests(secret: bytes, units: pl.Series, ids: Ids) -> Words:
    """Digest each id in its form, none of them null; shape [n].

    A whole number of up to 64 bits is one block of AES, a text is as by :func:`digests_of_ids`.
    """
    of_numbers = hmac.digest(secret, _NUMBERS, "sha256")

    def digested(some: pl.Series) -> Words:
        form = spelt(some, ids)
        digests = keyed_blocks(of_numbers, form.values, form.negative)
        if len(form.texts):
            digests[form.is_text] = _of_texts(secret, form.texts)
        return digests

    return _by_pieces(digested, units)


def digests_of_ids(secret: bytes, units: pl.Series) -> Words:
    """Digest each id as it is written, text or an integer, none of them null; shape [n].

    An integer is digested as its decimal digits, so that 7 and "7" are one unit.
    """
    return _by_pieces(partial(_of_texts, secret), units)


def _by_pieces(digested: Callable[[pl.Series], Words], units: pl.Series) -> Words:
    return np.concatenate(by_pieces(lambda piece: digested(units[piece]), len(units), _PIECE))


def _of_texts(secret: bytes, units: pl.Series) -> Words:
    return keyed_digests(secret, *text_buffers(units.cast(pl.String)))
