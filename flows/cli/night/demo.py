"""``clusterdp demo``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.night.release import release_text
from flows.cli.ways import way
from flows.runtime.pasted import pasted
from flows.runtime.terminal import paragraph
from schemas.errors import BudgetError, ConflictError

if TYPE_CHECKING:
    from flows.release import ReleaseResult


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
    return Answer(partial(_text, result, config, NOTES), result.as_json())


def _text(result: ReleaseResult, config: Path, notes: str) -> str:
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
