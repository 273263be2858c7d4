"""`clusterdp report`: one page about a release or an effect model, from its file and nothing else.

It reads what is published of strata, pools, counts and effects, and sums over units; never a
unit's id. The same release and version of the program give the same bytes, but for the last digits
of sums over very many units, which threads add up in any order.
"""

from pathlib import Path
from typing import Final

import duckdb

from flows.released.estimates.release import ReleaseEstimates
from flows.released.estimates.stated import check_stated
from flows.released.file.macros import LEVEL
from flows.released.file.read import open_release
from flows.released.lists import WithdrawnRelease
from flows.released.page.checks import checks
from flows.released.page.contents import Contents, contents_of
from flows.released.page.cost import (
    EPSILONS,
    PRIORS,
    cost_facts,
    forecasts,
    odds_after,
    odds_words,
)
from flows.released.page.explorer import explorer, read_engine
from flows.released.page.html import render, write_page
from flows.released.page.results import (
    answer,
    answered,
    between_arms,
    by_attribute,
    main_rows,
)
from flows.released.page.words import called, level_words, said
from flows.released.withdrawal import withdrawal_of
from flows.runtime.houses import offered
from schemas.errors import InputError
from schemas.roster import SAMPLE_RATIO_ALARM

WITHDRAWN_MARK: Final = "<strong>This release was withdrawn</strong>"
"""Stands on the page of a release that was."""


def write_report(
    release: Path, output: Path, *, is_explorer: bool = False, engine: Path | None = None
) -> Path:
    """Write the report on the release, or effect model, at ``release`` to ``output``.

    It is written whole or not at all. As an explorer it has the release and the ``engine`` inside.

    Returns the absolute path. Replaces a report that is there already. Raises InputError where
    ``release`` is neither, or ``output`` is no HTML file that can be written.
    """
    check_output(output, release)
    for pages in offered("PAGES"):
        if (page := pages.get(release.suffix.lower())) is not None:
            if is_explorer:
                raise InputError(f"{release}: is no release, so there is no explorer of it")
            return write_page(output, page(release))
    packed = read_engine(engine) if is_explorer else None
    with open_release(release) as connection:
        page, _ = page_of(connection, release, packed)
    return write_page(output, page)


def page_of(
    connection: duckdb.DuckDBPyConnection, release: Path, packed: bytes | None = None
) -> tuple[str, ReleaseEstimates]:
    """Build the page of the release in a sound file, which is open; and return its estimates.

    Raises InputError where the file states others.
    """
    made = check_stated(connection, release)
    contents = contents_of(connection, release, made)
    inside = None if packed is None else (release, packed)
    return report(contents, withdrawal_of(release), inside), made


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


def report(
    contents: Contents,
    withdrawn: WithdrawnRelease | None = None,
    inside: tuple[Path, bytes] | None = None,
) -> str:
    """Build the page; where the release was ``withdrawn`` it begins with that.

    ``inside`` are the release's file and the engine, packed, where they are to be in the page.
    """
    found = [answered(contents, one) for one in contents.metrics]
    few = [
        (called(one.contents.scale), row["arm"], row["coverage"])
        for one in found
        for row in one.few
    ]
    p_value, epsilon = contents.manifest.sample_ratio_p, contents.manifest.epsilon
    metrics = [one.metric.metric for one in contents.metrics]
    return render(
        explorer=inside and explorer(*inside, contents, found),
        contents=contents,
        manifest=contents.manifest,
        withdrawn=withdrawn,
        level=level_words(LEVEL),
        is_mismatch=p_value is not None and p_value < SAMPLE_RATIO_ALARM,
        few=few[:3],
        answer=answer([one.group for one in found])
        if any(one.leads for one in found)
        else "This release holds no estimate of an effect.",
        main=main_rows(contents, found) if len(contents.arms) > 1 else None,
        cost=cost_facts(contents, found),
        checked=checks(contents, found),
        attributes=[
            by_attribute(contents, found, one, f"by-{at}")
            for at, one in enumerate(contents.by_attribute, start=1)
        ],
        between=between_arms(contents, found),
        is_partial=any((row["coverage"] or 1.0) < 1 for one in found for row in one.leads),
        found=found,
        marks={one: f"-{at}" if at > 1 else "" for at, one in enumerate(metrics, start=1)},
        intervals=[said(called(one.contents.scale), ", interval") for one in found],
        forecasts=forecasts(contents, found, EPSILONS),
        odds=odds_words(epsilon),
        suspicions=zip(PRIORS, *odds_after(PRIORS, epsilon), strict=True),
    )
