"""One outcome, whatever it is, changes nothing of what is read of anybody else.

Pairs of logs that differ in one outcome, each line as well-formed as the other, in every format and
grain: what is read of all other rows, the public fields of that row, whether the log is read at all
and what is said if not are the same. How many pairs there are and where they begin can be set with
CLUSTERDP_PAIRS and CLUSTERDP_PAIRS_FROM.
"""

import os
import random
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from flows.config.model.experiment import Config
from flows.raw.reading.by_format import csv_files, json_lines
from tests.boundary.reading_pairs import GRAINS, KINDS, Pair, a_pair, read_apart
from tests.conftest import Builder

PAIRS = int(os.environ.get("CLUSTERDP_PAIRS", "24000"))
FIRST = int(os.environ.get("CLUSTERDP_PAIRS_FROM", "1000"))


@pytest.fixture
def configs(experiment: Builder, tmp_path: Path) -> dict[str, Config]:
    """A configuration for each grain; the log is whatever lies in the folder of the period."""
    by_unit = experiment({}, source={"path": "{period}/*"})
    found = {"unit": by_unit.load()}
    (by_unit.folder / "exposures").mkdir()
    (by_unit.folder / "exposures" / "log.csv").write_text("customer,variant,region,seen\n")
    by_event = experiment(
        {},
        source={"path": "exposures/*", "outcomes_path": "{period}/*", "grain": "event"},
        columns={"time": "seen"},
        outcome={"aggregate": "sum"},
    )
    return found | {"event": by_event.load()}


def differences(
    monkeypatch: pytest.MonkeyPatch, configs: dict[str, Config], kind: str, first: int, n_pairs: int
) -> tuple[list[tuple[int, str]], Counter[str]]:
    """The numbers of pairs that are read differently, and how often logs are read or refused."""
    engine = duckdb.connect(config={"threads": 1})  # to start one takes longer than to read
    monkeypatch.setattr(duckdb, "connect", lambda *_, **__: engine.cursor())
    found: list[tuple[int, str]] = []
    ends: Counter[str] = Counter()
    for number in range(first, first + n_pairs):
        random_ = random.Random(f"{kind} {number}")  # noqa: S311 - files are made up with it
        grain = GRAINS[random_.random() < 0.3]
        pair = a_pair(random_, kind, grain)
        for module in (csv_files, json_lines):
            monkeypatch.setattr(module, "CHUNK", pair.chunk)
        one, other = (read_both(configs[grain], pair, side) for side in (0, 1))
        ends[f"{one[0]}"] += 1
        if one != other:
            found.append((number, f"{grain}: {one} {other}"))
    return found, ends


def read_both(config: Config, pair: Pair, side: int) -> tuple[object, ...]:
    return read_apart(config, config.directory, pair, side)


@pytest.mark.parametrize("kind", KINDS)
def test_an_outcome_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch, configs: dict[str, Config], kind: str
) -> None:
    found, ends = differences(monkeypatch, configs, kind, 0, 150)
    assert found == []
    assert ends["read"] > 75  # else it would say little


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_an_outcome_changes_nothing_else_in_thousands_of_logs(
    monkeypatch: pytest.MonkeyPatch, configs: dict[str, Config], kind: str
) -> None:
    found, ends = differences(monkeypatch, configs, kind, FIRST, PAIRS // len(KINDS))
    assert found == []
    assert ends["read"] > PAIRS / 6
