"""Made-up logs for an audit: like a configuration's own, but of no real people.

Who is where, and which outcome they have, follows from numbers that arithmetic has mixed. So an
audit draws nothing itself: all its randomness is that of the code under audit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from flows.config.model.experiment import Config
from schemas.arrays import Floats, Ints
from schemas.released import ALL

UNIT, ARM, CLUSTER, PAYER, GROUP = (
    f"made-up {name}" for name in ("unit", "arm", "cluster", "payer", "group")
)
"""Columns of a made-up log; outcomes are in :func:`outcome_column`."""
LARGE = 5_200
"""Units of each arm in the largest cluster."""

_VALUES = 30  # of a made-up attribute
_MIDDLE, _EACH = 4, 60  # clusters that have a pool of their own, and the least units of their arms
_SMALL = 4  # clusters that share a pool
_FAULTS = 40  # rows of each kind of fault
_TOGETHER = 2  # units that were given their arm as one


def outcome_column(position: int) -> str:
    """The column of an outcome in a made-up log."""
    return f"made-up outcome {position}"


def mixed(size: int, salt: int) -> Floats:
    """Numbers in [0, 1) that look random and are the same each time, shape [n]: hashed ones."""
    word = pl.int_range(size, eager=True).hash(salt).to_numpy()
    return (word >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class MadeUpPeople:
    """Where made-up people are, by their numbers from 0; the night after, half of them are new."""

    config: Config
    """That of the made-up runs."""
    clusters: tuple[str, ...]
    sizes: Ints
    """Units by cluster and arm, shape [clusters, arms]."""
    cluster: Ints
    """Positions in ``clusters``, shape [n]."""
    arm: Ints
    """Positions in the declared arms, shape [n]."""

    @property
    def n_units(self) -> int:
        """How many a night has."""
        return len(self.arm)

    @cached_property
    def labels(self) -> pl.DataFrame:
        """Their clusters and arms by name."""
        arms = pl.Series("arm", self.config.arms.names).gather(self.arm)
        clusters = pl.Series("cluster", self.clusters, dtype=pl.String).gather(self.cluster)
        return pl.DataFrame([clusters, arms])

    def numbers(self, night: int) -> Ints:
        """The numbers of the people of a night; who differs by ``n_units`` is in the same place."""
        return np.arange(self.n_units) + night * (self.n_units // 2)

    def payers(self, numbers: Ints) -> Ints:
        """Who pays for each of these people, as a number."""
        each = self.config.privacy.rows_each or 1
        return numbers if self.config.columns.privacy_unit is None else numbers // each

    def write(self, period: str, numbers: Ints, outcomes: Sequence[Floats]) -> None:
        """Write the log of a period; each of the ``outcomes`` is by place, shape [n]."""
        place, config = numbers % self.n_units, self.config
        of_arm = self.labels.select(pl.int_range(pl.len()).over("arm")).to_series().to_numpy()
        groups = of_arm // _TOGETHER * len(config.arms.names) + self.arm
        made = {
            UNIT: unit_ids(numbers),
            ARM: self.labels["arm"].gather(place),
            CLUSTER: self.labels["cluster"].gather(place),
            PAYER: "h" + pl.Series(self.payers(numbers)).cast(pl.String),
            GROUP: pl.Series(groups[place] + numbers // self.n_units * self.n_units),
        }
        for salt, name in enumerate(config.columns.attributes, 10):
            some = (mixed(self.n_units, salt)[place] * _VALUES).astype(np.int64)
            made[name] = pl.Series([f"value {one}" if one % 7 else None for one in some.tolist()])
        for position, one in enumerate(config.outcomes):
            column = pl.Series(outcomes[position][place])
            if one.texts:
                levels = np.searchsorted(np.array(one.support), outcomes[position][place])
                column = pl.Series(one.texts).gather(levels)
            made[outcome_column(position)] = column
        frame = pl.DataFrame(made)
        order = np.argsort(mixed(len(numbers), 1), kind="stable")
        rows = pl.concat([frame[order], *_faulty(frame.head(_FAULTS))])
        rows.write_parquet(config.directory / f"{period}.parquet")


def _faulty(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Rows with a fault of each public kind, with the outcomes of others."""
    another = rows.with_columns(("x" + pl.col(UNIT)).alias(UNIT))
    yield rows.with_columns(pl.lit(None, pl.String).alias(UNIT))
    yield another.with_columns(pl.lit("an arm that is not declared").alias(ARM))
    yield from (rows.with_columns(("y" + pl.col(UNIT)).alias(UNIT)),) * 2


def unit_ids(numbers: Ints) -> pl.Series:
    """The ids of people in the log."""
    return ("u" + pl.Series(numbers).cast(pl.String).str.zfill(8)).alias(UNIT)


def period_of(night: int) -> str:
    """The name of a night's period."""
    return f"2001-01-{night + 1:02d}"


def people(config: Config) -> MadeUpPeople:
    """Lay people out for made-up runs: a large cluster, middling ones, and small ones.

    Private clusters are the declared ones; without clusters there is one.
    """
    n_arms, private, least = (
        len(config.arms.names),
        config.private_clusters,
        config.privacy.min_stratum,
    )
    if private is not None:
        names = tuple(sorted(private.names))
        return laid_out(config, names, np.full((len(names), n_arms), LARGE // len(names) or 1))
    if not config.columns.clusters:
        return laid_out(config, (ALL,), np.full((1, n_arms), LARGE))
    each = min(max(_EACH, least), LARGE)
    sizes = np.full((1 + _MIDDLE + (_SMALL if least > 1 else 0), n_arms), each)
    sizes[0] = LARGE
    sizes[2] += 1
    sizes[3, -1] += each // 2
    if least > 1:
        sizes[-_SMALL:] = max(1, min(least - 1, each // 2))
        sizes[-1, -1] = 0  # an arm without units in a cluster
    return laid_out(config, tuple(f"cluster {number:06d}" for number in range(len(sizes))), sizes)


def laid_out(config: Config, clusters: tuple[str, ...], sizes: Ints) -> MadeUpPeople:
    """People of whom so many are in each cluster and arm, shape [clusters, arms], mixed."""
    place = np.repeat(np.arange(sizes.size), sizes.ravel())
    place = place[np.argsort(mixed(len(place), 7), kind="stable")]
    return MadeUpPeople(config, clusters, sizes, *np.divmod(place, sizes.shape[1]))


def off_grid(grid: Floats, n_units: int) -> Floats:
    """Outcomes spread evenly between neighbouring points of the grid, shape [n]."""
    lower = (mixed(n_units, 3) * (len(grid) - 1)).astype(np.int64)
    values: Floats = grid[lower] + mixed(n_units, 4) * (grid[lower + 1] - grid[lower])
    return values


def on_grids(config: Config, levels: Sequence[Ints]) -> list[Floats]:
    """The outcomes at these positions on the grids, shape [n] each."""
    grids = (np.array(one.grid) for one in config.outcomes)
    return [grid[level] for grid, level in zip(grids, levels, strict=True)]
