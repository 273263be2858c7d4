"""The commands of the operator's house: many nights, their ledger and their files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile, ConfigFiles, ConfigOrNone, ReleaseFiles
from flows.cli.show.words import reason_lines, table_of
from flows.runtime.terminal import pairs, paragraph, table
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from flows.operate.backup import BackupResult
    from flows.operate.prune import PruneResult
    from flows.operate.restore import RestoreResult
    from flows.operate.status import ExperimentStatus
    from flows.operate.verify import Verdict, VerifyResult
    from flows.operate.withdraw import WithdrawResult
    from flows.released.loss.loss import Loss

_SHOWN = 20  # files that a terminal lists
_SOURCES = {
    "ledger": "ledger",
    "signature": "signed list SHA256SUMS",
    "SHA256SUMS": "list SHA256SUMS",
}
_OF_A_LIST = (
    "SHA256SUMS lies beside the files: whoever can change them can change it, too. Compare with "
    "the ledger (--ledger CONFIG), or check its signature (--key PUBLIC)."
)


def serve(
    configs: ConfigFiles,
    cron: str,
    timezone: str = "UTC",
    estimates: str | None = None,
    into: Path | None = None,
) -> None:
    """Make releases on schedule, until you stop it with Ctrl-C.

    Each release is of the day before; where CONFIG has a [schedule], of every day that is due and
    not published, so that a night missed is made up. Reads and writes what `clusterdp release`
    does. Uses the Prefect server that PREFECT_API_URL names, or starts one of its own on this
    machine.

    Options:
        cron (--cron SCHEDULE): When to run, as a cron expression: '15 3 * * *' is every day at
            3:15.
        timezone (ZONE): Time zone of the schedule, and of what counts as yesterday, such as
            Europe/Zurich.
        estimates (SCHEDULE): When to estimate effects from all that is published, by released
            files alone.
        into (FOLDER): With --estimates: where each experiment's effects go, as EXPERIMENT.json.
    """
    if (estimates is None) != (into is None):
        raise ConfigError("--estimates", "goes with --into: when to estimate, and where to write")
    from flows.orchestration.prefect_settings import configure_prefect

    configure_prefect(configs[0].absolute().parent, log_level="INFO")
    from flows.operate.serve import Estimates, serve_releases

    asked = None if estimates is None or into is None else Estimates(estimates, into)
    serve_releases(configs, cron, timezone, _flows, asked)


def _flows() -> Any:
    from flows import deployed

    return deployed


def status(configs: ConfigFiles, metrics: bool = False) -> Answer:
    """Show every period of experiments, and why one is not there.

    With a [schedule] in CONFIG, these are all days since its beginning: published, due, waiting
    (not complete yet, or without its files), running, refused by the budget, failed, lost (its file
    is gone) or altered (its file is another than was drawn). Shows what is due next, and what is
    left of the budget. Reads CONFIG, its ledger and the folder of releases, but no log. Changes
    nothing but the files of metrics, with --metrics. The exit code is 4 if a period is lost or
    altered.

    Options:
        metrics: Write the files of metrics (run.metrics_directory) anew, too.
    """
    from flows.operate.status import renew_metrics
    from flows.operate.status import status as find_status

    if metrics:
        renew_metrics(configs)
    result = find_status(*configs)

    def text() -> str:
        return "\n\n".join(map(_status_text, result.experiments))

    return Answer(text, result.as_json(), result.warnings, exit_code=result.exit_code)


def _status_text(one: ExperimentStatus) -> str:
    from flows.ledger.rules import amount_text
    from flows.released.lists import named

    left, moment = one.least_epsilon_left, one.next_due_at
    facts = {
        "left": "no limit is declared (privacy.budget_epsilon)"
        if left is None
        else f"epsilon {amount_text(left)}; a release costs {amount_text(one.epsilon)}",
        "next due": "no schedule is declared ([schedule])"
        if moment is None
        else f"{moment:%Y-%m-%d %H:%M} UTC",
    }
    if one.guess_from and not one.closed:
        facts["next guess"] = f"learnt from {named(one.guess_from)}"
    if one.closed:
        still = f"; {one.n_open:,} not published, which each run still tries" if one.n_open else ""
        facts["next due"] = f"never: closed after {one.last_period}, its last period{still}"
    if one.closing is not None:
        facts["next due"] += (
            "; nothing more comes by itself, so write the final report (clusterdp report)"
        )
    periods = table_of(
        one.periods,
        {
            "period": lambda period: period.period,
            "state": lambda period: str(period.state),
            "due (UTC)": lambda period: (
                "–" if period.due_at is None else f"{period.due_at:%Y-%m-%d %H:%M}"
            ),
            "release": lambda period: period.release_id or "–",
        },
    )
    reasons = {period.period: period.reason for period in one.periods}
    lines = [one.experiment, "", *pairs(facts), ""]
    lines += periods if one.periods else ["  No period has begun."]
    return "\n".join([*lines, *reason_lines(reasons)])


def verify(
    releases: ReleaseFiles,
    ledger: ConfigOrNone = None,
    key: list[Path] | None = None,
    loss: bool = False,
) -> Answer:
    """Check that files are as published, or cost what they say.

    Compares the SHA-256 of each RELEASE with that of its publication: in the ledger, in a signed
    list, or else in SHA256SUMS beside it. Writes nothing. The exit code is 4 if a file differs, or
    costs more than it says (--loss), 2 if no digest of one is known.

    Options:
        releases (RELEASE… | FOLDER): Released files, copies and latest.duckdb, too; or a folder of
            them.
        ledger (CONFIG): Compare with the ledger of this configuration.
        key (PUBLIC): Compare with SHA256SUMS beside the file, if this public key (Ed25519, PEM)
            says that SHA256SUMS.sig is its signature. May be given several times: one has to fit,
            so lists that were signed under a key of before can be checked.
        loss: Work out epsilon and delta from the tables and noise scales of each file, and compare
            with what it states; asks nothing but the file.
    """
    from flows.operate.verify import verify as verify_files
    from flows.operate.verify import verify_loss

    if loss and (ledger is not None or key):
        raise ConfigError("--loss", "goes without --ledger and --key, as it asks the file alone")
    if loss:
        found = verify_loss(releases)
        text = "\n\n".join(map(_loss_text, found.releases))
        return Answer(lambda: text, found.as_json(), exit_code=found.exit_code)
    result = verify_files(releases, ledger=ledger, key=key)
    shown, code = partial(_verify_text, result), result.exit_code
    return Answer(shown, result.as_json(), result.warnings, result.notes, exit_code=code)


def _verify_text(result: VerifyResult) -> str:
    """What was found of each file; where a list alone spoke for it, what that is worth."""
    words = {None: "UNKNOWN", True: "intact", False: "ALTERED"}
    lines = [line for one in result.releases for line in pairs({words[one.intact]: _about(one)})]
    if any(one.against == "SHA256SUMS" for one in result.releases):
        lines += ["", *paragraph(_OF_A_LIST)]
    return "\n".join(lines)


def _about(one: Verdict) -> str:
    named = "" if one.release_id is None else f" ({one.release_id})"
    against = "" if one.against is None else f", against the {_SOURCES[one.against]}"
    reason = "" if one.reason is None else f": {one.reason}"
    pruned = "" if one.pruned_at is None else f"; pruned by its publisher on {one.pruned_at[:10]}"
    withdrawn = "" if one.withdrawn is None else f"; WITHDRAWN: {one.withdrawn}"
    return f"{one.path}{named}{against}{reason}{pruned}{withdrawn}"


def _loss_text(one: Loss) -> str:
    """What a file costs, what that is made of, and what has to be taken on trust."""
    facts = {
        "stated": f"epsilon {one.stated_epsilon:.12g}, delta {one.stated_delta:g}",
        "worked out": f"epsilon {one.epsilon:.12g}, delta {one.delta:g}",
    }
    if one.rows_each != 1:  # whoever pays for several units
        epsilon, delta = one.household
        facts[f"{one.rows_each} units"] = f"epsilon {epsilon:.12g}, delta {delta:g}"
    verdict = "costs what it says, at most" if one.holds else "COSTS MORE THAN IT SAYS"
    parts = table_of(
        one.parts,
        {
            "of": lambda each: each.metric or "–",
            "published": lambda each: each.name,
            "epsilon": lambda each: f"{each.epsilon:.6g}",
            "delta": lambda each: f"{each.delta:g}",
            "known": lambda each: each.how,
        },
    )
    return "\n".join(
        [
            f"{one.path} ({one.release_id}) {verdict}",
            "",
            *pairs(facts),
            *(line for rule in one.broken for line in pairs({"broken": rule})),
            "",
            *parts,
            "",
            "Taken on trust:",
            *(line for each in one.trusted for line in paragraph(each)),
        ]
    )


def withdraw(
    config: ConfigFile, release_id: str, reason: str | None = None, undo: bool = False
) -> Answer:
    """Tell everybody that a release is not to be used, and why.

    Its file stays as it is, since it may have been copied, and its charge stays, too. Writes the
    reason into the ledger and into withdrawn.json beside the releases; latest.duckdb becomes the
    last release that is not withdrawn, and series.duckdb leaves it out. Another draw of its period
    is `clusterdp release --revise`.

    Options:
        release_id (RELEASE_ID): Such as autumn.2026-11-20.r1.
        reason (TEXT): Why, in one line. It is published beside the releases: name nobody, and no
            number from a log.
        undo: Take a withdrawal back: the release may be used again.
    """
    from flows.operate.withdraw import withdraw as take_back

    result = take_back(config, release_id, reason, undo=undo)
    return Answer(partial(_withdraw_text, result), result.as_json(), result.warnings)


def _withdraw_text(result: WithdrawResult) -> str:
    state = "no longer withdrawn" if result.withdrawn is None else f"withdrawn: {result.withdrawn}"
    was = "" if result.changed else "; it was so already"
    latest = f"latest.duckdb is {result.latest}"
    if result.latest is None:
        latest = "no release is left to be used, so there is no latest.duckdb"
    return f"{result.release_id} is {state}{was}\n{latest}"


def prune(config: ConfigFile, dry_run: bool = False) -> Answer:
    """Remove what is older than [retention] of CONFIG keeps it.

    Rows that were set aside, what killed runs left and released files (never the latest), each if
    CONFIG says for how long it is kept. Prefect's history is removed by settings of Prefect.
    Charges and the lists of who was released stay, and so do the rows of series.duckdb. May run
    beside releases; what a killed prune left the next one finishes.

    Options:
        dry_run: Say what would be removed, and remove nothing.
    """
    from flows.operate.prune import prune as remove

    result = remove(config, dry_run=dry_run)
    return Answer(partial(_prune_text, result), result.as_json(), result.warnings)


def _prune_text(result: PruneResult) -> str:
    rows = [
        (name, one.older_than, f"{one.n:,}", "–" if one.bytes is None else f"{one.bytes:,}")
        for name, one in result.kinds.items()
    ]
    done = "would be removed" if result.dry_run else "removed"
    lines = [result.experiment, "", *table(("what", "older than", done, "bytes"), rows)]
    names = [name for one in result.kinds.values() for name in one.names or ()]
    if names:
        lines += ["", *names[:_SHOWN]]
    if len(names) > _SHOWN:
        lines.append(f"and {len(names) - _SHOWN:,} more; --json has all")
    return "\n".join(lines)


def backup(configs: ConfigFiles, output: Path) -> Answer:
    """Copy a ledger, its units and its keys into a new folder.

    Name every CONFIG whose experiment uses the ledger. Runs need not wait, and may be at work. The
    folder is as secret as the keys in it (mode 0700); it appears whole or not at all. Raw logs,
    quarantine and releases are not in it. Changes nothing.

    Options:
        output (--output -o FOLDER): The new folder to put it into.
    """
    from flows.operate.backup import backup as take

    result = take(configs, output=output)
    return Answer(partial(_backup_text, result), result.as_json(), result.warnings)


def _backup_text(result: BackupResult) -> str:
    found = result.backup
    facts = {
        "backup": str(result.path),
        "of": f"{found.made_at:%Y-%m-%d %H:%M:%S} UTC",
        "experiments": ", ".join(one.experiment for one in found.experiments),
        "lists of units": f"{len(found.registers):,}",
        "keys": ", ".join(sorted({key for one in found.experiments for key in one.keys})) or "none",
    }
    return "\n".join(pairs(facts))


def restore(
    paths: ConfigFiles,
    without_backup: bool = False,
    lost: list[str] | None = None,
    complete: bool = False,
) -> Answer:
    """Put a ledger and keys back from a backup.

    They go where CONFIG says that they are. What was published after the backup was taken is
    charged to everybody, by the files in the folder of releases: see that nobody else has put one
    there. A ledger or a key that is there is
    never overwritten: of a ledger that has all charges of the backup, only lists of units that it
    has lost are put back. A backup that is damaged is refused. Let no run begin meanwhile.

    Options:
        paths (FOLDER CONFIG…): A backup, and the TOML files of all experiments on the ledger, also
            of those begun since.
        without_backup: There is none: name the TOML files alone. Charges for the released files
            that the ledger, or a new one, does not know.
        lost (RELEASE_ID): A release that may have been published after the backup was taken, and
            whose file is gone: everybody pays for it. May be given several times.
        complete: Say that no other release was published since than those whose files are there
            and those that --lost names. Without it nothing is put back.
    """
    from flows.operate.restore import restore as put_back

    folder, configs = (None, paths) if without_backup else (paths[0], paths[1:])
    if not configs:
        raise ConfigError("CONFIG", "missing; name the TOML files of all experiments on the ledger")
    result = put_back(folder, configs, lost=lost or (), complete=complete)
    return Answer(partial(_restore_text, result), result.as_json(), result.warnings)


def _restore_text(result: RestoreResult) -> str:
    from flows.ledger.rules import amount_text

    state = "restored" if result.is_new else "was there already, with all charges of the backup"
    if result.made_at is None:
        state = f"charged for what it did not know, {len(result.found.entered):,} of the files"
    facts = {"ledger": f"{result.ledger}: {state}"}
    if result.made_at is not None:
        facts["as of"] = f"{result.made_at:%Y-%m-%d %H:%M:%S} UTC"
    for path, is_new in result.keys.items():
        facts[str(path)] = "restored" if is_new else "was there already"
    for name, amount in result.spent.items():
        facts[f"spent by {name}"] = f"epsilon {amount_text(amount.epsilon)}"
    return "\n".join(pairs(facts))
