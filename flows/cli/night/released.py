"""Commands on released files alone: ``estimate``, ``report``, ``inspect`` and ``export``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flows.cli.answer import Answer
from flows.cli.options import ReleaseFile, ReleaseFiles, TableOrNone, files
from flows.cli.show.estimates import by_text, cell_number, decided_text, of_errors
from flows.cli.show.words import meaning
from flows.released.lists import named
from flows.released.located import located
from flows.runtime.pasted import pasted
from flows.runtime.terminal import pairs, paragraph, table
from schemas.errors import ConfigError, InputError
from schemas.released import Manifest, Metric, Ratio
from schemas.visible import visible

if TYPE_CHECKING:
    from estimators.ends import End, EndName
    from flows.operate.series.estimates import Split
    from flows.released.file.read import ReleaseFile as File

_ENDS: dict[EndName, str] = {
    "lowest": "at lowest",
    "highest": "at highest",
    "missing": "as missing",
}


def estimate(  # noqa: PLR0913, PLR0917 - an option each
    releases: ReleaseFiles,
    segments: TableOrNone = None,
    covariates: TableOrNone = None,
    by: str | None = None,
    adjust: str | None = None,
    level: float = 0.95,
    people: str | None = None,
    looks: int | None = None,
    metric: list[str] | None = None,
) -> Answer:
    """Estimate the effect of each arm, from released files alone.

    Effects are against control, with intervals. Several releases of one experiment (or the folder
    they are in) give the effect of each period and of all together. Reads RELEASE, and a table of
    yours if you give one. It needs no log and costs no privacy. Writes nothing.

    Options:
        segments (FILE): Estimate by segment: a CSV or Parquet file of yours with the columns
            unit_id and segment.
        covariates (FILE): Adjust for covariates: a CSV or Parquet file of yours with unit_id and
            other columns (numbers, text or booleans) known before the experiment.
        by (ATTRIBUTE): Estimate by a published attribute: an effect for each of its values, as it
            is and shrunken.
        adjust (ATTRIBUTE,…): Adjust for published attributes instead of a FILE of yours.
        metric (NAME): An outcome of the release to show alone; may be repeated. All,
            unless you say.
    """
    if not 0 < level < 1:
        raise ConfigError("--level", f"{level!r} is not strictly between 0 and 1")
    names = None if adjust is None else tuple(one.strip() for one in adjust.split(","))
    things = {"segments": segments, "covariates": covariates, "by": by, "adjust": names}
    given = {name: thing for name, thing in things.items() if thing is not None}
    if len(given) > 1:
        first, second = list(given)[:2]
        raise ConfigError(f"--{second}", f"cannot go with --{first}; ask for one of them")
    from flows.operate.series.nights import are_several

    if not are_several(releases):
        refuse_for_one(people, looks)
    metrics = metric or ()
    split: Split | None = None
    for kind, thing in given.items():  # one at most
        from flows.operate.series.estimates import split_of

        split = split_of(kind, thing)
    try:
        if are_several(releases):
            return _estimate_series(releases, split, level, metrics, people, looks)
        return _estimate_one(releases[0], split, level, metrics).about(releases[0])
    except ConfigError as error:
        if error.key not in ("by", "adjust", "metric"):
            raise
        failure = ConfigError(f"--{error.key}", error.problem)
    raise failure


def refuse_for_one(people: str | None, looks: int | None) -> None:
    """Raise ConfigError where something was asked of one release that several alone have."""
    for name, given in (("--people", people), ("--looks", looks)):
        if given is not None:
            raise ConfigError(name, "is for several releases, or a folder of them")


def _estimate_series(
    releases: list[Path],
    split: Split | None,
    level: float,
    metrics: Sequence[str],
    people: str | None,
    looks: int | None,
) -> Answer:
    from flows.cli.show.series import series_text
    from flows.operate.series import estimates as series

    told = series.people_of("--people", people)
    found = series.estimate_series(
        releases, level, table=split, told=told, looks=looks, metrics=metrics
    )
    return Answer(partial(series_text, found), found.as_json(), found.warnings, found.notes)


def _estimate_one(
    release: Path, split: Split | None, level: float, metrics: Sequence[str]
) -> Answer:
    from flows.released.file.checks.stated import n_assigned, read_assigned

    found: Any
    if split is None:
        from flows.released.estimates.release import estimate_release

        found = estimate_release(release, level, metrics)
    else:  # takes longer to load
        from flows.operate.series.estimates import estimate_one

        found = estimate_one(release, level, split, metrics)
    decisions = None if split else found.decisions
    manifest = _manifest_of(release) if split else found.every[0].manifest
    assigned = read_assigned(release, manifest)
    document: dict[str, Any] = {split.kind: found.as_json()} if split else {}
    # not asdict: it copies, for minutes where there are many
    estimates = [vars(one) for one in found.estimates]
    document |= {
        "n_assigned": n_assigned(assigned),
        "warnings": list(found.warnings),
        "estimates": estimates,
    }
    if decisions is not None:
        document |= decisions.as_json()
    errors = of_errors(manifest, assigned)
    text = partial(decided_text, found.estimates, decisions, errors)
    if split is not None and split.kind == "by":
        text = partial(by_text, found.attribute, found.estimates, errors=errors)
    return Answer(text, document, found.warnings)


def _manifest_of(release: Path) -> Manifest:
    from flows.released.file.opening import open_safely
    from flows.released.file.read import read_manifest

    with open_safely(release) as connection:
        return read_manifest(connection)


def report(
    releases: Annotated[list[Path], files(".duckdb", ".json"), located],
    output: Path,
    people: str | None = None,
    looks: int | None = None,
    explorer: bool = False,
    engine: Path | None = None,
) -> Answer:
    """Write web pages with plots, of releases or an effect model.

    Of several releases of one experiment, or the folder they are in, it writes a page of all of
    them together and one of each; of a folder of experiments' folders, an index too. Reads RELEASE
    alone. A browser shows the pages without a network.

    Options:
        releases (RELEASE… | FOLDER | MODEL.json): A released DuckDB file; or several of one
            experiment, or the folder they are in; or an effect model.
        output (--output -o FILE.html | FOLDER): The page to write or replace; of several releases,
            the folder for their pages.
        explorer: Of one release: put it and an engine (DuckDB, 11 MB) into the page, which then
            answers segments of your own and SQL, without a network.
        engine (FILE): An explorer with this engine, where none is installed: `make explorer`
            makes it.
    """
    from flows.operate.series.nights import are_several

    if are_several(releases):
        from flows.operate.series.estimates import people_of
        from flows.operate.series.report import write_series_report

        if explorer or engine:
            raise InputError("--explorer: is for one release; name its file")
        told = people_of("--people", people)
        path, warnings = write_series_report(releases, output, told=told, looks=looks)
        return Answer(lambda: str(path), {"path": str(path)}, warnings)
    refuse_for_one(people, looks)
    from flows.released.report import write_report

    path = write_report(
        releases[0], output, is_explorer=explorer or engine is not None, engine=engine
    )
    return Answer(lambda: str(path), {"path": str(path)}).about(releases[0])


def inspect(release: ReleaseFile, sql: bool = False, columns: bool = False) -> Answer:
    """Show what a release, or a folder of them, has and promises.

    A release that states other estimates than its units give is an error. Reads RELEASE, or the
    releases in FOLDER, alone; writes nothing.

    Options:
        release (RELEASE | FOLDER): A released DuckDB file, or a folder of them.
        sql: Of a folder: print SQL for your own DuckDB that attaches all releases, and puts their
            units and estimates together.
        columns: Of a release: say what every table and column is, too.
    """
    if release.is_dir():
        if columns:
            raise ConfigError("--columns", "is for a release; name its file in the folder")
        from flows.cli.show.series import nights_text
        from flows.operate.series.nights import find_nights

        nights = find_nights([release])
        shown = (lambda: nights.sql) if sql else partial(nights_text, nights)
        return Answer(shown, nights.as_json(), notes=nights.notes)
    if sql:
        raise ConfigError("--sql", "is for a folder of releases; for one, see docs/analyst.md")
    from estimators.ends import ends_warnings
    from flows.released.estimates.stated import read_checked

    file = read_checked(release)
    shown = partial(columns_text if columns else inspect_text, file)
    return Answer(shown, file.as_json(), ends_warnings(file.ends)).about(release)


def inspect_text(file: File) -> str:
    """What is in a release and what it promises."""
    return "\n".join(
        [
            *_lines(file),
            "",
            "What each table and column is (and with --json every number):",
            f"  {pasted('inspect', file.path)} --columns",
        ]
    )


def columns_text(file: File) -> str:
    """The same, and what every table and column is."""
    lines = _lines(file)
    for name, one in file.tables.items():
        comments = {column: fact.comment for column, fact in one.columns.items()}
        lines += ["", *paragraph(f"{name}: {one.comment}"), *pairs(comments)]
    return "\n".join(lines)


def _lines(file: File) -> list[str]:
    manifest = file.manifest
    declared = ((one.metric, _declared(one)) for one in manifest.metrics)
    facts = [*_facts(file).items(), *(one for one in declared if one[1])]
    promise = [line for text in _promise(manifest) for line in paragraph(text)]
    head = [visible(str(file.path)), "", *promise, "", *pairs(facts), ""]
    return [*head, *_metrics_lines(manifest.metrics, file.ends)]


def _facts(file: File) -> dict[str, str]:
    """Numbers of the whole release; what nobody declared or looked for is left out."""
    one = file.manifest
    by = f"clusterdp {one.package_version}, schema {one.schema_version}"
    aside = "" if one.n_set_aside is None else f"; {one.n_set_aside:,} rows were set aside"
    shares = "; same shares in all clusters" if one.same_shares else ""
    sizes = "" if one.sample_ratio_p is None else f"; sizes p = {one.sample_ratio_p:.2g}"
    found = {
        "release": f"{one.release_id}, made {one.created_at} UTC",
        "mechanism": f"{one.mechanism}, by {by}",
        "arms": f"against {one.control}{shares}{sizes}",
        "units": f"{one.n_units:,} in {one.n_clusters:,} clusters{aside}",
    }
    if one.n_returning:
        moved = one.n_arm_changed or 0
        found["released before"] = f"{one.n_returning:,} units, {moved:,} of them in another arm"
    if one.teachers:
        found["guess"] = f"learnt from {named(one.teachers)}"
    if one.budget_epsilon is not None:
        found["limit"] = f"epsilon {one.budget_epsilon:g} over all releases"
    filled = (f"{name} {count:,}" for name, count in file.row_counts.items() if count > 1)
    return {**found, **of_errors(one, file.assigned), "rows": ", ".join(filled)}


def _metrics_lines(metrics: Sequence[Metric | Ratio], ends: Sequence[End]) -> list[str]:
    """A row a metric: how it was randomised, and how many outcomes are at the ends of its grid."""
    at = {(one.metric, one.end): one for one in ends}
    names = [name for name in _ENDS if any((one.metric, name) in at for one in metrics)]
    rows = [
        (*_randomised(one), *(_share(at.get((one.metric, name))) for name in names))
        for one in metrics
    ]
    head = ("metric", "values", "epsilon", "redrawn", "of strata", "noise")
    return table((*head, *(_ENDS[name] for name in names)), rows)


def _randomised(one: Metric | Ratio) -> tuple[str, ...]:
    if isinstance(one, Ratio):
        return (one.metric, f"{one.numerator} / {one.denominator}", *["–"] * 4)
    return (
        one.metric,
        f"{one.n_outcomes:,}",
        f"{one.epsilon:.4g}",
        cell_number(one.resampling_probability, 3),
        one.strata_statistic,
        cell_number(one.noise_scale, 3),
    )


def _share(end: End | None) -> str:
    return "–" if end is None else f"{100 * end.share:.3g} ± {100 * end.std_error:.2g} %"


def _declared(one: Metric | Ratio) -> str:
    texts = one.texts if isinstance(one, Metric) else None
    margin = None if one.margin is None else f"margin {one.margin:g}"
    said = (one.label, one.measured_in, texts, one.role, margin, one.direction)
    return "; ".join(word for word in said if word)


def _promise(manifest: Manifest) -> list[str]:
    """The guarantee in words, a paragraph each."""
    private = manifest.cluster_epsilon is not None
    said = meaning(manifest.epsilon, manifest.delta, private_clusters=private)
    if manifest.household_epsilon is not None:
        said += (
            f". Whoever pays (a household, say) has up to {manifest.rows_each} rows here: for all "
            f"of their outcomes together, epsilon is {manifest.household_epsilon:g}"
        )
    what = "outcome and cluster" if private else "outcome"
    whole = (
        f"Everything in this file together is ({manifest.epsilon:g}, {manifest.delta:g})-"
        f"differentially private for one unit's {what}: {said}."
    )
    arms = "arms" if private else "clusters, arms"
    named = f"Unit ids, {arms}" if manifest.has_units else arms.capitalize()
    if private:
        return [
            whole,
            "Clusters, and all that is made of them, are randomised ones (epsilon "
            f"{manifest.cluster_epsilon:g} of the whole).",
            f"{named} and numbers of units in each arm are not protected and stand as they are.",
        ]
    if manifest.attributes:
        named += f", attributes ({', '.join(manifest.attributes)})"
    given = (
        "Arms were not given unit by unit, but to groups of units, households say; assigned_to is "
        "a digest of the group."
    )
    stand = f"{named} and numbers of units are not protected and stand as they are."
    return [whole, stand, *([given] if manifest.assigned else [])]


def export(
    release: ReleaseFile, output: Path, table: str = "units", keep_formulas: bool = False
) -> Answer:
    """Write a table of a release to a CSV or Parquet file.

    For programs that do not read DuckDB files. Reads RELEASE alone. Writes a new file, whole or not
    at all, with the rows of the table as they are.

    Options:
        output (--output -o FILE): The file to write, CSV or Parquet by its name.
        table (units | estimates | counts | debias): The table to write.
        keep_formulas: Write a CSV file even if text in it begins as a formula of a spreadsheet
            does.
    """
    from flows.released.export import export as write_table

    result = write_table(release, output, table, keep_formulas=keep_formulas)
    text = f"{result.path}: {result.n_rows:,} rows of {result.table}"
    return Answer(lambda: text, result.as_json()).about(release)
