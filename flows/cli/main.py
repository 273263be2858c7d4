"""The program `clusterdp`: commands, their help, and how failures end.

Prefect and the data libraries are imported within the commands that need them, so that `--help`
answers at once and Prefect's surroundings are settled before it is imported.
"""

import atexit
import functools
import inspect
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from copy import copy
from itertools import groupby
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flows.cli.answer import Answer
from flows.cli.effects.aggregate import aggregate
from flows.cli.effects.cate import cate
from flows.cli.effects.cate_predict import cate_predict
from flows.cli.effects.effects import effects
from flows.cli.effects.site import site
from flows.cli.failure import Failure, failure_of, usage_failure, wants_json
from flows.cli.lab import audit, replicate
from flows.cli.lean_imports import leave_out
from flows.cli.night.init import hash_ids, init, schema
from flows.cli.night.ledger import ledger
from flows.cli.night.plan import check, plan
from flows.cli.night.release import demo, release
from flows.cli.night.released import estimate, export, report
from flows.cli.night.released import inspect as inspect_
from flows.cli.operate import backup, prune, restore, serve, status, verify, withdraw
from flows.cli.options import JSON, help_of, parameters_of
from flows.runtime import logs
from flows.runtime.garbage import collect_from_here
from flows.runtime.interruption import note_interruption
from flows.runtime.progress import LineHandler, waiting
from flows.runtime.system import check_current_folder, open_closed_streams
from flows.runtime.terminal import SafeFormatter, safe_text, to_print
from schemas.visible import visible

_EPILOG = """\
Every command takes --debug: a failure then shows its traceback; and --log-json: standard error then
has one JSON object a line.

Exit codes: 0 done; 2 wrong input or configuration; 3 refused, the privacy budget is spent; 4 in
conflict with an existing release; 1 anything else.

Begin with `clusterdp demo`. `clusterdp COMMAND --help` shows what a command reads and writes, with
an example."""


class _UnderHeadings(TyperGroup):
    """A program whose help lists commands under their headings (``rich_help_panel``)."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer hands it in
        """Write a line a command, headings and commands in the order that they were given in."""
        widest = max(map(len, self.commands))
        room = formatter.width - widest - 6  # columns for what a command does
        commands: Any = self.commands.items()
        for heading, named in groupby(commands, lambda one: str(one[1].rich_help_panel)):
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(widest), one.get_short_help_str(room)) for name, one in named]
                )


app = typer.Typer(
    name="clusterdp",
    cls=_UnderHeadings,
    help="Publish randomised experiments with differential privacy, and estimate effects from "
    "what was published.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "color": False},
    epilog=_EPILOG,
)

_PREFECT_AS_JSON = {  # Prefect reads its configuration of logs from here, and so do its children
    "PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER": "json",
    "PREFECT_LOGGING_FORMATTERS_JSON_CLASS": "flows.runtime.logs.JsonFormatter",
    "PREFECT_LOGGING_COLORS": "false",
}
_MANY = 10_000  # estimates; nobody reads them, and indenting takes ten times as long
_INTERRUPTED = 130  # what typer makes of Ctrl-C, without a word


def main() -> None:
    """Run the program; every failure ends in one or a few plain lines and its exit code."""
    open_closed_streams()
    # Threads for matrices spin while there are none, which costs each start a fifth of a second;
    # our matrices are small.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    leave_out()
    # Registered first, hence called last: after Prefect has stopped its server, and before the
    # interpreter takes modules apart, which makes DuckDB print pages about leaks of its own.
    code = [0]
    atexit.register(lambda: _end(code[0]))
    debug = "--debug" in sys.argv[1:]
    as_json = logs.OPTION in sys.argv[1:]
    arguments = [word for word in sys.argv[1:] if word not in ("--debug", logs.OPTION)]
    _begin_log(as_json=as_json)
    _interrupt_alike()
    code[0] = run(arguments, debug=debug)
    sys.exit(code[0])


def _begin_log(*, as_json: bool) -> None:
    """Let logs go to standard error: as text, all of it on a terminal alone, or as JSON."""
    logs.choose_json(chosen=as_json)
    handler = LineHandler()
    handler.setFormatter(logs.JsonFormatter() if as_json else SafeFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    if as_json or sys.stderr.isatty():
        logging.getLogger("clusterdp").setLevel(logging.INFO)
    if as_json:
        os.environ.update(_PREFECT_AS_JSON)


def _interrupt_alike() -> None:
    """Make SIGTERM, and SIGHUP of a terminal that is closed, what Ctrl-C is; but heed them once.

    Two of them often come together, and the second would stop the cleaning up after the first.
    """

    def interrupt(_: int, frame: FrameType | None) -> None:
        note_interruption()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        usual = signal.getsignal(signal.SIGINT)  # an event loop has one of its own
        (usual if callable(usual) else signal.default_int_handler)(signal.SIGINT, frame)

    def interrupt_by_key(number: int, frame: FrameType | None) -> None:
        note_interruption()
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt_by_key)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, interrupt)


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@functools.cache
def _program(asked: str = "") -> Callable[..., Any]:
    """The command ``asked``, or all where it is none, read off their signatures once a process."""
    program = copy(app)
    program.registered_commands = [
        one for one in app.registered_commands if one.name == asked
    ] or app.registered_commands
    return typer.main.get_command(program)


def run(arguments: list[str], *, debug: bool = False) -> int:
    """Run one command and return its exit code, failures told on standard error.

    With ``--json`` a failure is one document on standard output, too (:mod:`flows.cli.failure`).
    """
    as_json = wants_json(arguments)
    try:
        check_current_folder()
        try:
            _program(*arguments[:1])(arguments, prog_name="clusterdp")
        finally:
            sys.stdout.flush()  # else what cannot be written is lost without a word
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            return _failed(Failure(1, "interrupted", "interrupted"), None, as_json=as_json)
        wrong = usage_failure(end)
        if as_json and wrong is not None:  # told on standard error already
            _print_failure(wrong)
        return end.code if isinstance(end.code, int) else 0
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BaseException as error:  # the last resort, so that no traceback is shown
        failure = failure_of(error)
        if failure is None:
            raise
        trace = safe_text(traceback.format_exc()) if debug else None
        return _failed(failure, trace, as_json=as_json)
    return 0


def _failed(failure: Failure, trace: str | None, *, as_json: bool) -> int:
    if logs.is_json():
        told = {"code": failure.code, "kind": failure.kind, "key": failure.key}
        more = {} if trace is None else {"traceback": trace}
        logs.log_line(logging.ERROR, failure.message, **told, **more)
    else:
        print(trace or "", file=sys.stderr, end="")
        _tell(failure.message)
    if as_json:
        _print_failure(failure)
    return failure.code


def _print_failure(failure: Failure) -> None:
    """Print the document of a failure, unless nothing can be printed: that was the failure then."""
    with suppress(OSError, ValueError):
        print(_document_text(failure.as_json()))
        sys.stdout.flush()


def _tell(message: str, level: int = logging.INFO) -> None:
    """Tell people something beside the answer."""
    if logs.is_json():
        logs.log_line(level, message)
        return
    named = "warning: " if level == logging.WARNING else ""
    print(to_print(f"clusterdp: {named}{message}", sys.stderr), file=sys.stderr)


def _command(function: Callable[..., Answer | None]) -> Callable[..., None]:
    """Make a command print what it answers, as text or with ``--json`` as a document.

    A terminal shows for how long it has worked, but of those that tell of their steps themselves.
    """
    shows_time = function not in (demo, release, site, cate, serve)
    runs_a_way = function in (release, site, cate)

    @functools.wraps(function)
    def command(*given: Any, as_json: bool = False, **named: Any) -> None:
        if not runs_a_way:  # which loads more first
            collect_from_here()
        with waiting(f"clusterdp {function.__name__}") if shows_time else nullcontext():
            answer = function(*given, **named)
            if answer is None:
                return
            text = _document_text(answer.document) if as_json else to_print(answer.text())
        for warning in answer.warnings:
            _tell(visible(warning), logging.WARNING)
        for note in answer.notes:
            _tell(note)
        print(text)
        if answer.exit_code:
            raise typer.Exit(answer.exit_code)

    parameters = [*parameters_of(function), *([] if function is serve else [JSON])]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads it
    return command


def _document_text(document: dict[str, Any]) -> str:
    large = len(document.get("estimates", ())) > _MANY
    return json.dumps(document, allow_nan=False, indent=None if large else 2)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"clusterdp {version('clusterdp')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take the options that go before a command."""


_COMMANDS: dict[str, dict[Callable[..., Any], str]] = {
    "Commands": {
        demo: "clusterdp demo",
        init: "clusterdp init log.parquet --arm variant --outcome clicks --values 0,1 --epsilon 2",
        check: "clusterdp check autumn.toml --period 2026-11-20",
        plan: "clusterdp plan autumn.toml --period 2026-11-20",
        release: "clusterdp release autumn.toml --period 2026-11-20",
        status: "clusterdp status autumn.toml winter.toml",
        report: "clusterdp report releases/autumn/latest.duckdb -o autumn.html",
        estimate: "clusterdp estimate releases/autumn/latest.duckdb --segments ages.csv",
        verify: "clusterdp verify releases/autumn/*.duckdb --ledger autumn.toml",
        withdraw: "clusterdp withdraw autumn.toml autumn.2026-11-20.r1 --reason 'wrong prices'",
    },
    "Also for runs": {
        serve: "clusterdp serve autumn.toml --cron '15 3 * * *'",
        ledger: "clusterdp ledger autumn.toml",
        prune: "clusterdp prune autumn.toml --dry-run",
        backup: "clusterdp backup autumn.toml winter.toml -o backups/2026-11-20",
        restore: "clusterdp restore backups/2026-11-20 autumn.toml winter.toml --complete",
        audit: "clusterdp audit autumn.toml",
        schema: "clusterdp schema > clusterdp.schema.json",
    },
    "Also for released files": {
        inspect_: "clusterdp inspect releases/autumn/latest.duckdb",
        effects: "clusterdp effects releases/autumn/latest.duckdb --covariates people.csv",
        export: "clusterdp export releases/autumn/latest.duckdb -o units.csv",
        hash_ids: "clusterdp hash-ids autumn.toml segments.csv -o hashed.csv",
    },
    "For sites and effect models": {
        site: "clusterdp site north.toml",
        aggregate: "clusterdp aggregate north.json south.json --plot sites.svg",
        cate: "clusterdp cate benefits.toml",
        cate_predict: "clusterdp cate-predict autumn+cate.once.r1.json people.csv -o effects.csv",
        replicate: "clusterdp replicate cluster-dp --quick",
    },
}
"""What commands are called by, with an example of each, under the headings of the help."""


for _heading, _commands in _COMMANDS.items():
    for _function, _example in _commands.items():
        app.command(
            _function.__name__.replace("_", "-"),
            help=help_of(_function),
            epilog=f"\b\nExample:\n  {_example}",  # a paragraph that begins with \b stays as it is
            rich_help_panel=_heading,
        )(_command(_function))
