"""A Prefect server as an operator runs one: a program of its own, which asks for a password."""

import json
import os
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib import error, request

from flows.orchestration.server_database import kept_path, read_kept
from tests.conftest import PATIENCE

_STRING = "operator:not-guessed-by-anybody"
_BUSY = 503  # as SQLite's database may be
_TRIES = 60


@dataclass(frozen=True)
class RealPrefect:
    """A server that is running, and the environment of its operator."""

    url: str
    environment: dict[str, str]

    def program(self, *arguments: str | Path, folder: Path, fails: bool = False) -> str:
        """Run Prefect's own program; what it said."""
        return self.python("-m", "prefect", *arguments, folder=folder, fails=fails)

    def python(self, *arguments: str | Path, folder: Path, fails: bool = False) -> str:
        """Run this Python with the operator's environment; what it said."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def ask(self, path: str, document: object = None) -> tuple[int, Any]:
        """Ask the server's API: its code and its answer."""
        asked = request.Request(  # noqa: S310 - of this machine
            f"{self.url}{path}",
            data=None if document is None else json.dumps(document).encode(),
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Basic {b64encode(_STRING.encode()).decode()}",
            },
        )
        for _ in range(_TRIES):
            code, answer = self._answer(asked)
            if code != _BUSY:
                break
            time.sleep(0.5)
        return code, answer

    @staticmethod
    def _answer(asked: request.Request) -> tuple[int, Any]:
        try:
            with request.urlopen(asked, timeout=PATIENCE) as answer:  # noqa: S310 - likewise
                return answer.status, json.loads(answer.read() or b"null")
        except error.HTTPError as refused:
            return refused.code, json.loads(refused.read())

    def run(
        self, deployment: str, flow: str = "clusterdp-nightly", /, **parameters: object
    ) -> tuple[int, Any]:
        """Ask for a run of a deployment of a flow, due by now."""
        code, found = self.ask(f"/deployments/name/{flow}/{deployment}")
        assert code == 200, found
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2025-11-20T23:30:00Z"}}
        document = {"parameters": parameters, "state": state}
        return self.ask(f"/deployments/{found['id']}/create_flow_run", document)

    def state(self, run: str) -> tuple[str, str]:
        """Name and message of the state that a run is in."""
        code, found = self.ask(f"/flow_runs/{run}")
        assert code == 200, found
        return found["state"]["name"], found["state"]["message"] or ""

    def tasks(self, run: str) -> list[tuple[str, str]]:
        """The tasks of a flow run, each with the state it ended in."""
        _, found = self.ask("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return sorted((one["name"].rpartition("-")[0], one["state"]["name"]) for one in found)

    def events(self) -> list[dict[str, Any]]:
        """All events of the day, with all that they carry."""
        _, page = self.ask("/events/filter", {"limit": 50})
        found = list(page["events"])
        while page["next_page"]:
            _, page = self.ask(page["next_page"].removeprefix(self.url))
            found += page["events"]
        return found


@contextmanager
def real_prefect(folder: Path, **settings: str) -> Iterator[RealPrefect]:
    """Run a server, with its files in ``folder``; nothing of it is left running at the end."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    ours |= {
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": url,
        "PREFECT_API_AUTH_STRING": _STRING,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "COLUMNS": "200",
    }
    database = folder / "prefect.db"
    content = read_kept(kept_path())
    if content is not None:
        database.write_bytes(content)
    of_server = {
        "PREFECT_SERVER_API_AUTH_STRING": _STRING,
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}",
        "PREFECT_UI_ENABLED": "false",
        **settings,
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    server = RealPrefect(url, ours)
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=ours | of_server, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log,
        )  # fmt: skip
        try:
            wait_for(lambda: _answers(server, process), "the server to start")
            yield server
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)


def wait_for(told: Callable[[], object], what: str) -> None:
    """Wait until something is so, however slow the machine."""
    deadline = time.monotonic() + PATIENCE
    while not told():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.5)


def _answers(server: RealPrefect, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "the server did not start"
    try:
        return server.ask("/admin/version")[0] == 200
    except OSError:
        return False
