"""The whole private step under audit: `privatize` as a release calls it, on made-up rows.

Which columns of a release may differ with the outcomes is said once, in `audit_noise`. Everything
else has to be the same, row for row, for data sets of the same units whose outcomes could hardly
differ more. What may differ follows stated laws, which are compared with the draws of a large
release, and of very many small ones, stratum by stratum and unit by unit.
"""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from flows.config.experiment import AnyDesign, Config
from flows.raw.audit.made_up_rows import Layout, layout, off_grid, on_grid, unlike
from flows.raw.audit.noise_laws import (
    Noise,
    Published,
    fixed_columns,
    noise_in,
    of_noised_problems,
    publish_made_up,
)
from flows.raw.drawing.strata_counts import LEVEL, Counted, cell_table, cells_of, counted
from flows.raw.units.rows import Rows
from flows.raw.units.unit_ids import released_ids
from privatizers.accounting.accountant import pure_epsilon
from privatizers.audit.checks import Check, Events, exactly, judged
from privatizers.audit.laws import (
    Responses,
    noise_events,
    not_around,
    not_nearest,
    pair_events,
    response_events,
    rounding_events,
)
from privatizers.audit.mechanism_laws import noise_laws
from privatizers.mechanisms.label_response import LabelResponse
from privatizers.planning.aggregate_design import AggregateDesign
from schemas.arrays import Floats, Ints
from schemas.errors import ClusterdpError

PUBLIC = "all but noised numbers and drawn outcomes is the same, whatever the outcomes"
FOLLOWS = "priors, weights and unit values follow from the noisy counts published"
LARGE_NOISE = "noise of a whole release follows its law, and no two strata share it"
LARGE_DRAWS = "outcomes of a whole release are drawn as published, each by itself"
REPEATED = "so are those of small releases made again and again, one by one"
LABELS = "private clusters are drawn as stated, each by itself"
ROUNDED = "outcomes are rounded onto the grid one by one, and counted as rounded"

_BY_CLUSTER = ("pools", "strata", "debias", "counts")
"""Tables whose rows go by clusters, or by pools of them."""
_MOST_CELLS = 1 << 22
_LAWS = 5  # checks that share the error
_log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class StepEffort:
    """How much to release of made-up rows."""

    units: int = 600_000
    """Of the large release."""
    clusters: int = 2_000
    """Of it, at most."""
    again: int = 150
    """Releases of a small log."""


USUAL = StepEffort()
"""On one slow core 10 to 20 seconds."""


def audit_step(
    config: Config, design: AnyDesign, *, confidence: float = 0.9999, effort: StepEffort = USUAL
) -> list[Check]:
    """Judge the private step of a configuration with a settled grid; reads nobody's rows.

    Sound code fails with a probability of at most 1 − ``confidence``.
    """
    error = (1.0 - confidence) / _LAWS
    with _with_key(config) as made_up:
        run = _Run(made_up, design)
        return [
            exactly(PUBLIC, list(_differing(run)), "5 data sets of the same units"),
            *_large(run, effort, error),
            judged(REPEATED, _repeated(run, effort.again), error),
            _rounded(run, effort, error),
        ]


@contextmanager
def _with_key(config: Config) -> Iterator[Config]:
    """The configuration with a key of its own where ids are hashed: none of the operator's."""
    if config.publish.key_file is None:
        yield config
        return
    with tempfile.TemporaryDirectory(prefix="clusterdp-audit-") as folder:
        path = Path(folder) / "made-up.key"
        path.write_bytes(b"a key of an audit, and of nobody's ids")
        path.chmod(0o600)
        publish = config.publish.model_copy(update={"key_file": str(path)})
        yield config.model_copy(update={"publish": publish})


@dataclass(frozen=True)
class _Run:
    """A configuration and its design, to release made-up rows with."""

    config: Config
    design: AnyDesign

    @property
    def grid(self) -> Floats:
        return np.array(self.config.outcome.grid)

    @property
    def most_strata(self) -> int:
        """How many strata are kept of at once: bounds memory on fine grids."""
        return _MOST_CELLS // len(self.grid)

    def published(self, rows: Rows) -> Published:
        return publish_made_up(self.config, self.design, rows)


# what may not differ


def _differing(run: _Run) -> Iterator[str]:
    """What differs where nothing may."""
    _log.info("comparing releases of the same units")
    made = layout(run.config, 3_000, 24)
    first: dict[str, pl.Series] | None = None
    labels: Ints | None = None
    for word, outcome in unlike(run.config, made.n_units).items():
        try:
            found = run.published(made.rows(outcome))
        except ClusterdpError as error:
            yield f"with outcomes {word} it fails: {error}"
            continue
        columns = dict(fixed_columns(found, run.design))
        if run.config.private_clusters is not None:
            # Strata are made of the published clusters: as if these stood in a log.
            columns = {name: one for name, one in columns.items() if _is_of_all(name)}
            if labels is None and found.units.height:
                labels = _positions(found.units, made)
                yield from _unlike_public(run, made, labels, found)
        first = columns if first is None else first
        yield from _unequal(first, columns, f"with outcomes {word}")


def _is_of_all(name: str) -> bool:
    """Whether a column does not go by clusters."""
    return name.split(".", maxsplit=1)[0] not in _BY_CLUSTER


def _unequal(first: dict[str, pl.Series], other: dict[str, pl.Series], when: str) -> Iterator[str]:
    for name in first.keys() | other.keys():
        one, two = first.get(name), other.get(name)
        if one is None or two is None or not one.equals(two, null_equal=True, check_dtypes=True):
            yield f"{name} is another {when}"


def _positions(units: pl.DataFrame, made: Layout) -> Ints:
    """The published cluster of each unit, in the order of the made-up log."""
    kind = pl.Enum(made.clusters)
    return units["cluster"].cast(kind).to_physical().to_numpy().astype(np.int64)


def _unlike_public(run: _Run, made: Layout, labels: Ints, found: Published) -> Iterator[str]:
    """Strata, pools and weights of private clusters against those of the same public ones."""
    if run.config.publish.key_file is not None:
        return  # units stand in another order; plain ids show the same code
    public = replace(run, config=run.config.model_copy(update={"private_clusters": None}))
    again = public.published(made.rows(np.full(made.n_units, run.grid[0]), labels))
    here, there = (dict(fixed_columns(one, run.design)) for one in (found, again))
    names = [name for name in here if not _is_of_all(name)]
    yield from _unequal(
        {name: here[name] for name in names},
        {name: there[name] for name in names},
        "than if the published clusters stood in the log",
    )


# a large release


def _large(run: _Run, effort: StepEffort, error: float) -> list[Check]:
    _log.info("releasing %d made-up units", effort.units)
    made = layout(run.config, effort.units, max(2, min(effort.clusters, run.most_strata)))
    levels = on_grid(run.config, made.n_units)
    rows = made.rows(run.grid[levels])
    first, other = (_seen(run, made, levels, run.published(rows)) for _ in range(2))
    noise = [
        event
        for one, two in zip(first.noise, other.noise, strict=True)
        for event in noise_laws([one.values, two.values], one.scale)
    ]
    checks = [
        exactly(FOLLOWS, of_noised_problems(run.config, run.design, first.found), "every stratum"),
        judged(LARGE_NOISE, noise, error),
    ]
    if first.responses is not None:
        checks.append(judged(LARGE_DRAWS, response_events(first.responses, "a unit"), error))
    if run.config.private_clusters is not None and first.labels is not None:
        events = [*response_events(first.labels, "a cluster"), *_twice(first)]
        checks.append(_priced(run, judged(LABELS, events, error)))
    return checks


@dataclass(frozen=True)
class _Seen:
    """A release of made-up rows beside the truth."""

    found: Published
    noise: list[Noise]
    responses: Responses | None
    """Of outcomes; None where no units are published."""
    labels: Responses | None
    """Of clusters; None where they are public."""


def _seen(run: _Run, made: Layout, levels: Ints, found: Published) -> _Seen:
    """Work out what was drawn of what."""
    if isinstance(run.design, AggregateDesign):
        return _Seen(found, _aggregate_noise(run, made, levels, found), None, None)
    truth = pl.DataFrame(
        {
            "unit_id": released_ids(run.config, made.units),
            "level": levels,
            "label": made.cluster,
        }
    )
    units = found.units.join(truth, on="unit_id", how="left", maintain_order="left")
    cell = found.cells_of(units["cluster"], units["arm"])
    level, k = units["level"].to_numpy(), len(run.grid)
    counts = np.bincount(cell * k + level, minlength=found.cells.height * k).reshape(-1, k)
    drawn = np.searchsorted(run.grid, units["outcome"].to_numpy())
    prior = found.by_level("probability", run.grid)
    rate = run.design.mechanism.parameters.resampling_probability
    return _Seen(
        found,
        noise_in(run.config, run.design, found, counts),
        None if prior is None else Responses(level, cell, drawn, rate, prior),
        _labels(run, made, units),
    )


def _aggregate_noise(run: _Run, made: Layout, levels: Ints, found: Published) -> list[Noise]:
    """Of releases without units: only where clusters are public are the true counts known."""
    if run.config.private_clusters is not None:
        return []
    cluster = pl.Series(made.clusters, dtype=pl.String).gather(made.cluster)
    arm = pl.Series(made.arms, dtype=pl.String).gather(made.arm)
    cell, k = found.cells_of(cluster, arm), len(run.grid)
    counts = np.bincount(cell * k + levels, minlength=found.cells.height * k).reshape(-1, k)
    return noise_in(run.config, run.design, found, counts)


def _labels(run: _Run, made: Layout, units: pl.DataFrame) -> Responses | None:
    """Private clusters as drawn, with the λ = k/(e^ε₁ + k − 1) that their price allows."""
    private, k = run.config.private_clusters, len(made.clusters)
    if private is None:
        return None
    label = units["label"].to_numpy()
    drawn = units["cluster"].cast(pl.Enum(made.clusters)).to_physical().to_numpy().astype(np.int64)
    rate = k / (np.exp(private.epsilon) + k - 1.0)
    return Responses(label, np.zeros_like(label), drawn, float(rate), np.full((1, k), 1.0 / k))


def _twice(seen: _Seen) -> list[Events]:
    """Whether a unit's cluster and outcome are drawn independently."""
    if seen.labels is None or seen.responses is None:
        return []
    both = np.count_nonzero(seen.labels.kept & seen.responses.kept)
    expected = float((seen.labels.keeping * seen.responses.keeping).sum())
    n = len(seen.labels.levels)
    return [Events.one("a unit's cluster and outcome are kept", both, expected, n)]


def _priced(run: _Run, check: Check) -> Check:
    """The check, failed too where the labels' λ costs more than ε₁."""
    private = run.config.private_clusters
    if private is None:
        return check
    cost = pure_epsilon(LabelResponse.of(len(private.names), private.epsilon).event)
    if cost <= private.epsilon:
        return check
    return Check(check.name, holds=False, evidence=f"clusters cost {cost!r} of epsilon")


# many small releases


def _repeated(run: _Run, again: int) -> list[Events]:
    """Noise of each stratum, and draws of each unit, over releases of one small log."""
    _log.info("releasing a small made-up log %d times", again)
    made = layout(run.config, 90, 2)
    levels = on_grid(run.config, made.n_units, salt=5)
    rows = made.rows(run.grid[levels])
    times = min(again, max(20, run.most_strata))
    seen = [_seen(run, made, levels, run.published(rows)) for _ in range(times)]
    found = [] if run.config.private_clusters is not None else _noise_by_stratum(seen)
    for each in ([one.responses for one in seen], [one.labels for one in seen]):
        found += _kept_by_unit([one for one in each if one is not None])
    return found


def _noise_by_stratum(seen: list[_Seen]) -> list[Events]:
    """Of each (pool, arm), of neighbouring ones, and of releases one after the other."""
    found: list[Events] = []
    for parts in zip(*(one.noise for one in seen), strict=True):
        scale, cells = parts[0].scale, parts[0].cells
        noise = np.stack([part.values for part in parts])  # [releases, cells, numbers]
        names = seen[0].found.cells[cells.tolist()]
        for place, (pool, arm) in enumerate(names.select("pool", "arm").rows()):
            found += noise_events(noise[:, place].ravel(), scale, f"noise of {pool}, {arm}")
        for place in range(len(cells) - 1):
            pairs = (noise[:, place].ravel(), noise[:, place + 1].ravel())
            found += pair_events(*pairs, scale, f"noises of strata {place} and {place + 1}")
        half = len(noise) // 2
        pairs = (noise[:half].ravel(), noise[half : 2 * half].ravel())
        found += pair_events(*pairs, scale, "noises of two releases")
    return found


def _kept_by_unit(found: list[Responses]) -> list[Events]:
    """How often each unit, by its place in the table, came out as it went in."""
    if not found:
        return []
    n = len(found[0].levels)
    return [
        Events(
            tuple(f"unit {place + 1} of {n} is kept" for place in range(n)),
            np.sum([one.kept for one in found], axis=0).astype(np.float64),
            np.sum([one.keeping for one in found], axis=0),
            np.full(n, float(len(found))),
        )
    ]


# rounding


def _rounded(run: _Run, effort: StepEffort, error: float) -> Check:
    """Levels of outcomes between grid points, in the order of units and in that of strata."""
    _log.info("rounding made-up outcomes")
    made = layout(run.config, effort.units, effort.clusters)
    values = off_grid(run.config, made.n_units)
    rows = made.rows(values)
    found = counted(run.config, rows, run.design.mechanism, None, keep=True)
    levels = np.concatenate([part.load()[LEVEL].to_numpy() for part in found.levels])
    levels, cells = levels.astype(np.int64), _cells(rows, found)
    k = len(run.grid)
    counts = np.bincount(cells * k + levels, minlength=found.counts.size)
    problems = [] if np.array_equal(counts, found.counts.ravel()) else ["counts are of others"]
    if run.config.outcome.rounding == "nearest":
        wrong = not_nearest(levels, values, run.grid)
        problems += [f"{wrong:,} outcomes are not at the nearest point"] * bool(wrong)
        return exactly(ROUNDED, problems, f"{made.n_units:,} outcomes")
    wrong = not_around(levels, values, run.grid)
    problems += [f"{wrong:,} outcomes went to neither point around them"] * bool(wrong)
    if problems:
        return exactly(ROUNDED, problems, "")
    by_stratum = np.argsort(cells, kind="stable")
    events = rounding_events(levels, values, run.grid, "an outcome")
    events += rounding_events(
        levels[by_stratum], values[by_stratum], run.grid, "an outcome, by stratum,"
    )
    return judged(ROUNDED, events, error)


def _cells(rows: Rows, found: Counted) -> Ints:
    """The (pool, arm) of each row."""
    table = cell_table(found.strata)
    return np.concatenate([cells_of(frame, table) for frame in rows.frames()]).astype(np.int64)
