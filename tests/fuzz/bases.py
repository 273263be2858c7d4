"""Sound releases to begin from, made once a process; and how they are changed."""

import functools
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from tests.conftest import a_log, build_experiment
from tests.fuzz.case import Remade

UNITS = 240

_SHARED = {"control": "none", "treatments": ["mail"], "same_shares": True}

SECTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "auto": {"privacy": {"mechanism": "auto", "epsilon": 2.0}},
    "counts": {"privacy": {"mechanism": "cluster-dp", "epsilon": 2.0}},
    "means": {
        "arms": _SHARED,
        "privacy": {"mechanism": "uniform-prior-dp", "epsilon": 2.0, "strata_statistic": "means"},
    },
    "plain": {"privacy": {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}},
    "histogram": {"arms": _SHARED, "privacy": {"mechanism": "noisy-histogram", "epsilon": 2.0}},
    "differences": {
        "arms": _SHARED,
        "privacy": {"mechanism": "noisy-horvitz-thompson", "epsilon": 2.0},
    },
    "clusters": {
        "arms": _SHARED,
        "privacy": {"mechanism": "uniform-prior-dp", "epsilon": 3.0},
        "private_clusters": {"epsilon": 1.0, "labels": ["east", "west"]},
    },
}


@functools.cache
def base(name: str) -> bytes:
    """The bytes of a sound release of 240 units in two clusters."""
    with tempfile.TemporaryDirectory() as folder:
        log = a_log(UNITS)
        path = build_experiment(Path(folder) / "made", log, **SECTIONS[name]).run().path
        return path.read_bytes()


def remake(how: Remade, path: Path) -> None:
    """Write a sound release to ``path`` and change it; statements that fail change nothing."""
    path.write_bytes(base(how.base))
    if how.statements or how.storage:
        _change(how, path)
    content = bytearray(path.read_bytes())
    for share in how.flips:
        content[int(share * (len(content) - 1))] ^= 0x55
    if how.cut is not None:
        del content[int(how.cut * len(content)) :]
    path.write_bytes(content)


def _change(how: Remade, path: Path) -> None:
    with duckdb.connect(str(path), config={"memory_limit": "1GB", "threads": 1}) as connection:
        for statement in how.statements:
            with suppress(duckdb.Error):
                connection.execute(statement)
    if how.storage is not None:
        other = path.with_name("other.duckdb")
        with duckdb.connect() as connection, suppress(duckdb.Error):
            connection.execute(f"ATTACH '{path}' AS old (READ_ONLY)")
            connection.execute(f"ATTACH '{other}' AS new (STORAGE_VERSION '{how.storage}')")
            connection.execute("COPY FROM DATABASE old TO new")
        if other.exists():
            other.replace(path)
