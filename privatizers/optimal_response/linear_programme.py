"""Linear programmes whose columns are found one after the other: min cᵀx, A x = b, x ≥ 0."""

from dataclasses import dataclass

import numpy as np

from schemas.arrays import Floats, Ints

_PRIMAL = 4  # method: what was an answer still is one, if not the best, with more columns


class UnsolvedError(RuntimeError):
    """No randomiser was found within the rounds, or to the gap, that were allowed."""


@dataclass(frozen=True)
class Solution:
    """An optimal one, of M columns and N equations."""

    cost: float
    masses: Floats
    """x, shape [M]."""
    duals: Floats
    """What a unit more of each b costs, shape [N]."""


class LinearProgramme:
    """Columns may be added and removed; the simplex method goes on from its last answer."""

    def __init__(self, wanted: Floats) -> None:
        """Begin with no column; ``wanted`` is b, shape [N]."""
        import highspy  # noqa: PLC0415 - who draws from no table does without

        self._engine = highspy.Highs()  # type: ignore[no-untyped-call]
        self._solved, self._failed = highspy.HighsModelStatus.kOptimal, highspy.HighsStatus.kError
        self._engine.silent()
        self._engine.setOptionValue("threads", 1)
        self._engine.setOptionValue("solver", "simplex")
        self._engine.setOptionValue("simplex_strategy", _PRIMAL)
        self._engine.setOptionValue("dual_feasibility_tolerance", 1e-10)
        starts, none = np.zeros(len(wanted), np.int32), np.zeros(0, np.int32)
        self._engine.addRows(len(wanted), wanted, wanted, 0, starts, none, np.zeros(0))

    def add(self, costs: Floats, columns: Floats) -> None:
        """Add M columns behind the others: c, shape [M], and the rows of Aᵀ, shape [M, N].

        Raises UnsolvedError where a number is none that can be computed with.
        """
        m, n = columns.shape
        starts, rows = n * np.arange(m, dtype=np.int32), np.tile(np.arange(n, dtype=np.int32), m)
        ends = np.zeros(m), np.full(m, np.inf)
        status = self._engine.addCols(m, costs, *ends, m * n, starts, rows, columns.ravel())
        if status == self._failed or not (np.isfinite(columns).all() and np.isfinite(costs).all()):
            raise UnsolvedError("the linear programme of a randomiser has a number that is none")

    def remove(self, columns: Ints) -> None:
        """Remove columns by their places."""
        self._engine.deleteCols(len(columns), np.sort(columns).astype(np.int32))

    def solve(self) -> Solution:
        """Return an optimal solution; raises UnsolvedError where none was found."""
        for presolved in ("off", "on"):  # a small programme is sooner solved than made smaller
            self._engine.setOptionValue("presolve", presolved)
            self._engine.run()
            if self._engine.getModelStatus() == self._solved:
                found = self._engine.getSolution()
                cost = self._engine.getInfo().objective_function_value
                return Solution(cost, np.array(found.col_value), np.array(found.row_dual))
            self._engine.clearSolver()
        raise UnsolvedError("the linear programme of a randomiser was not solved")
