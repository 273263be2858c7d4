"""The key of the accounts by unit: who holds it can tell by an id what that unit was in.

It stays with the ledger, one for all its populations; each of these has a key made from it.
"""

import hmac
from pathlib import Path

from flows.config.model.declared import Declared
from flows.config.model.experiment import Config
from flows.ledger.members import AccountKey
from flows.ledger.place import ledger_url
from flows.runtime.reading.key_files import kept_key
from schemas.errors import ConfigError

KEY_FILE = "account.key"
_LOST = "without it nobody who has paid can be recognised, and releases charged by unit are refused"


def account_key_path(config: Declared) -> Path:
    """Where that key is; raises ConfigError where a ledger on a server has none named."""
    written = config.ledger.key_file
    if written is not None:
        return config.path(written)
    database = ledger_url(config.ledger.url, config.directory)
    if database.get_backend_name() != "sqlite":
        raise ConfigError(
            "ledger.key_file",
            "missing: with accounts by unit all machines that use a ledger on a server need "
            "the same key; name a file, which is made if there is none, and copy it to the "
            'others. Or let everybody pay for every release (privacy.account = "population")',
        )
    return config.path(database.database or "").with_name(KEY_FILE)


def read_assignment_key(config: Config, *, begun: bool) -> bytes:
    """Read the key of what was randomised (``columns.assigned_by``), for digests in releases.

    It is HMAC-SHA-256 of its purpose and the population under the ledger's: nothing digested under
    it can be matched with the accounts. Made and raised as by :func:`read_account_key`.
    """
    secret = kept_key(
        account_key_path(config), "a ledger's accounts by unit", _LOST, make=not begun
    )
    return hmac.digest(secret, b"assigned\0" + config.population.encode(), "sha256")


def read_account_key(config: Config, *, begun: bool) -> AccountKey:
    """Read the key of the accounts of a configuration's population.

    It is made where there is none, unless accounts were ``begun`` under one. The key of a
    population is HMAC-SHA-256 of its name and purpose under the ledger's. Raises ConfigError where
    none is named that has to be, InputError where it cannot be read or made.
    """
    path = account_key_path(config)
    return account_key(kept_key(path, "a ledger's accounts by unit", _LOST, make=not begun), config)


def account_key(secret: bytes, config: Declared) -> AccountKey:
    """The key of the accounts of a configuration's population, made from the ledger's."""
    # Units and households have ids of their own: a population is one or the other.
    kind = b"payers" if config.payment.together else b"units"
    population = config.population.encode()
    return AccountKey(
        hmac.digest(secret, kind + b"\0" + population, "sha256"),
        hmac.digest(secret, b"which key of " + kind + b"\0" + population, "sha256").hex()[:32],
    )
