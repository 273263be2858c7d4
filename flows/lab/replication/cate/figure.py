"""The figures of `cate`: errors against the number of people, and what they consist of."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from flows.lab.replication.cate.reference import REFERENCE
from flows.lab.replication.plots import plain_matplotlib, save_figure

if TYPE_CHECKING:
    from flows.lab.replication.cate.rows import CateRow

FILES = ("cate.png", "cate_parts.png")

_STYLES: dict[str, dict[str, Any]] = {
    "moments": {"color": "#1f6feb", "marker": "o", "linestyle": "-"},
    "moments, outcome": {"color": "#1f6feb", "marker": "o", "linestyle": ":"},
    "dr": {"color": "#b35900", "marker": "s", "linestyle": "-"},
    "r": {"color": "#1a7f37", "marker": "D", "linestyle": "-"},
    "s": {"color": "#8250df", "marker": "v", "linestyle": "-"},
    "DP-EBM dr": {"color": "#b35900", "marker": "s", "linestyle": "--", "mfc": "none"},
    "DP-EBM r": {"color": "#1a7f37", "marker": "D", "linestyle": "--", "mfc": "none"},
    "DP-EBM s": {"color": "#8250df", "marker": "v", "linestyle": "--", "mfc": "none"},
}
_CITED = {n for _, _, n in REFERENCE}
"""Numbers of people with cited errors."""
_AUTHORS: dict[str, Any] = {"color": "#57606a", "marker": "x", "linestyle": "-."}
_SETTINGS: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#c9d1d9",
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "savefig.dpi": 130,
}


def draw(rows: Sequence["CateRow"], titles: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    """Draw all figures into ``folder`` and return their paths; InputError where that fails.

    ``titles`` are those of the set-ups, by name.
    """
    paths = tuple(folder / name for name in FILES)
    _against_n(rows, titles, paths[0])
    _parts(rows, titles, paths[1])
    return paths


def _against_n(rows: Sequence["CateRow"], titles: Mapping[str, str], path: Path) -> None:
    """A row of panels an ε, a panel a set-up, a line a learner."""
    epsilons = sorted({one.epsilon for one in rows})[:2]
    with plain_matplotlib(_SETTINGS):
        figure, grid = _panels(len(epsilons), titles)
        for line, epsilon in zip(grid, epsilons, strict=True):
            for at, name in zip(line, titles, strict=True):
                of = [one for one in rows if (one.set_up, one.epsilon) == (name, epsilon)]
                for learner, style in _STYLES.items():
                    points = sorted((one.n, one.mse) for one in of if one.learner == learner)
                    if points:
                        at.plot(*zip(*points, strict=True), label=learner, **style)
                _authors(at, name, epsilon)
                if of[0].effect_variance > 0.0:
                    at.axhline(of[0].effect_variance, color="#57606a", linewidth=0.6)
                _dress(
                    at, f"{titles[name]}\nepsilon {epsilon:g}", "people", name == next(iter(titles))
                )
                _ticks(at, sorted({one.n for one in of} | _CITED), "{:,.0f}")
        figure.suptitle(
            "Mean squared error of effects. The thin line is the variance of the true effect: "
            "the error of who knows the average alone."
        )
        _legend(figure, grid[0][0])
        save_figure(figure, path)


def _parts(rows: Sequence["CateRow"], titles: Mapping[str, str], path: Path) -> None:
    """Squared bias and variance of two learners against ε, at the greatest n."""
    n = max(one.n for one in rows)
    with plain_matplotlib(_SETTINGS):
        figure, grid = _panels(1, titles)
        for at, name in zip(grid[0], titles, strict=True):
            of = [one for one in rows if (one.set_up, one.n) == (name, n)]
            for learner in ("moments", "DP-EBM dr"):
                points = [one for one in of if one.learner == learner]
                style = _STYLES[learner] | {"linestyle": "-"}
                for part, line in (("variance", "-"), ("squared bias", ":")):
                    at.plot(
                        [one.epsilon for one in points],
                        [max(getattr(one, part.replace(" ", "_")), 0.0) for one in points],
                        **style | {"linestyle": line, "label": f"{learner}: {part}"},
                    )
            _dress(at, f"{titles[name]}\n{n:,} people", "epsilon", name == next(iter(titles)))
            _ticks(at, sorted({one.epsilon for one in of}), "{:g}")
        figure.suptitle("What errors consist of")
        _legend(figure, grid[0][0])
        save_figure(figure, path)


def _panels(height: int, titles: Mapping[str, str]) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(1.0 + 2.6 * len(titles), 1.2 + 2.6 * height), layout="constrained")
    return figure, [list(line) for line in figure.subplots(height, len(titles), squeeze=False)]


def _authors(axes: Axes, name: str, epsilon: float) -> None:
    known = [
        (n, found.dr)
        for (of, at, n), found in REFERENCE.items()
        if (of, at) == (name, epsilon) and found.dr is not None
    ]
    axes.plot(
        [n for n, _ in known], [error for _, error in known], label="DP-EBM dr, cited", **_AUTHORS
    )


def _dress(axes: Axes, title: str, label: str, first: bool) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(title, fontsize=9.5, loc="left")
    axes.set_xlabel(label, fontsize=9)
    if first:
        axes.set_ylabel("mean squared error", fontsize=9)
    axes.tick_params(which="both", labelsize=7.5)
    axes.grid(linewidth=0.4)


def _ticks(axes: Axes, values: Sequence[float], form: str) -> None:
    axes.xaxis.set_major_locator(FixedLocator(list(values)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form.format(value)))
    axes.tick_params(axis="x", rotation=45)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
