"""The picture of docs/optimal.md: ``python -m tests.docs.tables_picture`` makes it anew.

Two randomisers of six outcomes at the same ε, for the same guess: randomised response, and the
least noisy table. The same code makes the same bytes.
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flows.lab.replication.plots import plain_matplotlib, save_figure
from privatizers.optimal_response.learnt_guess import solved
from privatizers.optimal_response.whole_numbers import ResponseTable, even_table
from schemas.arrays import Floats

PICTURE = Path(__file__).parents[2] / "docs" / "optimal.svg"
GRID: Floats = np.arange(6.0)
GUESS: Floats = np.array([0.55, 0.2, 0.1, 0.07, 0.05, 0.03])
EPSILON = 2.0


def tables() -> dict[str, ResponseTable]:
    """The two tables, by what they are called."""
    return {
        "randomised response": even_table(GRID, EPSILON),
        "the least noisy table": solved(GRID, GUESS, EPSILON),
    }


def make_picture(path: Path) -> None:
    """Draw both tables; the area of a disc is the probability of an output."""
    with plain_matplotlib({"svg.hashsalt": "optimal"}):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        for axes, (name, table) in zip(figure.subplots(1, 2), tables().items(), strict=True):
            _panel(axes, table)
            axes.set_title(f"{name}: noise {GUESS @ table.noise:.2f}", fontsize=10)
        save_figure(figure, path)


def _panel(axes: Axes, table: ResponseTable) -> None:
    outcome, output = np.nonzero(table.probabilities > 1e-3)
    likely = table.probabilities[outcome, output]
    axes.scatter(table.values[output], table.inputs[outcome], s=320.0 * likely, color="C0")
    axes.plot(table.inputs, table.inputs, color="0.6", linewidth=0.8)
    axes.set_xlabel("the value that an output counts as")
    axes.set_ylabel("outcome")
    axes.set_yticks(GRID)
    axes.set_ylim(-0.6, GRID[-1] + 0.6)
    axes.grid(linewidth=0.4)


if __name__ == "__main__":
    make_picture(PICTURE)
