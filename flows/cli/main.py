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
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from flows.cli import analysis, experiment
from flows.cli.answer import Answer
from flows.cli.effects.benefits import effects
from flows.cli.effects.models import cate, cate_predict
from flows.cli.effects.sites import aggregate, site
from flows.cli.failure import Failure, failure_of, usage_failure, wants_json
from flows.cli.headings import UnderHeadings
from flows.cli.init import init
from flows.cli.keeping import prune, withdraw
from flows.cli.options import ConfigFiles, Json, Period, Prefect
from flows.cli.recovery import backup, restore
from flows.cli.replicate import replicate
from flows.cli.schema import schema
from flows.cli.ways import way
from flows.runtime import logs
from flows.runtime.interruption import note_interruption, was_interrupted
from flows.runtime.progress import LineHandler, waiting
from flows.runtime.system import check_current_folder, code_of, open_closed_streams
from flows.runtime.terminal import SafeFormatter, safe_text, to_print
from schemas.errors import BudgetError, ClusterdpError, ConfigError, ConflictError
from schemas.visible import visible

_EPILOG = """\
Every command takes --debug: a failure then shows its traceback; and --log-json: standard error then
has one JSON object a line.

Exit codes: 0 done; 2 wrong input or configuration; 3 refused, the privacy budget is spent; 4 in
conflict with an existing release; 1 anything else.

Begin with `clusterdp demo`. `clusterdp COMMAND --help` shows what a command reads and writes, with
an example."""

app = typer.Typer(
    name="clusterdp",
    cls=UnderHeadings,
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
def _program() -> Callable[..., Any]:
    """All commands, read off their signatures once a process."""
    return typer.main.get_command(app)


def run(arguments: list[str], *, debug: bool = False) -> int:
    """Run one command and return its exit code, failures told on standard error.

    With ``--json`` a failure is one document on standard output, too (:mod:`flows.cli.failure`).
    """
    as_json = wants_json(arguments)
    fail = partial(_failed, as_json=as_json)
    try:
        check_current_folder()
        try:
            _program()(arguments, prog_name="clusterdp")
        finally:
            sys.stdout.flush()  # else what cannot be written is lost without a word
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            return fail(Failure(1, "interrupted", "interrupted"), debug=False)
        wrong = usage_failure(end)
        if as_json and wrong is not None:  # told on standard error already
            _print_failure(wrong)
        return end.code if isinstance(end.code, int) else 0
    except ClusterdpError as error:
        return fail(failure_of(error), debug=debug)
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BaseException as error:  # the last resort, so that no traceback is shown
        message = _last_words(error)
        if message is None:
            raise
        kind = "interrupted" if _is_interruption(error) else "unforeseen"
        return fail(Failure(code_of(error), kind, message), debug=debug)
    return 0


def _last_words(error: BaseException) -> str | None:
    """What to say of an error that nobody foresaw, or of an interruption."""
    if _is_interruption(error):
        return "interrupted"
    return _unforeseen(error) if isinstance(error, Exception) else None


def _is_interruption(error: BaseException) -> bool:
    """Whether this is Ctrl-C, or what Prefect makes of SIGTERM while a flow is running.

    Also what a query makes of them: a RuntimeError.
    """
    is_of_query = isinstance(error, RuntimeError) and was_interrupted()
    is_signal = type(error).__name__ == "TerminationSignal"
    return isinstance(error, KeyboardInterrupt) or is_signal or is_of_query


def _unforeseen(error: Exception) -> str:
    """Say what the operating system said; of other errors the kind alone."""
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return visible(f"{named}{error.strerror}")
    return f"unforeseen failure ({type(error).__name__}); run again with --debug to see where"


def _failed(failure: Failure, *, debug: bool, as_json: bool) -> int:
    trace = safe_text(traceback.format_exc()) if debug else None
    if logs.is_json():
        told = {"code": failure.code, "kind": failure.kind, "key": failure.key}
        more = {} if trace is None else {"traceback": trace}
        logs.log_line(logging.ERROR, failure.message, **told, **more)
    else:
        if trace is not None:
            print(trace, file=sys.stderr, end="")
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


def _command(function: Callable[..., Answer]) -> Callable[..., None]:
    """Make a command print what it answers, as text or with ``--json`` as a document.

    A terminal shows for how long it has worked, but of those that tell of their steps themselves.
    """
    shows_time = function not in (demo, release, site, cate)

    @functools.wraps(function)
    def command(*given: Any, as_json: bool, **named: Any) -> None:
        with waiting(f"clusterdp {function.__name__}") if shows_time else nullcontext():
            answer = function(*given, **named)
            text = _document_text(answer.document) if as_json else to_print(answer.text())
        for warning in answer.warnings:
            _tell(visible(warning), logging.WARNING)
        for note in answer.notes:
            _tell(note)
        print(text)
        if answer.exit_code:
            raise typer.Exit(answer.exit_code)

    signature = inspect.signature(function)
    option = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json
    )
    command.__signature__ = signature.replace(  # type: ignore[attr-defined] # typer reads it
        parameters=[*signature.parameters.values(), option], return_annotation=None
    )
    return command


def _document_text(document: dict[str, Any]) -> str:
    large = len(document.get("estimates", ())) > _MANY
    return json.dumps(document, allow_nan=False, indent=None if large else 2)


def _show_version(asked: bool) -> None:
    if asked:
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


def demo(
    directory: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Where to put the demo's log, configuration and releases."
        ),
    ] = Path("clusterdp-demo"),
    prefect: Prefect = False,
) -> Answer:
    """Try everything on a real experiment.

    Makes a release and estimates the effect from it. The data are those of a trial in Malawi
    (2004). Reads nothing of yours. Writes a folder with a log, a configuration, a ledger and a
    release, to look at and to change.
    """
    from flows.demo import NOTES, PERIOD, prepare

    config = prepare(directory.absolute())
    try:
        with way("release", config, wanted=prefect) as run_release:
            from flows.cli.show.results import demo_text

            result = run_release(str(config), PERIOD)
    except (BudgetError, ConflictError) as error:  # of another version of the demo, for example
        raise type(error)(f"{error}. For a new demo, remove {config.parent}") from None
    return Answer(partial(demo_text, result, config, NOTES), result.as_json())


def release(
    configs: ConfigFiles,
    period: Period = None,
    revise: Annotated[
        bool,
        typer.Option(
            "--revise",
            help="Draw a published period anew, as its next revision. Costs everybody in it again.",
        ),
    ] = False,
    due: Annotated[
        bool,
        typer.Option(
            "--due",
            help="Release every period that is due by [schedule] and not published, the oldest "
            "first, whatever becomes of the others. Takes several CONFIGs, one after another.",
        ),
    ] = False,
    prefect: Prefect = False,
) -> Answer:
    """Make a release: draw it, charge for it, publish it.

    Reads CONFIG, its log and its ledger. Writes a DuckDB file into the folder of releases, a charge
    into the ledger, and rows that it leaves out into the folder of the quarantine. The same rows
    and settings again change and cost nothing. Runs as a Prefect flow where a server is configured
    for Prefect.
    """
    from flows.config.load import check_period, load

    if due:
        return _release_due(configs, period, revise=revise, prefect=prefect)
    if len(configs) > 1:
        raise ConfigError("CONFIG", "several are for --due; without it name one")
    (config,) = configs
    settings = load(config)
    source = settings.source
    check_period(period, source.path, source.outcomes_path)  # before a server takes its seconds
    with way("release", config, wanted=prefect) as run_release:
        from flows.cli.show.results import release_text

        result = run_release(str(config.absolute()), period, revise)
    night = f"{result.manifest.experiment} {result.manifest.period}"
    warnings = tuple(f"{night}: {warning}" for warning in result.warnings)
    return Answer(partial(release_text, result), result.as_json(), warnings)


def _release_due(configs: list[Path], period: str | None, *, revise: bool, prefect: bool) -> Answer:
    """Catch up with schedules: each period is a run of the flow where Prefect is in use."""
    from flows.config.load import load

    for option, given in {"--period": period is not None, "--revise": revise}.items():
        if given:
            raise ConfigError(option, "cannot go with --due, which finds the periods itself")
    is_one = len(configs) == 1
    if is_one and load(configs[0]).schedule is None:  # before a server takes its seconds
        raise ConfigError("schedule", "missing; --due goes by the section [schedule]")
    with way("release", configs[0], wanted=prefect) as run_release:
        from flows.cli.show.due import due_text
        from flows.operate.due import DueResult, release_all_due, release_due

        paths = [str(config.absolute()) for config in configs]
        one = partial(release_due, paths[0], run_release)
        due = one() if is_one else release_all_due(paths, run_release)
        text = partial(due_text, *([due] if isinstance(due, DueResult) else due.configs))
    return Answer(text, due.as_json(), due.warnings, due.farewells, exit_code=due.exit_code)


def serve(
    configs: ConfigFiles,
    cron: Annotated[
        str,
        typer.Option(
            metavar="SCHEDULE",
            help="When to run, as a cron expression: '15 3 * * *' is every day at 3:15.",
        ),
    ],
    timezone: Annotated[
        str,
        typer.Option(
            metavar="ZONE",
            help="Time zone of the schedule, and of what counts as yesterday, such as "
            "Europe/Zurich.",
        ),
    ] = "UTC",
    estimates: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEDULE",
            help="When to estimate effects from all that is published, by released files alone.",
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With --estimates: where each experiment's effects go, as EXPERIMENT.json.",
        ),
    ] = None,
) -> None:
    """Make releases on schedule, until you stop it with Ctrl-C.

    Each release is of the day before; where CONFIG has a [schedule], of every day that is due and
    not published, so that a night missed is made up. Reads and writes what `clusterdp release`
    does. Uses the Prefect server that PREFECT_API_URL names, or starts one of its own on this
    machine.
    """
    if (estimates is None) != (into is None):
        raise ConfigError("--estimates", "goes with --into: when to estimate, and where to write")
    from flows.orchestration.prefect_settings import configure_prefect

    configure_prefect(configs[0].absolute().parent, log_level="INFO")
    from flows.operate.serve import Estimates, serve_releases

    asked = None if estimates is None or into is None else Estimates(estimates, into)
    serve_releases(configs, cron, timezone, lambda: import_module("flows.deployed"), asked)


_COMMANDS: dict[str, dict[Callable[..., Any], str]] = {
    "Commands": {
        demo: "clusterdp demo",
        init: "clusterdp init log.parquet --arm variant --outcome clicks --values 0,1 --epsilon 2",
        experiment.check: "clusterdp check autumn.toml --period 2026-11-20",
        experiment.plan: "clusterdp plan autumn.toml --period 2026-11-20",
        release: "clusterdp release autumn.toml --period 2026-11-20",
        experiment.status: "clusterdp status autumn.toml winter.toml",
        analysis.report: "clusterdp report releases/autumn/latest.duckdb -o autumn.html",
        analysis.estimate: "clusterdp estimate releases/autumn/latest.duckdb --segments ages.csv",
        experiment.verify: "clusterdp verify releases/autumn/*.duckdb --ledger autumn.toml",
        withdraw: "clusterdp withdraw autumn.toml autumn.2026-11-20.r1 --reason 'wrong prices'",
    },
    "Also for runs": {
        serve: "clusterdp serve autumn.toml --cron '15 3 * * *'",
        experiment.ledger: "clusterdp ledger autumn.toml",
        prune: "clusterdp prune autumn.toml --dry-run",
        backup: "clusterdp backup autumn.toml winter.toml -o backups/2026-11-20",
        restore: "clusterdp restore backups/2026-11-20 autumn.toml winter.toml --complete",
        experiment.audit: "clusterdp audit autumn.toml",
        schema: "clusterdp schema > clusterdp.schema.json",
    },
    "Also for released files": {
        analysis.inspect: "clusterdp inspect releases/autumn/latest.duckdb",
        effects: "clusterdp effects releases/autumn/latest.duckdb --covariates people.csv",
        analysis.export: "clusterdp export releases/autumn/latest.duckdb -o units.csv",
        experiment.hash_ids: "clusterdp hash-ids autumn.toml segments.csv -o hashed.csv",
    },
    "For sites and effect models": {
        site: "clusterdp site north.toml",
        aggregate: "clusterdp aggregate north.json south.json --plot sites.svg",
        cate: "clusterdp cate benefits.toml",
        cate_predict: "clusterdp cate-predict autumn+cate.once.r1.json people.csv -o effects.csv",
        replicate: "clusterdp replicate efficiency --quick",
    },
}
"""What commands are called by, with an example of each, under the headings of the help."""


def _example_text(command: str) -> str:
    return f"\b\nExample:\n  {command}"  # a paragraph that begins with \b stays as it is


for _heading, _commands in _COMMANDS.items():
    for _function, _example in _commands.items():
        app.command(
            _function.__name__.replace("_", "-"),
            epilog=_example_text(_example),
            rich_help_panel=_heading,
        )(_function if _function is serve else _command(_function))
