"""The key of the accounts by unit: who holds it can tell by an id what that unit was in.

It stays with the ledger, one for all its populations; each of these has a key made from it.
"""

import hmac

from flows.config.model.declared import Terms
from flows.ledger.members import AccountKey
from flows.ledger.place import LedgerPlace
from flows.runtime.reading.key_files import kept_key

_LOST = "without it nobody who has paid can be recognised, and releases charged by unit are refused"


def read_assignment_key(place: LedgerPlace, population: str, *, begun: bool) -> bytes:
    """Read the key of what was randomised (``columns.assigned_by``), for digests in releases.

    It is HMAC-SHA-256 of its purpose and the population under the ledger's: nothing digested under
    it can be matched with the accounts. Made and raised as by :func:`read_account_key`.
    """
    return hmac.digest(_secret(place, begun=begun), b"assigned\0" + population.encode(), "sha256")


def read_account_key(place: LedgerPlace, terms: Terms, *, begun: bool) -> AccountKey:
    """Read the key of the accounts of a population.

    It is made where there is none, unless accounts were ``begun`` under one. The key of a
    population is HMAC-SHA-256 of its name and purpose under the ledger's. Raises ConfigError where
    none is named that has to be, InputError where it cannot be read or made.
    """
    return account_key(_secret(place, begun=begun), terms)


def account_key(secret: bytes, terms: Terms) -> AccountKey:
    """The key of the accounts of a population, made from the ledger's."""
    # Units and households have ids of their own: a population is one or the other.
    kind = b"payers" if terms.rows_each is not None else b"units"
    population = terms.population.encode()
    return AccountKey(
        hmac.digest(secret, kind + b"\0" + population, "sha256"),
        hmac.digest(secret, b"which key of " + kind + b"\0" + population, "sha256").hex()[:32],
    )


def _secret(place: LedgerPlace, *, begun: bool) -> bytes:
    return kept_key(place.key_path, "a ledger's accounts by unit", _LOST, make=not begun)
