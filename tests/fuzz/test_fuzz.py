"""Odd configurations and reports of sites."""

import pytest

from tests.fuzz.trying import try_cases, try_program


@pytest.mark.parametrize("kind", ["configurations", "reports"])
def test_whatever_is_read_ends_plainly(kind: str) -> None:
    try_cases(kind)


@pytest.mark.parametrize("kind", ["configurations", "reading", "reports", "releases"])
def test_the_program_itself_ends_the_same(kind: str) -> None:
    try_program(kind)
