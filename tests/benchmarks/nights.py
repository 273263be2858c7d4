"""What nights cost: ``python -m tests.benchmarks.nights --units 1000000 --outcomes 3``.

The same people are released night after night, by the program itself. A line a night: processor
seconds and time, peak memory, the released file, the greatest size of what was on disk while it
ran, and how the ledger and its accounts grew. The table in docs/scale.md is made of these lines.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl

CLUSTERS, LEVELS = 1_000, 6
MEGA = 10**6

_CONFIG = """
experiment = "nights"
[source]
path = "logs/{{period}}.parquet"
[columns]
unit = "customer_id"
arm = "variant"
cluster = "shop"
[arms]
control = "none"
treatments = ["mens"]
[privacy]
epsilon = {epsilon}
budget_epsilon = {budget}
[publish]
directory = "releases"
[ledger]
url = "sqlite:///ledger/ledger.sqlite"
key_file = "keys/account.key"
[quarantine]
directory = "quarantine"
[run]
{limit}
"""
_OUTCOME = """
[[outcomes]]
name = "{name}"
column = "{name}"
values = {values}
"""


def main() -> None:
    """Make logs, release them night by night, and say what each night took."""
    asked = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="clusterdp-nights-", dir=asked.folder) as name:
        folder = Path(name)
        for part in ("logs", "ledger", "keys"):
            (folder / part).mkdir(mode=0o700)
        _configure(folder, asked.outcomes, asked.nights, asked.memory_limit)
        for night in range(1, asked.nights + 1):
            period = f"2026-11-{night:02}"
            log = _log(folder, period, asked.units, asked.outcomes)
            sys.stdout.write(f"{asked.units} units, {asked.outcomes} outcomes, night {night}: ")
            sys.stdout.write(f"log {log / MEGA:.1f} MB, {_night(folder, period)}\n")
            sys.stdout.flush()


def _configure(folder: Path, outcomes: int, nights: int, limit: str | None) -> None:
    text = _CONFIG.format(
        epsilon=1.0 * outcomes,
        budget=1.0 * outcomes * nights,
        limit=f'memory_limit = "{limit}"' if limit else "",
    )
    values = list(range(LEVELS))
    text += "".join(_OUTCOME.format(name=f"o{k}", values=values) for k in range(outcomes))
    (folder / "nights.toml").write_text(text, encoding="utf-8")


def _log(folder: Path, period: str, units: int, outcomes: int) -> int:
    """Write a night's log, and return its bytes."""
    rng = np.random.default_rng(int(period[-2:]))
    unit = rng.permutation(units)
    shops = pl.Series([f"shop {number}" for number in range(CLUSTERS)])
    frame = pl.DataFrame({"customer_id": unit, "shop": shops.gather(unit // 2 % CLUSTERS)})
    arms = pl.when(pl.col("customer_id") % 2 == 0).then(pl.lit("none")).otherwise(pl.lit("mens"))
    drawn = [pl.Series(f"o{k}", rng.integers(0, LEVELS, units)) for k in range(outcomes)]
    path = folder / "logs" / f"{period}.parquet"
    frame.with_columns(arms.alias("variant"), *drawn).write_parquet(path)
    return path.stat().st_size


def _night(folder: Path, period: str) -> str:
    command = [sys.executable, "-m", "flows.cli", "release", "nights.toml", "--period", period]
    watch = _Disk(folder)
    begun = time.monotonic()
    run = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.DEVNULL,
    )
    watch.start()
    _, status, used = os.wait4(run.pid, 0)
    lasted = time.monotonic() - begun
    watch.stop()
    if status != 0:
        raise SystemExit(f"the run of {period} ended with {os.waitstatus_to_exitcode(status)}")
    (file,) = folder.glob(f"releases/nights/nights.{period}*.duckdb")
    accounts = sum(_bytes(path) for path in folder.glob("ledger/*.accounts"))
    return (
        f"{used.ru_utime + used.ru_stime:.1f} s of processor, {lasted:.1f} s,"
        f" {used.ru_maxrss / 1024:.0f} MB of memory, file {file.stat().st_size / MEGA:.1f} MB,"
        f" at most {watch.most / MEGA:.1f} MB written meanwhile,"
        f" ledger {(_bytes(folder / 'ledger') - accounts) / MEGA:.2f} MB,"
        f" accounts {accounts / MEGA:.1f} MB,"
        f" quarantine {_bytes(folder / 'quarantine') / MEGA:.2f} MB"
    )


class _Disk(threading.Thread):
    """Looks again and again how much lies in the folder beyond what lay there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self._folder, self._before, self._over = folder, _bytes(folder), threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.05):
            self.most = max(self.most, _bytes(self._folder) - self._before)

    def stop(self) -> None:
        self._over.set()
        self.join()


def _bytes(folder: Path) -> int:
    """Of all files below a folder; one that goes meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.nights", description=__doc__)
    parser.add_argument("--units", type=int, default=MEGA)
    parser.add_argument("--outcomes", type=int, default=1)
    parser.add_argument("--nights", type=int, default=3)
    parser.add_argument("--memory-limit", help="of a release (the program's own)")
    parser.add_argument("--folder", type=Path, help="where all of it lies for a while")
    return parser


if __name__ == "__main__":
    main()
