"""The configuration of made-up runs: the one under audit, with a log, a ledger and keys of nobody.

What protects outcomes stays as it is. Where they come from, who is told, and what people may pay in
all are another's.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.config.model.experiment import AnyDesign, Config
from flows.config.model.notify import NotifySection
from flows.config.model.sections import (
    Columns,
    LedgerSection,
    Publish,
    Quarantine,
    Run,
    SourceSection,
)
from flows.lab.raw.made_up_log import ARM, CLUSTER, GROUP, PAYER, UNIT, outcome_column
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from privatizers.planning.aggregate_design import AggregateDesign

_METRICS = "metrics"
_KEYS = ("unit-ids.key", "account.key")


def made_up(
    config: Config,
    designs: Sequence[AnyDesign],
    folder: Path,
    *,
    workers: int | None = None,
    hashed: bool = False,
) -> Config:
    """The configuration of runs in ``folder``; ``designs`` are those that were resolved for it."""
    (folder / _METRICS).mkdir(parents=True)
    for name in _KEYS:
        path = folder / name
        path.write_bytes(b"a key of an audit, of nobody's.".ljust(32))
        path.chmod(0o600)
    ids: dict[str, Any] = {"unit_id": "keyed-hash", "key_file": _KEYS[0]} if hashed else {}
    return config.model_copy(
        update={
            "directory": folder,
            "source": SourceSection(path="{period}.parquet", ids=config.source.ids),
            "columns": _columns(config),
            "arms": config.arms.model_copy(update={"sample_ratio": "warn"}),
            **_outcomes(config),
            "privacy": _privacy(config, designs),
            "private_clusters": _private_clusters(config),
            "schedule": None,
            "publish": Publish(**ids),
            "ledger": LedgerSection(),
            "quarantine": Quarantine(),
            "run": Run(memory_limit="1GB", metrics_directory=_METRICS, workers=workers),
            "notify": NotifySection(set_aside_above=0.0),
            "retention": None,
        }
    )


def _columns(config: Config) -> Columns:
    columns = config.columns
    return columns.model_copy(
        update={
            "unit": UNIT,
            "arm": ARM,
            "outcome": "" if config.named_outcomes else outcome_column(0),
            "cluster": CLUSTER if columns.clusters or config.private_clusters else None,
            "time": None,
            "event": None,
            "outcome_time": None,
            "outcome_unit": None,
            "assigned_by": None if columns.assigned_by is None else GROUP,
            "privacy_unit": None if columns.privacy_unit is None else PAYER,
        }
    )


def _outcomes(config: Config) -> dict[str, Any]:
    plain: dict[str, Any] = {"aggregate": None, "cap": None, "decimal": None}
    if not config.named_outcomes:
        return {"outcome": config.outcome.model_copy(update=plain)}
    several = (
        one.model_copy(update={**plain, "column": outcome_column(position)})
        for position, one in enumerate(config.named_outcomes)
    )
    return {"named_outcomes": tuple(several)}


def _privacy(config: Config, designs: Sequence[AnyDesign]) -> Any:
    """The section without a budget, and with what a plan has chosen, where it was the same for all.

    A plan for made-up people might choose otherwise.
    """
    chosen: dict[str, Any] = {}
    if config.is_planned and not isinstance(designs[0], AggregateDesign):
        parameters = [one.mechanism.parameters for one in designs]
        chosen["mechanism"] = designs[0].mechanism.name
        together = isinstance(designs[0].mechanism, PairedOptimalDP)
        chosen["joint"] = "yes" if together else "no"
        statistics = {_as_asked(one.strata_statistic) for one in parameters}
        learnt = {one.learnt_from for one in parameters}
        if len(statistics) == 1:
            chosen["strata_statistic"] = statistics.pop()
        if len(learnt) == 1 and learnt != {None} and not together:
            chosen["learn_from"] = learnt.pop()
    nobody: dict[str, Any] = {"population": None, "budget_epsilon": None, "budget_delta": None}
    return config.privacy.model_copy(update=nobody | chosen)


def _as_asked(statistic: str) -> str:
    return "counts" if statistic == "count-and-complement" else statistic


def _private_clusters(config: Config) -> Any:
    """Private clusters by their names alone: which centre is nearest is no matter of privacy."""
    private = config.private_clusters
    if private is None:
        return None
    by_name = {"labels": private.names, "centres": None, "features": None}
    return private.model_copy(update=by_name)
