"""Experiments that many tests begin from: what is done to the first is copied for the others."""

import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.conftest import Experiment

_made: dict[tuple[object, ...], Experiment] = {}


def made_once(act: Callable[..., object], built: Experiment, *given: str) -> Experiment:
    """Do ``act(built, *given)``, or copy what it left of an experiment of the same files.

    That lies beside the folders of tests, which goes as they go.
    """
    files = [path for path in sorted(built.folder.rglob("*")) if path.is_file()]
    contents = [(str(path.relative_to(built.folder)), path.read_bytes()) for path in files]
    key = (act, *given, *contents)
    if key not in _made:
        folder = Path(tempfile.mkdtemp(dir=built.folder.parents[1]))
        _made[key] = _copied(built, folder / built.folder.name)
        act(_made[key], *given)
    shutil.rmtree(built.folder)
    return _copied(_made[key], built.folder)


def _copied(built: Experiment, target: Path) -> Experiment:
    """Copy an experiment, with its links and times, and let the copy's ledger speak of the copy."""
    subprocess.run(["/bin/cp", "-a", built.folder, target], check=True)
    if (target / "ledger.sqlite").exists():
        with closing(sqlite3.connect(target / "ledger.sqlite")) as ledger, ledger:
            for column in ("path", "draft"):
                query = f"UPDATE clusterdp_charges SET {column} = replace({column}, ?, ?)"
                ledger.execute(query, (f"{built.folder}/", f"{target}/"))
    return Experiment(target / built.config.name)
