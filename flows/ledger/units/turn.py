"""Turns: of all runs on one population, one at a time looks at its accounts and charges them."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from flows.ledger.units.registers import prefix_of
from flows.runtime.files import private_directory
from schemas.errors import InputError

_PATIENCE = "15min"


@contextmanager
def turn_by_file(folder: Path, population: str) -> Iterator[None]:
    """Hold the lock of a population, a file that dies with the process; waits for it."""
    path = folder / f"{prefix_of(population)}.lock"
    try:
        private_directory(folder)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InputError(f"{path}: cannot be made ({error.strerror})") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def turn_by_server(engine: sa.Engine, population: str) -> Iterator[None]:
    """Hold the advisory lock of a population, which dies with the connection; waits for it."""
    number = int.from_bytes(
        hashlib.sha256(b"clusterdp turn\0" + population.encode()).digest()[:8], "big", signed=True
    )
    with engine.connect() as connection:
        connection.execute(sa.text(f"SET lock_timeout = '{_PATIENCE}'"))
        connection.execute(sa.select(sa.func.pg_advisory_lock(number)))
        connection.commit()  # the lock is of the session, and no transaction is left open
        yield
