"""`clusterdp report`: one page about a release or an effect model, from its file and nothing else.

It reads what is published of strata, pools, counts and effects, and sums over units; never a
unit's id. The same release and version of the program give the same bytes.
"""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from flows.released.estimates.stated import check_stated
from flows.released.file.read import open_release
from flows.released.lists import WithdrawnRelease
from flows.released.page.attributes import attribute_facts
from flows.released.page.contents import Contents, MetricContents, contents_of
from flows.released.page.details import (
    debias_facts,
    decision_facts,
    means_facts,
    outcomes_facts,
    privacy_facts,
    sizes_facts,
    soundness_facts,
)
from flows.released.page.effects import FEW_LEADS, between_facts, effects_facts, summary_facts
from flows.released.page.html import render
from flows.released.withdrawal import withdrawal_of
from flows.runtime.files import replace_file
from flows.runtime.houses import offered
from schemas.errors import InputError

WITHDRAWN_MARK: Final = "<strong>This release was withdrawn</strong>"
"""Stands on the page of a release that was."""


def write_report(release: Path, output: Path) -> Path:
    """Write the report on the release, or effect model, at ``release`` to ``output``.

    It is written whole or not at all.

    Returns the absolute path. Replaces a report that is there already. Raises InputError where
    ``release`` is neither, or ``output`` is no HTML file that can be written.
    """
    check_output(output, release)
    for pages in offered("PAGES"):
        if (page := pages.get(release.suffix.lower())) is not None:
            return write_page(output, page(release))
    with open_release(release) as connection:
        check_stated(connection, release)
        contents = contents_of(connection, release)
    return write_page(output, report(contents, withdrawal_of(release)))


def write_page(output: Path, page: str) -> Path:
    """Write a page to ``output``, whole or not at all; returns the absolute path.

    Raises InputError where it cannot be written.
    """
    try:
        with replace_file(output, mode=0o644) as file:
            file.write(page.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        reason = error.strerror
    else:
        return output.absolute()
    raise InputError(f"{output.absolute()}: cannot be written ({reason})")


def check_output(output: Path, release: Path | None = None) -> None:
    """Say what is wrong with the name of the output before anything is read."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: the report is a web page; give it a name ending in .html")
    if output.is_dir():
        raise InputError(f"{output.absolute()}: is a folder; name a file in it")
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output.absolute().parent}: there is no such folder; make it first")
    if release and output.exists() and release.exists() and output.samefile(release):
        raise InputError(f"{output.absolute()}: is the release itself; name another file")


def report(contents: Contents, withdrawn: WithdrawnRelease | None = None) -> str:
    """Build the page; where the release was ``withdrawn`` it begins with that."""
    metrics = [
        _of_metric(contents, one, place) for place, one in enumerate(contents.metrics, start=1)
    ]
    summary = summary_facts(
        [(one["scale"], one["effects"]["leads"]) for one in metrics], contents.manifest.control
    )
    return render(
        manifest=contents.manifest,
        program=version("clusterdp"),
        withdrawn=withdrawn,
        arms=contents.arms,
        metrics=metrics,
        few_leads=FEW_LEADS,
        summary=summary,
        decision=decision_facts(contents),
        soundness=soundness_facts(contents),
        privacy=privacy_facts(contents.manifest),
        sizes=sizes_facts(contents),
    )


def _of_metric(contents: Contents, one: MetricContents, place: int) -> dict[str, Any]:
    """All that is told of a metric; ``mark`` ends the names of its figures and tables."""
    mark = "" if place == 1 else f"-{place}"
    return {
        "mark": mark,
        "metric": one.metric,
        "scale": one.scale,
        "effects": effects_facts(contents, one, mark),
        "between": between_facts(contents, one, mark),
        "by_attribute": attribute_facts(contents.by_attribute, one.metric.metric, one.scale, mark),
        "outcomes": outcomes_facts(contents, one, mark),
        "means": means_facts(contents, one),
        "debias": debias_facts(contents, one, mark),
    }
