"""``clusterdp prune``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile
from flows.runtime.terminal import table

if TYPE_CHECKING:
    from flows.operate.prune import PruneResult

_SHOWN = 20  # files that a terminal lists


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
    return Answer(partial(_text, result), result.as_json(), result.warnings)


def _text(result: PruneResult) -> str:
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
