"""Figures with our settings and nobody else's: no file of the user's changes what is drawn."""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flows.lab.replication.panels import Panel
from flows.runtime.files import public_directory, replace_file
from schemas.errors import InputError

_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {"Software": None}}


@contextmanager
def plain_matplotlib(settings: Mapping[Any, Any]) -> Iterator[None]:
    """Draw with Matplotlib's defaults and ``settings``; the same figure gives the same bytes.

    ``svg.hashsalt`` among them names the figure: ids in it hang on nothing else.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # on its caches: harmless
    with mpl.rc_context(), warnings.catch_warnings():
        # It measures text by a typeface that lacks many scripts; whoever looks at it has others.
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", **settings})
        yield


def save_figure(figure: Figure, path: Path) -> None:
    """Write an SVG or PNG, as the path's ending says; raises InputError where that fails."""
    kind = path.suffix[1:].lower()
    try:
        with replace_file(path, 0o644) as file:
            figure.savefig(file, format=kind, metadata=_METADATA[kind])
    except OSError as error:
        raise InputError(f"{path}: cannot write the figure ({error.strerror})") from None


def folder_for_figures(folder: Path) -> Path:
    """Make the folder if need be, and return it; raises InputError if none can be put there."""
    public_directory(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot write into this folder; name another with --output")
    return folder.absolute()


_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which are told apart by people who see few colours; marks differ as well."""
_MARKS = ("o", "s", "^", "D", "v", "P")


def draw_panels(name: str, panels: Sequence[Panel], folder: Path) -> Path:
    """Draw panels side by side into ``folder``; raises InputError where that fails."""
    path, across = folder / f"{name}.png", min(len(panels), 3)
    down = -(-len(panels) // across)
    with plain_matplotlib({"savefig.dpi": 120}):
        figure = Figure(figsize=(4.8 * across, 4.2 * down), layout="constrained")
        places = figure.subplots(down, across, squeeze=False).ravel()
        for axes, panel in zip(places, panels, strict=False):
            _draw_panel(axes, panel)
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        figure.supxlabel(
            "bars: two Monte Carlo standard errors, where longer than marks", fontsize=8
        )
        save_figure(figure, path)
    return path


def _draw_panel(axes: Axes, panel: Panel) -> None:
    nth = -1
    for line in panel.lines:
        nth += not line.is_reference
        style: dict[str, Any] = {
            "color": _COLOURS[nth % len(_COLOURS)],
            "marker": _MARKS[nth % len(_MARKS)],
            "markersize": 4,
        }
        if line.is_reference:
            style = {"color": "#555555", "linestyle": "--", "linewidth": 1}
        bars = None if line.error is None else [2.0 * one for one in line.error]
        axes.errorbar(line.x, line.y, yerr=bars, label=line.label, **style)
    if "x" in panel.log:
        axes.set_xscale("log")
        places = panel.lines[0].x
        axes.set_xticks(places, [f"{one:g}" for one in places], rotation=30)
        axes.minorticks_off()
    if "y" in panel.log:
        axes.set_yscale("log")
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    axes.grid(linewidth=0.4)
    axes.legend(fontsize=8, frameon=False)
