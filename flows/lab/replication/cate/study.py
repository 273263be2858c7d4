"""Who benefits, learnt privately: the experiment of Niu et al. (2022), §5, and sound learners.

Set-ups A to E of the authors' code and a stand-in for their seventh data set
(:mod:`~flows.lab.replication.cate.setups`), n from 500 to 32,000, ε from 1 to 16, δ = 1e-5.
Learners:

- the moment effect model, for one row replaced and for one outcome replaced;
- the DR-, R- and S-learner of their Algorithm 1 with sound stages;
- the same with DP-EBM stages, as published, where the library is installed: on people who are made
  up alone, and under the library's claim, which does not hold for a row replaced.

Errors are split by two samples: two fits on independent samples are compared on the same fresh
people. People come from a fixed number; noise, and parts of sound learners, from the operating
system. Samples are the same for all learners and ε.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from flows.lab.replication.cate.findings import COLUMNS, CateFinding, as_cells, findings
from flows.lab.replication.cate.learners import MOMENTS, published, sound
from flows.lab.replication.cate.reference import AUTHORS_FILE, OWN_RUNS
from flows.lab.replication.cate.rows import CateRow, Learner, as_row, two_samples
from flows.lab.replication.cate.setups import HILLSTROM, SetUp, hillstrom, simulated
from flows.runtime.terminal import table
from schemas.documents import Document

NAME = "cate"
DELTA = 1e-5
VARIABLE = "CLUSTERDP_TEST_DATA"

log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class CateSize:
    """The size of a run."""

    sizes: tuple[int, ...]
    epsilons: tuple[float, ...]
    pairs: int
    """Of fits, of sound learners."""
    library_pairs: int
    """Of fits of the library, which takes ten times as long."""
    library_sizes: tuple[int, ...]
    library_set_ups: tuple[str, ...]


_SIZES = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
FULL = CateSize(_SIZES, (1.0, 2.0, 4.0, 8.0, 16.0), 10, 1, _SIZES, ("A", "B", "C", "D", "E"))
QUICK = CateSize((2_000, 16_000), (1.0, 16.0), 2, 1, (2_000,), ("B",))
SHOWN_EPSILONS = (1.0, 2.0)
"""Of the table for people, with the least and greatest n and those between."""


@dataclass(frozen=True)
class CateReplication(Document):
    """All that was found, and the figures of it."""

    name: str = field(default=NAME, init=False)
    quick: bool
    delta: float = field(default=DELTA, init=False)
    set_ups: dict[str, str]
    """The titles of those that were run, by name."""
    rows: tuple[CateRow, ...]
    findings: tuple[CateFinding, ...]
    left_out: tuple[str, ...]
    figures: tuple[Path, ...]

    def text(self) -> str:
        """The results as text for a terminal."""
        return "\n".join(_text(self))


def replicate(folder: Path, *, quick: bool = False, data: Path | None = None) -> CateReplication:
    """Run everything and draw figures into ``folder``.

    ``data`` is a folder that holds :data:`~flows.lab.replication.cate.setups.HILLSTROM`; by default
    the one that the environment's CLUSTERDP_TEST_DATA names. Where neither is given, set-up H is
    left out. Raises InputError where it is not there, or where ``folder`` cannot be written to,
    before anything is run.
    """
    from flows.lab.replication.cate.figure import draw  # noqa: PLC0415 - matplotlib
    from flows.lab.replication.plots import folder_for_figures  # noqa: PLC0415 - matplotlib

    named = os.environ.get(VARIABLE)
    source = data if data is not None or named is None else Path(named)
    set_ups = simulated() if source is None else (*simulated(), hillstrom(source))
    target = folder_for_figures(folder)
    scale = QUICK if quick else FULL
    library = published()
    rows = tuple(run(scale, set_ups, (*sound(), *library)))
    titles = {one.name: one.title for one in set_ups}
    return CateReplication(
        quick=quick,
        set_ups=titles,
        rows=rows,
        findings=findings(rows),
        left_out=tuple(_left_out(source is not None, bool(library))),
        figures=draw(rows, titles, target),
    )


def run(
    scale: CateSize, set_ups: Sequence[SetUp], learners: Sequence[Learner]
) -> Iterator[CateRow]:
    """Return the rows of every set-up, n, ε and learner, the library where the scale has it."""
    random = np.random.default_rng(2022)
    for set_up in set_ups:
        fresh = set_up.fresh(random)
        for n in scale.sizes:
            has_library = set_up.name in scale.library_set_ups and n in scale.library_sizes
            has_library &= set_up.simulated  # from people who are made up, and from nobody else
            log.info("set-up %s, %s people …", set_up.name, f"{n:,}")
            pairs = [(set_up.draw(n, random), set_up.draw(n, random)) for _ in range(scale.pairs)]
            for epsilon, learner in product(scale.epsilons, learners):
                if learner.is_library and not has_library:
                    continue
                taken = pairs[: scale.library_pairs] if learner.is_library else pairs
                fit = partial(learner.fit, set_up, epsilon=epsilon, delta=DELTA, random=random)
                parts = [
                    two_samples(fit(one)(fresh.features), fit(two)(fresh.features), fresh.effect)
                    for one, two in taken
                ]
                yield as_row(set_up.name, learner, epsilon, n, parts, float(fresh.effect.var()))


def _left_out(with_customers: bool, with_library: bool) -> Iterator[str]:
    if not with_customers:
        yield (
            f"Set-up H is left out: it needs a folder that holds {HILLSTROM}; name it with --data, "
            f"or set {VARIABLE}."
        )
    if not with_library:
        yield (
            "DP-EBM as published is left out: its library is not installed "
            "(pip install 'clusterdp[cate-replication]')."
        )


_HEAD = (
    "Who benefits, learnt with differential privacy: the experiment of Niu et al. (2022), with",
    f"delta {DELTA:g}. Mean squared errors of effects on fresh people, standard errors in --json.",
    "Var(tau) is the error of who knows the average effect alone. The last column has ratios to",
    f"DP-EBM's DR-learner: {AUTHORS_FILE} for A to E, {OWN_RUNS} for H.",
)


def _text(result: CateReplication) -> Iterator[str]:
    yield from _HEAD
    if result.quick:
        yield "A quick run: fewer sizes, epsilons and fits."
    guarantees = {row.learner: row.guarantee for row in result.rows}
    yield from ("", "what a learner protects")
    yield from table(["learner", "neighbours differ in"], [list(one) for one in guarantees.items()])
    epsilons = sorted({row.epsilon for row in result.rows})
    for epsilon in epsilons:
        if epsilon not in (*SHOWN_EPSILONS, epsilons[-1]):
            continue
        yield from ("", f"epsilon {epsilon:g}")
        names = list(guarantees)
        rows = list(_cells(result, epsilon, names))
        yield from table(["set-up", "Var(tau)", "n", *names, f"{MOMENTS} / authors' dr"], rows)
    yield from (
        "",
        "what privacy adds to squared bias and variance, at the least n above 10,000",
    )
    yield from table(COLUMNS, [as_cells(one) for one in result.findings])
    yield ""
    yield from result.left_out
    yield from (f"figure: {path}" for path in result.figures)


def _cells(result: CateReplication, epsilon: float, names: Sequence[str]) -> Iterator[list[str]]:
    by_cell = {
        (one.set_up, one.n, one.learner): one for one in result.rows if one.epsilon == epsilon
    }
    for set_up in result.set_ups:
        for n in sorted({row.n for row in result.rows}):
            found = [by_cell.get((set_up, n, name)) for name in names]
            first = found[0]
            if first is None:
                continue
            ratio = "" if first.over_authors_dr is None else f"{first.over_authors_dr:.1%}"
            errors = ["" if one is None else f"{one.mse:.3g}" for one in found]
            yield [set_up, f"{first.effect_variance:.3g}", f"{n:,}", *errors, ratio]
