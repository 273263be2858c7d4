"""The figures of `efficiency`: mean squared error, and the noise of a unit, against ε."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from flows.lab.replication.efficiency.noise import NoiseRow
from flows.lab.replication.efficiency.text import EfficiencyRow
from flows.lab.replication.plots import plain_matplotlib, save_figure

FILE = "efficiency.svg"
NOISE_FILE = "efficiency-noise.svg"
_TITLES = {"everybody": "effect on everybody", "half": "effect on a random half"}
_MARKS = ("o", "s", "^", "D", "v", "P")


def draw(rows: Sequence[EfficiencyRow], folder: Path) -> Path:
    """Draw the figure into ``folder`` and return its path; raises InputError where that fails."""
    path = folder / FILE
    labels = list(dict.fromkeys(map(_label, rows)))
    with plain_matplotlib({"svg.hashsalt": "efficiency"}):
        figure = Figure(figsize=(10.5, 4.8), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes, effect_on in zip(panels, _TITLES, strict=True):
            _panel(axes, [one for one in rows if one.effect_on == effect_on], labels)
            axes.set_title(_TITLES[effect_on])
        save_figure(figure, path)
    return path


def draw_noise(rows: Sequence[NoiseRow], folder: Path) -> Path:
    """Draw the noise of a unit into ``folder``; otherwise as :func:`draw`."""
    path = folder / NOISE_FILE
    with plain_matplotlib({"svg.hashsalt": "efficiency-noise"}):
        figure = Figure(figsize=(7.0, 4.8), layout="constrained")
        axes = figure.subplots()
        for nth, release in enumerate(dict.fromkeys(row.release for row in rows)):
            points = [one for one in rows if one.release == release]
            epsilons, noise = ([getattr(one, of) for one in points] for of in ("epsilon", "noise"))
            axes.plot(epsilons, noise, label=release, **_style(nth))
        across = "epsilon (everything published together, delta 0)"
        _dress(axes, across, "variance that a unit's noise adds")
        save_figure(figure, path)
    return path


def _label(row: EfficiencyRow) -> str:
    best = row.release.startswith("planned")  # by the calibrated estimate wherever there is one
    return row.release if best else f"{row.release}: {row.estimator}"


def _panel(axes: Axes, rows: Sequence[EfficiencyRow], labels: Sequence[str]) -> None:
    """A line for each of the ``labels`` that has rows, in a colour that it has in every panel."""
    for nth, label in enumerate(labels):
        points = [one for one in rows if _label(one) == label]
        if not points:
            continue
        axes.errorbar(
            [one.epsilon for one in points],
            [one.mse for one in points],
            yerr=[2 * one.mse_std_error for one in points],
            label=label,
            **_style(nth),
        )
    axes.set_xscale("log")
    _dress(axes, "epsilon (sound, delta 1e-4)", "mean squared error")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xticks(sorted({one.epsilon for one in rows}))


def _style(nth: int) -> dict[str, Any]:
    return {"color": f"C{nth}", "marker": _MARKS[nth % len(_MARKS)]}


def _dress(axes: Axes, across: str, up: str) -> None:
    axes.set_yscale("log")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(linewidth=0.4)
    axes.legend(fontsize=8, frameon=False)
