"""The flows: what Prefect runs, by schedule or by hand, declared here and nowhere else.

| flow | does | its tasks |
|---|---|---|
| ``clusterdp-nightly`` | all that is due of an experiment | a run of ``clusterdp-release`` a period |
| ``clusterdp-release`` | releases one period | ``ingest``, ``validate``, ``fingerprint``, ``digest_units``, ``set_known_aside``, ``write_quarantine``, ``privatize``, ``publish``, ``estimate``, ``renew_series`` |
| ``clusterdp-estimate`` | effects of a release, or of a folder | ``estimate_night``, one a release |
| ``clusterdp-cate`` | an effect model | ``ingest_effects``, ``arrange``, ``effect_fingerprint``, ``write_quarantine``, ``try_draft``, ``draw``, ``fit_learner``, ``write_model`` |
| ``clusterdp-site`` | a site's report | ``ingest_site``, ``validate``, ``unmatched``, ``site_fingerprint``, ``write_quarantine``, ``try_draft``, ``site_report``, ``write_report`` |
| ``clusterdp-aggregate`` | all sites together | ``aggregate_reports``, or ``aggregate_models`` |

A run ends as ``Completed``, or in a state of type Failed with a name: ``Refused`` (over budget),
``Conflict`` (with what was published), ``BadInput`` (configuration or log), ``Failed`` (nobody
foresaw it); its message says what to do. What is called here is the plain page of the same name,
which runs without Prefect just as well; its steps are tasks because a flow is running
(:mod:`flows.orchestration.step` says what is kept of them, and why mostly nothing).
"""  # noqa: E501 - a table

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from prefect import Flow, flow
from prefect.runtime import flow_run

from flows.config.load import load
from flows.effects import together
from flows.effects.cate import CateResult, fit_period
from flows.effects.multisite import SiteResult, report_period
from flows.effects.released.model_file import ModelFile
from flows.effects.released.site_aggregates import Combined
from flows.operate.due import DueResult, release_due
from flows.operate.series.estimates import estimate_folder
from flows.operate.serve import follow_parent
from flows.orchestration.artifacts import show_effects
from flows.orchestration.parameters import ConfigPath, Period, TimeZone
from flows.orchestration.states import ends_in_state
from flows.release import ReleaseResult, release_period
from flows.runtime import clock
from schemas.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


def declared(name: str) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """Make a function the flow ``clusterdp-NAME``: nothing of it is kept, or tried again."""

    def as_flow(function: Callable[P, R]) -> Flow[P, R]:
        kept = flow(name=f"clusterdp-{name}", persist_result=False, retries=0, log_prints=False)
        return kept(ends_in_state(function))

    return as_flow


@declared("release")
def release(
    config_path: ConfigPath,
    period: Period | None = None,
    revise: bool = False,
    schedule_timezone: TimeZone | None = None,
) -> ReleaseResult:
    """Release one period of an experiment.

    Args:
        config_path: The configuration file; of a deployment an absolute path, on the machine of the
            worker.
        period: The period to release; where the log's path needs none it may be left out.
        revise: Draw a published period anew, as its next revision.
        schedule_timezone: Set by schedules; without a period, releases the day before the run's
            scheduled time in this time zone (such as ``Europe/Zurich``).
    """
    if period is None and schedule_timezone is not None:
        period = day_before(schedule_timezone)
    result = release_period(config_path, period, revise)
    show_effects(result.manifest.experiment, result.release_id, result.estimates)
    return result


@declared("nightly")
def nightly(
    config_path: ConfigPath, schedule_timezone: TimeZone | None = None
) -> DueResult | ReleaseResult:
    """Do what is to be done every night for one experiment.

    With ``[schedule]`` in the configuration: release every period that is due and not published,
    the oldest first. Without: release the day before. Each release is a run of the flow
    ``clusterdp-release``.

    Args:
        config_path: The configuration file; of a deployment an absolute path, on the machine of the
            worker.
        schedule_timezone: Of a configuration without a schedule: the time zone (such as
            ``Europe/Zurich``) of the day before the run's scheduled time, which is released.
    """
    if load(Path(config_path)).schedule is None:
        day = None if schedule_timezone is None else day_before(schedule_timezone)
        return release(config_path, day)
    result = release_due(config_path, release)
    if (failure := result.failure) is not None:
        raise failure
    return result


@declared("estimate")
def estimate(
    path: str,
    by: str | None = None,
    adjust: list[str] | None = None,
    segments: str | None = None,
    covariates: str | None = None,
    level: float = 0.95,
    output: str | None = None,
) -> dict[str, Any]:
    """Estimate effects from released files alone: each release's, and of all together.

    The document that it returns is that of ``clusterdp estimate --json`` for several releases.

    Args:
        path: A release, or the folder that an experiment's releases are in.
        by: A published attribute to estimate by.
        adjust: Published attributes to adjust for.
        segments: A table of yours, ``unit_id`` and ``segment``, to estimate by.
        covariates: A table of yours with ``unit_id``, to adjust for.
        level: The confidence level.
        output: A JSON file to write the document to, or replace.
    """
    tables = {"segments": segments, "covariates": covariates}
    asked = {"by": by, "adjust": tuple(adjust or ()), **tables}
    effects = estimate_folder(Path(path), asked, level, None if output is None else Path(output))
    experiment = effects.nights.first.manifest.experiment
    show_effects(experiment, f"{len(effects.periods):,} releases", effects.pooled)
    return effects.as_json()


@declared("cate")
def cate(config_path: ConfigPath, period: Period | None = None, revise: bool = False) -> CateResult:
    """Make the effect model of one period of an experiment.

    Args:
        config_path: The model's configuration file; of a deployment an absolute path.
        period: The period to make it of; where the log's path needs none it may be left out.
        revise: Draw a published model anew, as its next revision.
    """
    return fit_period(config_path, period, revise)


@declared("site")
def site(config_path: ConfigPath, period: Period | None = None, revise: bool = False) -> SiteResult:
    """Make one site's report on one period of an experiment.

    Args:
        config_path: The site's configuration file; of a deployment an absolute path.
        period: The period to report on; where the log's path needs none it may be left out.
        revise: Draw a published report anew, as its next revision.
    """
    return report_period(config_path, period, revise)


@declared("aggregate")
def aggregate(
    report_paths: list[str],
    plot: str | None = None,
    cate: bool = False,
    output: str | None = None,
    sites: str | None = None,
) -> Combined | ModelFile:
    """Combine the reports of several sites; reads nothing else.

    Args:
        report_paths: The sites' reports, one of each site.
        plot: Where to draw them, a name that ends in .svg; None for no plot.
        cate: Make one effect model of all sites, whose configurations have ``[moments]``.
        output: The file of the effect model, a new one that ends in .json.
        sites: How people came to them: "places", "dealt", or None where it is not declared.
    """
    return together.aggregate(report_paths, plot, cate, output, sites)


# what `clusterdp serve` runs: each flow goes to the process that runs it as an object, with what it
# may be asked for inside; no entry point, storage or step of a deployment has a part in it


def served_release(configs: Sequence[str]) -> Flow[..., ReleaseResult | DueResult]:
    """The release flow, for these configurations alone."""
    served = frozenset(configs)

    @declared("release")
    def serve_release(
        config_path: str,
        period: str | None = None,
        revise: bool = False,
        schedule_timezone: str | None = None,
    ) -> ReleaseResult | DueResult:
        """Release one period of an experiment that is served, or every one that is due."""
        from flows.deployed import nightly, release  # noqa: PLC0415 - by name, in another process

        follow_parent()
        if config_path not in served:
            raise ConfigError("config_path", "this configuration is not served here")
        if period is None and not revise and load(Path(config_path)).schedule is not None:
            return nightly.fn(config_path)
        return release.fn(config_path, period, revise, schedule_timezone)

    return serve_release


def served_estimate(outputs: Mapping[str, str]) -> Flow[..., dict[str, Any]]:
    """The flow of estimates, from these folders alone, each with the file its document goes to."""
    served = dict(outputs)

    @declared("estimate")
    def serve_estimate(path: str) -> dict[str, Any]:
        """Estimate effects from the releases of an experiment that is served."""
        from flows.deployed import estimate  # noqa: PLC0415 - likewise

        follow_parent()
        if path not in served:
            raise ConfigError("path", "this folder is not served here")
        return estimate.fn(path, output=served[path])

    return serve_estimate


def day_before(timezone: str) -> str:
    """The day before the scheduled time of the flow run, in the schedule's time zone.

    A run without a schedule goes by the clock. Raises ConfigError for what is no time zone.
    """
    scheduled = flow_run.scheduled_start_time or clock.now()
    return (scheduled.astimezone(_zone(timezone)).date() - timedelta(days=1)).isoformat()


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # whatever a schedule or a caller gave
        problem = f"{name!r} is not a time zone such as Europe/Zurich"
    raise ConfigError("schedule_timezone", problem)
