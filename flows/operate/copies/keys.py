"""The keys that a configuration names or makes: what a backup has of them, and who needs them."""

from collections.abc import Mapping
from pathlib import Path

from flows.config.model.declared import Declared
from flows.ledger.place import ledger_place
from flows.ledger.units.account_key import account_key
from flows.raw.fingerprint import KEY_FILE
from flows.runtime.reading.small_files import UnreadableError, read_small
from schemas.errors import ConfigError, InputError

ACCOUNT = "ledger.key_file"
DIGESTS = "quarantine.directory"
"""The key of the digests by which a log is known again, which lies there."""
_LARGEST = 1_000_000  # bytes, far more than any key has


def key_paths(config: Declared) -> dict[str, Path]:
    """Where the keys of a configuration lie, or are to lie, by the key that says so."""
    named = {
        DIGESTS: config.path(config.quarantine.directory) / KEY_FILE,
        ACCOUNT: ledger_place(config).key_path if config.needs_account_key else None,
        "publish.key_file": config.id_key_path,
        "publish.signing_key": config.signing_key_path,
    }
    return {key: path for key, path in named.items() if path is not None}


def read_keys(config: Declared, begun: Mapping[str, str]) -> dict[str, bytes]:
    """Read the keys of a configuration; those that are made when first needed may be missing.

    ``begun`` has the fingerprint of the key that a population's accounts were begun with. Raises
    ConfigError where a key that has to be there is missing or is another.
    """
    found = {}
    for key, path in key_paths(config).items():
        if key in (ACCOUNT, DIGESTS) and not path.exists():
            continue
        try:
            found[key] = read_small(path, _LARGEST)
        except UnreadableError as error:
            problem = f"{path}: {error}; no backup is worth much without its keys"
            raise ConfigError(key, problem) from None
    check_account_key(config, found.get(ACCOUNT), begun)
    return found


def check_account_key(config: Declared, secret: bytes | None, begun: Mapping[str, str]) -> None:
    """Raise ConfigError unless this is the key that the population's accounts were begun with."""
    if not config.terms.by_unit or config.population not in begun:
        return
    if secret is None or account_key(secret, config.terms).fingerprint != begun[config.population]:
        state = "is missing" if secret is None else "is another"
        raise ConfigError(
            ACCOUNT,
            f"the key that the accounts of population {config.population!r} were begun with "
            f"{state}: without it nobody who has paid can be recognised. Put it back from a copy",
        )


def read_kept(path: Path) -> bytes:
    """Read a key in a backup."""
    try:
        return read_small(path, _LARGEST)
    except UnreadableError as error:
        raise InputError(f"{path}: {error}") from None
