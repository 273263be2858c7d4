"""The configuration of made-up runs: the one under audit, with a log, a ledger and keys of nobody.

What protects outcomes stays as it is. Where they come from, who is told, and what people may pay in
all are another's.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.config.model.experiment import AnyDesign, Config
from flows.config.model.notify import NotifySection
from flows.config.model.sections import LedgerSection, Publish, Quarantine, Run, SourceSection
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
    columns, private = config.columns, config.private_clusters
    has_clusters = bool(columns.clusters or private)
    named_columns = {
        "unit": UNIT,
        "arm": ARM,
        "outcome": "" if config.named_outcomes else outcome_column(0),
        "cluster": CLUSTER if has_clusters else None,
        "assigned_by": None if columns.assigned_by is None else GROUP,
        "privacy_unit": None if columns.privacy_unit is None else PAYER,
    }
    nothing = dict.fromkeys(("time", "event", "outcome_time", "outcome_unit"))
    if private is not None:  # by their names alone: no price hangs on which centre is nearest
        by_name = {"labels": private.names, "centres": None, "features": None}
        private = private.model_copy(update=by_name)
    return config.model_copy(
        update={
            "directory": folder,
            "source": SourceSection(path="{period}.parquet", ids=config.source.ids),
            "columns": columns.model_copy(update=named_columns | nothing),
            "arms": config.arms.model_copy(update={"sample_ratio": "warn"}),
            **_outcomes(config),
            "privacy": config.privacy.model_copy(update=_privacy(config, designs)),
            "private_clusters": private,
            "schedule": None,
            "publish": Publish(**ids),
            "ledger": LedgerSection(),
            "quarantine": Quarantine(),
            "run": Run(memory_limit="1GB", metrics_directory=_METRICS, workers=workers),
            "notify": NotifySection(set_aside_above=0.0),
            "retention": None,
        }
    )


def _outcomes(config: Config) -> dict[str, Any]:
    plain = dict.fromkeys(("aggregate", "cap", "decimal"))
    if not config.named_outcomes:
        return {"outcome": config.outcome.model_copy(update=plain)}
    several = (
        one.model_copy(update={**plain, "column": outcome_column(position)})
        for position, one in enumerate(config.named_outcomes)
    )
    return {"named_outcomes": tuple(several)}


def _privacy(config: Config, designs: Sequence[AnyDesign]) -> dict[str, Any]:
    """No budget, and what a plan has chosen, where it was the same for all outcomes.

    A plan for made-up people might choose otherwise.
    """
    nobody = dict.fromkeys(("population", "budget_epsilon", "budget_delta"))
    if not config.is_planned or isinstance(designs[0], AggregateDesign):
        return nobody
    together = isinstance(designs[0].mechanism, PairedOptimalDP)
    chosen: dict[str, Any] = {
        "mechanism": designs[0].mechanism.name,
        "joint": "yes" if together else "no",
    }
    parameters = [one.mechanism.parameters for one in designs]
    statistics = {one.strata_statistic for one in parameters}
    if statistics <= {"counts", "count-and-complement"}:
        statistics = {"counts"}  # as is asked for
    learnt = {one.learnt_from for one in parameters}
    if len(statistics) == 1:
        chosen["strata_statistic"] = statistics.pop()
    if len(learnt) == 1 and learnt != {None} and not together:
        chosen["learn_from"] = learnt.pop()
    return nobody | chosen
