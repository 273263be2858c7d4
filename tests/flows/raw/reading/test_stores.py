"""Logs in object stores, of servers of this machine that speak the stores' own protocols."""

import gc
import io
import socket
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.main import run
from flows.raw.ingest import ingest
from flows.raw.reading import stores
from flows.raw.reading.log_files import Wanted, find_files, open_bytes
from flows.raw.reading.sources import Piece, batches_of
from flows.raw.reading.stores import trouble
from schemas.errors import InputError, NoFileError
from tests.conftest import EXACT, PATIENCE, Builder, Content, Experiment, a_log, released
from tests.support.stores import ENDPOINTS, SECRET, Store

PERIOD = "2026-11-20"
KINDS = ("parquet", "csv", "csv.gz", "jsonl", "ndjson.gz")


def stored(
    store: Store, experiment: Builder, kind: str = "parquet", **more: Mapping[str, Any]
) -> Experiment:
    """A log of three files in a store, and its configuration."""
    for place, part in enumerate(a_log().iter_slices(90)):
        store.put(f"logs/{PERIOD}/part-{place}.{kind}", part)
    path = f"{store.address}/logs/{{period}}/*.{kind}"
    return experiment(source={"path": path}, **more)


# what is there is read


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_the_same_from_a_store(store: Store, experiment: Builder, kind: str) -> None:
    found = stored(store, experiment, kind).read(PERIOD)
    files = {f"{place}.{kind}": part for place, part in enumerate(a_log().iter_slices(90))}
    local = experiment(files, source={"path": f"?.{kind}"}).read()
    assert found.equals(local)
    assert found.schema == local.schema
    assert found.height == 240


TREE = (
    *("logs/a.csv", "logs/b.csv", "logs/.hidden.csv", "logs/deep/c.csv", "logs/deep/er/d.csv"),
    *("logs/[odd] name?.csv", "logs/.dark/e.csv", "other.csv", "table.csv/day=1/part-0.csv"),
    *("table.csv/day=2/part-0.csv", "table.csv/_SUCCESS", "table.csv/day=1/.part.crc"),
    *("lake.csv/_delta_log/0.json", "lake.csv/part-0.csv", "odd.csv/folder/part.csv"),
    *("begun.csv/_temporary/0.csv", "empty.csv/_SUCCESS"),
)
PATTERNS = (
    *("logs/*.csv", "logs/**/*.csv", "logs/**", "logs/*", "logs/?.csv", "logs/[ab].csv", "*.csv"),
    *("logs/[[]odd*", "logs/deep/*", "logs/*/*.csv", "other.csv", "table.csv", "t*.csv", "gone/*"),
    *(
        "lake.csv",
        "odd.csv",
        "begun.csv",
        "empty.csv",
        "logs/deep",
        "table.csv/*/*.csv",
    ),
    *(
        "logs/.*.csv",
        "logs/.dark/*",
        "*",
        "log*/a.csv",
        "logs/deep/**/d.csv",
        "LOGS/a.csv",
    ),
)


def test_patterns_match_as_they_do_here(store: Store, tmp_path: Path) -> None:
    def listed(prefix: str, pattern: str) -> list[str] | type[Exception]:
        try:
            files = find_files(tmp_path / "here", "source.path", pattern, "")
        except InputError as error:
            return type(error)
        return [str(file).removeprefix(f"{prefix}/") for file in files]

    for key in TREE:
        path = tmp_path / "here" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a\n")
        store.put_bytes(key, b"a\n")
    here = {pattern: listed(str(tmp_path / "here"), pattern) for pattern in PATTERNS}
    there = {one: listed(store.address, f"{store.address}/{one}") for one in PATTERNS}
    assert there == here


def test_shares_of_a_file_are_all_of_it(store: Store, experiment: Builder, tmp_path: Path) -> None:
    content = io.BytesIO()
    a_log().write_parquet(content, row_group_size=50)
    store.put_bytes("log.parquet", content.getvalue())
    built = experiment(source={"path": f"{store.address}/log.parquet"})
    roster = ingest(built.load().log_source, "once").open().roster
    whole = pl.concat(list(roster.batches()))
    for number in (1, 3):
        shares = roster.shares(number)
        assert shares[0].pieces == (Piece(0, 0, number),)
        assert pl.concat([batch for share in shares for batch in share.batches()]).equals(whole)
    assert roster.known_rows() == whole.height == 240


def test_private_text_that_is_not_utf8_is_missing(store: Store) -> None:
    bad = pa.array([b"yes", b"n\xff", None]).view(pa.string())
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int32()), bad[:2])
    content = io.BytesIO()
    pq.write_table(pa.table({"bought": bad, "coded": coded, "id": ["a", "b", "c"]}), content)
    store.put_bytes("log.parquet", content.getvalue())
    (file,) = find_files(Path(), "source.path", f"{store.address}/log.parquet", "")
    columns = ("id", "bought", "coded")
    (frame,) = batches_of(file, Wanted(columns, frozenset(columns[1:])))
    assert frame.select(pl.all().cast(pl.String)).rows() == [
        ("a", "yes", "yes"),
        ("b", "n\ufffd", "n\ufffd"),
        ("c", None, "n\ufffd"),
    ]
    with pytest.raises(InputError, match=r"log.parquet: cannot be read as Parquet"):
        list(batches_of(file, Wanted(columns)))


def test_a_release_from_a_store_is_that_of_the_log(store: Store, experiment: Builder) -> None:
    found = stored(store, experiment, privacy=EXACT).run(PERIOD)
    units = released(found.path, "units").select("unit_id", "outcome_randomised").sort("unit_id")
    assert units.rows() == a_log().select("customer", "clicks").rows()


def test_workers_read_it_too(s3: Store, experiment: Builder) -> None:
    found = stored(s3, experiment, privacy=EXACT, run={"workers": 2}).run(PERIOD)
    units = released(found.path, "units").select("unit_id", "outcome_randomised").sort("unit_id")
    assert units.rows() == a_log().select("customer", "clicks").rows()


def test_events_are_read_from_a_store(store: Store, experiment: Builder) -> None:
    exposures = a_log().drop("clicks").with_columns(ts=pl.lit("2026-11-20T00:00:00"))
    events = a_log().select("customer", "clicks", ts=pl.lit("2026-11-21T00:00:00"))
    store.put("seen/log.jsonl", exposures)
    store.put("done/log.csv.gz", events)
    address = store.address
    source = {"path": f"{address}/seen/*", "grain": "event", "outcomes_path": f"{address}/done/*"}
    built = experiment(
        source=source, columns={"time": "ts"}, outcome={"aggregate": "sum"}, privacy=EXACT
    )
    units = (
        released(built.run().path, "units").select("unit_id", "outcome_randomised").sort("unit_id")
    )
    assert units.rows() == a_log().select("customer", "clicks").rows()


def test_a_configuration_begins_from_a_store(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("parquet", "csv.gz"):
        store.put(f"logs/{PERIOD}/a.{kind}", a_log())
        pattern = f"{store.address}/logs/{{period}}/*.{kind}"
        flags = ["--unit", "customer", "--arm", "variant", "--outcome", "clicks", "--epsilon", "1"]
        name = f"{kind}.toml"
        assert run(["init", pattern, "-o", name, *flags, "--values", "0,1,2,3"]) == 0
        assert f'path = "{pattern}"' in Path(name).read_text()
        assert run(["check", name, "--period", PERIOD]) == 0


# what is not is told


def refusal(path: str, here: Path = Path()) -> InputError:
    start = time.monotonic()
    with pytest.raises(InputError) as caught:
        find_files(here, "source.path", path, PERIOD)
    assert time.monotonic() - start < PATIENCE
    assert caught.value.key == "source.path"
    assert caught.value.exit_code == 2
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None
    return caught.value


def test_no_file_and_no_bucket_are_told(store: Store) -> None:
    error = refusal(f"{store.address}/logs/{{period}}/*.csv")
    assert isinstance(error, NoFileError)
    place = f"{store.address}/logs/{PERIOD}/*.csv"
    assert str(error) == f"source.path: no file matches {place}"
    gone = f"{store.scheme}://no-such-bucket"
    for path in (f"{gone}/log.csv", f"{gone}/logs/*.csv"):
        error = refusal(path)
        assert not isinstance(error, NoFileError)
        assert str(error).startswith(f"source.path: {gone}: there is no such bucket")


def test_a_store_that_cannot_be_reached_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        for name in ENDPOINTS:
            monkeypatch.setenv(name, endpoint)
        error = refusal(f"{store.address}/logs/*.csv")
    assert str(error).startswith(f"source.path: {store.address}: the store cannot be reached;")


class _Refuses(BaseHTTPRequestHandler):
    code = "AccessDenied"

    def do_GET(self) -> None:
        body = f"<Error><Code>{self.code}</Code><Message>{SECRET}</Message></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/xml")
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.send_header("x-ms-error-code", self.code)  # as Azure says it
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base
        pass


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that refuses whatever it is asked."""
    with HTTPServer(("127.0.0.1", 0), _Refuses) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        for name in ENDPOINTS:
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()
        thread.join()


def test_denied_access_is_told(
    store: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request.getfixturevalue("refusing")  # once the environment names the store
    error = refusal(f"{store.address}/logs/*.csv")
    assert str(error).startswith(f"source.path: {store.address}: access is denied;")
    if store.scheme == "s3":
        for code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"):
            monkeypatch.setattr(_Refuses, "code", code)
            told = str(refusal(f"{store.address}/logs/*.csv"))
            assert told.endswith(
                "the store does not accept the environment's credentials; renew or correct them"
            ), told


def test_what_was_not_opened_is_not_closed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(stores._Bytes, "close", lambda _: closed.append("closed"))
    with pytest.raises(InputError, match="is not there any more"):
        stores.open_stored(stores.StoredFile(f"{store.address}/gone.csv", 1, 1))
    gc.collect()
    assert closed == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changes_or_goes_is_noticed(store: Store, kind: str) -> None:
    def frames(between: Content | None) -> list[pl.DataFrame]:
        store.put(f"log.{kind}", a_log())
        (file,) = find_files(Path(), "source.path", f"{store.address}/log.{kind}", "")
        if between is None:
            store.remove(f"log.{kind}")
        else:
            store.put(f"log.{kind}", between)
        return list(batches_of(file, Wanted(("customer",))))

    with pytest.raises(InputError, match=r"log\.\S+: changed since the run began to read; run it"):
        frames(a_log(100))
    with pytest.raises(InputError, match=r"log\.\S+: is not there any more; run it again"):
        frames(None)


def test_one_that_changes_while_it_is_read_is_noticed(store: Store) -> None:
    for kind, content in (("parquet", a_log()), ("csv", "customer\n" + "c00001\n" * 500_000)):
        store.put(f"log.{kind}", content)
        (file,) = find_files(Path(), "source.path", f"{store.address}/log.{kind}", "")
        if kind == "parquet":
            frames = batches_of(file, Wanted(("customer",)))
            next(frames)
        else:
            opened = open_bytes(file)
            opened.readline()
        store.put(f"log.{kind}", a_log(100))
        with pytest.raises(InputError, match="changed since the run began to read"):
            list(frames) if kind == "parquet" else opened.read()
        if kind == "csv":
            opened.close()


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "jsonl"])
def test_a_broken_file_is_told_as_here(store: Store, tmp_path: Path, kind: str) -> None:
    content = b"PAR1\x00\x00PAR1" if kind == "parquet" else b'customer,a\n"1'
    store.put_bytes(f"log.{kind}", content)
    (tmp_path / f"log.{kind}").write_bytes(content)
    told = []
    for path in (f"{store.address}/log.{kind}", f"log.{kind}"):
        (file,) = find_files(tmp_path, "source.path", path, "")
        with pytest.raises(InputError) as caught:
            list(batches_of(file, Wanted(("customer",))))
        told.append(str(caught.value).replace(str(file), "FILE"))
    assert told[0] == told[1]


def test_an_unknown_error_is_told_by_its_code_alone() -> None:
    text = f"When getting x: AWS Error SLOW_DOWN during HeadObject operation: {SECRET}"
    assert trouble(OSError(text)) == "the store answered with an error (SLOW_DOWN)"
    text = f"google::cloud::Status(ABORTED: {SECRET})"
    assert trouble(OSError(text)) == "the store answered with an error (ABORTED)"
    assert trouble(OSError(SECRET)) is None
