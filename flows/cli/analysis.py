"""Commands on a released file alone: ``estimate``, ``inspect``, ``report``, ``export``.

They print nothing: :mod:`flows.cli.main` shows their :class:`~flows.cli.answer.Answer`. As there,
the data libraries are imported within them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.answer import Answer
from flows.cli.options import TABLES, ReleaseFile, ReleaseFiles, ReleaseOrFolder, ReportedFiles
from flows.cli.withdrawn import of_withdrawn
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from flows.released.estimates.decisions import Decisions  # scipy takes half a second
    from schemas.released import Manifest

People = Annotated[
    str | None,
    typer.Option(
        metavar="disjoint | returning",
        help="Of several releases: whether anybody is in two of them, where you know better than "
        "their ids show.",
    ),
]
Looks = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Of several releases: the look at which the interval for those who look every night "
        "is to be at its narrowest (14, unless you say otherwise).",
    ),
]


Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="An outcome of the release to show alone; may be repeated. All, unless you say.",
    ),
]


def estimate(  # noqa: PLR0913, PLR0917 - an option each
    releases: ReleaseFiles,
    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Estimate by segment: a CSV or Parquet file of yours with the columns unit_id and "
            "segment.",
            autocompletion=TABLES,
        ),
    ] = None,
    covariates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Adjust for covariates: a CSV or Parquet file of yours with unit_id and other "
            "columns (numbers, text or booleans) known before the experiment.",
            autocompletion=TABLES,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="ATTRIBUTE",
            help="Estimate by a published attribute: an effect for each of its values, as it is "
            "and shrunken.",
        ),
    ] = None,
    adjust: Annotated[
        str | None,
        typer.Option(
            metavar="ATTRIBUTE,…",
            help="Adjust for published attributes instead of a FILE of yours.",
        ),
    ] = None,
    level: Annotated[
        float,
        typer.Option(metavar="NUMBER", help="Confidence level of the intervals, between 0 and 1."),
    ] = 0.95,
    people: People = None,
    looks: Looks = None,
    metric: Metrics = None,
) -> Answer:
    """Estimate the effect of each arm, from released files alone.

    Effects are against control, with intervals. Several releases of one experiment (or the folder
    they are in) give the effect of each period and of all together. Reads RELEASE, and a table of
    yours if you give one. It needs no log and costs no privacy. Writes nothing.
    """
    if not 0 < level < 1:
        raise ConfigError("--level", f"{level!r} is not strictly between 0 and 1")
    asked = _Asked(segments, covariates, by, adjust, metric or ())
    asked.check()
    from flows.operate.series.nights import are_several

    try:
        if are_several(releases):
            return _estimate_series(releases, asked, level, people, looks)
        _refuse_for_one(people, looks)
        return of_withdrawn(_estimate_one(releases[0], asked, level), releases[0])
    except ConfigError as error:
        if error.key not in ("by", "adjust", "metric"):
            raise
        failure = ConfigError(f"--{error.key}", error.problem)
    raise failure


@dataclass(frozen=True)
class _Asked:
    """What effects are estimated by, or adjusted for; at most one of them is asked for."""

    segments: Path | None
    covariates: Path | None
    by: str | None
    adjust: str | None
    metrics: Sequence[str]
    """Those that are asked for; all where there is none."""

    def check(self) -> None:
        """Raise ConfigError where two things are asked for that do not go together."""
        things = ("segments", "covariates", "by", "adjust")
        given = [name for name in things if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(f"--{given[1]}", f"cannot go with --{given[0]}; ask for one of them")

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that are adjusted for."""
        return tuple(one.strip() for one in (self.adjust or "").split(","))


def _estimate_series(
    releases: list[Path], asked: _Asked, level: float, people: str | None, looks: int | None
) -> Answer:
    from estimators.operate.series import LOOKS
    from flows.cli.show.series import series_text
    from flows.operate.series.estimates import (
        ByAttribute,
        ForAttributes,
        Split,
        covariates_table,
        estimate_series,
        people_of,
        segments_table,
    )

    table: Split | None = None
    if asked.segments is not None:
        table = segments_table(asked.segments)
    elif asked.covariates is not None:
        table = covariates_table(asked.covariates)
    elif asked.by is not None:
        table = ByAttribute(asked.by)
    elif asked.adjust is not None:
        table = ForAttributes(asked.attributes)
    told = people_of("--people", people)
    look = LOOKS if looks is None else looks
    found = estimate_series(
        releases, level, table=table, told=told, looks=look, metrics=asked.metrics
    )
    return Answer(partial(series_text, found), found.as_json(), found.warnings, found.notes)


def _estimate_one(release: Path, asked: _Asked, level: float) -> Answer:
    from flows.cli.show.decisions import decided_text
    from flows.cli.show.estimates import by_text

    about: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    decisions: Decisions | None = None
    together = _Together(release)
    if asked.by is not None:
        from flows.released.estimates.by_attribute import estimate_by

        by = estimate_by(release, asked.by, level, metrics=asked.metrics)
        document = {
            "by": by.as_json(),
            **together.as_json(),
            "warnings": list(by.warnings),
            "estimates": [vars(one) for one in by.estimates],
        }
        shown = partial(by_text, asked.by, by.estimates, errors=together.errors)
        return Answer(shown, document, by.warnings)
    if asked.covariates is not None:
        # statsmodels takes seconds
        from flows.released.estimates.covariates import estimate_covariates

        adjusted = estimate_covariates(release, asked.covariates, level, metrics=asked.metrics)
        found, warnings = adjusted.estimates, adjusted.warnings
        about = {"covariates": adjusted.as_json()}
    elif asked.adjust is not None:
        from flows.released.estimates.covariates import estimate_adjusted  # likewise

        published = estimate_adjusted(release, asked.attributes, level, metrics=asked.metrics)
        found, warnings = published.estimates, published.warnings
        about = {"adjust": published.as_json()}
    elif asked.segments is not None:
        from flows.released.estimates.segments import estimate_segments

        by_segment = estimate_segments(release, asked.segments, level, metrics=asked.metrics)
        found, warnings = by_segment.estimates, by_segment.warnings
        about = {"segments": by_segment.as_json()}
    else:
        from flows.released.estimates.release import estimate_release

        whole = estimate_release(release, level, asked.metrics)
        found, warnings, decisions = whole.estimates, whole.warnings, whole.decisions
    # not asdict: it copies, for minutes where there are many
    document = about | together.as_json()
    document |= {"warnings": list(warnings), "estimates": [vars(one) for one in found]}
    if decisions is not None:
        document |= decisions.as_json()
    shown = partial(decided_text, found, decisions, together.errors)
    return Answer(shown, document, warnings)


class _Together:
    """Which units of a release were assigned together; read once its estimates are."""

    def __init__(self, release: Path) -> None:
        self._release = release

    @cached_property
    def _found(self) -> tuple["Manifest", dict[str, int] | None]:
        from flows.released.file.checks.stated import count_assigned
        from flows.released.file.opening import open_safely
        from flows.released.file.read import read_manifest

        with open_safely(self._release) as connection:
            manifest = read_manifest(connection)
            return manifest, count_assigned(connection, manifest)

    @property
    def errors(self) -> dict[str, str]:
        """What errors follow, in words."""
        from flows.cli.show.estimates import of_errors

        return of_errors(*self._found)

    def as_json(self) -> dict[str, int | None]:
        """How many groups there are."""
        from flows.released.file.checks.stated import n_assigned

        return {"n_assigned": n_assigned(self._found[1])}


def inspect(
    release: ReleaseOrFolder,
    sql: Annotated[
        bool,
        typer.Option(
            "--sql",
            help="Of a folder: print SQL for your own DuckDB that attaches all releases, and puts "
            "their units and estimates together.",
        ),
    ] = False,
    columns: Annotated[
        bool,
        typer.Option("--columns", help="Of a release: say what every table and column is, too."),
    ] = False,
) -> Answer:
    """Show what a release, or a folder of them, has and promises.

    A release that states other estimates than its units give is an error. Reads RELEASE, or the
    releases in FOLDER, alone; writes nothing.
    """
    if release.is_dir():
        if columns:
            raise ConfigError("--columns", "is for a release; name its file in the folder")
        from flows.cli.show.series import nights_text
        from flows.operate.series.nights import find_nights
        from flows.operate.series.queries import nights_json, series_sql

        nights = find_nights([release])
        statements = series_sql(nights)
        document = nights_json(nights) | {"sql": statements}
        shown = (lambda: statements) if sql else partial(nights_text, nights)
        return Answer(shown, document, notes=nights.notes)
    if sql:
        raise ConfigError("--sql", "is for a folder of releases; for one, see docs/analyst.md")
    from estimators.ends import ends_warnings
    from flows.cli.show.inspected import columns_text, inspect_text
    from flows.released.estimates.stated import check_stated_estimates
    from flows.released.file.read import read_release

    file = read_release(release)
    check_stated_estimates(release)
    warnings = ends_warnings(file.ends)
    shown = partial(columns_text if columns else inspect_text, file)
    return of_withdrawn(Answer(shown, file.as_json(), warnings), release)


def report(
    releases: ReportedFiles,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.html | FOLDER",
            help="The page to write or replace; of several releases, the folder for their pages.",
        ),
    ],
    people: People = None,
    looks: Looks = None,
) -> Answer:
    """Write web pages with plots, of releases or an effect model.

    Of several releases of one experiment, or the folder they are in, it writes a page of all of
    them together and one of each; of a folder of experiments' folders, an index too. Reads RELEASE
    alone. A browser shows the pages without a network.
    """
    from flows.operate.series.nights import are_several

    if are_several(releases):
        from estimators.operate.series import LOOKS
        from flows.operate.series.estimates import people_of
        from flows.operate.series.report import write_series_report

        told = people_of("--people", people)
        asked = LOOKS if looks is None else looks
        path, warnings = write_series_report(releases, output, told=told, looks=asked)
        return Answer(lambda: str(path), {"path": str(path)}, warnings)
    _refuse_for_one(people, looks)
    from flows.released.report import write_report

    path = write_report(releases[0], output)
    return of_withdrawn(Answer(lambda: str(path), {"path": str(path)}), releases[0])


def export(
    release: ReleaseFile,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write, CSV or Parquet by its name."
        ),
    ],
    table: Annotated[
        str,
        typer.Option(metavar="units | estimates | counts | debias", help="The table to write."),
    ] = "units",
    keep_formulas: Annotated[
        bool,
        typer.Option(
            "--keep-formulas",
            help="Write a CSV file even if text in it begins as a formula of a spreadsheet does.",
        ),
    ] = False,
) -> Answer:
    """Write a table of a release to a CSV or Parquet file.

    For programs that do not read DuckDB files. Reads RELEASE alone. Writes a new file, whole or not
    at all, with the rows of the table as they are.
    """
    from flows.released.export import export as write_table

    result = write_table(release, output, table, keep_formulas=keep_formulas)
    text = f"{result.path}: {result.n_rows:,} rows of {result.table}"
    return of_withdrawn(Answer(lambda: text, result.as_json()), release)


def _refuse_for_one(people: str | None, looks: int | None) -> None:
    for name, given in (("--people", people), ("--looks", looks)):
        if given is not None:
            raise ConfigError(name, "is for several releases, or a folder of them")
