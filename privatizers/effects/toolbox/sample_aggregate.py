"""Sample and aggregate, for any function: the act, and what it costs. Proof in `toolbox.md`.

Nissim, Raskhodnikova and Smith (2007), in the simple form with declared bounds. The rows are cut
into disjoint chunks, the function sees one chunk at a time, and its answers are clipped, averaged
and noised. Nothing is asked of the function but that it looks at its chunk alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatizers.effects.toolbox.bounded_mean import Bounds, mean_of_fixed_size
from schemas.arrays import Ints

Rows = NDArray[Any]
Statistic = Callable[[Rows], float]


@dataclass(frozen=True)
class SampleAggregate:
    """The average of a statistic's clipped answers on k disjoint chunks, k public.

    Guarantee: ε-DP. Each person is in one chunk, so one change moves one answer, by u − l at most,
    and the average by (u − l)/k: discrete Laplace noise of scale (u − l)/(k ε). The chunks decide
    who is a neighbour: :func:`chunks_by_position` where a row is replaced, :func:`chunks_by_id`
    where a person comes or goes, with all rows of one id.

    k is the number of chunks declared, empty ones included: their answer is the middle of the
    bounds. The chapter of Near and Abuah divides by 6,000 where its cutting makes 5,427.
    """

    bounds: Bounds
    """Of an answer, declared."""
    n_chunks: int
    epsilon: float

    def __post_init__(self) -> None:
        """Refuse numbers that promise nothing."""
        if self.n_chunks < 1 or not (0.0 < self.epsilon < math.inf):
            raise ValueError(
                "need at least one chunk and an epsilon above 0, "
                f"not {self.n_chunks} and {self.epsilon!r}"
            )

    def release(self, statistic: Statistic, rows: Rows, chunk_of: Ints) -> float:
        """Return the noisy average of ``statistic`` over chunks of ``rows``, shape [n, …].

        ``chunk_of`` has each row's chunk, 0 … k − 1, shape [n]. Raises ValueError for another.
        """
        answers = self.answers(statistic, rows, chunk_of)
        return mean_of_fixed_size(answers, self.bounds, self.epsilon)

    def answers(self, statistic: Statistic, rows: Rows, chunk_of: Ints) -> NDArray[np.float64]:
        """Return the statistic of each chunk, shape [k], not clipped; unprotected.

        An empty chunk, a statistic that fails and one that is no number are the middle of the
        bounds: whether a release succeeds may not depend on the rows.
        """
        if chunk_of.shape != rows.shape[:1] or not np.all(
            (chunk_of >= 0) & (chunk_of < self.n_chunks)
        ):
            raise ValueError(f"every row is in one of the chunks 0 to {self.n_chunks - 1}")
        ends = np.cumsum(np.bincount(chunk_of, minlength=self.n_chunks))
        chunks = np.split(rows[np.argsort(chunk_of, kind="stable")], ends[:-1])
        return np.array([self._answer(statistic, chunk) for chunk in chunks])

    def _answer(self, statistic: Statistic, chunk: Rows) -> float:
        if len(chunk) == 0:
            return self.bounds.middle
        try:
            answer = float(statistic(chunk))
        except Exception:  # whatever it is, it is about one chunk
            return self.bounds.middle
        return self.bounds.middle if math.isnan(answer) else answer


def chunks_by_position(n_rows: int, n_chunks: int) -> Ints:
    """Return i mod k for row i: chunks of n/k rows, for neighbours that replace a row.

    Not where rows come or go: everybody behind would change chunk.
    """
    return np.arange(n_rows, dtype=np.int64) % n_chunks


def chunks_by_id(ids: Rows, n_chunks: int) -> Ints:
    """Return the chunk of each row by a hash of its id, text or whole number, shape [n].

    It depends on the row's own id alone, so a person who comes or goes leaves the others where they
    are, and all rows of one id share a chunk. The hash is fixed and public: it spreads ids, it
    hides nothing. Sizes vary as chance has it; chunks may be empty. Raises ValueError for other
    ids.
    """
    if ids.dtype.kind in "iu":
        mixed = ids.astype(np.uint64)
    elif ids.dtype.kind == "U":
        mixed = _folded(ids)
    else:
        raise ValueError("ids are text or whole numbers")
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(n_chunks)).astype(np.int64)


def _folded(ids: Rows) -> NDArray[np.uint64]:
    """Σ_j c_j B^(j+1) mod 2⁶⁴ over an id's characters; the zeros that NumPy pads with add nothing.

    So it does not depend on how long other people's ids are.
    """
    width = ids.dtype.itemsize // 4
    letters = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), width)
    folded, power = np.zeros(len(ids), dtype=np.uint64), np.uint64(1)
    with np.errstate(over="ignore"):
        for column in range(width):
            power = power * np.uint64(0x9E3779B97F4A7C15)
            folded += letters[:, column].astype(np.uint64) * power
    return folded
