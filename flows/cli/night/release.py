"""``clusterdp release``: one period, or all that are due; and ``clusterdp demo``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFiles
from flows.cli.show.estimates import estimates_lines, of_errors
from flows.cli.show.words import made_lines, meaning, paid_text, reason_lines, roster_pairs
from flows.cli.ways import way
from flows.runtime.pasted import pasted
from flows.runtime.terminal import pairs, paragraph, table
from schemas.errors import BudgetError, ConfigError, ConflictError

if TYPE_CHECKING:
    from flows.operate.due import DueResult
    from flows.release import ReleaseResult
    from schemas.released import Manifest


def release(
    configs: ConfigFiles,
    period: str | None = None,
    revise: bool = False,
    due: bool = False,
    prefect: bool = False,
) -> Answer:
    """Make a release: draw it, charge for it, publish it.

    Reads CONFIG, its log and its ledger. Writes a DuckDB file into the folder of releases, a charge
    into the ledger, and rows that it leaves out into the folder of the quarantine. The same rows
    and settings again change and cost nothing. Runs as a Prefect flow where a server is configured
    for Prefect.

    Options:
        revise: Draw a published period anew, as its next revision. Costs everybody in it again.
        due: Release every period that is due by [schedule] and not published, the oldest first,
            whatever becomes of the others. Takes several CONFIGs, one after another.
    """
    from flows.config.load import load, period_of

    if due:
        return _release_due(configs, period, revise=revise, prefect=prefect)
    if len(configs) > 1:
        raise ConfigError("CONFIG", "several are for --due; without it name one")
    (config,) = configs
    period_of(load(config).source, period)  # before a server takes its seconds
    with way("release", config, wanted=prefect) as run:
        result = run(str(config.absolute()), period, revise)
    night = f"{result.manifest.experiment} {result.manifest.period}"
    warnings = tuple(f"{night}: {warning}" for warning in result.warnings)
    return Answer(partial(release_text, result), result.as_json(), warnings)


def _release_due(
    configs: ConfigFiles, period: str | None, *, revise: bool, prefect: bool
) -> Answer:
    from flows.config.load import load

    for option, given in {"--period": period is not None, "--revise": revise}.items():
        if given:
            raise ConfigError(option, "cannot go with --due, which finds the periods itself")
    is_one = len(configs) == 1
    if is_one and load(configs[0]).schedule is None:  # before a server takes its seconds
        raise ConfigError("schedule", "missing; --due goes by the section [schedule]")
    with way("release", configs[0], wanted=prefect) as run:
        from flows.operate.due import DueResult, release_all_due, release_due

        paths = [str(config.absolute()) for config in configs]
        due = release_due(paths[0], run) if is_one else release_all_due(paths, run)
        results = [due] if isinstance(due, DueResult) else due.configs

    def text() -> str:
        return "\n\n".join(map(_due_text, results))

    return Answer(text, due.as_json(), due.warnings, due.farewells, exit_code=due.exit_code)


def release_text(result: ReleaseResult) -> str:
    """One screen on a release that was just made, or was there already."""
    from flows.released.file.checks.stated import read_assigned

    manifest = result.manifest
    household = manifest.household_epsilon
    rows = f"whoever pays has up to {manifest.rows_each} rows here"
    means = meaning(
        manifest.epsilon, manifest.delta, private_clusters=manifest.has_private_clusters
    )
    facts = {
        "file": str(result.path),
        "protected": _protected_text(manifest),
        "epsilon": f"{manifest.epsilon:g}: {means}",
        **({} if household is None else {"of a household": f"{household:g}: {rows}"}),
        "paid so far": paid_text(result.statement),
        "mechanism": manifest.mechanism,
        **roster_pairs(result.roster),
        **of_errors(manifest, read_assigned(result.path, manifest)),
    }
    head = [*made_lines(result.release_id, result.status), "", *pairs(facts)]
    return "\n".join([*head, "", *estimates_lines(result.estimates)])


_STATISTICS = {"means": "noisy means", "differences": "noisy differences between the arms"}


def _protected_text(manifest: Manifest) -> str:
    """What stands between outcomes and a reader of the file."""
    clusters = " and cluster" if manifest.has_private_clusters else ""
    if manifest.has_units:
        return f"every unit's outcome{clusters}: each was randomised, none is in the file"
    statistics = (
        _STATISTICS.get(one.strata_statistic, "noisy counts") for one in manifest.outcomes
    )
    what = " and ".join(dict.fromkeys(statistics))
    kind = "randomised cluster" if clusters else "cluster"
    return f"every unit's outcome{clusters}: the file holds {what} of each {kind}, and no units"


def _due_text(result: DueResult) -> str:
    if result.error is not None:
        return "\n".join([result.config, *reason_lines({"failed": str(result.error)})])
    if not result.releases:
        return f"{result.experiment}: nothing is due that is not published."
    rows = [(one.period, one.status, one.release_id or "–") for one in result.releases]
    lines = [f"{result.experiment}", "", *table(("period", "status", "release"), rows)]
    reasons = {one.period: one.reason for one in result.releases}
    return "\n".join([*lines, *reason_lines(reasons)])


def demo(directory: Path = Path("clusterdp-demo"), prefect: bool = False) -> Answer:
    """Try everything on a real experiment.

    Makes a release and estimates the effect from it. The data are those of a trial in Malawi
    (2004). Reads nothing of yours. Writes a folder with a log, a configuration, a ledger and a
    release, to look at and to change.

    Options:
        directory (FOLDER): Where to put the demo's log, configuration and releases.
    """
    from flows.demo import NOTES, PERIOD, prepare

    config = prepare(directory.absolute())
    try:
        with way("release", config, wanted=prefect) as run:
            result = run(str(config), PERIOD)
    except (BudgetError, ConflictError) as error:  # of another version of the demo, for example
        raise type(error)(f"{error}. For a new demo, remove {config.parent}") from None
    return Answer(partial(_demo_text, result, config, NOTES), result.as_json())


def _demo_text(result: ReleaseResult, config: Path, notes: str) -> str:
    then = "Look inside, and at what these people have paid. Run the demo again: it is unchanged."
    tried = {"inspect": result.path, "estimate": result.path, "ledger": config}
    return "\n".join(
        [
            "Thornton (2008): does a cash incentive make people pick up their HIV test result?",
            "",
            release_text(result),
            "",
            *paragraph(notes),
            "",
            *paragraph(then),
            *(f"  {pasted(command, path)}" for command, path in tried.items()),
        ]
    )
