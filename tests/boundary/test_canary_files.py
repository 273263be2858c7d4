"""What is private is so from the first moment, and digests stay in the ledger, run after run."""

import io
import os
import re
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from flows.cli.main import run
from flows.orchestration.prefect_settings import HOME, configure_prefect
from schemas.errors import BudgetError, ConflictError
from tests.boundary.canary import contents, exposed, leaks_into, spelt
from tests.boundary.planted import Planted, plant
from tests.conftest import Builder, a_log, told


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Nothing is private by the grace of the umask."""
    before = os.umask(0)
    yield
    os.umask(before)


@contextmanager
def at_every_call(look: Callable[[], None]) -> Iterator[None]:
    """Look before each call of the operating system or of SQLite that may change a file."""

    def hook(_: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and changes_something(called):
            sys.setprofile(None)
            try:
                look()
            finally:
                sys.setprofile(hook)

    before = sys.getprofile()
    sys.setprofile(hook)
    threading.setprofile(hook)  # of threads that begin from now on
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


# What may make a file, a mode or a name another than it was, or comes right after it.
CHANGING = {
    "open", "close", "write", "mkdir", "chmod", "fsync", "link", "replace", "unlink", "rmdir",
    "execute", "commit", "rollback",
}  # fmt: skip


def changes_something(called: Any) -> bool:
    of = getattr(called, "__self__", None)
    system = isinstance(of, io.IOBase | sqlite3.Connection | sqlite3.Cursor)
    return called.__name__ in CHANGING and (system or called.__module__ in ("posix", "io"))


def names(folder: Path) -> set[str]:
    """What is in a folder, without the part of a name that is different every time."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return {re.sub(r"\.draft-[^/]+", ".draft", name) for name in found}


@pytest.mark.parametrize("already_open", [False, True], ids=["new folders", "open folders"])
def test_nothing_private_is_open_to_others_at_any_time(
    experiment: Builder, no_umask: None, *, already_open: bool
) -> None:
    """Not even for the moment between making a file and setting its mode."""
    built = plant(experiment).built
    (built.folder / "quarantine" / "digest.key").unlink()  # so that the run makes it
    (built.folder / "quarantine").rmdir()
    if already_open:
        built.quarantine.mkdir(parents=True)
    the_operator_s = set(exposed(built.folder))
    assert len(the_operator_s) == 2 * already_open
    open_to_others: set[str] = set()
    seen: set[str] = set()

    def look() -> None:
        seen.update(names(built.folder))
        open_to_others.update(exposed(built.folder))

    with at_every_call(look):
        built.run()
        built.run(revise=True)
    assert open_to_others == the_operator_s
    assert seen >= {
        "ids.key",
        "ledger.sqlite",
        "ledger.sqlite-journal",
        "quarantine/.digest.key.half-written",
        "quarantine/digest.key",
        "quarantine/trial/.trial.once.r1.parquet.half-written",
        "quarantine/trial/trial.once.r1.parquet",
        "releases/trial/.draft",
        "releases/trial/.draft/lock",
        "releases/trial/.draft/release.duckdb",
        "releases/trial/.latest.duckdb.new",
        "releases/trial/trial.once.r2.duckdb",
    }
    private = [built.folder / "ledger.sqlite", *(built.folder / "quarantine").rglob("*.*")]
    assert len(private) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


@pytest.mark.parametrize(
    ("place", "mode"),
    [
        ("ledger.sqlite", 0o644),
        ("ledger.sqlite-journal", 0o640),
        ("quarantine", 0o755),
        ("quarantine", 0o711),
        ("releases/trial/.draft-1", 0o750),
        ("releases/trial/trial.once.r2.duckdb", 0o446),
        ("releases/trial/notes", 0o444),
        ("releases", 0o777),
        (HOME, 0o755),
    ],
)
def test_what_is_open_to_others_is_seen(tmp_path: Path, place: str, mode: int) -> None:
    for folder, usual in (("releases/trial", 0o755), ("releases", 0o755), ("quarantine", 0o700)):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder).chmod(usual)
    (tmp_path / "quarantine" / "open but out of reach").touch(mode=0o666)
    path = tmp_path / place
    path.touch(mode=0o600)
    assert exposed(tmp_path) == []
    path.chmod(mode)
    assert f"{path} {mode:04o}" in exposed(tmp_path)


def test_prefect_s_files_are_behind_a_private_folder(
    tmp_path: Path, no_umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_HOME"):
        monkeypatch.delenv(name, raising=False)
    configure_prefect(tmp_path)
    assert os.environ["PREFECT_HOME"] == str(tmp_path / HOME)
    assert stat.S_IMODE((tmp_path / HOME).stat().st_mode) == 0o700


# digests


@pytest.fixture
def quiet(
    experiment: Builder, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Callable[..., None]:
    """Asserts that no digest and nothing raw was told, nor is anywhere but where it belongs."""
    caplog.set_level("DEBUG")

    def nothing_was_told(planted: Planted, *more: object) -> None:
        streams = capfd.readouterr()
        texts = (streams.out, streams.err, caplog.text, spelt(more))
        assert [one.name for one in planted.secrets for text in texts if one.is_in(text)] == []
        folder = planted.built.folder
        assert leaks_into(folder, *planted.secrets, root=folder) == []

    return nothing_was_told


def test_digests_are_in_the_ledger(experiment: Builder) -> None:
    """Else there would be nothing to keep elsewhere from."""
    planted = plant(experiment)
    planted.built.run()
    found = list(contents(planted.built.folder / "ledger.sqlite"))
    for digest in ("rows", "units", "settings"):
        assert any(map(planted.named(f"digest of {digest}").is_in, found))


def test_what_runs_say_of_one_another_tells_nothing(
    experiment: Builder, quiet: Callable[..., None]
) -> None:
    """Unchanged, in conflict, over budget, over budget in advance, without its file."""
    planted = plant(experiment)
    built = planted.built
    config = built.config.read_text(encoding="utf-8")
    results = [built.run(), built.run(), built.run("other")]
    built.config.write_text(f"{config}[run]\nmemory_limit = '1GB'\n", encoding="utf-8")
    results.append(built.run())
    assert [one.status for one in results] == ["published", "unchanged", "published", "unchanged"]
    refusals: list[str] = []

    def refused(kind: type[Exception], *, revise: bool = False) -> None:
        with pytest.raises(kind) as caught:
            built.run(revise=revise)
        refusals.append(told(caught.value))

    built.config.write_text(config.replace("2.0", "2.5"), encoding="utf-8")
    refused(ConflictError)
    limited = config.replace("budget_epsilon = 1000.0", "budget_epsilon = 4.5")
    built.config.write_text(limited, encoding="utf-8")
    refused(BudgetError, revise=True)
    built.config.write_text(config, encoding="utf-8")
    log = (built.folder / "log.parquet").read_bytes()
    a_log().write_parquet(built.folder / "log.parquet")
    refused(ConflictError)
    (built.folder / "log.parquet").write_bytes(log)
    (built.releases / "trial.once.r1.duckdb").unlink()
    refused(ConflictError)
    (built.folder / "log.parquet").unlink()
    quiet(planted, results, refusals)


def test_the_ledger_s_own_command_tells_nothing(
    experiment: Builder, quiet: Callable[..., None]
) -> None:
    planted = plant(experiment)
    planted.built.run()
    (planted.built.folder / "log.parquet").unlink()
    for options in ([], ["--json"], ["--all"]):
        assert run(["ledger", str(planted.built.config), *options], debug=True) == 0
    abandon = ["--abandon", "trial.once.r1"]
    assert run(["ledger", str(planted.built.config), *abandon], debug=True) == 2
    quiet(planted)
