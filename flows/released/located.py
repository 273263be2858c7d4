"""The files that paths and addresses of a store stand for, wherever either may be given."""

from pathlib import Path

from flows.runtime.paths import Paths, is_address


def located(given: str | Path) -> Path:
    """The file that a path or an address stands for: of an address, its checked copy.

    Raises InputError as :func:`flows.released.stored.copy_of`.
    """
    if not isinstance(given, str) or not is_address(given):
        return Path(given)
    from flows.released.stored import copy_of  # noqa: PLC0415 - requests, for stores alone

    return copy_of(given)


def each_located(given: Paths) -> list[Path]:
    """The files that one path or address, or several, stand for."""
    return [located(one) for one in ([given] if isinstance(given, str | Path) else given)]
