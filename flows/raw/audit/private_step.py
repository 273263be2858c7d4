"""An audit of the whole private step: `privatize`, called as a release calls it, on made-up rows.

`noise_laws` says which columns of a release may depend on the outcomes. All other columns have to
be the same, row for row, for data sets of the same units whose outcomes differ as much as possible.
The columns that may differ follow stated laws. The audit compares these with the draws of one large
release, and of very many small ones, for each stratum and each unit.
"""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from flows.config.model.experiment import AnyDesign, Config
from flows.raw.audit.made_up_rows import Layout, contrasting_outcomes, layout, off_grid, on_grid
from flows.raw.audit.noise_laws import (
    Noise,
    Published,
    dependence_problems,
    fixed_columns,
    learns,
    noise_in,
    publish_made_up,
    responses_of,
    units_to_learn,
)
from flows.raw.audit.several_outcomes import Whole, apart
from flows.raw.drawing.strata_counts import LEVEL, StrataCounts, cell_table, cells_of, count_strata
from flows.raw.units.rows import Rows
from flows.raw.units.unit_ids import released_ids
from privatizers.accounting.accountant import pure_epsilon
from privatizers.audit.checks import Check, Events, exactly, judge_events
from privatizers.audit.laws import (
    AnyResponses,
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
"""Tables with a row for each cluster, or for each pool of clusters."""
_MOST_CELLS = 1 << 22
_LAWS = 5  # checks that share the allowed error
_log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class StepEffort:
    """The numbers of made-up units and releases that an audit uses."""

    units: int = 600_000
    """The units of the large release."""
    clusters: int = 2_000
    """The most clusters of the large release."""
    again: int = 150
    """The releases of a small log."""

    def divided(self, number: int) -> "StepEffort":
        """The effort for each of so many outcomes, of which every release draws all."""
        units = max(self.units // number, min(self.units, 50_000))
        return replace(self, units=units, again=max(self.again // number, min(self.again, 40)))


USUAL = StepEffort()
"""Takes 10 to 20 seconds on one slow core."""


def audit_step(
    config: Config,
    design: AnyDesign | Sequence[AnyDesign],
    *,
    confidence: float = 0.9999,
    effort: StepEffort = USUAL,
) -> list[Check]:
    """Audit the private step of a configuration with a resolved grid, without reading its log.

    Sound code fails with a probability of at most 1 − ``confidence``.
    """
    return list(checks_of_step(config, design, confidence=confidence, effort=effort))


def checks_of_step(
    config: Config,
    design: AnyDesign | Sequence[AnyDesign],
    *,
    confidence: float = 0.9999,
    effort: StepEffort = USUAL,
) -> Iterator[Check]:
    """Yield the checks of :func:`audit_step` one after the other, each as it is asked for.

    Of several outcomes each is looked at in releases of all of them, and then any two together.
    """
    with _with_key(config) as made_up:
        if not isinstance(design, Sequence):
            yield from _checks_of(_Run(made_up, design), effort, (1.0 - confidence) / _LAWS)
            return
        if not made_up.named_outcomes:
            yield from _checks_of(_Run(made_up, design[0]), effort, (1.0 - confidence) / _LAWS)
            return
        whole, number = Whole(made_up, tuple(design)), len(design)
        share, less = (1.0 - confidence) / (number + 1), effort.divided(number)
        for view, one in zip(made_up.views, design, strict=True):
            clusters = {"private_clusters": made_up.private_clusters}
            run = _Run(view.model_copy(update=clusters), one, whole)
            for check in _checks_of(run, less, share / _LAWS):
                yield replace(check, name=f"{view.outcomes[0].name}: {check.name}")
        yield apart(whole, less.units, less.clusters, share)


def _checks_of(run: "_Run", effort: StepEffort, error: float) -> Iterator[Check]:
    """The checks of one outcome."""
    yield exactly(PUBLIC, list(_differences(run)), "5 data sets of the same units")
    yield from _large(run, effort, error)
    yield judge_events(REPEATED, _repeated(run, effort.again), error)
    yield _rounded(run, effort, error)


@contextmanager
def _with_key(config: Config) -> Iterator[Config]:
    """The configuration, with a made-up key in place of the operator's where keys are used."""
    hashed, assigned = config.publish.key_file is not None, config.columns.assigned_by is not None
    if not hashed and not assigned:
        yield config
        return
    with tempfile.TemporaryDirectory(prefix="clusterdp-audit-") as folder:
        path = Path(folder) / "made-up.key"
        path.write_bytes(b"a key of an audit, of nobody's.".ljust(32))
        path.chmod(0o600)
        made_up: dict[str, object] = {}
        for section in ("publish",) * hashed + ("ledger",) * assigned:
            keys = getattr(config, section)
            made_up[section] = keys.model_copy(update={"key_file": str(path)})
        yield config.model_copy(update=made_up)


@dataclass(frozen=True)
class _Run:
    """The configuration and the design that made-up rows are released with."""

    config: Config
    """That of one outcome."""
    design: AnyDesign
    whole: Whole | None = None
    """The release of several outcomes that this one is a part of; None of one alone."""

    @property
    def grid(self) -> Floats:
        return np.array(self.config.outcome.grid)

    @property
    def most_strata(self) -> int:
        """The most strata of the large release, which bounds memory on fine grids."""
        return _MOST_CELLS // len(self.grid)

    def published(self, rows: Rows) -> Published:
        if self.whole is None:
            return publish_made_up(self.config, self.design, rows)
        (outcome,) = self.config.outcomes
        every = self.whole.rows(rows, self.config)
        return self.whole.published(every).of_outcome(outcome.name)

    @property
    def public(self) -> "_Run":
        """The same where the clusters of the log are published as they are."""
        public: dict[str, None] = {"private_clusters": None}
        whole = self.whole
        if whole is not None:
            whole = replace(whole, config=whole.config.model_copy(update=public))
        return _Run(self.config.model_copy(update=public), self.design, whole)


# what may not differ


def _differences(run: _Run) -> Iterator[str]:
    """Name the columns that depend on outcomes though they may not."""
    _log.info("comparing releases of the same units")
    units = layout(run.config, units_to_learn(run.config, run.design, 3_000), 24)
    first: dict[str, pl.Series] | None = None
    labels: Ints | None = None
    for outcomes, values in contrasting_outcomes(run.config, units.n_units).items():
        try:
            release = run.published(units.rows(values))
        except ClusterdpError as error:
            yield f"with outcomes {outcomes} it fails: {error}"
            continue
        columns = dict(fixed_columns(release, run.design))
        if run.config.private_clusters is not None:
            # Strata follow from the published clusters, as if the log had these.
            columns = {name: values for name, values in columns.items() if _is_of_all(name)}
            if labels is None and release.units.height:
                labels = _positions(release.units, units)
                yield from _compare_with_public(run, units, labels, release)
        first = columns if first is None else first
        yield from _unequal(first, columns, f"with outcomes {outcomes}")


def _is_of_all(name: str) -> bool:
    """Whether a column is of a table without a row for each cluster or pool."""
    return name.split(".", maxsplit=1)[0] not in _BY_CLUSTER


def _unequal(first: dict[str, pl.Series], other: dict[str, pl.Series], when: str) -> Iterator[str]:
    for name in first.keys() | other.keys():
        one, two = first.get(name), other.get(name)
        if one is None or two is None or not one.equals(two, null_equal=True, check_dtypes=True):
            yield f"{name} is another {when}"


def _positions(units: pl.DataFrame, layout: Layout) -> Ints:
    """The published cluster of each unit, in the order of the made-up log."""
    kind = pl.Enum(layout.clusters)
    return units["cluster"].cast(kind).to_physical().to_numpy().astype(np.int64)


def _compare_with_public(
    run: _Run, units: Layout, labels: Ints, release: Published
) -> Iterator[str]:
    """Compare strata, pools and weights with those of a release where these clusters are public."""
    if run.config.publish.key_file is not None:
        return  # units are in another order; with plain ids the same code is checked
    again = run.public.published(units.rows(np.full(units.n_units, run.grid[0]), labels))
    of_private, of_public = (dict(fixed_columns(made, run.design)) for made in (release, again))
    names = [name for name in of_private if not _is_of_all(name)]
    yield from _unequal(
        {name: of_private[name] for name in names},
        {name: of_public[name] for name in names},
        "than if the published clusters stood in the log",
    )


# a large release


def _large(run: _Run, effort: StepEffort, error: float) -> list[Check]:
    _log.info("releasing %d made-up units", effort.units)
    units = layout(run.config, effort.units, max(2, min(effort.clusters, run.most_strata)))
    levels = on_grid(run.config, units.n_units, uneven=learns(run.design))
    rows = units.rows(run.grid[levels])
    truth = _truth(run, units, levels)
    first, second = (_draws(run, units, truth, run.published(rows)) for _ in range(2))
    noise = [
        event
        for noises in zip(first.noise, second.noise, strict=True)
        for event in noise_laws([noise.values for noise in noises], noises[0].scale)
    ]
    problems = dependence_problems(run.config, run.design, first.release)
    checks = [
        exactly(FOLLOWS, problems, "every stratum"),
        judge_events(LARGE_NOISE, noise, error),
    ]
    if first.responses is not None:
        checks.append(judge_events(LARGE_DRAWS, response_events(first.responses, "a unit"), error))
    if run.config.private_clusters is not None and first.labels is not None:
        events = [*response_events(first.labels, "a cluster"), *_independence(first)]
        checks.append(_check_price(run, judge_events(LABELS, events, error)))
    return checks


@dataclass(frozen=True)
class _Draws:
    """A release of made-up rows, and all that was drawn for it beside the truth."""

    release: Published
    noise: list[Noise]
    responses: AnyResponses | None
    """The drawn outcomes; None where no units are published."""
    labels: Responses | None
    """The drawn clusters; None where clusters are public."""


def _truth(run: _Run, layout: Layout, levels: Ints) -> pl.DataFrame:
    """The level and the cluster of each made-up unit, under the id that it is released with."""
    ids = released_ids(run.config, layout.units)
    return pl.DataFrame({"unit_id": ids, "level": levels, "label": layout.cluster})


def _draws(run: _Run, layout: Layout, truth: pl.DataFrame, release: Published) -> _Draws:
    """Work out what was drawn for a release from rows of which this is the ``truth``."""
    if isinstance(run.design, AggregateDesign):
        levels = truth["level"].to_numpy()
        return _Draws(release, _aggregate_noise(run, layout, levels, release), None, None)
    units = release.units.join(truth, on="unit_id", how="left", maintain_order="left")
    cell = release.cells_of(units["cluster"], units["arm"])
    level = units["level"].to_numpy()
    return _Draws(
        release,
        _noise_beside(run, release, cell, level),
        responses_of(run.design, release, units, cell, level, run.grid),
        _labels(run, layout, units),
    )


def _noise_beside(run: _Run, release: Published, cells: Ints, levels: Ints) -> list[Noise]:
    """The noise of a release of units in these cells with these levels, shape [n] each."""
    k = len(run.grid)
    counts = np.bincount(cells * k + levels, minlength=release.cells.height * k).reshape(-1, k)
    return noise_in(run.config, run.design, release, counts)


def _aggregate_noise(run: _Run, layout: Layout, levels: Ints, release: Published) -> list[Noise]:
    """The noise of a release without units; none where private clusters hide the true counts."""
    if run.config.private_clusters is not None:
        return []
    cluster = pl.Series(layout.clusters, dtype=pl.String).gather(layout.cluster)
    arm = pl.Series(layout.arms, dtype=pl.String).gather(layout.arm)
    return _noise_beside(run, release, release.cells_of(cluster, arm), levels)


def _labels(run: _Run, layout: Layout, units: pl.DataFrame) -> Responses | None:
    """Private clusters as drawn, with the λ = k/(e^ε₁ + k − 1) that their price allows."""
    private, k = run.config.private_clusters, len(layout.clusters)
    if private is None:
        return None
    label, drawn = units["label"].to_numpy(), _positions(units, layout)
    rate = k / (np.exp(private.epsilon) + k - 1.0)
    return Responses(label, np.zeros_like(label), drawn, float(rate), np.full((1, k), 1.0 / k))


def _independence(draws: _Draws) -> list[Events]:
    """Whether the cluster and the outcome of a unit are drawn independently."""
    if draws.labels is None or draws.responses is None:
        return []
    both = np.count_nonzero(draws.labels.kept & draws.responses.kept)
    expected = float((draws.labels.keeping * draws.responses.keeping).sum())
    n = len(draws.labels.levels)
    return [Events.one("a unit's cluster and outcome are kept", both, expected, n)]


def _check_price(run: _Run, check: Check) -> Check:
    """The check of private clusters, failed too where their λ costs more than ε₁."""
    private = run.config.private_clusters
    if private is None:
        return check
    cost = pure_epsilon(LabelResponse.of(len(private.names), private.epsilon).event)
    if cost <= private.epsilon:
        return check
    return Check(check.name, holds=False, evidence=f"clusters cost {cost!r} of epsilon")


# many small releases


def _repeated(run: _Run, again: int) -> list[Events]:
    """Events of each stratum's noise and of each unit's draws, over releases of one small log."""
    _log.info("releasing a small made-up log %d times", again)
    units = layout(run.config, 90, 2)
    levels = on_grid(run.config, units.n_units, salt=5, uneven=learns(run.design))
    rows = units.rows(run.grid[levels])
    times = min(again, max(20, run.most_strata))
    truth = _truth(run, units, levels)
    releases = [_draws(run, units, truth, run.published(rows)) for _ in range(times)]
    events = [] if run.config.private_clusters is not None else _noise_by_stratum(releases)
    outcomes, labels = [draws.responses for draws in releases], [draws.labels for draws in releases]
    for responses in (outcomes, labels):
        events += _kept_by_unit([response for response in responses if response is not None])
    return events


def _noise_by_stratum(releases: list[_Draws]) -> list[Events]:
    """Events of the noise of each (pool, arm), of neighbouring ones, and of pairs of releases."""
    events: list[Events] = []
    for parts in zip(*(draws.noise for draws in releases), strict=True):
        scale, cells = parts[0].scale, parts[0].cells
        noise = np.stack([part.values for part in parts])  # [releases, cells, numbers]
        names = releases[0].release.cells[cells.tolist()]
        for place, (pool, arm) in enumerate(names.select("pool", "arm").rows()):
            events += noise_events(noise[:, place].ravel(), scale, f"noise of {pool}, {arm}")
        for place in range(len(cells) - 1):
            pairs = (noise[:, place].ravel(), noise[:, place + 1].ravel())
            events += pair_events(*pairs, scale, f"noises of strata {place} and {place + 1}")
        half = len(noise) // 2
        pairs = (noise[:half].ravel(), noise[half : 2 * half].ravel())
        events += pair_events(*pairs, scale, "noises of two releases")
    return events


def _kept_by_unit(responses: Sequence[AnyResponses]) -> list[Events]:
    """How often each unit, by its row in the table, kept its true value."""
    if not responses:
        return []
    n = len(responses[0].levels)
    return [
        Events(
            tuple(f"unit {place + 1} of {n} is kept" for place in range(n)),
            np.sum([response.kept for response in responses], axis=0).astype(np.float64),
            np.sum([response.keeping for response in responses], axis=0),
            np.full(n, float(len(responses))),
        )
    ]


# rounding


def _rounded(run: _Run, effort: StepEffort, error: float) -> Check:
    """Check how outcomes between grid points are rounded, in the order of units and of strata."""
    _log.info("rounding made-up outcomes")
    units = layout(run.config, effort.units, effort.clusters)
    values = off_grid(run.config, units.n_units)
    rows = units.rows(values)
    stated = count_strata(run.config, rows, run.design.mechanism, None, keep=True)
    levels = np.concatenate([part.load()[LEVEL].to_numpy() for part in stated.levels])
    levels, cells = levels.astype(np.int64), _cells(rows, stated)
    k = len(run.grid)
    counts = np.bincount(cells * k + levels, minlength=stated.counts.size)
    problems = [] if np.array_equal(counts, stated.counts.ravel()) else ["counts are of others"]
    if run.config.outcome.rounding == "nearest":
        wrong = not_nearest(levels, values, run.grid)
        problems += [f"{wrong:,} outcomes are not at the nearest point"] * bool(wrong)
        return exactly(ROUNDED, problems, f"{units.n_units:,} outcomes")
    wrong = not_around(levels, values, run.grid)
    problems += [f"{wrong:,} outcomes went to neither point around them"] * bool(wrong)
    if problems:
        return exactly(ROUNDED, problems, "")
    by_stratum = np.argsort(cells, kind="stable")
    events = rounding_events(levels, values, run.grid, "an outcome")
    events += rounding_events(
        levels[by_stratum], values[by_stratum], run.grid, "an outcome, by stratum,"
    )
    return judge_events(ROUNDED, events, error)


def _cells(rows: Rows, counts: StrataCounts) -> Ints:
    """The (pool, arm) of each row, as its position, shape [n]."""
    table = cell_table(counts.strata)
    return np.concatenate([cells_of(frame, table) for frame in rows.frames()]).astype(np.int64)
