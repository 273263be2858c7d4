"""``clusterdp inspect``: what is in a released file and what it promises, or a folder of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ReleaseFile
from flows.cli.show.estimates import cell_number, of_errors
from flows.cli.show.words import meaning
from flows.runtime.pasted import pasted
from flows.runtime.terminal import pairs, paragraph, table
from schemas.errors import ConfigError
from schemas.released import Manifest, Metric, Ratio
from schemas.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.ends import End, EndName
    from flows.released.file.read import ReleaseFile as File

_ENDS: dict[EndName, str] = {
    "lowest": "at lowest",
    "highest": "at highest",
    "missing": "as missing",
}


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
        from flows.operate.series.queries import nights_json, series_sql

        nights = find_nights([release])
        statements = series_sql(nights)
        document = nights_json(nights) | {"sql": statements}
        shown = (lambda: statements) if sql else partial(nights_text, nights)
        return Answer(shown, document, notes=nights.notes)
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
