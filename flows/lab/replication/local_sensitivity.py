"""The chapter of Near and Abuah on local sensitivity (*Programming Differential Privacy*).

Its running example: the mean age of UCI's Adult data, ε = 1, δ = 1/n². The ages are here, as how
often each occurs (Becker and Kohavi 1996, training part, CC BY 4.0); their order is made up, which
matters to chunks alone. Printed figures come from its own formulas; what is released is released by
:mod:`privatizers.effects.toolbox`, whose proofs are in `toolbox.md`.
"""

from collections.abc import Callable
from functools import partial
from math import ceil, exp, log

import numpy as np

from flows.lab.replication.claims import Found, Run
from flows.lab.replication.panels import Line, Panel
from privatizers.effects.toolbox.bounded_mean import (
    AddRemoveMean,
    Bounds,
    mean_by_sum_and_count,
    mean_of_fixed_size,
)
from privatizers.effects.toolbox.local_sensitivity import distance_to
from privatizers.effects.toolbox.propose_test_release import ProposeTestRelease
from privatizers.effects.toolbox.sample_aggregate import SampleAggregate
from privatizers.effects.toolbox.smooth_sensitivity import beta_of
from privatizers.noise.lattice_laplace import lattice_laplace, power_of_two_step
from schemas.arrays import Floats

_FIRST_AGE = 17
_HOW_OFTEN = (
    395,
    550,
    712,
    753,
    720,
    765,
    877,
    798,
    841,
    785,
    835,
    867,
    813,
    861,
    888,
    828,
    875,
    886,
    876,
    898,
    858,
    827,
    816,
    794,
    808,
    780,
    770,
    724,
    734,
    737,
    708,
    543,
    577,
    602,
    595,
    478,
    464,
    415,
    419,
    366,
    358,
    366,
    355,
    312,
    300,
    258,
    230,
    208,
    178,
    150,
    151,
    120,
    108,
    89,
    72,
    67,
    64,
    51,
    45,
    46,
    29,
    23,
    22,
    22,
    20,
    12,
    6,
    10,
    3,
    1,
    1,
    3,
    0,
    43,
)
EPSILON, MOST, PROPOSED = 1.0, 100.0, 0.005
AGES = Bounds(0.0, MOST)
CHUNK = Bounds(20.0, 80.0)
_CHUNKS = (10, 100, 600, 1000, 6000)


def ages() -> Floats:
    """Every age, in order."""
    return np.repeat(_FIRST_AGE + np.arange(len(_HOW_OFTEN)), _HOW_OFTEN).astype(np.float64)


def _numbers(_: Run) -> Found:
    """Every one exact."""
    everybody = ages()
    n = len(everybody)
    delta, mean = 1.0 / n**2, AddRemoveMean.of(everybody, AGES)
    threshold = log(2.0 / delta) / (2.0 * EPSILON)
    beta = beta_of(EPSILON, delta)
    of_addition = MOST / (n + 1)
    later = max(exp(-beta * k) * MOST / (n - k + 1) for k in range(1, 200))
    four = AddRemoveMean.of(np.array([1.0, 0.0, 0.0, 0.0]), Bounds(0.0, 1.0))
    made = {k: ceil(n / ceil(n / k)) for k in (600, 6000)}
    found = {
        "threshold": threshold,
        "threshold delta": exp(-EPSILON * threshold) / 2.0 / delta,
        "distance": float(distance_to(mean, PROPOSED, n)),
        "2S": 2.0 * max(of_addition, later),
        "2S from 1": later / of_addition,
        "2S proposed": 2.0 * of_addition / PROPOSED,
        "four": float(four.upto(0)[0]) / (1.0 / 5.0),
        "size 600": float(ceil(n / 600)),
        **{f"made {k}": float(of) for k, of in made.items()},
        **{f"epsilon {k}": k / of for k, of in made.items()},
    }
    return {key: (one, 0.0) for key, one in found.items()}, ()


def _errors(run: Run) -> Found:
    """Mean |error| of releases, in percent of the mean."""
    everybody = ages()
    run.random.shuffle(everybody)
    n, mean = len(everybody), AddRemoveMean.of(everybody, AGES)
    delta, repetitions = 1.0 / n**2, 800 if run.quick else 4_000

    def off(release: Callable[[], float | None]) -> tuple[float, float]:
        made = np.array([one for one in (release() for _ in range(repetitions)) if one is not None])
        error = 100.0 * np.abs(made - everybody.mean()) / everybody.mean()
        return float(error.mean()), float(error.std() / np.sqrt(len(error)))

    def bare() -> float:
        step = power_of_two_step(PROPOSED)
        value = np.array([mean.value])
        return float(lattice_laplace(value, sensitivity=PROPOSED, epsilon=EPSILON, step=step)[0])

    tested = ProposeTestRelease(PROPOSED, EPSILON, delta)
    plain = off(partial(mean_by_sum_and_count, everybody, AGES, EPSILON, 0.0))
    alone = {
        "printed": off(bare),
        "sound": off(partial(tested.release, mean)),
    }
    printed, sound = [], []
    for k in _CHUNKS:
        size = ceil(n / k)
        made = ceil(n / size)
        answers = SampleAggregate(CHUNK, made, EPSILON).answers(
            np.mean, everybody, np.arange(n) // size
        )
        printed.append(off(partial(mean_of_fixed_size, answers, CHUNK, EPSILON * k / made)))
        sound.append(off(partial(mean_of_fixed_size, answers, CHUNK, EPSILON)))
    chunks = {f"{k}": one for k, one in zip(_CHUNKS, printed, strict=True)}
    each = {**alone, **chunks, "6000 sound": sound[-1]}
    found = {}
    for key, (error, spread) in each.items():
        ratio = error / plain[0]
        found[key] = ratio, ratio * float(np.hypot(spread / error, plain[1] / plain[0]))
    flat = {
        "sum over count": plain,
        "propose-test-release, printed": alone["printed"],
        "propose-test-release, sound": alone["sound"],
    }
    lines = (
        Line.of("sample and aggregate", _CHUNKS, sound),
        *[Line(name, (_CHUNKS[0], _CHUNKS[-1]), [error] * 2) for name, (error, _) in flat.items()],
    )
    return found, (
        Panel("The mean age of Adult, ε = 1", "chunks", "mean |error|, % of the mean", lines, "xy"),
    )


MEASURES = {"numbers": _numbers, "errors": _errors}
