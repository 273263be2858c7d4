"""``clusterdp estimate``: of one release, or of several together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.answer import Answer
from flows.cli.options import ReleaseFiles, TableOrNone
from flows.cli.show.estimates import by_text, decided_text, of_errors
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from flows.operate.series.estimates import Split
    from schemas.released import Manifest


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
    kind, thing = next(iter(given.items()), ("", None))
    metrics = metric or ()
    from flows.operate.series.nights import are_several

    try:
        if are_several(releases):
            return _estimate_series(releases, kind, thing, level, metrics, people, looks)
        refuse_for_one(people, looks)
        return _estimate_one(releases[0], kind, thing, level, metrics).about(releases[0])
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


def looks_of(asked: int | None) -> int:
    """The look that intervals for every look are made for."""
    from estimators.operate.series import LOOKS

    return LOOKS if asked is None else asked


def _estimate_series(
    releases: list[Path],
    kind: str,
    thing: Any,
    level: float,
    metrics: Sequence[str],
    people: str | None,
    looks: int | None,
) -> Answer:
    from flows.cli.show.series import series_text
    from flows.operate.series import estimates as series

    splits: dict[str, Callable[[Any], Split]] = {
        "segments": series.segments_table,
        "covariates": series.covariates_table,
        "by": series.ByAttribute,
        "adjust": series.ForAttributes,
    }
    table = splits[kind](thing) if kind else None
    told = series.people_of("--people", people)
    found = series.estimate_series(
        releases, level, table=table, told=told, looks=looks_of(looks), metrics=metrics
    )
    return Answer(partial(series_text, found), found.as_json(), found.warnings, found.notes)


def _estimate_one(
    release: Path, kind: str, thing: Any, level: float, metrics: Sequence[str]
) -> Answer:
    """What a release tells; the others of these modules take seconds, and are not loaded."""
    from flows.released.file.checks.stated import n_assigned, read_assigned

    estimated: Callable[..., Any]
    if kind == "by":
        from flows.released.estimates.by_attribute import estimate_by as estimated
    elif kind == "covariates":
        from flows.released.estimates.covariates import estimate_covariates as estimated
    elif kind == "adjust":
        from flows.released.estimates.covariates import estimate_adjusted as estimated
    elif kind == "segments":
        from flows.released.estimates.segments import estimate_segments as estimated
    else:
        from flows.released.estimates.release import estimate_release

        def estimated(path: Path, _: None, level: float, *, metrics: Sequence[str]) -> Any:
            return estimate_release(path, level, metrics)

    found = estimated(release, thing, level, metrics=metrics)
    decisions = None if kind else found.decisions
    manifest = _manifest_of(release) if kind else found.every[0].manifest
    assigned = read_assigned(release, manifest)
    document: dict[str, Any] = {kind: found.as_json()} if kind else {}
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
    if kind == "by":
        text = partial(by_text, thing, found.estimates, errors=errors)
    return Answer(text, document, found.warnings)


def _manifest_of(release: Path) -> Manifest:
    from flows.released.file.opening import open_safely
    from flows.released.file.read import read_manifest

    with open_safely(release) as connection:
        return read_manifest(connection)
