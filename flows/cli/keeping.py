"""Commands on what was released before: ``withdraw`` and ``prune``.

They print nothing: :mod:`flows.cli.main` shows their :class:`~flows.cli.answer.Answer`.
"""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile
from flows.runtime.terminal import table

if TYPE_CHECKING:
    from flows.operate.prune import PruneResult
    from flows.operate.withdraw import WithdrawResult

_SHOWN = 20  # files that a terminal lists


def withdraw(
    config: ConfigFile,
    release_id: Annotated[
        str, typer.Argument(metavar="RELEASE_ID", help="Such as autumn.2026-11-20.r1.")
    ],
    reason: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Why, in one line. It is published beside the releases: name nobody, and no "
            "number from a log.",
        ),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take a withdrawal back: the release may be used again.")
    ] = False,
) -> Answer:
    """Tell everybody that a release is not to be used, and why.

    Its file stays as it is, since it may have been copied, and its charge stays, too. Writes the
    reason into the ledger and into withdrawn.json beside the releases; latest.duckdb becomes the
    last release that is not withdrawn, and series.duckdb leaves it out. Another draw of its period
    is `clusterdp release --revise`.
    """
    from flows.operate.withdraw import withdraw as take_back

    result = take_back(config, release_id, reason, undo=undo)
    return Answer(partial(_withdraw_text, result), result.as_json(), result.warnings)


def _withdraw_text(result: "WithdrawResult") -> str:
    state = "no longer withdrawn" if result.reason is None else f"withdrawn: {result.reason}"
    was = "" if result.is_new else "; it was so already"
    latest = f"latest.duckdb is {result.latest}"
    if result.latest is None:
        latest = "no release is left to be used, so there is no latest.duckdb"
    return f"{result.release_id} is {state}{was}\n{latest}"


def prune(
    config: ConfigFile,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
) -> Answer:
    """Remove what is older than [retention] of CONFIG keeps it.

    Rows that were set aside, what killed runs left and released files (never the latest), each if
    CONFIG says for how long it is kept. Prefect's history is removed by settings of Prefect.
    Charges and the lists of who was released stay, and so do the rows of series.duckdb. May run
    beside releases; what a killed prune left the next one finishes.
    """
    from flows.operate.prune import prune as remove

    result = remove(config, dry_run=dry_run)
    return Answer(partial(_prune_text, result), result.as_json(), result.warnings)


def _prune_text(result: "PruneResult") -> str:
    rows = [
        (
            name,
            one.older_than,
            f"{one.n:,}",
            "–" if one.n_bytes is None else f"{one.n_bytes:,}",
        )
        for name, one in result.kinds.items()
    ]
    done = "would be removed" if result.dry_run else "removed"
    listed = [name for one in result.kinds.values() for name in one.names or ()]
    head = ("what", "older than", done, "bytes")
    return "\n".join([result.experiment, "", *table(head, rows), *_listed(listed)])


def _listed(names: list[str]) -> list[str]:
    shown = names[:_SHOWN]
    more = [f"and {len(names) - _SHOWN:,} more; --json has all"] if len(names) > _SHOWN else []
    return ["", *shown, *more] if names else []
