"""The private step of a made-up night, drawn again and again from the same rows.

The whole run takes a second, and what sampling is to see takes many draws: so its rows are read
and judged once, by the steps of the run, and :func:`~flows.raw.privatize.privatize` is called as
the run calls it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from flows.config.model.experiment import Config
from flows.lab.raw.draws import Truth
from flows.lab.raw.made_up_log import MadeUpPeople
from flows.lab.raw.published import FileTables, of_tables
from flows.raw.boundary.sealed import Sealed
from flows.raw.charge import Designed, PeriodRows
from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.spill.workspace import Workspace, open_workspace
from flows.raw.units.rows import Rows
from flows.raw.validate import validate
from schemas.arrays import Floats, Ints
from schemas.names import ReleaseName


@dataclass(frozen=True)
class SmallRun:
    """Rows of made-up people, and what becomes of them."""

    read: PeriodRows
    truth: Truth
    workspace: Workspace

    @property
    def rows(self) -> Sealed[Rows]:
        """Those that are released."""
        return self.read.rows

    def release(self) -> FileTables:
        """Draw them once more."""
        chosen = self.read.designed.chosen
        name = ReleaseName(self.read.config.experiment, self.read.period, 1)
        made = privatize(
            chosen.config, self.rows, chosen.designs, name, self.workspace, self.read.roster
        )
        return of_tables(made)


@contextmanager
def small_run(
    config: Config, who: MadeUpPeople, levels: Sequence[Ints], period: str
) -> Iterator[SmallRun]:
    """Read and judge people with these outcomes, as a run does."""
    grids = [np.array(one.grid) for one in config.outcomes]
    values = [grid[level] for grid, level in zip(grids, levels, strict=True)]
    with read_values(config, who, values, period) as (read, workspace):
        chosen = read.designed.chosen
        truth = Truth(chosen.config, chosen.designs, who, levels, who.numbers(0))
        yield SmallRun(read, truth, workspace)


@contextmanager
def read_values(
    config: Config, who: MadeUpPeople, values: Sequence[Floats], period: str
) -> Iterator[tuple[PeriodRows, Workspace]]:
    """Read and judge people with these values of outcomes, shape [n] each, as a run does."""
    who.write(period, who.numbers(0), values)
    with open_workspace(config.spill) as workspace:
        rows, _, roster = validate(config.log_facts, ingest(config, period), workspace)
        yield PeriodRows(Designed(config, rows), period, roster), workspace
