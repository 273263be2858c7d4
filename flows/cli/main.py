"""The program `clusterdp`: commands, their help, and how failures end.

Prefect and the data libraries are imported within the commands that need them, so that `--help`
answers at once and Prefect's surroundings are settled before it is imported.
"""

import atexit
import functools
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from flows.cli.answer import Answer
from flows.cli.replicate import replicate
from flows.cli.sites import aggregate, site
from flows.runtime.system import check_current_folder, code_of, open_closed_streams
from flows.runtime.terminal import SafeFormatter, safe_text, shown
from schemas.errors import BudgetError, ClusterdpError, ConflictError
from schemas.visible import visible

app = typer.Typer(
    name="clusterdp",
    help="Differentially private releases of randomised experiments, and effects from them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every command takes --debug: a failure then shows its traceback.",
)

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment's TOML file.")]
ReleaseFile = Annotated[Path, typer.Argument(metavar="RELEASE", help="A released DuckDB file.")]
Period = Annotated[
    str | None,
    typer.Option(help="Period to release, usually a date; fills {period} in the logs' paths."),
]
Prefect = Annotated[
    bool,
    typer.Option(
        "--prefect",
        help="Run as a Prefect flow: on the server that is configured, else on a temporary one.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


_MANY = 10_000  # estimates; nobody reads them, and indenting takes ten times as long
_INTERRUPTED = 130  # what typer makes of Ctrl-C, without a word


def main() -> None:
    """Run the program; every failure ends in one or a few plain lines and its exit code."""
    open_closed_streams()
    # Registered first, hence called last: after Prefect has stopped its server, and before the
    # interpreter takes modules apart, which makes DuckDB print pages about leaks of its own.
    code = [0]
    atexit.register(lambda: _end(code[0]))
    debug = "--debug" in sys.argv[1:]
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(SafeFormatter("%(message)s"))
    if sys.stderr.isatty():
        logging.getLogger("clusterdp").setLevel(logging.INFO)
    _interrupt_alike()
    code[0] = run(arguments, debug=debug)
    sys.exit(code[0])


def _interrupt_alike() -> None:
    """Make SIGTERM, and SIGHUP of a terminal that is closed, what Ctrl-C is; but heed them once.

    Two of them often come together, and the second would stop the cleaning up after the first.
    """

    def interrupt(_: int, frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        usual = signal.getsignal(signal.SIGINT)  # an event loop has one of its own
        (usual if callable(usual) else signal.default_int_handler)(signal.SIGINT, frame)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, interrupt)


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run(arguments: list[str], *, debug: bool = False) -> int:
    """Run one command and return its exit code, failures told on standard error."""
    try:
        check_current_folder()
        try:
            app(arguments)
        finally:
            sys.stdout.flush()  # else what cannot be written is lost without a word
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            return _failed("interrupted", 1, debug=False)
        return end.code if isinstance(end.code, int) else 0
    except ClusterdpError as error:
        return _failed(str(error), error.exit_code, debug=debug)
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BaseException as error:  # the last resort, so that no traceback is shown
        message = _last_words(error)
        if message is None:
            raise
        return _failed(message, code_of(error), debug=debug)
    return 0


def _last_words(error: BaseException) -> str | None:
    """What to say of an error that nobody foresaw, or of an interruption."""
    if isinstance(error, Exception):
        return _unforeseen(error)
    return "interrupted" if _is_interruption(error) else None


def _is_interruption(error: BaseException) -> bool:
    """Whether this is Ctrl-C, or what Prefect makes of SIGTERM while a flow is running."""
    return isinstance(error, KeyboardInterrupt) or type(error).__name__ == "TerminationSignal"


def _unforeseen(error: Exception) -> str:
    """Say what the operating system said; of other errors the kind alone."""
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return visible(f"{named}{error.strerror}")
    return f"unforeseen failure ({type(error).__name__}); run again with --debug to see where"


def _failed(message: str, code: int, *, debug: bool) -> int:
    if debug:
        print(safe_text(traceback.format_exc()), file=sys.stderr, end="")
    print(safe_text(f"clusterdp: {message}"), file=sys.stderr)
    return code


def _print(text: str, document: dict[str, Any], *, as_json: bool) -> None:
    if not as_json:
        print(safe_text(text))
        return
    large = len(document.get("estimates", ())) > _MANY
    print(json.dumps(document, allow_nan=False, indent=None if large else 2))


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        print(f"clusterdp: warning: {visible(warning)}", file=sys.stderr)


def _shown(command: Callable[..., Answer]) -> Callable[..., None]:
    """Make a command print what it answers."""

    @functools.wraps(command)
    def shown(*given: Any, as_json: bool, **named: Any) -> None:
        answer = command(*given, as_json=as_json, **named)
        _warn(answer.warnings)
        _print(answer.text, answer.document, as_json=as_json)

    return shown


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


@app.command()
def demo(
    directory: Annotated[
        Path, typer.Option(help="Where to put the demo's log, configuration and releases.")
    ] = Path("clusterdp-demo"),
    prefect: Prefect = False,
    as_json: Json = False,
) -> None:
    """Release a real experiment and estimate its effect from the release."""
    from flows.demo import NOTES, PERIOD, prepare
    from flows.orchestration.prefect_server import server_for_one_run

    config = prepare(directory.absolute())
    try:
        with server_for_one_run(config, wanted=prefect) as server:
            from flows import release as page
            from flows.cli.show import demo_text

            if server is None:
                result = page.release_period(str(config), PERIOD)
            else:
                server.wait()
                result = page.release(str(config), PERIOD)
    except (BudgetError, ConflictError) as error:  # of another version of the demo, for example
        raise type(error)(f"{error}. For a new demo, remove {config.parent}") from None
    _print(demo_text(result, config, NOTES), result.as_json(), as_json=as_json)


@app.command()
def check(config: ConfigFile, period: Period = None, as_json: Json = False) -> None:
    """Read and validate configuration and log; nothing is drawn, charged or written."""
    from flows.check import check as dry_run
    from flows.cli.show import check_text

    result = dry_run(config, period)
    _warn(result.warnings)
    _print(check_text(result), result.as_json(), as_json=as_json)


@app.command()
def release(
    config: ConfigFile,
    period: Period = None,
    revise: Annotated[
        bool,
        typer.Option(
            "--revise",
            help="Draw a published period anew, as its next revision. Costs everybody in it again.",
        ),
    ] = False,
    prefect: Prefect = False,
    as_json: Json = False,
) -> None:
    """Run the nightly release once; as a Prefect flow where a server is configured for Prefect."""
    from flows.config.load import check_period, load
    from flows.orchestration.prefect_server import server_for_one_run

    settings = load(config)
    source, workers = settings.source, settings.run.workers  # whose parts are tasks of Prefect's
    check_period(period, source.path, source.outcomes_path)  # before a server takes its seconds
    with server_for_one_run(config, wanted=prefect or workers is not None) as server:
        from flows import release as page
        from flows.cli.show import release_text

        if server is None:
            result = page.release_period(str(config.absolute()), period, revise)
        else:
            server.wait()
            result = page.release(str(config.absolute()), period, revise)
    _warn(result.warnings)
    _print(release_text(result), result.as_json(), as_json=as_json)


@app.command()
def estimate(
    release: ReleaseFile,
    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A CSV or Parquet file of yours with the columns unit_id and segment.",
        ),
    ] = None,
    covariates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A CSV or Parquet file of yours with unit_id and columns to adjust the effects "
            "for: numbers, text or booleans from before the experiment.",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Estimate effects from a released file alone: all of it, by segment, or adjusted."""
    from flows.cli.show import estimates_lines
    from flows.released.estimate import estimate_file
    from flows.released.segments import estimate_segments
    from schemas.errors import ConfigError

    if not 0 < level < 1:
        raise ConfigError("--level", f"{level!r} is not strictly between 0 and 1")
    if segments is not None and covariates is not None:
        raise ConfigError("--covariates", "cannot go with --segments; ask for one of them")
    document: dict[str, Any] = {}
    if covariates is not None:
        from flows.released.covariates import estimate_covariates  # statsmodels takes seconds

        adjusted = estimate_covariates(release, covariates, level)
        _warn(adjusted.warnings)
        found, document = adjusted.estimates, {"covariates": adjusted.as_json()}
    elif segments is None:
        found = estimate_file(release, level)
    else:
        by_segment = estimate_segments(release, segments, level)
        _warn(by_segment.warnings)
        found, document = by_segment.estimates, {"segments": by_segment.as_json()}
    document["estimates"] = [vars(one) for one in found]  # asdict would copy, for minutes
    text = "" if as_json else "\n".join(estimates_lines(found))
    _print(text, document, as_json=as_json)


@app.command()
def inspect(release: ReleaseFile, as_json: Json = False) -> None:
    """Show what is in a release and what it promises."""
    from flows.cli.show import inspect_text
    from flows.released.file.read import read_release

    found = read_release(release)
    manifest = found.manifest
    document = manifest.row | {"created_at": manifest.created_at.isoformat() + "Z"}
    document |= {"metrics": [asdict(metric) for metric in manifest.metrics]}
    document |= {"path": str(found.path), "row_counts": found.row_counts}
    _print(inspect_text(found), document, as_json=as_json)


@app.command()
def report(
    release: ReleaseFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="The page to write.")
    ],
    as_json: Json = False,
) -> None:
    """Write one web page about a release, with plots, from the released file alone."""
    from flows.released.report import write_report

    path = write_report(release, output)
    _print(str(path), {"path": str(path)}, as_json=as_json)


@app.command()
def ledger(
    config: ConfigFile,
    everything: Annotated[
        bool, typer.Option("--all", help="Show charges that were given back, too.")
    ] = False,
    abandon: Annotated[
        str | None,
        typer.Option(
            metavar="RELEASE_ID",
            help="Settle a charge whose run you know to be dead, on a machine that cannot be seen "
            "from here. What may have become public stays charged.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what the experiment's population has paid and may still pay, entry by entry."""
    from flows.cli.show_ledger import ledger_text
    from flows.ledger.account import account_of

    name, account = account_of(config)
    if abandon is not None:
        told = f"clusterdp: {shown(abandon)} is {account.abandon(abandon)} now"
        print(safe_text(told), file=sys.stderr)
    statement = account.statement()
    document = {"experiment": name, **statement.as_json(), **statement.composed_json()}
    document["entries"] = [
        {
            "release_id": entry.name.release_id,
            "experiment": entry.name.experiment,
            "period": entry.name.period,
            "epsilon": entry.cost.epsilon,
            "delta": entry.cost.delta,
            "state": str(entry.state),
            "created_at": entry.created_at.isoformat() + "Z",
        }
        for entry in statement.entries
        if entry.counts or everything
    ]
    _print(ledger_text(statement, everything=everything), document, as_json=as_json)


@app.command()
def plan(config: ConfigFile, period: Period = None, as_json: Json = False) -> None:
    """Show the design a release would have and how sharp it would be. Reads no outcome.

    Only unit, arm and cluster columns are read, and times of exposures where outcomes are events,
    so that a log without outcomes will do.
    """
    from flows.cli.show_plan import plan_text
    from flows.plan import plan as plan_release

    found = plan_release(config, period)
    _warn(found.roster.warnings)
    _print(plan_text(found), found.as_json(), as_json=as_json)


@app.command()
def audit(config: ConfigFile, period: Period = None, as_json: Json = False) -> None:
    """Check the claimed guarantee, and the private step of a release, on made-up data.

    Exactly on small data sets, and by sampling, within two minutes or so. Reads no outcome. A
    design that is planned (mechanism = "auto") follows from who is in the log of the period; any
    other needs no log.
    """
    from flows.cli.show import audit_text
    from flows.plan import settled_of
    from flows.raw.audit.private_step import audit_step
    from privatizers.audit.audit import audit as audit_claim

    chosen = settled_of(config, period)
    design = chosen.design
    found = audit_claim(design.mechanism, design.epsilon, design.delta)
    checks = (*found.checks, *audit_step(chosen.config, design))
    holds = all(one.holds for one in checks)
    document = {
        "claimed_epsilon": found.claimed_epsilon,
        "delta": found.delta,
        "exact_epsilon": found.exact_epsilon,
        "sampled_lower_bound": found.sampled_lower_bound,
        "holds": holds,
        "confidence": found.confidence,
        "n_samples": found.n_samples,
        "mechanism": design.mechanism.name,
        "checks": [asdict(one) for one in checks],
    }
    _print(audit_text(found, design.mechanism.name, checks), document, as_json=as_json)
    if not holds:
        raise typer.Exit(1)


@app.command("hash-ids")
def hash_ids(
    config: ConfigFile,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A CSV or Parquet file with ids.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    column: Annotated[str, typer.Option(help="The column of the ids.")] = "unit_id",
    as_json: Json = False,
) -> None:
    """Replace a file's ids by those of a release with keyed-hash ids, so that it can be joined.

    Needs the key of the configuration, so whoever has the key runs it.
    """
    from flows.hash_ids import hash_ids as replace_ids

    found = replace_ids(config, file, output, column)
    _warn(found.warnings)
    missing = f"; {found.n_missing:,} had no id" if found.n_missing else ""
    text = f"{found.path}: {found.n_rows:,} rows, ids hashed{missing}"
    _print(text, found.as_json(), as_json=as_json)


for _command in (site, aggregate, replicate):
    app.command()(_shown(_command))


@app.command()
def serve(
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG…", help="One or more experiments' TOML files.")
    ],
    cron: Annotated[str, typer.Option(help="When to run, such as '15 3 * * *'.")],
    timezone: Annotated[
        str, typer.Option(help="Time zone of the schedule, and of what counts as yesterday.")
    ] = "UTC",
) -> None:
    """Run releases on schedule in one process, each of the day before; stop it with Ctrl-C.

    Uses the Prefect server that PREFECT_API_URL names, or starts one of its own on this machine.
    """
    from flows.orchestration.prefect_settings import settle

    settle(configs[0].absolute().parent, log_level="INFO")
    from flows.serve import serve_releases

    serve_releases(configs, cron, timezone)
