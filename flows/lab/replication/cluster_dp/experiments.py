"""Experiments 1 to 4, 6 and 7 of Javanmard, Mirrokni and Pouget-Abadie (2025).

Figures compare variances. A variance is that without privacy, over assignments, and what resampling
adds, averaged over assignments and priors (:meth:`Release.noise`), so that ratios near one can be
told apart; errors are those over populations. The paper draws sub-populations from one population
of three centres; here all is drawn anew, the centres too, as much depends on them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from flows.lab.replication.claims import Found, Run, jackknife, mean_of, paired_ratio
from flows.lab.replication.cluster_dp.people import People, Release, printed_rate, sound_rate
from flows.lab.replication.efficiency.noise import learnt, limit, spreads
from flows.lab.replication.experiment_one import BETA, K
from flows.lab.replication.panels import Line, Panel
from flows.runtime.reading.table_files import read_table
from schemas.arrays import Floats

_AT = 0.2  # ε of Figure 1.a
_PARTS = (0.1, 0.2, 0.5, 1.0)
"""Of γ K, in Figure 1.a."""
_NAMES = {"cluster": "Cluster-DP", "arm": "Cluster-Free-DP", "nobody": "uniform prior"}
_TRADE = (0.2, 1.0, 2.0, 4.0)
"""Of ε, in Figure 1.b."""


def _variances(people: Sequence[People], release: Release, run: Run) -> Floats:
    """The variance of τ̂_Q in every population, shape [P]."""
    n = 40 if run.quick else 200
    noise = [one.no_privacy() + release.noise(one, n, run.random) for one in people]
    return np.array(noise)


def _drawn(run: Run, few: int, many: int, beta: float = BETA) -> list[People]:
    return [People.of_experiment_one(run.random, beta) for _ in range(few if run.quick else many)]


def _printed(prior_of: str, epsilon: float, gamma: float, noise_scale: float) -> Release:
    return Release(prior_of, printed_rate(epsilon, gamma, noise_scale), gamma, noise_scale)


def _sound(epsilon: float, gamma: float, noise_scale: float) -> Release:
    return Release("cluster", sound_rate(epsilon, gamma, noise_scale), gamma, noise_scale)


def _uniform_printed(epsilon: float) -> Release:
    return Release("nobody", printed_rate(epsilon, 1 / K))


def _figure_1a(run: Run) -> Found:
    people = _drawn(run, 20, 50)
    uniform = _variances(people, _uniform_printed(_AT), run)
    found: dict[str, tuple[float, float]] = {}
    heights: dict[str, list[Floats]] = {"cluster": [], "arm": []}
    for part in _PARTS:
        mine, free = (_variances(people, _printed(of, _AT, part / K, 10.0), run) for of in heights)
        found[f"uniform {part:g}"] = paired_ratio(mine, uniform)
        found[f"free {part:g}"] = paired_ratio(mine, free)
        heights["cluster"].append(mine)
        heights["arm"].append(free)
    rate, gamma = 0.999, _PARTS[0] / K
    equal = _variances(people, Release("cluster", rate, gamma, 10.0), run)
    found["equal rate"] = paired_ratio(equal, _variances(people, Release("nobody", rate), run))
    mine = _variances(people, _sound(_AT, gamma, 20.0), run)
    even = _variances(people, Release("nobody", sound_rate(_AT, 1 / K)), run)
    found["sound"] = paired_ratio(mine, even)
    heights["nobody"] = [uniform] * len(_PARTS)
    title = "Figure 1.a: ε = .2, δ = 1e-4 as printed"
    return found, (_panel(title, "truncation γ times K", _PARTS, heights, people),)


def _panel(
    title: str,
    across: str,
    x: Sequence[float],
    heights: Mapping[str, Sequence[Floats]],
    people: Sequence[People],
) -> Panel:
    """Variances by mechanism, beside the one without privacy."""
    plain = np.array([one.no_privacy() for one in people])
    lines = [_line(_NAMES[of], x, values) for of, values in heights.items()]
    lines.append(_line("without privacy", x, [plain] * len(x), is_reference=True))
    return Panel(title, across, "variance of the effect, (outcome's unit)²", tuple(lines), "xy")


def _line(
    label: str, x: Sequence[float], values: Iterable[Floats], *, is_reference: bool = False
) -> Line:
    return Line.of(label, x, [mean_of(one) for one in values], is_reference=is_reference)


def _best(people: Sequence[People], of: Iterable[Release], run: Run) -> Floats:
    """The variances of the release that has least on average."""
    each = [_variances(people, one, run) for one in of]
    return min(each, key=lambda one: float(one.mean()))


def _figure_1b(run: Run) -> Found:
    people = _drawn(run, 16, 40)
    found: dict[str, tuple[float, float]] = {}
    heights: dict[str, list[Floats]] = {"cluster": [], "arm": [], "nobody": []}
    for epsilon in _TRADE:
        for of in ("cluster", "arm"):
            choices = product((0.01, 0.1, 1.0), (10.0, 20.0))
            each = (_printed(of, epsilon, part / K, sigma) for part, sigma in choices)
            heights[of].append(_best(people, each, run))
        heights["nobody"].append(_variances(people, _uniform_printed(epsilon), run))
        cluster, free, even = (heights[of][-1] for of in heights)
        found[f"1b {epsilon:g}"] = paired_ratio(cluster, even)
        found[f"1b free {epsilon:g}"] = paired_ratio(cluster, free)
        shares = product((0.01, 0.1, 0.3, 0.6), (0.1, 0.25, 0.5, 0.75))
        proper = (_sound(epsilon, part / K, 2 / (epsilon * share)) for part, share in shares)
        sound = Release("nobody", sound_rate(epsilon, 1 / K))
        found[f"1b sound {epsilon:g}"] = paired_ratio(
            _best(people, proper, run), _variances(people, sound, run)
        )
    title = "Figure 1.b: δ = 1e-4, best γ and finite σ as printed"
    return found, (_panel(title, "epsilon", _TRADE, heights, people),)


def _quality(run: Run) -> Found:
    """Experiment 2: what clusters gain, by β and λ; the same populations for both λ."""
    betas = (0.0, 2.5, 4.5, 5.0)
    found: dict[str, tuple[float, float]] = {}
    lines, at_default = [], {}
    people = {beta: _drawn(run, 30, 100, beta) for beta in betas}
    for rate in (0.5, 0.8):
        ratios = []
        for beta in betas:
            each = [
                _variances(people[beta], Release(of, rate, 0.02, 10.0), run)
                for of in ("cluster", "arm")
            ]
            ratios.append(paired_ratio(*each))
            at_default[rate, beta] = each
        first, last = ratios[0], ratios[-1]
        fall = last[0] / first[0]
        found[f"2 falls {rate:g}"] = (
            fall,
            fall * float(np.hypot(first[1] / first[0], last[1] / last[0])),
        )
        lines.append(Line.of(f"λ = {rate:g}", betas, ratios))
    half, most = (at_default[rate, 4.5] for rate in (0.5, 0.8))
    alone = half[0] / half[1]
    spread = float(alone.std(ddof=1))
    found["2 spread"] = spread, spread / float(np.sqrt(2 * len(alone) - 2))
    found["2 rate"] = jackknife(lambda a, b, c, d: float(a / b / (c / d)), *half, *most)
    panel = Panel(
        "Experiment 2",
        "β: outcomes' variance between clusters",
        "variance over that without clusters",
        tuple(lines),
        "",
    )
    return found, (panel,)


def _shape(people: People, release: Release, run: Run) -> dict[str, tuple[float, float]]:
    """Bias, skewness and excess kurtosis of the estimate."""
    n = 20_000 if run.quick else 50_000
    pieces = [release.estimates(people, 2_000, run.random) for _ in range(n // 2_000)]
    off = np.concatenate(pieces) - people.effect
    z = (off - off.mean()) / off.std()
    return {
        "bias": (float(off.mean() / off.std()), n**-0.5),
        "skewness": (float(np.mean(z**3)), (6.0 / n) ** 0.5),
        "kurtosis": (float(np.mean(z**4)) - 3.0, (24.0 / n) ** 0.5),
    }


def _gaussian(run: Run) -> Found:
    people = People.of_experiment_one(run.random)
    found = {
        f"4 {of} {what}": value
        for of in _NAMES
        for what, value in _shape(people, Release(of, 0.8, 0.02, 10.0), run).items()
    }
    return found, ()


_ONE_SHOT = (0.2, 1.0, 2.0, 4.0)


def _one_shot(run: Run) -> Found:
    people = _drawn(run, 12, 60)
    found: dict[str, tuple[float, float]] = {}
    heights: dict[str, list[Floats]] = {"Cluster-DP": [], "noisy HT": [], "histogram": []}
    for epsilon in _ONE_SHOT:
        size = np.array([_biases(one, epsilon, 12, run) for one in people])
        for values, mean in zip(heights.values(), size.T, strict=True):
            values.append(mean)
        found[f"6 HT {epsilon:g}"] = paired_ratio(size[:, 0], size[:, 1])
        found[f"6 histogram {epsilon:g}"] = paired_ratio(size[:, 0], size[:, 2])
    lines = tuple(_line(name, _ONE_SHOT, values) for name, values in heights.items())
    return found, (
        Panel("Experiment 6, as printed", "epsilon", "mean absolute bias of one draw", lines, "xy"),
    )


def _biases(people: People, epsilon: float, n: int, run: Run) -> list[float]:
    """Mean |bias| of n draws by Cluster-DP, noisy HT and histogram, over sub-populations.

    That of a draw is its error on average over assignments and sub-populations, a fifth of each
    cluster: of units that of all of them, of an aggregate its noise.
    """
    whole = People(people.grid, people.levels, 5 * people.counts)
    both = whole.in_arms(np.stack([whole.counts, whole.counts]))
    counts = np.broadcast_to(both, (n, *both.shape))
    release = _printed("cluster", epsilon, 0.02, 10.0)
    mean = release.respond(counts, release.priors(counts), whole.grid, run.random)
    off = (mean[..., 1] - mean[..., 0]) @ whole.weights - whole.effect
    scale = whole.weights / people.sizes.min(axis=1) / epsilon
    of_sums = run.random.laplace(size=(n, len(scale))) @ (scale * np.abs(whole.grid).max())
    cells = run.random.laplace(size=(n, len(scale), 2 * K)) @ np.tile(whole.grid, 2) @ scale
    return [float(np.abs(one).mean()) for one in (off, of_sums, cells)]


FEATURES = Path("snap_youtube", "cluster_features_top50.parquet")
_CLUSTERS = ("n_users", "internal_edges", "edges_to_other_top50", "density")
_VIDEO = (0.5, 1.0, 2.0, 5.0)
_LEVELS = 8


def _youtube(run: Run, standard: Callable[[Floats], Floats]) -> tuple[People, pl.DataFrame]:
    """Users by community; ``standard`` brings features of mean 0 to unit norm, or unit variance."""
    table = read_table(run.file(FEATURES))
    raw = table.select(_CLUSTERS).to_numpy().astype(np.float64)
    apart = raw - raw.mean(axis=0)
    cluster = np.repeat(np.arange(len(raw)), table["n_users"].to_numpy())
    control = (apart / standard(apart)).sum(axis=1)[cluster]
    control = control + 0.1 * run.random.standard_normal(len(cluster))
    both = np.stack([control, control + 1.0])
    grid = np.linspace(both.min(), both.max(), _LEVELS)
    levels = np.rint((both - grid[0]) / (grid[1] - grid[0])).astype(np.int64)
    return People.of_units(grid, levels, cluster), table


def _norm(apart: Floats) -> Floats:
    norm: Floats = np.linalg.norm(apart, axis=0)
    return norm


def _deviation(apart: Floats) -> Floats:
    deviation: Floats = apart.std(axis=0)
    return deviation


def _communities(run: Run) -> Found:
    found: dict[str, tuple[float, float]] = {}
    heights: dict[str, list[Floats]] = {one: [] for one in _NAMES}
    panels: tuple[Panel, ...] = ()
    for name, standard in (("norm", _norm), ("variance", _deviation)):
        people = [_youtube(run, standard)[0] for _ in range(6 if run.quick else 10)]
        plain = np.array([one.no_privacy() for one in people])
        gamma = 0.1 / _LEVELS
        for epsilon in _VIDEO:
            cluster, free = (
                _variances(people, _printed(of, epsilon, gamma, 5.0), run)
                for of in ("cluster", "arm")
            )
            even = _variances(people, Release("nobody", printed_rate(epsilon, 1 / _LEVELS)), run)
            found[f"3 {name} {epsilon:g}"] = paired_ratio(cluster, free)
            found[f"3 uniform {name} {epsilon:g}"] = paired_ratio(cluster, even)
            found[f"3 plain {name} {epsilon:g}"] = paired_ratio(cluster, plain)
            if name == "norm":
                for one, values in zip(heights, (cluster, free, even), strict=True):
                    heights[one].append(values)
        if name == "norm":
            panels = (_panel("Figure 1.d, as printed", "epsilon", _VIDEO, heights, people),)
            release = _printed("cluster", 2.0, gamma, 5.0)
            found |= {f"7 {what}": value for what, value in _shape(people[0], release, run).items()}
    table = _youtube(run, _norm)[1]
    users = table["n_users"].to_numpy()
    found["3 users"], found["3 least"] = (float(users.sum()), 0.0), (float(users.min()), 0.0)
    found["3 people"] = float(table["n_users_partition_smallest"].to_numpy().sum()), 0.0
    return found, panels


def _tables(run: Run) -> Found:
    """What clusters are worth at a sound ε: tables learnt in each, over the best one for all."""
    people = spreads(6 if run.quick else 12)
    found: dict[str, tuple[float, float]] = {}
    for epsilon in (1.0, 4.0):
        each = [(learnt(epsilon, shares), limit(epsilon, shares)) for shares in people]
        found[f"tables {epsilon:g}"] = paired_ratio(*np.transpose(each))
    return found, ()


MEASURES = {
    "tables": _tables,
    "figure 1.a": _figure_1a,
    "figure 1.b": _figure_1b,
    "experiment 2": _quality,
    "experiment 4": _gaussian,
    "experiment 6": _one_shot,
    "youtube": _communities,
}
