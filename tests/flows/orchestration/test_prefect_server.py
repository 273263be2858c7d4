"""The Prefect servers that we start: who may speak to them, whom they outlive, what they leave.

Where the tests run as root, the stranger is another Unix user (65534, nobody); elsewhere she is the
same user without the authentication string.
"""

import http.client
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_HOME,
    PREFECT_SERVER_DATABASE_CONNECTION_URL,
    get_current_settings,
    temporary_settings,
)

from flows.orchestration.prefect_server import PrefectServer, prefect_server, shown
from flows.orchestration.prefect_settings import configure_prefect
from flows.orchestration.server_database import check_database
from schemas.errors import ConfigError, InputError
from tests.conftest import Builder, Program
from tests.support.zygote import run_program

PATIENCE = 600.0
"""Seconds after which a test counts as stuck; nothing waits for them to pass."""

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "prefect",
}
SOCKETS = [
    "/api/events/in",
    "/api/events/out",
    "/api/logs/out",
    "/api/task_runs/subscriptions/scheduled",
    "/api/work_pools/pool/workers/connect",
]
PAGES = ["/", "/docs", "/redoc", "/openapi.json", "/ui-settings", "/api/docs", "/api/redoc"]
PAGES += ["/api/openapi.json", "/api/static/prefect-logo-mark-gradient.png", "/nowhere"]

Request = tuple[str, str, dict[str, str]]
Answer = tuple[str, str, int, str | None]


def ask(port: int, requests: list[Request]) -> list[Answer]:
    """What a stranger is answered.

    She is a fork, as another user can start no program that lies in this user's folders.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            said = json.dumps([answer(port, *request) for request in requests])
            with os.fdopen(writing, "w") as out:
                out.write(said)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as heard:
        found = [tuple(one) for one in json.loads(heard.read())]
    os.waitpid(pid, 0)
    return found


def answer(port: int, method: str, path: str, more: dict[str, str]) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, None if method == "GET" else b"{}", more)
        found = connection.getresponse()
        origin = found.getheader("access-control-allow-origin")
        return method, path, found.status, origin
    finally:
        connection.close()


def endpoints(document: dict[str, Any]) -> list[Request]:
    """Every path and method of an OpenAPI document, with something for each parameter."""
    nobody = "00000000-0000-4000-8000-000000000000"
    return [
        (method.upper(), path.replace("{", "").replace("}", "").replace("id", nobody), {})
        for path, methods in document["paths"].items()
        for method in methods
    ]


def headers() -> dict[str, str]:
    """What Prefect's client sends to be let in."""
    return dict(get_current_settings().client.custom_headers)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Prefect without a server of the session, with a home of its own."""
    folder = tmp_path / "home"
    of_the_session = [PREFECT_API_URL, PREFECT_SERVER_DATABASE_CONNECTION_URL]
    with temporary_settings({PREFECT_HOME: folder}, restore_defaults=of_the_session):
        os.environ["PREFECT_HOME"] = str(folder)
        yield folder


@contextmanager
def running(*, schedules: bool) -> Iterator[tuple[PrefectServer, int]]:
    with prefect_server(schedules=schedules) as server:
        server.wait()
        yield server, int(str(get_current_settings().api.url).split(":")[2].split("/")[0])


@pytest.mark.parametrize("schedules", [False, True], ids=["of a single run", "of serve"])
def test_a_stranger_is_refused_everywhere(home: Path, schedules: bool) -> None:
    """On every endpoint and socket; nothing is changed; no file may be read, whatever the umask."""
    from prefect import flow  # noqa: PLC0415 - after the settings of this test
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - likewise

    @flow
    def nothing() -> None:
        pass

    before = os.umask(0)
    try:
        with running(schedules=schedules) as (_, port):
            url = f"http://127.0.0.1:{port}"
            nothing()  # a client with the string may do all a run needs, CSRF protection and all
            with get_client(sync_client=True) as client:
                flow_id = client.create_flow(nothing)
                client.create_deployment(flow_id, "d", entrypoint="a:b", paused=True)
                known = client.read_deployments(), client.read_flow_runs()
                document = httpx.get(f"{url}/openapi.json", headers=headers(), timeout=PATIENCE)
                requests = endpoints(document.json())
                deployment = known[0][0].id
                requests += [
                    ("PATCH", f"/api/deployments/{deployment}", {}),
                    ("POST", f"/api/deployments/{deployment}/create_flow_run", {}),
                    ("OPTIONS", "/api/deployments/filter", {"Origin": "http://evil.example"}),
                ]
                requests += [("GET", page, {}) for page in PAGES]
                wrong = {"Authorization": "Basic Y2x1c3RlcmRwOndyb25n"}
                requests += [("POST", "/api/flows/filter", wrong), ("GET", "/api/health", wrong)]
                found = ask(port, requests)
                assert len(requests) > 150
                assert [one for one in found if one[2] != 401 or one[3]] == []
                sockets: list[Request] = [("GET", path, UPGRADE) for path in SOCKETS]
                assert {one[2] for one in ask(port, sockets)} == {403}  # not so much as accepted
                assert (client.read_deployments(), client.read_flow_runs()) == known
            # whoever has the string, but is a page of another origin
            page = httpx.post(
                f"{url}/api/flows/filter",
                headers={**headers(), "Origin": "http://evil.example"},
                json={},
                timeout=PATIENCE,
            )
            assert page.status_code == 403
            assert "access-control-allow-origin" not in page.headers or page.json() == {
                "detail": "Missing CSRF token."
            }
            assert wide_open(home) == []
    finally:
        os.umask(before)
    assert wide_open(home) == []


def wide_open(home: Path) -> list[str]:
    """What somebody else may touch."""
    found = [home, *home.rglob("*")]
    assert any(path.name == "prefect.db" for path in found)
    return [
        str(path) for path in found if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o77
    ]


def test_old_runs_go_where_prefect_s_own_settings_say_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which `prune` names: they reach the server of `serve`, and younger runs stay."""
    from prefect import flow  # noqa: PLC0415 - after the settings of this test
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - likewise

    @flow
    def nothing() -> None:
        pass

    for name, value in {
        "ENABLED": "true",
        "RETENTION_PERIOD": "2592000",
        "LOOP_SECONDS": "1",
    }.items():
        monkeypatch.setenv(f"PREFECT_SERVER_SERVICES_DB_VACUUM_{name}", value)
    with running(schedules=True), get_client(sync_client=True) as client:
        nothing()
        nothing()
        old, young = (run.id for run in client.read_flow_runs())
        with closing(sqlite3.connect(home / "prefect.db")) as database, database:
            database.execute(
                "UPDATE flow_run SET end_time = '2020-01-01 00:00:00.000000' WHERE id = ?",
                (str(old),),
            )
        deadline = time.monotonic() + PATIENCE
        while len(left := client.read_flow_runs()) > 1:
            assert time.monotonic() < deadline, "the old run stays"
            time.sleep(0.1)
        assert [run.id for run in left] == [young]


PARENT = """if True:
    import os, sys, time
    from pathlib import Path
    from flows.orchestration.prefect_settings import configure_prefect
    configure_prefect(Path(sys.argv[1]))
    from flows.orchestration.prefect_server import prefect_server
    with prefect_server(schedules=True) as server:
        server.wait()
        from prefect.settings import get_current_settings
        print(server._process.pid, get_current_settings().api.auth_string.get_secret_value(),
              flush=True)
        time.sleep(3600)
"""


def test_no_server_outlives_its_parent_and_no_process_list_shows_the_string(tmp_path: Path) -> None:
    """Nothing could be done after SIGKILL, so the server itself has to see it."""
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], env=ours, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, secret = parent.stdout.readline().split()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"flows.orchestration.own_server" in arguments
        assert len(secret) > 40
        for place in ("cmdline", "environ"):
            assert secret.encode() not in Path(f"/proc/{pid}/{place}").read_bytes()
        parent.kill()
    deadline = time.monotonic() + PATIENCE
    while living(int(pid)):
        assert time.monotonic() < deadline, "the server lives on"
        time.sleep(0.05)


def living(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# what is in the way of a start


def damaged(path: Path) -> None:
    path.write_bytes(b"no database at all, " * 500)


def damaged_within(path: Path) -> None:
    """A page of an index is overwritten."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a TEXT)")
    connection.executemany("INSERT INTO t VALUES (?)", [(f"{n:0100d}",) for n in range(1000)])
    connection.execute("CREATE INDEX i ON t (a)")
    connection.commit()
    connection.close()
    content = bytearray(path.read_bytes())
    content[-8192:] = b"\xff" * 8192
    path.write_bytes(content)


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [damaged, damaged_within, a_folder])
def test_a_damaged_database_is_named(home: Path, make: Any) -> None:
    """Whatever is wrong with it: the next test has every command say so."""
    home.mkdir(0o700)
    make(home / "prefect.db")
    with pytest.raises(InputError) as caught:
        check_database()
    told = str(caught.value)
    assert told.startswith(f"{home / 'prefect.db'}: Prefect's database cannot be used (")
    assert "move it away" in told
    assert "\n" not in told


@pytest.mark.parametrize("command", ["release", "serve"])
def test_every_command_names_a_damaged_database(
    clusterdp: Program, experiment: Builder, command: str
) -> None:
    """By what the server found as it checked it, whichever damage that was."""
    built = experiment()
    home = built.folder / ".clusterdp"
    home.mkdir(0o700)
    damaged_within(home / "prefect.db")
    more = ["--cron", "15 3 * * *"] if command == "serve" else ["--prefect"]
    ended = clusterdp(command, built.config, *more)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"clusterdp: {home / 'prefect.db'}: Prefect's database cannot")
    assert "move it away" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["release", "serve"])
@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://me:s3same@127.0.0.1:9/api?key=s3same", "http://127.0.0.1:9/api"),
        ("not an address", "the address given"),
    ],
)
def test_a_dead_server_is_named_without_its_password(
    experiment: Builder, command: str, url: str, named: str, tmp_path: Path
) -> None:
    built = experiment()
    more = ["--cron", "15 3 * * *"] if command == "serve" else []
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    ours |= {"PREFECT_API_URL": url, "PREFECT_HOME": str(tmp_path / "home")}
    ended = run_program([command, built.config, *more], tmp_path, ours)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith(f"clusterdp: PREFECT_API_URL: {named} cannot be reached (")
    assert ended.stderr.count("\n") == 1
    assert "s3same" not in ended.stderr
    assert not [entry for entry in built.entries if "ledger" in entry or "release" in entry]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://user:word@example.org:4200/api?token=x#y", "https://example.org:4200/api"),
        ("http://[::1]:x/api", "the address given"),
        ("nonsense", "the address given"),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, expected: str) -> None:
    assert shown(url) == expected


def test_a_server_that_answers_something_else_is_told(
    prefect_harness: Path,
) -> None:
    url = str(PREFECT_API_URL.value()).removesuffix("/api")
    with (
        temporary_settings({PREFECT_API_URL: url}),
        prefect_server() as server,
        pytest.raises(ConfigError, match=r"is not the address of Prefect's API \(\d+\)"),
    ):
        server.wait()


def test_a_home_that_cannot_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"^PREFECT_HOME: .*file: cannot make this folder"):
        configure_prefect(tmp_path)


# signals

WAITING = """if True:
    import signal, sys, time
    from pathlib import Path
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that nohup runs have it ignored
    import flows.cli.main, flows.raw.ingest
    def ingest(*given):
        Path(sys.argv[2]).touch()
        time.sleep(3600)
    flows.raw.ingest.ingest = ingest
    sys.argv[:] = ["clusterdp", "release", *sys.argv[1:]]
    flows.cli.main.main()
"""


@pytest.mark.parametrize(
    ("number", "more"),
    [
        pytest.param(signal.SIGTERM, [], id="SIGTERM-plain"),
        pytest.param(signal.SIGHUP, [], id="SIGHUP-plain"),
        pytest.param(signal.SIGINT, [], id="SIGINT-plain"),
        pytest.param(signal.SIGTERM, ["--prefect"], id="SIGTERM-prefect"),  # it handles this one
        pytest.param(signal.SIGINT, ["--prefect"], id="SIGINT-prefect"),  # SIGHUP becomes this one
    ],
)
def test_a_signal_while_the_log_is_read_ends_the_run_plainly(
    experiment: Builder, tmp_path: Path, number: signal.Signals, more: list[str]
) -> None:
    built = experiment()
    before = built.entries
    mark = tmp_path / "reading"
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    program = WAITING.replace("sys.argv[2]).touch", f"{str(mark)!r}).touch")
    with subprocess.Popen(
        [sys.executable, "-c", program, str(built.config), *more],
        env=ours,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        deadline = time.monotonic() + PATIENCE
        while not mark.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (1, "clusterdp: interrupted\n")
    left = [entry for entry in built.entries if entry not in before]
    assert all(entry.startswith((".clusterdp/", "quarantine/", "ledger.sqlite")) for entry in left)
    assert not [entry for entry in left if "spill" in entry or "draft" in entry]


def test_a_signal_that_is_ignored_from_outside_stays_so() -> None:
    """As nohup does it."""
    program = """if True:
        import signal
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        from flows.cli.main import _interrupt_alike
        _interrupt_alike()
        print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
        print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
    """
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "True\nFalse\n"
