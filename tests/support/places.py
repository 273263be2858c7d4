"""One log in several places: what a run reads of each, and how it is recognised."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.ledger.rules import Fingerprint
from flows.raw.fingerprint import fingerprint
from flows.raw.ingest import ingest
from flows.raw.spill.workspace import open_workspace
from flows.raw.validate import validate
from schemas.errors import InputError
from tests.conftest import Experiment, plain_rows


def read(built: Experiment, keys: Path, period: str = "once") -> tuple[pl.DataFrame, Fingerprint]:
    """The mapped rows that a run keeps, and their fingerprint under the key in ``keys``."""
    config = built.load()
    with open_workspace(config.spill) as workspace:
        log = ingest(config.log_source, period, workspace)
        rows, _, _ = validate(config.log_facts, log, workspace)
        found = fingerprint(config.log_facts, rows, b"", keys)
        return plain_rows(rows.open()).sort("unit"), found


def refusal(built: Experiment, period: str = "once") -> InputError:
    """The error that reading ends in; nothing of the run is left."""
    config = built.load()
    with pytest.raises(InputError) as caught, open_workspace(config.spill) as workspace:
        ingest(config.log_source, period, workspace)
    assert caught.value.exit_code == 2
    assert caught.value.__context__ is None
    assert not list(config.spill_directory.glob(".spill-*"))
    return caught.value


def table(name: str | Path, keeper: str, **more: Any) -> dict[str, Any]:
    """The section ``[source]`` of a log in a table."""
    return {"path": None, "table": str(name), "in": keeper, **more}
