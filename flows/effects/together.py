"""What a server makes of all sites' reports: aggregates of their effects, or one effect model."""

from pathlib import Path

from flows.effects.released.aggregate import aggregate_reports
from flows.effects.released.model_file import ModelFile
from flows.effects.released.site_aggregates import Combined
from flows.effects.released.sites_model import aggregate_models
from flows.orchestration.step import step
from schemas.errors import ConfigError


def aggregate(
    report_paths: list[str],
    plot: str | None = None,
    cate: bool = False,
    output: str | None = None,
    sites: str | None = None,
) -> Combined | ModelFile:
    """Combine the reports of several sites; reads nothing else. Arguments: see the flow's."""
    if not cate:
        if output is not None:
            raise ConfigError("--output", "belongs to --cate, which writes an effect model")
        return step(aggregate_reports)(report_paths, plot, sites)
    if plot is not None:
        raise ConfigError("--plot", "draws aggregates, not a model: `clusterdp report` does that")
    if sites is not None:
        raise ConfigError("--sites", "chooses among aggregates; a model has each site's effect")
    if output is None or Path(output).suffix.lower() != ".json":
        raise ConfigError("--output", "with --cate, name the effect model's file, ending in .json")
    return step(aggregate_models)(list(map(Path, report_paths)), Path(output))
