"""Drawing from response tables: every stratum has one of them, several may share one."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from estimators.response.response_tables import OutputFunctions, output_functions
from privatizers.noise.alias_tables import AliasTables, alias_tables, check_positions
from privatizers.noise.randomness import UNIT, random_words
from privatizers.optimal_response.whole_numbers import ResponseTable
from schemas.arrays import Floats, Integers, Ints, Levels

_DOUBT = 1e-3  # of a guess: how much of it may be wrong anyhow
_BATCH = 1 << 15  # words, entries and levels of a batch stay in the processor's cache


@dataclass(frozen=True)
class OutputTables:
    """The tables of an :class:`OptimalResponse`, from which rows can be drawn batch by batch.

    Nothing is kept between draws, so several threads may use the same tables at once.
    """

    table_of: Ints
    """The table of each stratum, shape [S]."""
    n_outcomes: int
    rows: AliasTables
    """A row for each table and outcome."""

    def draw(self, levels: Integers, strata: Integers) -> Levels:
        """Return the output of every unit, of the least unsigned type that holds J.

        P(output j | outcome x) = Q(j|x) of the table of its stratum, exactly: one 53-bit word a
        unit. ``levels`` are positions on the grid and ``strata`` positions of strata, whole numbers
        of any type, shape [n].

        Raises:
            ValueError: A position is out of range; the error does not say whose.
        """
        check_positions(levels, self.n_outcomes, "a level is not on the grid")
        check_positions(strata, len(self.table_of), "a unit's stratum has no table")
        drawn = np.empty(len(levels), dtype=self.rows.level_type)
        for start in range(0, len(levels), _BATCH):
            part = slice(start, start + _BATCH)
            row = self.table_of[strata[part]] * self.n_outcomes + levels[part]
            drawn[part] = self.rows.outcomes(random_words(len(row)), row)
        return drawn


@dataclass(frozen=True)
class OptimalResponse:
    """Response tables over strata: what each unit's outcome is released as.

    Guarantee: the ε that every table keeps (:meth:`ResponseTable.keeps`): a unit's outcome is drawn
    from one table, once.
    """

    tables_used: tuple[ResponseTable, ...]
    """T of them, of the same K outcomes."""
    table_of: Ints
    """The table of each stratum, shape [S]."""

    @cached_property
    def n_outputs(self) -> int:
        """J, of the table that has the most; others have outputs that never occur."""
        return max(len(table.values) for table in self.tables_used)

    @cached_property
    def units(self) -> Ints:
        """Q 2⁵³ of the tables, shape [T, K, J]."""
        k, j = len(self.tables_used[0].inputs), self.n_outputs
        units = np.zeros((len(self.tables_used), k, j), dtype=np.int64)
        for at, table in enumerate(self.tables_used):
            units[at, :, : table.units.shape[1]] = table.units
        return units

    @cached_property
    def values(self) -> Floats:
        """The tables' v, shape [T, J]; the middle of the grid for outputs that never occur."""
        inputs = self.tables_used[0].inputs
        middle = (inputs[0] + inputs[-1]) / 2.0
        values = np.full((len(self.tables_used), self.n_outputs), middle)
        for at, table in enumerate(self.tables_used):
            values[at, : len(table.values)] = table.values
        return values

    @property
    def probabilities(self) -> Floats:
        """Q of the tables, shape [T, K, J]."""
        return self.units / UNIT

    @cached_property
    def likely(self) -> Floats:
        """How likely outputs are where outcomes occur as each table was solved for, shape [T, J].

        It adds up to one. What is thought to occur never is not quite left out, since it may.
        """
        k = self.units.shape[1]
        guesses = np.stack([table.guess for table in self.tables_used])
        found: Floats = np.einsum(
            "tk,tkj->tj", (1.0 - _DOUBT) * guesses + _DOUBT / k, self.probabilities
        )
        return found

    @property
    def weights(self) -> Floats:
        """What each output counts as, v of every stratum's table, shape [S, J]."""
        return self.values[self.table_of]

    @cached_property
    def functions(self) -> OutputFunctions:
        """What outputs add to means, shape [T, J]."""
        inputs = self.tables_used[0].inputs
        return output_functions(self.probabilities, self.values, inputs, self.likely)

    def tables(self) -> OutputTables:
        """Build what is drawn from, once, for rows that come batch by batch."""
        n_tables, k, j = self.units.shape
        rows = alias_tables(self.probabilities.reshape(n_tables * k, j))
        return OutputTables(self.table_of, k, rows)

    def draw(self, levels: Integers, strata: Integers) -> Ints:
        """Return the output of every unit; :meth:`tables` and :meth:`OutputTables.draw` in one."""
        return self.tables().draw(levels, strata).astype(np.int64)


def joined(responses: Iterable[OptimalResponse]) -> OptimalResponse:
    """Return several responses as one, whose strata are those of the first, then of the second."""
    found = list(responses)
    tables = list({id(table): table for one in found for table in one.tables_used}.values())
    place = {id(table): at for at, table in enumerate(tables)}
    table_of = [
        np.array([place[id(table)] for table in one.tables_used])[one.table_of] for one in found
    ]
    return OptimalResponse(tuple(tables), np.concatenate(table_of))
