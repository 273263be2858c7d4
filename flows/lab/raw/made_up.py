"""Made-up runs of an audit: a configuration like the one under audit, and logs of no real people.

What protects outcomes stays as it is. Where they come from, who is told, and what people may pay in
all are another's. Who is where, and which outcome they have, follows from numbers that arithmetic
has mixed: so an audit draws nothing itself, and all its randomness is that of the code under audit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.config.model import sections
from flows.config.model.experiment import Config
from flows.config.model.notify import NotifySection
from flows.config.resolve import ResolvedRelease
from privatizers.planning.aggregate_design import AggregateDesign
from schemas.arrays import Floats, Ints
from schemas.released import ALL

UNIT, ARM, CLUSTER, PAYER, GROUP, OUTCOME = (
    f"made-up {name}" for name in ("unit", "arm", "cluster", "payer", "group", "outcome")
)
"""Columns of a made-up log; behind the last stands the position of the outcome."""
MIXED, OTHER_WAY, LOWEST = "mixed", "mixed the other way round", "all the lowest"
"""Ways in which outcomes are made up; they could hardly differ more."""
LARGE = 5_200
"""Units of each arm in the largest cluster."""

_VALUES = 30  # of a made-up attribute
_MIDDLE, _EACH = 4, 60  # clusters that have a pool of their own, and the least units of their arms
_SMALL = 4  # clusters that share a pool
_FAULTS = 40  # rows of each kind of fault


def mixed(size: int, salt: int) -> Floats:
    """Numbers in [0, 1) that look random and are the same each time, shape [n]: hashed ones."""
    word = pl.int_range(size, eager=True).hash(salt).to_numpy()
    return (word >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class MadeUpPeople:
    """Where made-up people are, by their numbers from 0, and which outcomes they have."""

    config: Config
    clusters: tuple[str, ...]
    sizes: Ints
    """Units by cluster and arm, shape [clusters, arms]."""
    cluster: Ints
    """Positions in ``clusters``, shape [n]."""
    arm: Ints
    """Positions in the declared arms, shape [n]."""
    numbers: Ints
    """Who is in the log; people whose numbers differ by ``n_units`` are in the same place."""
    levels: Sequence[Ints] = ()
    """The position of each outcome on its grid, by place; shape [n] each."""

    @property
    def n_units(self) -> int:
        """How many a night has."""
        return len(self.arm)

    @cached_property
    def labels(self) -> pl.DataFrame:
        """Their clusters and arms by name."""
        clusters, arms = np.array(self.clusters), np.array(self.config.arms.names)
        return pl.DataFrame({"cluster": clusters[self.cluster], "arm": arms[self.arm]})

    @property
    def payers(self) -> Ints:
        """Who pays for each of those in the log, as a number."""
        each = self.config.privacy.rows_each or 1
        return self.numbers // (1 if self.config.columns.privacy_unit is None else each)

    def having(self, way: str) -> "MadeUpPeople":
        """The same people, with outcomes that are made up in a ``way``.

        Lower ones are more frequent where there is something to learn.
        """
        uneven = 2.5 if self.config.privacy.mechanism == "cluster-optimal-dp" else 1.0
        found = []
        for salt, one in enumerate(self.config.outcomes, 20):
            level = (mixed(self.n_units, salt) ** uneven * len(one.grid)).astype(np.int64)
            found.append({MIXED: level, OTHER_WAY: len(one.grid) - 1 - level}.get(way, 0 * level))
        return replace(self, levels=found)

    @property
    def outcomes(self) -> list[Floats]:
        """Their outcomes by place, shape [n] each."""
        outcomes = zip(self.config.outcomes, self.levels, strict=True)
        return [np.array(one.grid)[level] for one, level in outcomes]

    def between_points(self) -> list[Floats]:
        """Outcomes between points of their grids, shape [n] each; texts lie on these."""
        every, between = np.arange(self.n_units), mixed(self.n_units, 3)
        return [
            np.interp(every % k if one.texts else between * (k - 1), np.arange(k), one.grid)
            for one, k in ((one, len(one.grid)) for one in self.config.outcomes)
        ]

    def write(self, period: str, outcomes: Sequence[Floats]) -> None:
        """Write the log of a period; each of the ``outcomes`` is by place, shape [n]."""
        numbers, config = self.numbers, self.config
        place = numbers % self.n_units
        of_arm = self.labels.select(pl.int_range(pl.len()).over("arm")).to_series().to_numpy()
        groups = of_arm // 2 * len(config.arms.names) + self.arm  # of two units each
        made = {
            UNIT: unit_ids(numbers),
            ARM: self.labels["arm"].gather(place),
            CLUSTER: self.labels["cluster"].gather(place),
            PAYER: "h" + pl.Series(self.payers).cast(pl.String),
            GROUP: pl.Series(groups[place] + numbers // self.n_units * self.n_units),
        }
        for salt, name in enumerate(config.columns.attributes, 10):
            some = (mixed(self.n_units, salt)[place] * _VALUES).astype(np.int64)
            made[name] = pl.Series([f"value {one}" if one % 7 else None for one in some.tolist()])
        for position, one in enumerate(config.outcomes):
            values = pl.Series(outcomes[position][place])
            if one.texts:
                values = pl.Series(one.texts).gather(np.searchsorted(one.support, values))
            made[f"{OUTCOME} {position}"] = values
        frame, order = pl.DataFrame(made), np.argsort(mixed(len(numbers), 1), kind="stable")
        few = frame.head(_FAULTS)  # with a fault of each public kind, and the outcomes of others
        faults = (
            {UNIT: pl.lit(None, pl.String)},
            {UNIT: "x" + pl.col(UNIT), ARM: pl.lit("an arm that is not declared")},
            *({UNIT: "y" + pl.col(UNIT)},) * 2,
        )
        rows = pl.concat([frame[order], *(few.with_columns(**fault) for fault in faults)])
        rows.write_parquet(config.directory / f"{period}.parquet")


def unit_ids(numbers: Ints) -> pl.Series:
    """The ids of people in the log."""
    return ("u" + pl.Series(numbers).cast(pl.String).str.zfill(8)).alias(UNIT)


def people(config: Config) -> MadeUpPeople:
    """Lay people out for made-up runs: a large cluster, middling ones, and small ones."""
    least = config.privacy.min_stratum
    each, n_clusters = min(max(_EACH, least), LARGE), 1 + _MIDDLE + (_SMALL if least > 1 else 0)
    sizes = np.full((n_clusters, len(config.arms.names)), each)
    sizes[0] = LARGE
    sizes[2] += 1
    sizes[3, -1] += each // 2
    if least > 1:
        sizes[-_SMALL:] = max(1, min(least - 1, each // 2))
        sizes[-1, -1] = 0  # an arm without units in a cluster
    return laid_out(config, sizes)


def laid_out(config: Config, sizes: Ints) -> MadeUpPeople:
    """People of whom so many are in each cluster and arm, shape [clusters, arms], mixed.

    Where clusters are private, or there are none, as many are in the declared ones, or in one.
    """
    private, clusters = config.private_clusters, [f"cluster {n:06d}" for n in range(len(sizes))]
    if private is not None or not config.columns.clusters:
        clusters = [ALL] if private is None else sorted(private.names)
        each = max(1, int(sizes[:, 0].sum()) // len(clusters))
        sizes = np.full((len(clusters), sizes.shape[1]), each)
    place = np.repeat(np.arange(sizes.size), sizes.ravel())
    place = place[np.argsort(mixed(len(place), 7), kind="stable")]
    cluster, arm = np.divmod(place, sizes.shape[1])
    return MadeUpPeople(config, tuple(clusters), sizes, cluster, arm, np.arange(len(place)))


def made_up(
    release: ResolvedRelease, folder: Path, *, workers: int | None = None, hashed: bool = False
) -> Config:
    """The configuration of runs like a ``release``, in a ``folder``."""
    config = release.config
    (folder / "metrics").mkdir(parents=True)
    for name in ("unit-ids.key", "account.key"):
        path = folder / name
        path.write_bytes(b"a key of an audit, of nobody's.".ljust(32))
        path.chmod(0o600)
    ids: dict[str, Any] = {"unit_id": "keyed-hash", "key_file": "unit-ids.key"} if hashed else {}
    columns, private = config.columns, config.private_clusters
    own_columns = sections.Columns(
        unit=UNIT,
        arm=ARM,
        cluster=CLUSTER if columns.clusters or private else None,
        attributes=tuple(columns.named_attributes),
        assigned_by=columns.assigned_by and GROUP,
        privacy_unit=columns.privacy_unit and PAYER,
        **({} if config.named_outcomes else {"outcome": f"{OUTCOME} 0"}),
    )
    plain = dict.fromkeys(("aggregate", "cap", "decimal"))
    if private is not None:  # by their names alone: no price hangs on which centre is nearest
        by_name = {"labels": private.names, "centres": None, "features": None}
        private = private.model_copy(update=by_name)
    return config.model_copy(
        update={
            "directory": folder,
            "source": sections.SourceSection(path="{period}.parquet", ids=config.source.ids),
            "columns": own_columns,
            "arms": config.arms.model_copy(update={"sample_ratio": "warn"}),
            "outcome": config.outcome.model_copy(update=plain),
            "named_outcomes": tuple(
                one.model_copy(update={**plain, "column": f"{OUTCOME} {position}"})
                for position, one in enumerate(config.named_outcomes)
            ),
            "privacy": config.privacy.model_copy(update=_privacy(release)),
            "private_clusters": private,
            "schedule": None,
            "publish": sections.Publish(**ids),
            "ledger": sections.LedgerSection(),
            "quarantine": sections.Quarantine(),
            "run": sections.Run(memory_limit="1GB", metrics_directory="metrics", workers=workers),
            "notify": NotifySection(set_aside_above=0.0),
            "retention": None,
        }
    )


def _privacy(release: ResolvedRelease) -> dict[str, Any]:
    """No budget, and what a plan has chosen, where it was the same for all outcomes.

    A plan for made-up people might choose otherwise.
    """
    designs = release.designs
    nobody = dict.fromkeys(("population", "budget_epsilon", "budget_delta"))
    if not release.config.is_planned or isinstance(designs[0], AggregateDesign):
        return nobody
    parameters = [one.mechanism.parameters for one in designs]
    asked = {"count-and-complement": "counts"}  # as it is asked for
    statistics = {asked.get(one.strata_statistic, one.strata_statistic) for one in parameters}
    together = release.outcomes[0].is_drawn_together
    learnt = {None if together else one.learnt_from for one in parameters}
    chosen: dict[str, Any] = nobody | {
        "mechanism": release.mechanism,
        "joint": "yes" if together else "no",
    }
    for key, of in (("strata_statistic", statistics), ("learn_from", learnt)):
        if len(of) == 1 and None not in of:
            chosen[key] = {*of}.pop()
    return chosen
