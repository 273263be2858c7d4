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
from flows.config.resolve import ResolvedRelease
from flows.lab.raw.draws import Truth
from flows.lab.raw.made_up_log import MadeUpPeople
from flows.lab.raw.published import FileTables, of_tables
from flows.raw.charge import Designed
from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.spill.workspace import Workspace, open_workspace
from flows.raw.units.rows import Rows
from flows.raw.validate import validate
from schemas.arrays import Floats, Ints
from schemas.names import ReleaseName
from schemas.roster import Roster


@dataclass(frozen=True)
class SmallRun:
    """Rows of made-up people, and what becomes of them."""

    who: MadeUpPeople
    designed: Designed
    name: ReleaseName
    roster: Roster
    workspace: Workspace

    @property
    def chosen(self) -> ResolvedRelease:
        """The designs of their release."""
        return self.designed.chosen

    @property
    def rows(self) -> Rows:
        """Those that are released."""
        return self.designed.rows.open()

    def truth(self, levels: Sequence[Ints]) -> Truth:
        """The same people with outcomes at these positions on grids, by place; shape [n] each."""
        chosen = self.chosen
        return Truth(chosen.config, chosen.designs, self.who, levels, self.who.numbers(0))

    def release(self) -> FileTables:
        """Draw them once more."""
        chosen, rows = self.chosen, self.designed.rows
        made = privatize(
            chosen.config, rows, chosen.designs, self.name, self.workspace, self.roster
        )
        return of_tables(made)


@contextmanager
def small_run(
    config: Config, who: MadeUpPeople, values: Sequence[Floats], period: str
) -> Iterator[SmallRun]:
    """Read and judge people with these values of outcomes, shape [n] each, as a run does."""
    who.write(period, who.numbers(0), values)
    with open_workspace(config.spill) as workspace:
        rows, _, roster = validate(config.log_facts, ingest(config, period), workspace)
        name = ReleaseName(config.experiment, period, 1)
        yield SmallRun(who, Designed(config, rows), name, roster, workspace)


def on_grids(config: Config, levels: Sequence[Ints]) -> list[Floats]:
    """The outcomes at these positions on the grids, shape [n] each."""
    grids = (np.array(one.grid) for one in config.outcomes)
    return [grid[level] for grid, level in zip(grids, levels, strict=True)]
