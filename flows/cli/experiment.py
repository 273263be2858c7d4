"""Commands on a configuration that release nothing: ``check``, ``plan``, ``audit`` and others.

They print nothing: :mod:`flows.cli.main` shows their :class:`~flows.cli.answer.Answer`. As there,
the data libraries are imported within them.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.answer import Answer
from flows.cli.options import TABLES, ConfigFile, ConfigFiles, Period, files
from flows.runtime.terminal import shown


def check(
    config: ConfigFile,
    period: Period = None,
    outcomes: Annotated[
        bool,
        typer.Option(
            "--outcomes",
            help="Say too, coarsely, how many outcomes are missing, unreadable or beyond the grid. "
            "Nothing protects this: it is for whoever holds the log, at a terminal, and the grid "
            "and the guess must not follow it.",
        ),
    ] = False,
) -> Answer:
    """Try a release: read and validate, draw and write nothing.

    Reads CONFIG, its log and its ledger. Draws no noise, charges nothing and writes nothing. Shows
    how many units a release would have, which rows it would leave out, and what was paid so far.
    """
    from flows.check import check as dry_run
    from flows.cli.show.results import check_text

    result = dry_run(config, period, outcomes=outcomes)
    return Answer(partial(check_text, result), result.as_json(), result.warnings)


def plan(
    config: ConfigFile,
    period: Period = None,
    nights: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Show too what so many nights like this one cost a unit, and how exact the effect "
            "over all of them would be.",
        ),
    ] = None,
) -> Answer:
    """Show how a release would be made, and how exact it would be.

    Reads CONFIG and, of its log, only who is in which arm and cluster (and the times of exposures,
    where outcomes are events). It reads no outcome: a log without outcomes will do. Writes nothing.
    """
    from flows.cli.show.plan import plan_text
    from flows.plan import plan as plan_release

    result = plan_release(config, period, nights)
    return Answer(partial(plan_text, result), result.as_json(), result.warnings)


def audit(config: ConfigFile, period: Period = None) -> Answer:
    """Test the whole promise of CONFIG on made-up people.

    They are released by the run of a night, in every way that it may go: what their files lose by
    themselves, what the ledger is charged, all that is public and every draw is held against what
    is claimed. This takes a minute or two. It reads no outcome; with mechanism = "auto" it reads
    who is in the log of the period. Leaves nothing behind. The exit code is 1 if a test fails.
    """
    from flows.cli.show.cate import model_audit_text
    from flows.cli.show.results import audit_text
    from flows.lab.audit import Audit
    from flows.lab.audit import audit as run_audit

    result = run_audit(config, period)
    code = 0 if result.holds else 1
    if isinstance(result, Audit):
        return Answer(partial(audit_text, result), result.as_json(), exit_code=code)
    return Answer(partial(model_audit_text, result), result.as_json(), exit_code=code)


def ledger(
    config: ConfigFile,
    everything: Annotated[
        bool, typer.Option("--all", help="Show also charges that were given back.")
    ] = False,
    abandon: Annotated[
        str | None,
        typer.Option(
            metavar="RELEASE_ID",
            help="First close the charge of a run that you know to be dead, on a machine that "
            "cannot be seen from here. It is given back only if nothing can have become public.",
        ),
    ] = None,
) -> Answer:
    """Show what was paid of the privacy budget, and what is left.

    The budget is of the people in the experiment, over all its releases.

    Reads CONFIG (of an experiment or of a site) and its ledger. Changes nothing, unless --abandon
    is given.
    """
    from flows.cli.show.ledger import ledger_document, ledger_text
    from flows.ledger.account import account_of

    name, account = account_of(config)
    notes: tuple[str, ...] = ()
    if abandon is not None:
        notes = (f"{shown(abandon)} is {account.abandon(abandon)} now",)
    statement = account.statement(exact=True)
    text = partial(ledger_text, statement, everything=everything)
    return Answer(text, ledger_document(name, statement, everything=everything), notes=notes)


def status(
    configs: ConfigFiles,
    metrics: Annotated[
        bool,
        typer.Option(
            "--metrics", help="Write the files of metrics (run.metrics_directory) anew, too."
        ),
    ] = False,
) -> Answer:
    """Show every period of experiments, and why one is not there.

    With a [schedule] in CONFIG, these are all days since its beginning: published, due, waiting
    (not complete yet, or without its files), running, refused by the budget, failed, lost (its file
    is gone) or altered (its file is another than was drawn). Shows what is due next, and what is
    left of the budget. Reads CONFIG, its ledger and the folder of releases, but no log. Changes
    nothing but the files of metrics, with --metrics. The exit code is 4 if a period is lost or
    altered.
    """
    from flows.cli.show.due import status_text
    from flows.operate.status import renew_metrics
    from flows.operate.status import status as find_status

    if metrics:
        renew_metrics(configs)
    result = find_status(configs)
    text = partial(status_text, result)
    return Answer(text, result.as_json(), result.warnings, exit_code=result.exit_code)


def verify(
    releases: Annotated[
        list[Path],
        typer.Argument(
            metavar="RELEASE… | FOLDER",
            help="Released files, copies and latest.duckdb, too; or a folder of them.",
            autocompletion=files(".duckdb"),
        ),
    ],
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            metavar="CONFIG",
            help="Compare with the ledger of this configuration.",
            autocompletion=files(".toml"),
        ),
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            "--key",
            metavar="PUBLIC",
            help="Compare with SHA256SUMS beside the file, if this public key (Ed25519, PEM) says "
            "that SHA256SUMS.sig is its signature. May be given several times: one has to fit, so "
            "lists that were signed under a key of before can be checked.",
        ),
    ] = None,
    loss: Annotated[
        bool,
        typer.Option(
            "--loss",
            help="Work out epsilon and delta from the tables and noise scales of each file, and "
            "compare with what it states; asks nothing but the file.",
        ),
    ] = False,
) -> Answer:
    """Check that files are as published, or cost what they say.

    Compares the SHA-256 of each RELEASE with that of its publication: in the ledger, in a signed
    list, or else in SHA256SUMS beside it. Writes nothing. The exit code is 4 if a file differs, or
    costs more than it says (--loss), 2 if no digest of one is known.
    """
    if loss:
        return _verify_loss(releases, ledger, key)
    from flows.cli.show.due import verify_text
    from flows.operate.verify import verify as verify_files

    result = verify_files(releases, ledger, key or ())
    text = partial(verify_text, result)
    code = result.exit_code
    return Answer(text, result.as_json(), result.warnings, result.notes, exit_code=code)


def _verify_loss(releases: list[Path], ledger: Path | None, key: list[Path] | None) -> Answer:
    from flows.cli.show.loss import loss_text
    from flows.operate.verify import verify_losses

    result = verify_losses(releases, ledger, key or ())
    return Answer(partial(loss_text, result), result.as_json(), exit_code=result.exit_code)


def hash_ids(
    config: ConfigFile,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A CSV or Parquet file with ids.", autocompletion=TABLES
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write, CSV or Parquet by its name."
        ),
    ],
    column: Annotated[str, typer.Option(metavar="NAME", help="The column of the ids.")] = "unit_id",
) -> Answer:
    """Replace ids in a file by the hashed ids of a release.

    So the file can be joined with a release whose ids are hashed (publish.unit_id = "keyed-hash" in
    CONFIG). Reads CONFIG, its key and FILE: run it where the key may be read. Writes a new file:
    the same rows and columns, with the ids hashed.
    """
    from flows.hash_ids import hash_ids as replace_ids

    result = replace_ids(config, file, output, column)
    missing = f"; {result.n_missing:,} had no id" if result.n_missing else ""
    text = f"{result.path}: {result.n_rows:,} rows, ids hashed{missing}"
    return Answer(lambda: text, result.as_json(), result.warnings)
