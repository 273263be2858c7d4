"""What is measured: each case has contenders, of which one is the baseline of its ratios."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.case import Case, Contender, Place, parse_size
from tests.benchmarks.data import EventLog, UnitLog
from tests.benchmarks.effects import effects_case
from tests.benchmarks.measure import BenchError, Job, run_job
from tests.benchmarks.plans import plans_case

Sections = dict[str, dict[str, Any]]

KEY = "ids.key"
"""Where a release finds the key of its ids, beside its configuration."""

QUICK = (
    "units-1m",
    "units-1m-text",
    "units-1m-hex",
    "units-1m-hashed",
    "flow-1m",
    "outcomes-1m",
    "strata-50k",
    "events-1m",
    "estimates-1m",
    "tables-1m",
    "plans-10k",
    "small",
    "draws-1m",
)
"""Five minutes in all."""

NAMES = (
    "units-SIZE[-text|-hex|-hashed], flow[-SIZE], workers[-SIZE][-text], outcomes[-SIZE], "
    "strata[-SIZE], events[-SIZE], estimates[-SIZE], accounts[-SIZE], effects[-SIZE], "
    "tables[-SIZE], plans[-CLUSTERS], "
    "growth[-SIZE], growth-strata[-SIZE], small, draws[-SIZE]; "
    "SIZE such as 500k, 10m, 100m"
)

_IDS = {"text": "text", "hex": "hexadecimal", "hashed": "keyed-hash", "": "integer"}

_STEPS = 7  # of a release
_FEW = 5_000  # units of a file that takes no longer to read than to check
_NIGHTS = 30
_PER_STRATUM = 5
_OUTCOMES = 3
_PER_UNIT = 5  # events, exposures included
_SCALAR_ROWS, _LOOP_ROWS = 20_000, 200_000  # slow ones get fewer rows; time is compared by the row


def cases_of(word: str, place: Place) -> Iterator[Case]:
    """The cases that a word of ``make bench BENCH="…"`` asks for; raises BenchError for others."""
    kind, *rest = word.split("-")
    if kind == "growth" and rest[:1] == ["strata"]:
        kind, rest = "growth-strata", rest[1:]
    ids = rest[-1] if kind in ("units", "workers") and rest and rest[-1] in _IDS else ""
    sizes = rest[:-1] if ids else rest
    if kind not in _DEFAULTS or len(sizes) > 1 or (kind == "small" and rest):
        raise BenchError(f"there is no case {word!r}; there are {NAMES}")
    size = parse_size(sizes[0] if sizes else _DEFAULTS[kind])
    if kind == "units":
        yield _units(word, place, size, ids)
    elif kind == "workers":
        yield _workers(word, place, size, ids)
    elif kind == "draws":
        yield from _draws(word, size)
    else:
        yield _MAKERS[kind](word, place, size)


_DEFAULTS = {
    "units": "10m",
    "flow": "10m",
    "workers": "10m",
    "growth": "10m",
    "growth-strata": "1m",
    "outcomes": "10m",
    "strata": "1m",
    "events": "50m",
    "estimates": "10m",
    "accounts": "10m",
    "effects": "10m",
    "tables": "10m",
    "plans": "10k",
    "small": "5000",
    "draws": "10m",
}


def _units(word: str, place: Place, size: int, ids: str) -> Case:
    hashed = ids == "hashed"
    source, prepare = _input(place, UnitLog(size, ids="" if hashed else ids))
    publish: Sections = {"publish": {"unit_id": "keyed-hash", "key_file": KEY}} if hashed else {}
    return Case(
        word,
        f"{size:,} units, {_IDS[ids]} ids, 1,000 clusters, 2 arms, 12 outcomes",
        (
            _ordered(
                f"DuckDB: {'hashed and ' * hashed}ordered CTAS", place, source, size, hashed=hashed
            ),
            _copy("polars: Parquet copy", source, size),
            _release("clusterdp: release", place, source, size, publish),
        ),
        prepare,
    )


def _outcomes(word: str, place: Place, size: int) -> Case:
    """Several outcomes, beside DuckDB's ordered copy of as many columns."""
    log = UnitLog(size, n_outcomes=_OUTCOMES)
    source, prepare = _input(place, log)
    arguments = {
        "source": source,
        "memory_limit": place.memory_limit,
        "query": _ordered_outcomes(log.outcomes),
    }
    outcomes = [{"name": name, "values": list(range(12))} for name in log.outcomes]
    sections: Sections = {"columns": {"outcome": None}, "outcomes": {"": outcomes}}
    return Case(
        word,
        f"{size:,} units, integer ids, 1,000 clusters, 2 arms, {_OUTCOMES} outcomes of 12 values",
        (
            Contender("DuckDB: ordered CTAS", Job("ordered_query", arguments), size),
            _release("clusterdp: release", place, source, size, sections),
        ),
        prepare,
    )


def _tables(word: str, place: Place, size: int) -> Case:
    """The optimal randomiser, beside randomised response with a uniform prior."""
    source, prepare = _input(place, UnitLog(size))

    def contender(mechanism: str) -> Contender:
        sections: Sections = {"privacy": {"mechanism": mechanism, "strata_statistic": "counts"}}
        found = _release(f"clusterdp: {mechanism}", place, source, size, sections)
        return replace(found, is_ours=mechanism != "uniform-prior-dp")

    return Case(
        word,
        f"{size:,} units, integer ids, 1,000 clusters, 2 arms, 12 outcomes; counts published",
        (contender("uniform-prior-dp"), contender("cluster-optimal-dp"), contender("auto")),
        prepare,
    )


def _flow(word: str, place: Place, size: int) -> Case:
    source, prepare = _input(place, UnitLog(size))
    plain = _release("clusterdp: release", place, source, size)
    return Case(
        word,
        f"{size:,} units, integer ids; a release as a flow of Prefect's, whose server runs already",
        (
            replace(plain, is_ours=False),
            replace(plain, name="clusterdp: release as a flow", needs_prefect=True),
        ),
        prepare,
    )


def _accounts(word: str, place: Place, size: int) -> Case:
    """Whole runs, as accounts are read and charged between steps."""
    source, prepare = _input(place, UnitLog(size, ids="text"))

    def contender(name: str, account: str, nights: int = 0) -> Contender:
        sections: Sections = {"source": {"path": source}, "privacy": {"account": account}}
        text = config(place, sections)
        arguments = {"config": text, "nights": nights, "n_people": size}
        return Contender(name, Job("release", arguments), size, is_ours=account == "unit")

    return Case(
        word,
        f"{size:,} units, text ids; a release that everybody pays for, and with accounts by unit "
        f"on the first night and after {_NIGHTS} nights of as many other people",
        (
            contender("clusterdp: release, no accounts", "population"),
            contender("clusterdp: release, the first night", "unit"),
            contender(f"clusterdp: release after {_NIGHTS} nights", "unit", _NIGHTS),
        ),
        prepare,
    )


def _workers(word: str, place: Place, size: int, ids: str) -> Case:
    """Whole runs, as workers start before the first step."""
    source, prepare = _input(place, UnitLog(size, ids=ids))

    def contender(name: str, run: dict[str, Any]) -> Contender:
        sections: Sections = {"source": {"path": source}, "run": run}
        arguments = {"config": config(place, sections), "from_first_step": False}
        return Contender(name, Job("release", arguments), size, is_ours=bool(run))

    return Case(
        word,
        f"{size:,} units, {_IDS[ids]} ids; one process, and two workers of one thread each besides "
        "(start included)",
        (
            contender("clusterdp: release", {}),
            contender("clusterdp: release by 2 workers", {"workers": 2}),
        ),
        prepare,
    )


def _growth(word: str, place: Place, greatest: int) -> Case:
    """From ten thousand units on, ten times as many at a time."""
    contenders: list[Contender] = []
    prepares: list[Callable[[], None]] = []
    size = min(10_000, greatest)
    while size <= greatest:
        source, prepare = _input(place, UnitLog(size))
        contenders.append(_ordered(f"DuckDB: {size:,}", place, source, size))
        contenders.append(_release(f"clusterdp: {size:,}", place, source, size))
        prepares.append(prepare)
        size *= 10
    title = "time per unit, beside DuckDB's ordered CTAS of the fewest"
    return Case(word, title, tuple(contenders), lambda: _all_of(prepares), growth_of="units")


def _growth_of_strata(word: str, place: Place, greatest: int) -> Case:
    """From a hundred strata on, ten times as many at a time; the time is that of a unit."""
    contenders: list[Contender] = []
    prepares: list[Callable[[], None]] = []
    n_strata = min(100, greatest)
    while n_strata <= greatest:
        log = _log_of_strata(n_strata)
        source, prepare = _input(place, log)
        contenders.append(_ordered(f"DuckDB: {n_strata:,}", place, source, log.n_units))
        contenders.append(_release(f"clusterdp: {n_strata:,}", place, source, log.n_units))
        prepares.append(prepare)
        n_strata *= 10
    title = f"time per unit, {_PER_STRATUM} units a stratum, beside DuckDB's ordered CTAS"
    return Case(word, title, tuple(contenders), lambda: _all_of(prepares), growth_of="strata")


def _all_of(prepares: Sequence[Callable[[], None]]) -> None:
    for prepare in prepares:
        prepare()


def _log_of_strata(n_strata: int) -> UnitLog:
    return UnitLog(
        n_strata * _PER_STRATUM, n_clusters=n_strata // 2, units_per_stratum=_PER_STRATUM
    )


def _strata(word: str, place: Place, n_strata: int) -> Case:
    if n_strata % 4:
        raise BenchError(f"{word}: the number of strata has to be a multiple of 4")
    logs = [_log_of_strata(n) for n in (n_strata // 2, n_strata)]
    (half, prepare_half), (full, prepare_full) = (_input(place, log) for log in logs)

    def prepare() -> None:
        prepare_half()
        prepare_full()

    return Case(
        word,
        f"{n_strata:,} strata of {_PER_STRATUM} units, 12 noisy counts each; per row, beside "
        "half as many strata (1.0 is linear growth)",
        (
            replace(
                _release("clusterdp: half as many", place, half, logs[0].n_units), is_ours=False
            ),
            _ordered("DuckDB: ordered CTAS", place, full, logs[1].n_units),
            _release("clusterdp: release", place, full, logs[1].n_units),
        ),
        prepare,
    )


def _events(word: str, place: Place, n_events: int) -> Case:
    log = EventLog(n_events // _PER_UNIT, n_events)
    folder = place.data / f"events-{n_events}"
    exposures, outcomes = folder / "exposures/*.parquet", folder / "outcomes/*.parquet"
    paths = {"exposures": str(exposures), "outcomes": str(outcomes)}
    sections: Sections = {
        "source": {
            "path": str(exposures),
            "grain": "event",
            "outcomes_path": str(outcomes),
            "window": "7d",
        },
        "columns": {"time": "ts", "outcome": None},
        "outcome": {"aggregate": "count"},
    }
    return Case(
        word,
        f"{n_events:,} events ({log.n_exposures:,} of them exposures) of {log.n_units:,} units; "
        "first exposure, outcomes counted for 7 days",
        (
            Contender(
                "DuckDB: bare aggregation",
                Job("aggregated_events", {**paths, "memory_limit": place.memory_limit}),
                log.n_units,
            ),
            Contender(
                "clusterdp: release",
                Job("release", {"config": config(place, sections)}),
                log.n_units,
                is_ours=True,
            ),
        ),
        lambda: _written(log, folder),
    )


def _written(log: EventLog, folder: Path) -> None:
    log.write(folder)


def _estimates(word: str, place: Place, size: int) -> Case:
    """Beside the same of a small file, which takes what any file does: its checks."""
    arguments = {n: {"released": str(place.data / f"released-{n}.duckdb")} for n in (_FEW, size)}

    def prepare() -> None:
        for n, of_file in arguments.items():
            if not Path(of_file["released"]).exists():
                _keep_release(place, n, of_file["released"])

    return Case(
        word,
        f"estimates from a released file of {size:,} units, and from one of {_FEW:,} "
        "(ratio of whole runs, not per row)",
        (
            Contender("DuckDB: bare GROUP BY", Job("grouped", arguments[size]), size),
            Contender(
                f"clusterdp: estimate of {_FEW:,} units", Job("estimates", arguments[_FEW]), _FEW
            ),
            Contender("clusterdp: estimate", Job("estimates", arguments[size]), size, is_ours=True),
        ),
        prepare,
        per_row=False,
    )


def _keep_release(place: Place, size: int, to: str) -> None:
    source, prepare_log = _input(place, UnitLog(size, n_clusters=20 if size == _FEW else 1_000))
    prepare_log()
    with TemporaryDirectory(dir=place.data) as work:
        text = config(place, {"source": {"path": source}})
        arguments = {"work": work, "prefect_home": None, "config": text, "to": to}
        run_job(Job("keep_release", arguments))


def _small(word: str, place: Place, size: int) -> Case:
    source, prepare = _input(place, UnitLog(size, n_clusters=20))
    ours = _release("clusterdp: release", place, source, size)
    whole = replace(ours.job, arguments={**ours.job.arguments, "from_first_step": False})
    return Case(
        word,
        f"{size:,} units in 20 clusters, the whole call of the flow once Prefect is up "
        "(ratio of whole runs, not per row)",
        (
            Contender(
                f"Prefect: {_STEPS} empty steps",
                Job("empty_steps", {"steps": _STEPS}),
                _STEPS,
                needs_prefect=True,
            ),
            replace(ours, job=whole, needs_prefect=True),
        ),
        prepare,
        per_row=False,
    )


def _draws(word: str, size: int) -> Iterator[Case]:
    def contender(task: str, by: str, name: str, rows: int) -> Contender:
        return Contender(name, Job(task, {"by": by, "rows": rows}), rows, is_ours=by == "ours")

    scalar, loop = min(size, _SCALAR_ROWS), min(size, _LOOP_ROWS)
    yield Case(
        word,
        f"randomised response over 12 outcomes, 2,000 priors (ours: {size:,} rows)",
        (
            contender("response", "opendp", "OpenDP: a call a row", scalar),
            contender("response", "loop", "NumPy: a loop over rows", loop),
            contender("response", "ours", "clusterdp: randomised response", size),
        ),
    )
    yield Case(
        f"{word}-laplace",
        f"discrete Laplace noise of scale 10 (ours: {size:,} cells)",
        (
            contender("laplace", "vector", "OpenDP: one call", min(size, 1_000_000)),
            contender("laplace", "scalar", "OpenDP: a call a cell", scalar),
            contender("laplace", "ours", "clusterdp: discrete Laplace", size),
        ),
    )


_MAKERS: dict[str, Callable[[str, Place, int], Case]] = {
    "flow": _flow,
    "growth": _growth,
    "growth-strata": _growth_of_strata,
    "outcomes": _outcomes,
    "strata": _strata,
    "events": _events,
    "estimates": _estimates,
    "accounts": _accounts,
    "effects": effects_case,
    "tables": _tables,
    "plans": plans_case,
    "small": _small,
}


def _input(place: Place, log: UnitLog) -> tuple[str, Callable[[], None]]:
    """The glob of a log, and what writes it."""
    kind = "strata" if log.units_per_stratum else log.ids or "integer"
    kind += f"-{log.n_outcomes}-outcomes" * (log.n_outcomes > 1)
    folder = place.data / f"units-{log.n_units}-{log.n_clusters}-{kind}"

    def prepare() -> None:
        log.write(folder)

    return str(folder / "*.parquet"), prepare


def _ordered(name: str, place: Place, source: str, rows: int, *, hashed: bool = False) -> Contender:
    arguments = {"source": source, "memory_limit": place.memory_limit, "hashed": hashed}
    return Contender(name, Job("ordered_table", arguments), rows)


def _ordered_outcomes(columns: Sequence[str]) -> str:
    """A copy of these outcomes, each with a column that differs by stratum as debiased ones do."""
    outcomes = ", ".join(
        f"{one}::DOUBLE AS {one}_randomised, "
        f"({one} - 0.5 * (hash(region, variant) % 1000003) * 1.1e-5) / 0.5 AS {one}_debiased"
        for one in columns
    )
    return (
        "CREATE TABLE units AS SELECT customer_id AS unit_id, region AS cluster, variant AS arm, "
        f"{outcomes} FROM read_parquet(?) ORDER BY unit_id"
    )


def _copy(name: str, source: str, rows: int) -> Contender:
    return Contender(name, Job("parquet_copy", {"source": source}), rows)


def _release(
    name: str, place: Place, source: str, rows: int, sections: Sections | None = None
) -> Contender:
    text = config(place, {"source": {"path": source}, **(sections or {})})
    job = Job("release", {"config": text})
    return Contender(name, job, rows, is_ours=True)


def config(place: Place, sections: Sections) -> str:
    """A configuration (TOML); keys of ``sections`` replace the defaults, None takes a key out."""
    defaults: Sections = {
        "source": {},
        "columns": {
            "unit": "customer_id",
            "arm": "variant",
            "cluster": "region",
            "outcome": "clicks",
        },
        "arms": {"control": "none", "treatments": ["mail"]},
        "outcome": {"values": list(range(12))},
        "privacy": {
            "mechanism": "cluster-dp",
            "epsilon": 4.0,
            "min_stratum": _PER_STRATUM,
        },
        "publish": {},
        "run": {"memory_limit": place.memory_limit},
    }
    several = sections.get("outcomes", {}).get("", [])
    if several:
        del defaults["outcome"]
    lines = ['experiment = "bench"']
    for name, keys in defaults.items():
        lines += [f"[{name}]", *_lines({**keys, **sections.get(name, {})})]
    for outcome in several:
        lines += ["[[outcomes]]", *_lines({"column": outcome["name"], **outcome})]
    return "\n".join(lines) + "\n"


def _lines(keys: dict[str, Any]) -> list[str]:
    # What JSON spells of texts, numbers and lists, TOML spells alike.
    return [f"{key} = {json.dumps(one)}" for key, one in keys.items() if one is not None]
