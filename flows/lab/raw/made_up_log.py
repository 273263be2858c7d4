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
    """Numbers in [0, 1) that look random and are the same each time, shape [n] (SplitMix64)."""
    word = np.arange(1, size + 1, dtype=np.uint64) + np.uint64(salt << 32)
    with np.errstate(over="ignore"):
        word *= np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    word ^= word >> np.uint64(31)
    return (word >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class MadeUpPeople:
    """Where made-up people are, by their numbers from 0; the night after, half of them are new."""

    config: Config
    """That of the made-up runs."""
    clusters: tuple[str, ...]
    cluster: Ints
    """Positions in ``clusters``, shape [n]."""
    arm: Ints
    """Positions in the declared arms, shape [n]."""

    @property
    def n_units(self) -> int:
        """How many a night has."""
        return len(self.arm)

    @property
    def sizes(self) -> Ints:
        """Units by cluster and arm, shape [clusters, arms]."""
        shape = (len(self.clusters), len(self.config.arms.names))
        where = self.cluster * shape[1] + self.arm
        return np.bincount(where, minlength=shape[0] * shape[1]).reshape(shape)

    def numbers(self, night: int) -> Ints:
        """The numbers of the people of a night; who differs by ``n_units`` is in the same place."""
        return np.arange(self.n_units) + night * (self.n_units // 2)

    def payers(self, numbers: Ints) -> Ints:
        """Who pays for each of these people, as a number."""
        each = self.config.privacy.rows_each or 1
        return numbers if self.config.columns.privacy_unit is None else numbers // each

    @cached_property
    def _groups(self) -> Ints:
        """What was given its arm as one: so many units of an arm each, shape [n]."""
        rank = np.empty(self.n_units, dtype=np.int64)
        for arm in range(len(self.config.arms.names)):
            here = np.flatnonzero(self.arm == arm)
            rank[here] = np.arange(len(here)) // _TOGETHER * len(self.config.arms.names) + arm
        return rank

    def write(self, period: str, numbers: Ints, outcomes: Sequence[Floats]) -> None:
        """Write the log of a period; each of the ``outcomes`` is by place, shape [n]."""
        place, config = numbers % self.n_units, self.config
        made = {
            UNIT: unit_ids(numbers),
            ARM: pl.Series(config.arms.names).gather(self.arm[place]),
            CLUSTER: pl.Series(self.clusters).gather(self.cluster[place]),
            PAYER: "h" + pl.Series(self.payers(numbers)).cast(pl.String),
            GROUP: pl.Series(self._groups[place] + numbers // self.n_units * self.n_units),
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
    """Lay people out for made-up runs: one large cluster, some smaller ones, and small ones.

    Private clusters are the declared ones; without clusters there is one.
    """
    n_arms, private = len(config.arms.names), config.private_clusters
    if private is not None:
        names = tuple(sorted(private.names))
        sizes = np.full((len(names), n_arms), max(LARGE // len(names), 1), dtype=np.int64)
    elif not config.columns.clusters:
        names, sizes = (ALL,), np.full((1, n_arms), LARGE, dtype=np.int64)
    else:
        sizes = _sizes(config.privacy.min_stratum, n_arms)
        names = tuple(f"cluster {number:06d}" for number in range(len(sizes)))
    return laid_out(config, names, sizes)


def laid_out(config: Config, clusters: tuple[str, ...], sizes: Ints) -> MadeUpPeople:
    """People of whom so many are in each cluster and arm, shape [clusters, arms], mixed."""
    place = np.repeat(np.arange(sizes.size), sizes.ravel())
    place = place[np.argsort(mixed(len(place), 7), kind="stable")]
    n_arms = sizes.shape[1]
    return MadeUpPeople(config, clusters, place // n_arms, place % n_arms)


def _sizes(min_stratum: int, n_arms: int) -> Ints:
    """Units by cluster and arm: a large cluster, middling ones of three sizes, four small ones."""
    each = min(max(_EACH, min_stratum), LARGE)
    sizes = np.full((1 + _MIDDLE, n_arms), each, dtype=np.int64)
    sizes[0] = LARGE
    sizes[2] += 1
    sizes[3, -1] += each // 2
    if min_stratum <= 1:
        return sizes
    small = np.full((_SMALL, n_arms), max(1, min(min_stratum - 1, each // 2)), dtype=np.int64)
    small[-1, -1] = 0  # an arm without units in a cluster
    return np.concatenate([sizes, small])


def off_grid(grid: Floats, n_units: int) -> Floats:
    """Outcomes spread evenly between neighbouring points of the grid, shape [n]."""
    lower = (mixed(n_units, 3) * (len(grid) - 1)).astype(np.int64)
    values: Floats = grid[lower] + mixed(n_units, 4) * (grid[lower + 1] - grid[lower])
    return values
