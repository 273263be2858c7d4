"""The figures of `multisite`: mean absolute error against alpha, and smooth against global."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from flows.lab.replication.plots import plain_matplotlib, save_figure

if TYPE_CHECKING:
    from flows.lab.replication.multisite.findings import MultisiteRow

FILES = ("multisite.png", "multisite_as_printed.png", "multisite_matching.png")

_LINES: dict[str, dict[str, Any]] = {
    "largest": {"color": "#57606a", "marker": "^", "linestyle": ":", "label": "largest site"},
    "all": {"color": "#b35900", "marker": "s", "linestyle": "--", "label": "all, by units"},
    "ivw": {"color": "#1a7f37", "marker": "D", "linestyle": "-.", "label": "inverse variance"},
    "mvagg": {"color": "#1f6feb", "marker": "o", "linestyle": "-", "label": "best set (mvagg)"},
}
_MATCHINGS: dict[str, dict[str, Any]] = {
    f"{estimator}, {form}": style | {"linestyle": line, "label": f"{estimator}, {form}"}
    for estimator, style in {
        "global matching": {"color": "#b35900", "marker": "s"},
        "smooth matching": {"color": "#1f6feb", "marker": "o"},
    }.items()
    for form, line in (("as printed", "--"), ("ours", "-"))
}
_FORMS = {"ours": "as the product does", "as printed": "as printed"}
_SETTINGS: dict[Any, Any] = {
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#c9d1d9",
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "savefig.dpi": 130,
}


def draw(
    rows: Sequence["MultisiteRow"], titles: Mapping[str, str], folder: Path
) -> tuple[Path, ...]:
    """Draw all figures into ``folder`` and return their paths; InputError where that fails.

    ``titles`` are those of the data sets, by name.
    """
    paths = tuple(folder / name for name in FILES)
    for path, form in zip(paths[:2], ("ours", "as printed"), strict=True):
        _aggregates([one for one in rows if one.form == form], titles, form, path)
    _matchings(rows, titles, paths[2])
    return paths


def _aggregates(
    rows: Sequence["MultisiteRow"], titles: Mapping[str, str], form: str, path: Path
) -> None:  # fmt: skip
    """A row of panels a data set, a panel an assignment to sites, a line an aggregate.

    Data sets with one assignment share the last row.
    """
    shown = [one for one in rows if not one.estimator.startswith("global")]
    by_data = _grouped(shown, "data")
    fixed = [name for name, of in by_data.items() if len({one.sites for one in of}) == 1]
    wide = [name for name in by_data if name not in fixed]
    with plain_matplotlib(_SETTINGS):
        columns = max(len({one.sites for one in by_data[name]}) for name in wide or fixed)
        height = len(wide) + bool(fixed)
        figure = Figure(figsize=(1.2 + 2.7 * columns, 0.9 + 2.5 * height), layout="constrained")
        grid = figure.subplots(height, columns, squeeze=False, sharey="row")
        for line, name in zip(grid, wide, strict=False):
            _line_of_panels(list(line), by_data[name], titles[name], _LINES)
        for at, name in zip(grid[-1], fixed, strict=False):
            _line_of_panels([at], by_data[name], titles[name], _LINES)
        for unused in grid[-1][len(fixed) :] if fixed else ():
            unused.remove()
        figure.suptitle(
            f"Mean absolute error by aggregate. Sites report {_FORMS[form]},\n"
            "by smooth matching where there is no trial. Bars are two standard errors."
        )
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles[::-1], labels[::-1], loc="outside lower center", ncols=4, frameon=False
        )
        save_figure(figure, path)


def _line_of_panels(
    axes: list[Axes],
    rows: Sequence["MultisiteRow"],
    title: str,
    lines: Mapping[str, Mapping[str, Any]],
) -> None:
    """A panel an assignment to sites; ``lines`` are by aggregate, or by estimator and form."""
    panels = _grouped(rows, "sites")
    for place, (at, (sites, of)) in enumerate(zip(axes, panels.items(), strict=False)):
        for name, style in lines.items():
            points = [one for one in of if name in (one.aggregate, f"{one.estimator}, {one.form}")]
            at.errorbar(
                [one.alpha for one in points],
                [one.mae for one in points],
                yerr=[2 * one.mae_std_error for one in points],
                elinewidth=0.7,
                **style,
            )
        _dress(at, f"{title}\nsites {sites}" if place == 0 else f"\nsites {sites}", place == 0)
    for unused in axes[len(panels) :]:
        unused.remove()


def _matchings(rows: Sequence["MultisiteRow"], titles: Mapping[str, str], path: Path) -> None:
    """The two matchings in both forms, aggregated by mvagg."""
    shown = [one for one in rows if one.aggregate == "mvagg" and "matching" in one.estimator]
    by_data = _grouped(shown, "data")
    with plain_matplotlib(_SETTINGS):
        columns = max((len({one.sites for one in of}) for of in by_data.values()), default=1)
        height = max(len(by_data), 1)
        figure = Figure(figsize=(1.2 + 2.7 * columns, 0.9 + 2.7 * height), layout="constrained")
        grid = figure.subplots(height, columns, squeeze=False, sharey="row")
        for line, (name, of) in zip(grid, by_data.items(), strict=False):
            _line_of_panels(list(line), of, titles[name], _MATCHINGS)
        figure.suptitle(
            "Smooth against global matching, aggregated by mvagg.\nBars are two standard errors."
        )
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        save_figure(figure, path)


def _dress(axes: Axes, title: str, first: bool) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator([1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_fraction))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(FuncFormatter(_plain))
    axes.tick_params(which="both", labelsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("alpha", fontsize=9)
    if first:
        axes.set_ylabel("error / range of outcomes", fontsize=9)
    axes.grid(linewidth=0.4, which="both")


def _fraction(value: float, _: object) -> str:
    return f"{value:g}" if value >= 1 else f"1/{round(1 / value)}"


def _plain(value: float, _: object) -> str:
    """Ticks at 1, 2 and 5 times a power of ten, as plain numbers."""
    digit = f"{value:.0e}"[0]
    return f"{value:g}" if digit in "125" else ""


def _grouped(rows: Sequence["MultisiteRow"], by: str) -> dict[str, list["MultisiteRow"]]:
    groups: dict[str, list[MultisiteRow]] = {}
    for one in rows:
        groups.setdefault(str(getattr(one, by)), []).append(one)
    return groups
