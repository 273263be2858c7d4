"""What is in a released file and what it promises, on one screen; and what its columns are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.cli.show.estimates import of_errors
from flows.cli.show.results import meaning
from flows.runtime.pasted import pasted
from flows.runtime.terminal import pairs, paragraph, table
from schemas.released import Manifest, Metric, Ratio
from schemas.visible import visible

if TYPE_CHECKING:
    from estimators.ends import End, EndName
    from flows.released.file.read import ReleaseFile

_HEAD = ("metric", "values", "epsilon", "redrawn", "of strata", "noise")
_ENDS: dict[EndName, str] = {
    "lowest": "at lowest",
    "highest": "at highest",
    "missing": "as missing",
}


def inspect_text(file: ReleaseFile) -> str:
    """What is in a release and what it promises."""
    manifest = file.manifest
    declared = [(one.metric, _declared(one)) for one in manifest.metrics]
    return "\n".join(
        [
            visible(str(file.path)),
            "",
            *promise_lines(manifest),
            "",
            *pairs([*_facts(file).items(), *(one for one in declared if one[1])]),
            "",
            *_metrics_lines(manifest.metrics, file.ends),
            "",
            "What each table and column is (and with --json every number):",
            f"  {pasted('inspect', file.path)} --columns",
        ]
    )


def columns_text(file: ReleaseFile) -> str:
    """The same, and what every table and column is."""
    lines = inspect_text(file).split("\n")[:-3]
    for name, one in file.tables.items():
        columns = {column: fact.comment for column, fact in one.columns.items()}
        lines += ["", *paragraph(f"{name}: {one.comment}"), *pairs(columns)]
    return "\n".join(lines)


def _facts(file: ReleaseFile) -> dict[str, str]:
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
    return table((*_HEAD, *(_ENDS[name] for name in names)), rows)


def _randomised(one: Metric | Ratio) -> tuple[str, ...]:
    if isinstance(one, Ratio):
        return (one.metric, f"{one.numerator} / {one.denominator}", *[_NONE] * 4)
    return (
        one.metric,
        f"{one.n_outcomes:,}",
        f"{one.epsilon:.4g}",
        _number(one.resampling_probability),
        one.strata_statistic,
        _number(one.noise_scale),
    )


_NONE = "–"


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.3g}"


def _share(end: End | None) -> str:
    return _NONE if end is None else f"{100 * end.share:.3g} ± {100 * end.std_error:.2g} %"


def _declared(one: Metric | Ratio) -> str:
    """What was declared of a metric, for people."""
    texts = one.texts if isinstance(one, Metric) else None
    margin = None if one.margin is None else f"margin {one.margin:g}"
    said = (one.label, one.measured_in, texts, one.role, margin, one.direction)
    return "; ".join(word for word in said if word)


def promise_lines(manifest: Manifest) -> list[str]:
    """The guarantee in words."""
    extra = "" if manifest.delta == 0 else f", and by a further {manifest.delta:g}"
    said = meaning(manifest.epsilon, private_clusters=manifest.has_private_clusters)
    own = f"({manifest.epsilon:g}, {manifest.delta:g})-differentially private for one unit's"
    if manifest.household_epsilon is not None:
        extra += (
            f". Whoever pays (a household, say) has up to {manifest.rows_each} rows here: for all "
            f"of their outcomes together, epsilon is {manifest.household_epsilon:g}"
        )
    if manifest.cluster_epsilon is not None:
        public = "Unit ids, arms" if manifest.has_units else "Arms"
        return [
            *paragraph(
                f"Everything in this file together is {own} outcome and cluster: {said}{extra}."
            ),
            *paragraph(
                "Clusters, and all that is made of them, are randomised ones (epsilon "
                f"{manifest.cluster_epsilon:g} of the whole)."
            ),
            *paragraph(
                f"{public} and numbers of units in each arm are not protected and stand as they "
                "are."
            ),
        ]
    public = "Unit ids, clusters, arms" if manifest.has_units else "Clusters, arms"
    if manifest.attributes:
        public += f", attributes ({', '.join(manifest.attributes)})"
    given = (
        "Arms were not given unit by unit, but to groups of units, households say; assigned_to is "
        "a digest of the group."
    )
    return [
        *paragraph(f"Everything in this file together is {own} outcome: {said}{extra}."),
        *paragraph(f"{public} and numbers of units are not protected and stand as they are."),
        *(paragraph(given) if manifest.assigned else []),
    ]
