"""Odd logs, and whole releases of them."""

import pytest

from tests.fuzz.trying import try_cases


@pytest.mark.parametrize("kind", ["reading", "whole"])
def test_whatever_is_read_ends_plainly(kind: str) -> None:
    try_cases(kind)
