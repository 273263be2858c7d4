"""Killed while a table is landed: nothing half under its name, and the next run begins anew."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import polars as pl
import pytest

from flows.ledger.account import Account
from tests.conftest import PATIENCE, a_log

if TYPE_CHECKING:
    from tests.conftest import Builder
    from tests.support.lakes import Lake

pytest_plugins = ["tests.support.lakes"]
pytestmark = pytest.mark.process

N_KILLS = 12

# Forks a child for every death: before one of the calls that Python makes as it reads and writes.
PROGRAM = """
import gc, json, os, signal, sys
import deltalake, numpy.testing, pandera.backends.polars.container, pyarrow.dataset
import pyiceberg.catalog.sql, pyiceberg.io.pyarrow, sqlalchemy.dialects.sqlite.pysqlite
from flows.raw import land
from flows.release import release_period

write = land._write
config, *shares = sys.argv[1:]


def run(pipe, fatal):
    calls = [0]

    def hook(frame, event, called):
        calls[0] += event in ("call", "c_call")
        if calls[0] == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(*given):
        sys.setprofile(hook)
        found = write(*given)
        sys.setprofile(None)
        os.write(pipe, str(calls[0]).encode())
        if fatal is None:
            os._exit(0)
        return found

    land._write = counted
    release_period(config)


def begun(fatal):
    said, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        run(pipe, fatal)
        os._exit(0)
    os.close(pipe)
    end = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return end, os.read(said, 100).decode()


gc.freeze()
n_calls = int(begun(None)[1])
for share in map(float, shares):
    print(json.dumps([n_calls, *begun(1 + int(share * n_calls))]), flush=True)
    sys.stdin.readline()  # what is left is looked at meanwhile
"""


def test_a_run_that_is_killed_while_landing_leaves_nothing_half(
    experiment: Builder, lake: Lake
) -> None:
    lake.add("clicks", a_log(240))
    lake.add("clicks", a_log(60).with_columns(customer=pl.lit("more") + pl.col("customer")))
    built = experiment(source=lake.source("clicks"))
    spill = built.load().spill_directory
    random = Random(1)  # noqa: S311 - moments of death are no secret
    shares = [str(random.random() * 0.98) for _ in range(N_KILLS)]
    whole = []
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(built.config), *shares],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as killing:
        assert killing.stdin is not None
        assert killing.stdout is not None
        for _ in shares:
            n_calls, end, said = json.loads(killing.stdout.readline())
            assert (end, said, n_calls > 50) == (-signal.SIGKILL, "", True)
            (left,) = spill.glob(".spill-*")
            assert left.stat().st_mode & 0o777 == 0o700
            whole += [pl.read_parquet(file).height for file in left.glob("*.parquet")]
            assert Account.of(built.load()).entries() == []
            assert built.check().roster.n_units == 300
            assert not left.exists()
            killing.stdin.write("\n")
            killing.stdin.flush()
        killing.communicate(timeout=PATIENCE)
    assert set(whole) <= {300}
    assert built.run().roster.n_units == 300
    assert not list(built.releases.glob(".draft-*"))
