"""Run a case and list what is wrong with how the program answered."""

import fnmatch
import importlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from flows.cli import main as cli
from tests.fuzz.case import MARKS, Case

CODES = (0, 2, 3, 4)
"""How a command may end whatever it is given: done, bad input, no budget, conflict."""

ROOT = Path(__file__).resolve().parents[2]

_HALF_DONE = ("*.draft-*", "*.spill-*", "*.half-written*", "*-journal", "*.wal", "*.new")
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters and marks of direction."""
_FRAME = re.compile(
    r'File "(?:[^"]*/)?((?:flows|privatizers|schemas|estimators)/[^"]+\.py)", line \d+, in (\S+)'
)
_KIND = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Warning|Exit|Interrupt|Iteration))\b", re.M)


class TooLong(BaseException):
    """A command took longer than it may; no handler of ordinary errors catches it."""


@dataclass
class Problem:
    """One thing that is wrong."""

    what: str
    command: str
    detail: str = ""
    place: str = ""
    """The last frame of the project on the way to it, where there is one."""

    @property
    def signature(self) -> str:
        """What is the same of all cases that show one fault."""
        return f"{self.what} | {self.command} | {self.place}"


@dataclass
class Outcome:
    """How a command ended, and all that could be heard of it."""

    code: int | None
    text: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    raised: str = ""
    sockets: frozenset[str] = field(default_factory=frozenset)


def problems(case: Case, *, as_program: bool = False, limit: float | None = None) -> list[Problem]:
    """Run a case in a new folder, and list what is wrong; nothing, if all is well.

    ``as_program`` runs each command in a process of its own; ``limit`` is how many seconds one may
    take, None for as long as it likes.
    """
    home = Path(tempfile.mkdtemp("", "clusterdp-fuzz-", os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    try:
        found = _problems(case, home, as_program=as_program, limit=limit)
    finally:
        _remove(home)
    if any(one.what in ("exit code", "warning", "raised") and not one.place for one in found):
        places = _places(case, limit)
        for one in found:
            one.place = one.place or places.get(one.command, "")
    return found


def _problems(case: Case, home: Path, *, as_program: bool, limit: float | None) -> list[Problem]:
    folder, temporary = home / "here" / "case", home / "temporary"
    folder.mkdir(parents=True)
    temporary.mkdir()
    case.lay_out(folder)
    before = set(_entries(home))
    _children()  # those that others began meanwhile
    found: list[Problem] = []
    for command in case.commands:
        with _surroundings(folder, temporary), judging_once(case.judged):
            run = _as_program if as_program else _in_process
            ended = run(command, temporary, limit, debug=False)
        found += _of_the_end(ended, command[0], limit)
    left = [path for path in _entries(home) if path not in before]
    name = case.commands[-1][0]
    home_of_prefect = folder / ".clusterdp"  # as docs/operator.md says
    found += [
        Problem("left behind", name, str(path.relative_to(home)))
        for path in left
        if not (as_program and path.is_relative_to(home_of_prefect))
        and (not _may_stay(path, folder, case) or any(map(path.match, _HALF_DONE)))
    ]
    found += [Problem("child left", name, child) for child in _children()]
    private = [path for path in left if any(map(path.relative_to(home).match, case.private))]
    for path in left:
        if path.is_file() and not any(one == path or one in path.parents for one in private):
            found += _outcomes_in(path.read_bytes().decode("latin-1"), name, f"file {path.name}")
    return found


def _may_stay(path: Path, folder: Path, case: Case) -> bool:
    if not path.is_relative_to(folder):
        return False
    name = str(path.relative_to(folder))
    return any(fnmatch.fnmatch(name, pattern) for pattern in case.may_leave)


def _entries(folder: Path) -> list[Path]:
    return [Path(place, name) for place, *both in os.walk(folder) for some in both for name in some]


def _of_the_end(ended: Outcome, command: str, limit: float | None) -> Iterator[Problem]:
    """What is wrong with how a command ended and with what was heard of it."""
    text = ended.text
    if ended.raised:
        kind = _KIND.findall(ended.raised) or ["?"]
        yield Problem("raised", command, ended.raised[-2000:], _last_frame(ended.raised, kind[-1]))
    elif ended.code not in CODES:
        withheld = re.search(r"failed with (\w+) at ([\w/.]+)", text)
        place = f"{withheld[2]} {withheld[1]}" if withheld else ""
        yield Problem("exit code", command, f"{ended.code}: {text[-1000:]}", place)
    if "Traceback (most recent call last)" in text and not ended.raised:
        yield Problem("traceback", command, text[-2000:], _last_frame(text, "shown"))
    if "panicked at" in text:
        yield Problem("panic", command, text[-1000:])
    yield from _outcomes_in(text, command, "what was heard")
    odd = set(_RAW.findall(text))
    if odd:
        yield Problem("control characters", command, ascii(sorted(odd)) + ascii(text[:1000]))
    if ended.sockets:
        yield Problem("socket left", command, str(sorted(ended.sockets)))
    if limit is not None and (ended.cpu_seconds > 2 * limit or ended.seconds > 6 * limit):
        yield Problem("slow", command, f"{ended.seconds:.0f} s, CPU {ended.cpu_seconds:.0f} s")


def _outcomes_in(text: str, command: str, place: str) -> Iterator[Problem]:
    plain = re.sub(r"(?<=\d)[,_'](?=\d)", "", text).lower()
    for mark in MARKS:
        at = plain.find(mark)
        if at >= 0:
            yield Problem(f"outcome in {place}", command, plain[max(at - 300, 0) : at + 100])


def _last_frame(text: str, kind: str) -> str:
    frames = _FRAME.findall(text)
    return f"{frames[-1][0]}:{frames[-1][1]} {kind}" if frames else kind


def _places(case: Case, limit: float | None) -> dict[str, str]:
    """Run a case again with tracebacks; the last frame of the project in them, by command."""
    found: dict[str, str] = {}
    home = Path(tempfile.mkdtemp("", "clusterdp-fuzz-", os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    try:
        folder, temporary = home / "here" / "case", home / "temporary"
        folder.mkdir(parents=True)
        temporary.mkdir()
        case.lay_out(folder)
        for command in case.commands:
            with _surroundings(folder, temporary):
                ended = _in_process(command, temporary, limit, debug=True)
            if ended.raised or ended.code not in CODES:
                text = ended.raised or ended.text
                found[command[0]] = _last_frame(text, (_KIND.findall(text) or ["?"])[-1])
    finally:
        _remove(home)
    return found


# one command


_JUDGES = {
    "flows.released.file.opening": ("_checked",),
    "flows.released.file.read": ("broken_row_rule", "broken_table_rule", "foreign_code"),
}
"""What looks whether a release is sound: half of the time that reading one takes."""
_judgements: dict[tuple[str, str], object] = {}


@contextmanager
def judging_once(base: str) -> Iterator[None]:
    """Judge the release of this base, the only one that is read, once a process; "" for each time.

    One that is not sound is judged each time.
    """

    def remembering(name: str, judge: Callable[..., object]) -> Callable[..., object]:
        def known(*given: Any) -> object:
            if (base, name) not in _judgements:
                found = judge(*given)
                if isinstance(found, str):  # what is wrong with it
                    return found
                _judgements[base, name] = found
            return _judgements[base, name]

        return known

    with ExitStack() as stack:
        for module, names in _JUDGES.items() if base else ():
            for name in names:
                judge = getattr(importlib.import_module(module), name)
                stack.enter_context(patch(f"{module}.{name}", remembering(name, judge)))
        yield


@contextmanager
def _surroundings(folder: Path, temporary: Path) -> Iterator[None]:
    """Stand in the folder, with a folder for temporary files that nobody else writes to."""
    here = Path.cwd()
    with patch.dict(os.environ, {"TMPDIR": str(temporary)}):
        os.chdir(folder)
        try:
            with patch.object(tempfile, "tempdir", str(temporary)):
                yield
        finally:
            os.chdir(here)


def _in_process(
    command: tuple[str, ...], temporary: Path, limit: float | None, *, debug: bool
) -> Outcome:
    """Run a command as the program would, without a process and without Prefect."""
    heard = temporary.with_name("heard")
    sockets = _sockets()
    ended = Outcome(None, "")
    with heard.open("w+b") as file, ExitStack() as stack:
        stack.enter_context(_all_output_to(file.fileno()))
        # Workers' tasks are Prefect's, so the program would start a server for them.
        server = "flows.orchestration.prefect_server.server_for_one_run"
        stack.enter_context(patch(server, lambda *_, **__: nullcontext()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error")
        begin, cpu = time.monotonic(), time.process_time()
        try:
            with _no_longer_than(limit):
                ended.code = cli.run(list(command), debug=debug)
        except BaseException as error:  # a panic of a Rust library is no Exception
            ended.raised = "".join(traceback.format_exception(error))
            if isinstance(error, KeyboardInterrupt):
                raise
        ended.seconds, ended.cpu_seconds = time.monotonic() - begin, time.process_time() - cpu
    ended.text = heard.read_bytes().decode(errors="replace")
    heard.unlink()
    ended.sockets = _sockets() - sockets
    return ended


def _as_program(
    command: tuple[str, ...], temporary: Path, limit: float | None, *, debug: bool
) -> Outcome:
    """Run a command as an operator does."""
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    heard = temporary.with_name("heard")
    begin = time.monotonic()
    with heard.open("w+b") as file:
        done = subprocess.run(
            [sys.executable, "-m", "flows.cli", *command, *(["--debug"] if debug else [])],
            env=ours | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=None if limit is None else 60 * limit,
            check=False,
        )
    text = heard.read_bytes().decode(errors="replace")
    heard.unlink()
    return Outcome(done.returncode, text, time.monotonic() - begin)


@contextmanager
def _all_output_to(handle: int) -> Iterator[None]:
    """Lead both streams, and whatever libraries write past them, to a file; and all logs."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    stream = os.fdopen(os.dup(handle), "w", encoding="utf-8", errors="backslashreplace")
    level = logging.root.level
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    try:
        ours = [logging.StreamHandler(stream)]
        logging.root.setLevel(logging.INFO)
        with (
            patch.object(sys, "stdout", stream),
            patch.object(sys, "stderr", stream),
            patch.object(logging.root, "handlers", ours),
        ):
            yield
    finally:
        logging.root.setLevel(level)
        with suppress(OSError):
            stream.close()
        for number, saved in enumerate(kept, start=1):
            os.dup2(saved, number)
            os.close(saved)


@contextmanager
def _no_longer_than(limit: float | None) -> Iterator[None]:
    def stop(*_: object) -> NoReturn:
        raise TooLong

    if limit is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 6 * limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _sockets() -> frozenset[str]:
    found = set()
    for handle in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else []:  # noqa: PTH208 - names alone
        with suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{handle}"))  # noqa: PTH115 - not a path
    return frozenset(one for one in found if one.startswith("socket:"))


_known_children: set[str] = set()


def _children() -> list[str]:
    """Processes of ours that were not there before."""
    found = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found |= set(path.read_text().split())
    new = found - _known_children
    _known_children.update(found)
    return sorted(new)


def _remove(folder: Path) -> None:
    for path in _entries(folder):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
