"""What a measured process does: ``python -m tests.benchmarks.child TASK ARGUMENTS``.

A task gets ready, does its work between two looks at the clock, then counts the rows in what it
made. The last line on standard output is what it says of itself, as JSON.
"""

import atexit
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import KEY
from tests.benchmarks.effects import effect_model
from tests.benchmarks.plans import planned_tables
from tests.benchmarks.watch import Watch


def main() -> None:
    """Do the task and tell of it; a failure is one line on standard error."""
    # Called last, after Prefect has stopped its server: DuckDB's binding reports leaks otherwise.
    code = [1]
    atexit.register(lambda: os._exit(code[0]))
    watch = Watch()
    try:
        rows = _task(sys.argv[1])(watch, **json.loads(sys.argv[2]))
    except Exception as error:
        told = " ".join(str(error).split())[:300]
        sys.stderr.write(f"{type(error).__name__}: {told}\n")
        sys.stderr.flush()
        return
    said = {
        "begin": watch.begin,
        "end": watch.end,
        "own_peak": watch.own_peak,
        "processor": watch.processor,
        "rows": rows,
        "details": watch.details,
    }
    sys.stdout.write(f"\n{json.dumps(said)}\n")
    sys.stdout.flush()
    code[0] = 0


def _task(name: str) -> Callable[..., int]:
    """The task of this name; libraries that others do without are not imported for them."""
    if name in TASKS:
        return TASKS[name]
    from tests.benchmarks import draws  # noqa: PLC0415 - see above

    return draws.TASKS[name]


class _Steps(logging.Handler):
    """Listens to what the steps of a flow say on the log: when the first began, how long each took.

    See :func:`flows.orchestration.step.plain_step`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begin: float | None = None
        self.seconds: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if self.begin is None:
            self.begin = time.monotonic()
        if record.msg.endswith("%s: %.2f s") and isinstance(record.args, tuple):
            name, seconds = str(record.args[0]), record.args[1]
            if isinstance(seconds, float):
                self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def release(
    watch: Watch,
    work: str,
    prefect_home: str | None,
    config: str,
    from_first_step: bool = True,
    nights: int = 0,
    n_people: int = 0,
) -> int:
    """A release of ``config`` (TOML), from the start of its first step to the end of the flow.

    Without ``prefect_home`` the flow is called as a plain function. Where not ``from_first_step``
    the whole call of the flow is timed. Before it, ``nights`` are charged to ``n_people`` each,
    other ones every night.
    """
    path = Path(work) / "bench.toml"
    path.write_text(config, encoding="utf-8")
    key = path.with_name(KEY)
    key.touch(0o600)
    key.write_bytes(b"the key of a benchmark, of no use to anybody")
    with _server(prefect_home, Path(work)):
        import scipy.stats  # noqa: F401, PLC0415 - else imported on the way, and timed

        import schemas.raw_frame  # noqa: F401, PLC0415 - likewise, for pandera

        module, page = ("deployed", "release") if prefect_home else ("release", "release_period")
        run: Any = getattr(import_module(f"flows.{module}"), page)  # after Prefect's surroundings
        noise = _timed_noise()
        steps = _Steps()
        log = logging.getLogger("clusterdp")
        log.setLevel(logging.INFO)
        log.addHandler(steps)
        if nights:
            past_nights(path, nights, n_people)
        with watch:
            result = run(str(path))
    if from_first_step:
        if steps.begin is None:
            raise RuntimeError(
                "no step of the flow was heard of: has flows.orchestration.step changed?"
            )
        watch.begin = steps.begin
    watch.details |= {f"step {name}": seconds for name, seconds in steps.seconds.items()}
    watch.details["file_bytes"] = result.path.stat().st_size
    if noise:
        watch.details["noise"] = sum(noise)
    return _count(result.path, "main.units")


def past_nights(path: Path, nights: int, n_people: int) -> None:
    """Charge releases of people who look random in the ledger of a configuration."""
    import numpy as np  # noqa: PLC0415 - here, where nothing is timed

    from flows.config.load import load  # noqa: PLC0415 - not timed, and other jobs need none of it
    from flows.ledger.database import Ledger  # noqa: PLC0415 - likewise
    from flows.ledger.members import Members  # noqa: PLC0415 - likewise
    from flows.ledger.place import ledger_place  # noqa: PLC0415 - likewise
    from flows.ledger.rules import ChargeRequest, Fingerprint  # noqa: PLC0415 - likewise
    from flows.ledger.units.account_key import read_account_key  # noqa: PLC0415 - likewise

    settings = load(path)
    terms, place = settings.terms, ledger_place(settings)
    ledger = Ledger(place.url)
    key = read_account_key(place, terms, begun=False)
    random = np.random.default_rng(nights)
    arms = (np.arange(n_people) % 2).astype(np.uint16)
    for night in range(nights):
        digests = random.integers(0, 2**64, n_people, dtype=np.uint64)
        people = Members(digests, arms, terms.experiment, settings.arms.names, key.fingerprint)
        made_from = Fingerprint(f"k:{night}", f"k:u{night}", "k:s")
        with ledger.turn(terms.population):
            accounts = ledger.accounts(terms, people, f"n{night}")
            asked = ChargeRequest(
                terms, f"n{night}", made_from, settings.releases, None, accounts=accounts
            )
            charge = ledger.reserve(asked).charge
        if charge is None:
            raise RuntimeError("a night that is new was not charged")
        ledger.begin_publishing(charge)
        ledger.publish(charge)
        ledger.sum_up(terms.population, people.mark)


def empty_steps(watch: Watch, work: str, prefect_home: str | None, steps: int) -> int:
    """A flow of so many steps that do nothing: what Prefect itself takes, once it has started."""
    with _server(prefect_home, Path(work)):
        from prefect import flow  # noqa: PLC0415 - after its surroundings are settled

        from flows.orchestration.step import step  # noqa: PLC0415 - likewise

        def nothing() -> None:
            pass

        @flow(name="empty-steps", persist_result=False, retries=0)
        def all_of_them() -> None:
            for _ in range(steps):
                step(nothing)()

        with watch:
            all_of_them()
    return steps


@contextmanager
def _server(home: str | None, work: Path) -> Iterator[None]:
    """A server of Prefect's for one run, with a home of this bench's, that has answered a flow."""
    if home is None:
        yield
        return
    from flows.orchestration.prefect_server import server_for_one_run  # noqa: PLC0415 - before anything imports Prefect

    os.environ["PREFECT_HOME"] = home
    with server_for_one_run(work / "bench.toml", wanted=True) as server:
        if server is None:
            raise RuntimeError("no server, where one was wanted")
        server.wait()
        from prefect import flow  # noqa: PLC0415 - after its surroundings are settled

        @flow(name="warm-up", persist_result=False, retries=0)
        def warm_up() -> None:
            pass

        warm_up()
        yield


def _timed_noise() -> list[float]:
    """Have every draw of discrete Laplace noise timed; returns the seconds, one entry a call.

    Stays empty where noise is drawn by other processes.
    """
    from privatizers.noise.randomness import discrete_laplace  # noqa: PLC0415 - only a release needs it

    spent: list[float] = []

    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        drawn = discrete_laplace(*args, **kwargs)
        spent.append(time.perf_counter() - begin)
        return drawn

    for name, module in list(sys.modules.items()):
        if name.startswith("privatizers.") and hasattr(module, "discrete_laplace"):
            vars(module)["discrete_laplace"] = timed
    return spent


def _count(path: Path, table: str) -> int:
    import duckdb  # noqa: PLC0415 - each task imports its own

    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found[0]) if found else 0


# The last column differs by region and variant, as it does in a release: another compression would
# be another measure.
_ORDERED = """
CREATE TABLE units AS
SELECT {unit_id} AS unit_id, region AS cluster, variant AS arm,
       clicks::DOUBLE AS outcome_randomised,
       (clicks - 0.5 * (hash(region, variant) % 1000003) * 1.1e-5) / 0.5 AS outcome_debiased
FROM read_parquet(?) ORDER BY unit_id
"""
_HASHED = (
    "sha256(encode(repeat('o', 64)) || unhex(sha256(encode(repeat('i', 64)) || "
    "encode(customer_id::VARCHAR))))"
)


def ordered_table(
    watch: Watch,
    work: str,
    prefect_home: str | None,
    source: str,
    memory_limit: str,
    hashed: bool = False,
) -> int:
    """DuckDB's CREATE TABLE AS … ORDER BY unit_id of the five columns, into a closed new file.

    If ``hashed``, ids are first hashed as a release hashes them, by the same HMAC.
    """
    query = _ORDERED.format(unit_id=_HASHED if hashed else "customer_id")
    return _table(watch, Path(work), query, [source], memory_limit)


def ordered_query(
    watch: Watch, work: str, prefect_home: str | None, source: str, memory_limit: str, query: str
) -> int:
    """DuckDB's CREATE TABLE AS by a ``query`` on the log, into a closed new file."""
    return _table(watch, Path(work), query, [source], memory_limit)


AGGREGATED = """
CREATE TABLE units AS
WITH first AS (
    SELECT customer_id, arg_min(region, ts) AS cluster, arg_min(variant, ts) AS arm,
           min(ts) AS since
    FROM read_parquet(?) GROUP BY customer_id
), counted AS (
    SELECT customer_id, count(*) AS n
    FROM read_parquet(?) AS event JOIN first USING (customer_id)
    WHERE event.ts >= since AND event.ts < since + INTERVAL 7 DAY
    GROUP BY customer_id
)
SELECT customer_id AS unit_id, cluster, arm, coalesce(n, 0)::DOUBLE AS outcome
FROM first LEFT JOIN counted USING (customer_id)
"""


def aggregated_events(
    watch: Watch,
    work: str,
    prefect_home: str | None,
    exposures: str,
    outcomes: str,
    memory_limit: str,
) -> int:
    """DuckDB's aggregation of events to units, into a table of a closed new file."""
    return _table(watch, Path(work), AGGREGATED, [exposures, outcomes], memory_limit)


def _table(watch: Watch, work: Path, query: str, sources: list[str], memory_limit: str) -> int:
    """Create the table ``units`` in a new file as a release is stored."""
    import duckdb  # noqa: PLC0415 - each task imports its own

    from schemas.released import STORAGE_VERSION  # noqa: PLC0415 - each task imports its own

    path = work / "table.duckdb"
    settings: dict[str, Any] = {"memory_limit": memory_limit, "temp_directory": str(work / "spill")}
    with watch, duckdb.connect(config=settings) as connection:
        connection.execute(f"ATTACH '{path}' AS made (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE made")
        connection.execute(query, sources)
    watch.details["file_bytes"] = path.stat().st_size
    return _count(path, "units")


def parquet_copy(watch: Watch, work: str, prefect_home: str | None, source: str) -> int:
    """A streaming copy of the log's files into one Parquet file, by polars."""
    import polars as pl  # noqa: PLC0415 - each task imports its own

    path = Path(work) / "copy.parquet"
    with watch:
        pl.scan_parquet(source).sink_parquet(path)
    watch.details["file_bytes"] = path.stat().st_size
    return int(pl.scan_parquet(path).select(pl.len()).collect().item())


def keep_release(watch: Watch, work: str, prefect_home: str | None, config: str, to: str) -> int:
    """A release that stays, at ``to``; for others to measure with."""
    rows = release(watch, work, prefect_home, config)
    found = next(
        path for path in Path(work).rglob("*.duckdb") if path.name.startswith("bench.once")
    )
    found.rename(to)
    return rows


def estimates(watch: Watch, work: str, prefect_home: str | None, released: str) -> int:
    """What ``clusterdp estimate`` does with a released file."""
    import scipy.special  # noqa: F401, PLC0415 - else imported on the way, and timed

    from flows.released.estimates.release import estimate_file  # noqa: PLC0415 - each task imports its own

    with watch:
        found = estimate_file(Path(released))
    return max(one.n_units for one in found)


def grouped(watch: Watch, work: str, prefect_home: str | None, released: str) -> int:
    """DuckDB's sizes, means and variances by cluster and arm of a released file."""
    import duckdb  # noqa: PLC0415 - each task imports its own

    with watch, duckdb.connect(released, read_only=True) as connection:
        found = connection.execute(
            "SELECT cluster, arm, count(*), avg(outcome_randomised), var_samp(outcome_randomised) "
            "FROM main.units GROUP BY cluster, arm"
        ).fetchall()
    return int(sum(row[2] for row in found))


TASKS: dict[str, Callable[..., int]] = {
    task.__name__: task
    for task in (
        release,
        empty_steps,
        ordered_table,
        ordered_query,
        effect_model,
        planned_tables,
        aggregated_events,
        parquet_copy,
        keep_release,
        estimates,
        grouped,
    )
}


if __name__ == "__main__":
    main()
