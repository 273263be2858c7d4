"""A few hundred cases of each kind: the same ones each time, so that a failure can be looked into.

Many more, and others: ``make soak KIND=… CASES=…``.
"""

import pytest

from tests.fuzz.attempt import problems
from tests.fuzz.kinds import KINDS, case


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_read_ends_plainly(kind: str) -> None:
    """Each ends by an exit code of ours and plain words, tells no outcome and leaves nothing.

    Together they change every column of every table, every key, and every field.
    """
    hit: set[str] = set()
    for number in range(KINDS[kind].in_tests):
        made = case(kind, number)
        assert problems(made) == [], f"make soak KIND={kind} CASE={number}: {made.hits}"
        hit |= {what for what, _ in made.hits}
    assert set(KINDS[kind].targets()) - hit == set()


@pytest.mark.parametrize("kind", ["configurations", "reading", "reports", "releases"])
def test_the_program_itself_ends_the_same(kind: str) -> None:
    """In a process of its own, with its own Python's warnings and Prefect's files."""
    assert problems(case(kind, 50), as_program=True) == []
