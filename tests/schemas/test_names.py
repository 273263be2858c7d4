"""A release's name is read back as it was written, and nothing else is taken for one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.names import NAME, PERIOD, ReleaseName

pytestmark = pytest.mark.unit

SERIES = st.from_regex(f"{NAME}(@{NAME})?", fullmatch=True)


@given(
    st.builds(ReleaseName, SERIES, st.from_regex(PERIOD, fullmatch=True), st.integers(1, 10**30))
)
def test_a_name_is_read_back_as_it_was_written(name: ReleaseName) -> None:
    assert ReleaseName.parse(name.release_id) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "trial",
        "trial.r1",
        "trial.once",
        "trial.once.1",
        "trial.once.r0",
        "trial.once.r01",
        "trial.once.r1.r1",
        "trial.once.r١",
        "trial.once.r1\n",
        "trial.-once.r1",
        "trial._once.r1",
        "trial.on ce.r1",
        "tri/al.once.r1",
        "@site.once.r1",
        "trial@.once.r1",
        "trial@a@b.once.r1",
        ".once.r1",
        "trial..r1",
    ],
)
def test_other_texts_are_no_names(text: str) -> None:
    assert ReleaseName.parse(text) is None


def test_names_sort_by_period_then_revision() -> None:
    ids = ["a.p1.r2", "a.p1.r10", "a.p2.r1"]
    names = [name for text in reversed(ids) if (name := ReleaseName.parse(text))]
    assert [name.release_id for name in sorted(names)] == ids


@pytest.mark.parametrize("text", ["trial", "_trial", "-", "T-1_a"])
def test_experiments_may_begin_with_any_of_their_characters(text: str) -> None:
    assert re.fullmatch(NAME, text)
