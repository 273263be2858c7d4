"""Cases by their numbers: a hundred are drawn together, so the same number is the same case.

Run as a program it tries the cases of the chunks named, one after the other, and tells of each on
standard output, in JSON. A case that kills this process, or never ends, is noticed by its reader,
:mod:`tests.fuzz.soak`.
"""

import importlib
import json
import os
import pkgutil
import resource
import sys
from collections.abc import Callable
from dataclasses import asdict

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.attempt import Problem, problems
from tests.fuzz.case import Case
from tests.fuzz.kinds import KINDS

CHUNK = 100
"""Cases drawn together."""

LIMIT = 60.0
"""A command counts as stuck after twice these seconds of processor time, or six times in all."""

MEMORY = 12 << 30
"""Bytes of addresses that this process may use: a case must not take the machine's memory."""

_AS_PROGRAM = 250  # every so many cases one is run in processes of its own


def each_of_chunk(kind: str, chunk: int, use: Callable[[int, Case], None]) -> None:
    """Draw the cases of a chunk, in order, and ``use`` each with its number."""
    number = chunk * CHUNK
    _import_all()

    @seed(chunk)
    @settings(
        max_examples=CHUNK,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(KINDS[kind].cases())
    def draw(case: Case) -> None:
        nonlocal number
        use(number, case)
        number += 1

    draw()


def _import_all() -> None:
    """Import the whole project: Hypothesis also tries constants of whatever modules are there.

    Else a case would hang on which commands were run before it, and its number would not tell it.
    """
    for package in ("flows", "privatizers", "schemas", "estimators"):
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            importlib.import_module(module.name)


def found_in(number: int, case: Case) -> list[Problem]:
    """What is wrong with the case of this number."""
    return problems(case, as_program=number % _AS_PROGRAM == _AS_PROGRAM - 1, limit=LIMIT)


def smallest(kind: str, number: int, signature: str) -> Case:
    """The smallest case to be found that shows the same fault as the case of this number."""
    shown: list[Case] = []
    now = number // CHUNK * CHUNK - 1
    _import_all()

    @seed(number // CHUNK)
    @settings(
        max_examples=CHUNK,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(KINDS[kind].cases())
    def draw(case: Case) -> None:
        nonlocal now
        now += 1
        if now >= number and any(one.signature == signature for one in found_in(0, case)):
            shown.append(case)
            raise AssertionError(signature)

    try:
        draw()
    except AssertionError:
        return shown[-1]
    msg = f"case {number} of {kind} does not show: {signature}"
    raise ValueError(msg)


def main(kind: str, first: int, chunks: list[int]) -> None:
    """Try the cases of ``chunks`` in turn, those of a number below ``first`` left out."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def tell(**what: object) -> None:
        print(json.dumps(what), file=out, flush=True)

    def use(number: int, case: Case) -> None:
        if number < first:
            return
        tell(begun=number)
        found = [asdict(one) | {"signature": one.signature} for one in found_in(number, case)]
        tell(number=number, found=found)

    for chunk in chunks:
        each_of_chunk(kind, chunk, use)
        tell(done=chunk)
    out.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [int(chunk) for chunk in sys.argv[3:]])
