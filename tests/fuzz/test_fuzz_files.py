"""Odd releases, and odd files of analysts."""

import pytest

from tests.fuzz.trying import try_cases


@pytest.mark.parametrize("kind", ["releases"])
def test_whatever_is_read_ends_plainly(kind: str) -> None:
    try_cases(kind)
