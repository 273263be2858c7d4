"""A few hundred cases of a kind: the same ones each time, so that a failure can be looked into.

Many more, and others: ``make soak KIND=… CASES=…``. The tests stand in several files, so that they
can run side by side.
"""

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.attempt import problems
from tests.fuzz.case import Case
from tests.fuzz.chunk import CHUNK, each_of_chunk
from tests.fuzz.kinds import KINDS


def try_cases(kind: str) -> None:
    """Each ends by an exit code of ours and plain words, tells no outcome and leaves nothing."""

    @settings(
        max_examples=KINDS[kind].in_tests,
        derandomize=True,
        phases=[Phase.generate],  # to look for simpler cases would take many minutes
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(KINDS[kind].cases())
    def attempt(case: Case) -> None:
        assert problems(case) == []

    attempt()


def try_program(kind: str) -> None:
    """One in a process of its own, with its own Python's warnings and Prefect's files."""
    cases: dict[int, Case] = {}
    each_of_chunk(kind, 0, cases.__setitem__)
    assert len(cases) == CHUNK
    assert problems(cases[CHUNK // 2], as_program=True) == []
