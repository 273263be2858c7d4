"""Made-up logs for an audit of the private step: like a configuration's own, but of no real people.

Clusters, arms, outcomes and labels follow from numbers that arithmetic has mixed. So an audit draws
nothing itself: all its randomness is that of the code under audit.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from flows.config.model.experiment import Config
from flows.config.model.sections import Columns
from flows.raw.spill.sorted_runs import Stored
from flows.raw.units.rows import Rows, facts_of
from schemas.arrays import Floats, Ints
from schemas.raw import ARM, ASSIGNED, CLUSTER, OUTCOME, UNIT
from schemas.released import ALL

_PARTS = 3
_VALUES = 30  # of a made-up attribute
_UNEVEN = 2.5
_SMALL = 4  # clusters that share a pool


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
class Layout:
    """The cluster and the arm of each unit of a made-up log, as positions, shape [n] each."""

    arms: tuple[str, ...]
    clusters: tuple[str, ...]
    """Names, sorted."""
    cluster: Ints
    arm: Ints
    columns: Columns
    """The configuration's; public facts are made up for those that it names."""

    @property
    def n_units(self) -> int:
        """The number of units."""
        return len(self.arm)

    @cached_property
    def units(self) -> pl.Series:
        """The ids of the units, in order."""
        return pl.Series(UNIT, [f"u{number:08d}" for number in range(self.n_units)])

    @cached_property
    def facts(self) -> dict[str, pl.Series]:
        """Public facts: of attributes texts, every seventh missing; each unit is a household."""
        made: dict[str, pl.Series] = {}
        for salt, name in enumerate(facts_of(self.columns), 10):
            some = (mixed(self.n_units, salt) * _VALUES).astype(np.int64)
            texts = pl.Series([f"value {value}" if value % 7 else None for value in some.tolist()])
            made[name] = texts.cast(pl.String)
        if ASSIGNED in made:
            made[ASSIGNED] = pl.Series(np.arange(self.n_units, dtype=np.uint64))
        return made

    def rows(self, outcome: Floats, cluster: Ints | None = None) -> Rows:
        """The rows with these outcomes, in three parts; ``cluster`` replaces the layout's own."""
        where = self.cluster if cluster is None else cluster
        kind = pl.Enum(self.clusters)
        frame = pl.DataFrame(
            {
                UNIT: self.units,
                ARM: pl.Series(self.arms, dtype=pl.Enum(self.arms)).gather(self.arm),
                CLUSTER: pl.Series(self.clusters, dtype=kind).gather(where),
                OUTCOME: outcome,
                **self.facts,
            }
        )
        place = where * len(self.arms) + self.arm
        shape = (len(self.clusters), len(self.arms))
        sizes = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
        cuts = [len(frame) * part // _PARTS for part in range(_PARTS + 1)]
        pieces = [frame[start:stop] for start, stop in itertools.pairwise(cuts)]
        parts = tuple(Stored(piece.height, piece) for piece in pieces if piece.height)
        return Rows(parts, pl.String(), self.arms, self.clusters, sizes)


def layout(config: Config, n_units: int, most_clusters: int) -> Layout:
    """Lay out a log of about ``n_units`` for a configuration, with large clusters and small ones.

    Private clusters are the declared ones; without a column of clusters there is one cluster. Units
    of all clusters and arms are mixed.
    """
    arms = config.arms.names
    private = config.private_clusters
    if private is not None or not config.columns.clusters:
        names = (ALL,) if private is None else tuple(sorted(private.names))
        each = max(n_units // (len(names) * len(arms)), 1)
        sizes = np.full((len(names), len(arms)), each, dtype=np.int64)
    else:
        sizes = _sizes(config.privacy.min_stratum, len(arms), n_units, most_clusters)
        names = tuple(f"cluster {number:06d}" for number in range(len(sizes)))
    place = np.repeat(np.arange(sizes.size), sizes.ravel())
    place = place[np.argsort(mixed(len(place), 1), kind="stable")]
    return Layout(arms, names, place // len(arms), place % len(arms), config.columns)


def _sizes(min_stratum: int, n_arms: int, n_units: int, most_clusters: int) -> Ints:
    """Units by cluster and arm: large clusters of three sizes in turn, then four small ones."""
    least = max(1, min(min_stratum, n_units // (3 * n_arms)))
    large = min(max(n_units // (2 * least * n_arms), 2), most_clusters)
    each = max(least, n_units // (large * n_arms))
    sizes = np.full((large, n_arms), each, dtype=np.int64)
    sizes[1::3] += 1
    sizes[2::3, -1] += max(1, each // 2)
    if min_stratum <= 1:
        return sizes
    small = np.full((_SMALL, n_arms), max(1, min(min_stratum - 1, each // 2)), dtype=np.int64)
    small[-1, -1] = 0  # an arm without units in a cluster
    return np.concatenate([sizes, small])


def on_grid(config: Config, n_units: int, salt: int = 2, *, uneven: bool = False) -> Ints:
    """Positions on the grid, each about equally often, or lower ones more often; shape [n]."""
    k = len(config.outcome.grid)
    share = mixed(n_units, salt) ** (_UNEVEN if uneven else 1.0)
    levels: Ints = np.minimum((share * k).astype(np.int64), k - 1)
    return levels


def off_grid(config: Config, n_units: int) -> Floats:
    """Outcomes spread evenly between neighbouring points of the grid, shape [n]."""
    grid = np.array(config.outcome.grid)
    lower = (mixed(n_units, 3) * (len(grid) - 1)).astype(np.int64)
    values: Floats = grid[lower] + mixed(n_units, 4) * (grid[lower + 1] - grid[lower])
    return values


def contrasting_outcomes(config: Config, n_units: int) -> dict[str, Floats]:
    """Outcomes of the same units that differ as much as possible, by their names in messages."""
    low, high = config.outcome.ends
    return {
        "all the lowest": np.full(n_units, low),
        "all the highest": np.full(n_units, high),
        "rising in the order of units": np.linspace(low, high, n_units),
        "falling in the order of units": np.linspace(high, low, n_units),
        "mixed": np.array(config.outcome.grid)[on_grid(config, n_units)],
    }
