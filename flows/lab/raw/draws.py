"""What a release of made-up outcomes published, and drew by the scales and tables that it states.

The truth is known, so noise is what is published less that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl

from flows.lab.raw.made_up import MadeUpPeople, unit_ids
from flows.raw.drawing.margin_cells import codes_of
from flows.raw.units.unit_ids import released_ids
from flows.released.file.opening import ATTACHED
from flows.released.file.read import open_release, read_manifest
from flows.released.file.units import DRAWN
from privatizers.domain.lattice import lattice_of
from privatizers.lab.audit.checks import Responses, responses
from privatizers.mechanisms.noisy_horvitz_thompson import difference_scale
from privatizers.mechanisms.statistics.noisy_squares import square_steps
from schemas.arrays import Floats, Ints
from schemas.released import TABLES, Manifest, Metric, ReleaseTables
from schemas.tables import STRATUM, debiased, margin_columns, randomised


@dataclass(frozen=True)
class FileTables:
    """The tables of a release of made-up outcomes; labels as text."""

    manifest: Manifest
    frames: dict[str, pl.DataFrame]
    units: pl.DataFrame

    def of_outcome(self, name: str) -> "OutcomeTables":
        """What there is of one outcome."""
        alone, of_it = len(self.manifest.outcomes) == 1, pl.col("metric") == name
        frames = {
            table: frame
            if alone or not frame.height or "metric" not in frame
            else frame.filter(of_it)
            for table, frame in self.frames.items()
        }
        (own,) = (one for one in self.manifest.outcomes if one.metric == name)
        units, cells = self.units, frames["pools"].select("pool", "arm")
        arms = cells.with_row_index("first").unique("arm", keep="first", maintain_order=True)
        grid, drawn = np.array(frames["outcomes"]["outcome"]), units[randomised(name)].to_numpy()
        return OutcomeTables(own, frames, units, grid, drawn, cells, arms.drop("pool"))

    def fixed(self) -> Iterator[tuple[str, pl.Series]]:
        """Each column that may not depend on outcomes, under its name, ``table.column``."""
        manifest, columns = self.manifest, set[str]()
        tables = {"estimates", "means", "ends"}  # computed from the others once these are written
        if manifest.has_private_clusters:  # tables with a row for each, or for each pool of them
            tables |= {"pools", "strata", "debias", "counts"}
            columns |= {"cluster", "weight"}
        if manifest.mechanism in ("cluster-dp", "cluster-free-dp"):  # priors are of noisy counts
            columns |= {"probability", "weight", "noise_variance"}
        counted = any(self.frames[name].height for name in ("arm_counts", "counts"))
        if manifest.mechanism == "cluster-optimal-dp" and counted:  # tables may be learnt of these
            tables |= {"debias", "randomiser"}
            columns |= {"table"}
        for form in (str, randomised, debiased):
            columns |= {form(one.metric) for one in manifest.outcomes}
        for table, frame in {**self.frames, "units": self.units}.items():
            for name in frame.columns if table not in tables else ():
                if name not in columns and not name.startswith("noisy_"):
                    yield f"{table}.{name}", frame[name]
        for name, value in asdict(manifest).items():
            if name != "created_at":
                yield f"release.{name}", pl.Series([str(value)])


@dataclass(frozen=True)
class OutcomeTables:
    """The tables of one outcome, as if it were the only one."""

    metric: Metric
    frames: dict[str, pl.DataFrame]
    units: pl.DataFrame
    grid: Floats
    """Shape [K]."""
    drawn: Floats
    """Of the units, as published; shape [n]."""
    cells: pl.DataFrame
    """Every (pool, arm)."""
    arms: pl.DataFrame
    """Every arm, and the position of its first (pool, arm)."""

    def cells_of(self, units: pl.DataFrame) -> Ints:
        """The position of the (pool, arm) of units by their ``cluster`` and ``arm``, shape [n]."""
        strata = self.frames["strata"].select("cluster", "pool", "arm")
        placed = strata.join(self.cells.with_row_index("cell"), on=["pool", "arm"], how="left")
        units = units.join(placed, on=["cluster", "arm"], how="left", maintain_order="left")
        return units["cell"].to_numpy().astype(np.int64)

    def of_each(self, table: str, name: str) -> Floats | None:
        """What a table has of each pool and arm, or of each arm, by outcome: shape [rows, K].

        NaN where it is missing; None where there is nothing.
        """
        frame = self.frames[table]
        if frame[name].null_count() == frame.height:
            return None
        rows = self.cells if "pool" in frame.columns else self.arms.select("arm")
        order = ["row", *(one for one in ("outcome",) if one in frame.columns)]
        placed = rows.with_row_index("row").join(frame, on=rows.columns, how="left").sort(order)
        return placed[name].cast(pl.Float64).to_numpy().reshape(rows.height, -1)

    def scale(self, table: str) -> float:
        """The scale of all noise in a table, 0 where it is empty."""
        return self.frames[table].select(pl.max("noise_scale")).item() or 0.0

    def tables(self) -> tuple[Floats, Ints]:
        """What units are drawn with, Q, shape [T, K, J], and the table of each cell, shape [S].

        Where another outcome of L values is drawn together with it, [T, K L, J], of pairs.
        """
        placed = self.frames["randomiser"].sort("table", "outcome", "other_outcome", "output")
        n_tables, n_outputs = (placed[name].n_unique() for name in ("table", "output"))
        q = placed["probability"].to_numpy().reshape(n_tables, -1, n_outputs)
        return q, self.frames["pools"]["table"].to_numpy().astype(np.int64)


def of_tables(tables: ReleaseTables) -> FileTables:
    """A release that is not written; its units are drawn here."""
    units = pl.DataFrame(pl.from_arrow(tables.units.reader.read_all()))
    for failure in tables.units.failures:
        raise failure
    frames = {name: _spelt(frame) for name, frame in tables.frames().items()}
    strata = _spelt(tables.strata).with_row_index(STRATUM).drop("pool", "n_units", "own_sizes")
    units = units.join(strata, on=STRATUM, how="left", maintain_order="left").drop(STRATUM)
    return FileTables(tables.manifest, frames, units)


def of_file(path: Path) -> FileTables:
    """A release by its file, the rows of each table in their order."""
    with open_release(path, at_any_loss=True) as connection:
        manifest = read_manifest(connection)
        frames = {
            name: _spelt(connection.sql(f"FROM main.{name} ORDER BY rowid").pl())
            for name in TABLES
            if name not in ("release", "metrics", "units")
        }
        stored = f"{ATTACHED}.{manifest.own_schema}.{DRAWN}"
        shown = ", ".join(["u.*", *(f"d.{one}" for one in margin_columns(len(manifest.margins)))])
        units = connection.sql(
            f"SELECT {shown} FROM main.units AS u "  # noqa: S608 - our own names
            f"JOIN {stored} AS d USING (unit_id) ORDER BY d.rowid"
        )
        return FileTables(manifest, frames, _spelt(units.pl()))


def _spelt(frame: pl.DataFrame) -> pl.DataFrame:
    labels = [name for name in ("cluster", "pool", "arm") if name in frame.columns]
    return frame.with_columns(pl.col(labels).cast(pl.String)) if labels and frame.height else frame


@dataclass(frozen=True)
class Noise:
    """The noise in a statistic of some (pool, arm)s, shape [cells, numbers], and its scale."""

    values: Ints
    scale: float
    cells: Ints
    """Positions of the (pool, arm)s, each once; of whole arms the first of each."""


@dataclass(frozen=True)
class Drawn:
    """What was drawn of one outcome, or of private clusters."""

    name: str
    place: Ints
    """Of the units, in their order, the place among people; shape [n]."""
    responses: Responses | None = None
    """Of its units; None where none are published, and of a second that shares the first's."""
    noise: Sequence[Noise] = ()
    cells: Sequence[str] = ()
    alike: bool = True
    """Of two outcomes that are drawn together, whether every unit has one output for both."""


def draws_of(people: MadeUpPeople, release: FileTables) -> list[Drawn]:
    """Everything that was drawn of each outcome, and last of private clusters, if there are any."""
    private, n_units = release.manifest.has_private_clusters, release.units.height
    place, names = _places(people, release.units), [one.metric for one in release.manifest.outcomes]
    if private and not n_units:
        return [Drawn(name, place) for name in names]  # nobody knows the rest
    each, found = [release.of_outcome(name) for name in names], list[Drawn]()
    together = each[0].metric.drawn_with is not None
    alike = not together or np.array_equal(each[0].drawn, each[1].drawn)
    units = (release.units if n_units else people.labels[place]).select("cluster", "arm")
    for own, of_places in zip(each, people.levels, strict=True):
        level, cell = of_places[place], own.cells_of(units)
        noise = [*_noise(own, level, cell)]
        if together:
            level = level * len(each[1].grid) + people.levels[1][place]
        published = n_units and not (together and found)
        responses = _responses(own, cell, level) if published else None
        cells = [f"{pool}, {arm}" for pool, arm in own.cells.rows()]
        found.append(Drawn(own.metric.metric, place, responses, noise, cells, alike))
    return [*found, Drawn("cluster", place, _labels(people, release, place))] if private else found


def _labels(people: MadeUpPeople, release: FileTables, place: Ints) -> Responses:
    """Private clusters as drawn, with the λ = k/(e^ε₁ + k − 1) that their price allows."""
    k, label = len(people.clusters), people.cluster[place]
    rate = k / (np.exp(release.manifest.cluster_epsilon or 0.0) + k - 1.0)
    drawn = release.units["cluster"].cast(pl.Enum(people.clusters)).to_physical().to_numpy()
    every, cell = np.full((1, k, k), 1.0 / k), np.zeros_like(label)
    return responses(label, cell, drawn.astype(np.int64), every, np.array([0]), float(rate))


def _places(people: MadeUpPeople, units: pl.DataFrame) -> Ints:
    """The places of the units of a release; of one without units those of all who are in it."""
    place = people.numbers % people.n_units
    if not units.height:
        return place
    ids = released_ids(people.config.id_key_path, unit_ids(people.numbers))
    known = pl.DataFrame({"unit_id": ids, "place": place})
    units = units.select("unit_id")
    found = units.join(known, on="unit_id", how="left", maintain_order="left", validate="1:1")
    if found["place"].null_count() or found.height != len(place):
        raise AssertionError("the units of a release are not those of its log")
    return found["place"].to_numpy()


def _responses(own: OutcomeTables, cell: Ints, level: Ints) -> Responses:
    if own.metric.response_epsilon is not None:
        return responses(level, cell, own.drawn.astype(np.int64), *own.tables())
    prior, rate = own.of_each("debias", "probability"), own.metric.resampling_probability
    if prior is None or rate is None:
        raise AssertionError("units are published without what they were drawn by")
    q = np.broadcast_to(prior[:, np.newaxis], (*prior.shape, prior.shape[1]))
    return responses(level, cell, np.searchsorted(own.grid, own.drawn), q, np.arange(len(q)), rate)


def _noise(own: OutcomeTables, level: Ints, cell: Ints) -> Iterator[Noise]:
    """The noise in all statistics and sums; ``level`` and ``cell`` are those of units.

    In whole steps of what is published: units, or parts of the grid's steps. That of whole arms is
    at their first (pool, arm).
    """
    grid, every, k, of = own.grid, np.arange(own.cells.height), len(own.grid), own.of_each
    counts = np.bincount(cell * k + level, minlength=every.size * k).reshape(-1, k)
    n, scale, step = counts.sum(axis=1), own.metric.noise_scale or 0.0, own.metric.grid_step or 0.0
    means = counts @ (grid - grid[0]) / n
    yield from _in_steps(of("counts", "noisy_count"), counts, 1.0, scale, every)
    yield from _in_steps(of("pools", "noisy_mean"), grid[0] + means, step / n, scale, every)
    if (difference := of("pools", "noisy_difference")) is not None:
        treated = np.flatnonzero(~np.isnan(difference[:, 0]))
        control = treated - 1  # the arms of a pool are neighbouring rows, control first
        scales = difference_scale(n[control], n[treated], scale)
        for own_scale in np.unique(scales):
            one, other = treated[scales == own_scale], control[scales == own_scale]
            steps, exact = step / np.lcm(n[one], n[other]), means[one] - means[other]
            yield from _in_steps(difference[one], exact, steps, float(own_scale), one)
    first, arm = own.arms["first"].to_numpy(), own.cells["arm"].to_numpy()
    of_arms = np.array([counts[arm == name].sum(axis=0) for name in own.arms["arm"]])
    arms_scale = own.scale("arm_counts")
    yield from _in_steps(of("arm_counts", "noisy_count"), of_arms, 1.0, arms_scale, first)
    if (lattice := lattice_of(grid.tolist())) is None:
        return
    if (squares := square_steps(lattice)) is not None:
        unit = float(squares.step_of(grid.tolist()))
        exact, own_scale = of_arms @ (grid - (grid[0] + grid[-1]) / 2.0) ** 2, own.scale("squares")
        yield from _in_steps(of("squares", "noisy_square"), exact, unit, own_scale / unit, first)
    step = float(lattice.step_of(grid.tolist()))
    for at, code in enumerate(codes_of(own.units)):
        of_units = own.units.select("arm", cell=pl.Series(code, dtype=pl.Int64), y=grid[level])
        sums = of_units.group_by("cell", "arm").agg(pl.col("y").sum()).join(own.arms, on="arm")
        rows = own.frames["margins"].filter(pl.col("margin") == at).cast({"cell": pl.Int64})
        rows = rows.join(sums, on=["cell", "arm"], how="left", maintain_order="left")
        noisy, exact, cells = (rows[name].to_numpy() for name in ("noisy_sum", "y", "first"))
        own_scale = rows["noise_scale"][0] / step
        yield from _in_steps(noisy[:, np.newaxis], exact, step, own_scale, cells)


def _in_steps(
    noisy: Floats | None, exact: Floats | Ints, step: Floats | float, scale: float, cells: Ints
) -> Iterator[Noise]:
    """Of two counts the upper is noised, and the other is what it leaves."""
    if noisy is not None:
        steps = np.broadcast_to(step, len(cells))[:, np.newaxis]
        noise = np.rint((noisy - exact.reshape(noisy.shape)) / steps).astype(np.int64)
        is_one = noise.shape[1] == 2 and np.array_equal(noise[:, 0], -noise[:, 1])
        yield Noise(noise[:, 1:] if is_one else noise, scale, cells)
