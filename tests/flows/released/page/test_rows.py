"""Rows in every state: their words, rulers, and the numbers that are drawn."""

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from estimators.decisions import Decision
from flows.released.page.chart import Frame
from flows.released.page.html import environment
from flows.released.page.results import decided
from flows.released.page.rows import (
    HIGHER,
    LOWER,
    NOT_CLEAR,
    Finding,
    Group,
    Head,
    Results,
    Ruler,
    Verdict,
    by_interval,
    nice,
    results,
    unknown,
)
from flows.released.page.words import fixed


def row(estimate: float, half: float, **more: object) -> Finding:
    given = {"name": "x", "verdict": by_interval(estimate - half, estimate + half)}
    ends = {"estimate": estimate, "low": estimate - half, "high": estimate + half}
    return Finding(**(given | ends | more))  # type: ignore[arg-type]


def group(*rows: Finding, unit: str = "", **more: object) -> Group:
    return Group(name="m", about="", findings=rows, unit=unit, **more)  # type: ignore[arg-type]


def drawn(*groups: Group) -> tuple[float, list[list[dict[str, Any]]]]:
    found = results("r", groups, Head("", "", "", "95 %"))
    return found.zero, places(found)


def places(found: Results) -> list[list[dict[str, Any]]]:
    """Where the parts of each bar lie, by group: from where on and how wide, and the dot."""
    return [
        [
            {
                "outer": row.outer and one["ruler"].stretch(row.outer),
                "inner": row.inner and one["ruler"].stretch(row.inner),
                "dot": None if row.estimate is None else one["ruler"].at(row.estimate),
            }
            for row in one["rows"]
        ]
        for one in found.groups
    ]


def widths(rows: list[dict[str, Any]]) -> list[float]:
    return [float(str(one["outer"][1])) for one in rows]


def test_all_metrics_have_one_zero_and_rulers_of_their_own() -> None:
    zero, (first, second) = drawn(group(row(4, 1)), group(row(-0.01, 0.02)))
    assert 4 <= zero <= 96
    assert widths(first)[0] > 15
    assert widths(second)[0] > 50


def test_metrics_in_one_unit_share_a_ruler_unless_one_could_not_be_seen() -> None:
    _, (first, second) = drawn(group(row(4, 1), unit="EUR"), group(row(1, 0.5), unit="EUR"))
    assert widths(first)[0] == pytest.approx(2 * widths(second)[0], abs=0.1)
    _, (first, second) = drawn(group(row(4, 1), unit="EUR"), group(row(0.01, 0.02), unit="EUR"))
    assert widths(second)[0] > 20


def test_bars_are_in_scale_and_the_inner_one_in_the_middle() -> None:
    _, ((one, two),) = drawn(group(row(1, 2, unprotected=0.25), row(3, 2)))
    ruler = float(str(two["dot"])) - float(str(one["dot"]))
    left, wide = (float(part) for part in one["outer"])
    inner, narrow = (float(part) for part in one["inner"])
    assert wide == pytest.approx(2 * ruler, abs=0.2)
    assert narrow == pytest.approx(wide / 4, abs=0.1)
    assert inner + narrow / 2 == pytest.approx(left + wide / 2, abs=0.15)


@pytest.mark.parametrize(
    ("declared", "word", "sign"),
    [
        (("primary", "increase", "better"), "better", "up"),
        (("primary", "increase", "worse"), "worse", "down"),
        (("primary", "decrease", "better"), "better", "down"),
        (("primary", "increase", "undecided"), "no clear difference", "calm"),
        (("guardrail", "increase", "not worse than the margin"), "holds", "holds"),
        (("guardrail", "increase", "undecided"), "not shown to hold", "fails"),
        (("guardrail", "increase", "worse"), "not shown to hold", "fails"),
    ],
)
def test_what_was_declared_has_its_words(
    declared: tuple[str, str, str], word: str, sign: str
) -> None:
    role, direction, verdict = declared
    decision = Decision(
        metric="m", arm="a", role=role, direction=direction, margin=None, estimator="combined",  # type: ignore[arg-type]
        estimate=1.0, least_benefit=0.1, p_value=0.01, p_value_adjusted=0.01, verdict=verdict,  # type: ignore[arg-type]
    )  # fmt: skip
    found = decided(HIGHER if verdict == "better" else LOWER, decision, direction)
    assert (found.word, found.sign) == (word, sign)
    assert decided(unknown(), decision, direction).word == "cannot be told"


def test_without_a_decision_a_direction_makes_it_better_or_worse() -> None:
    assert decided(HIGHER, None, None).word == "higher"
    assert decided(HIGHER, None, "increase").word == "better"
    worse = decided(HIGHER, None, "decrease")
    assert (worse.word, worse.sign, worse.tone) == ("worse", "up", "down")
    assert decided(NOT_CLEAR, None, "increase") == NOT_CLEAR


STATES = {
    "higher": row(3, 1),
    "lower": row(-3, 1),
    "better": row(3, 1, verdict=Verdict("up", "better", "up")),
    "worse": row(-3, 1, verdict=Verdict("down", "worse", "down")),
    "zero is possible": row(1, 2),
    "not by Holm": row(1, 0.9, verdict=Verdict("calm", "no clear difference", note="Holm")),
    "not yet": row(1, 0.9, verdict=Verdict("wait", "not yet"), always=(-1.0, 3.0)),
    "ended": row(0.5, 1, verdict=Verdict("calm", "no clear difference", note="No effect beyond")),
    "holds": row(-0.1, 0.5, verdict=Verdict("holds", "holds", "up")),
    "not shown to hold": row(-1, 1, verdict=Verdict("fails", "not shown to hold", "down")),
    "cannot be told": Finding(name="x", verdict=unknown("Too few.")),
    "withdrawn": Finding(name="x", verdict=unknown(word="withdrawn")),
}


@pytest.mark.parametrize("state", STATES)
def test_each_state_has_sign_word_and_colour(state: str) -> None:
    """The dot follows the interval, and not the verdict."""
    made = environment().from_string('{% from "rows.html" import rows %}{{ rows(a) }}')
    one = STATES[state]
    found = made.render(a=results("r", [group(one)], Head("", "Arm", "c", "95 %")))
    (tone, is_open, sign, word) = re.findall(
        r'<tr class="r (\w+)( open)?" role="row"><td class="v" role="cell">'
        r'<b class="s-(\w+)">([^<]*)</b>', found
    )[0]  # fmt: skip
    assert (tone, sign, word) == (one.verdict.tone, one.verdict.sign, one.verdict.word)
    assert bool(is_open) == (one.low is None or (one.low <= 0 <= (one.high or 0.0)))
    assert (one.verdict.note != "") == ('<tr class="note"' in found)
    assert found.count('<circle class="d"') == (one.estimate is not None)
    assert found.count('<line class="w"') == (0 if None in one.always else 3)


def test_long_groups_fold_their_rest() -> None:
    rows = [row(float(one), 1.0) for one in range(11)]
    found = results("r", [group(*rows)], Head("", "", "", "95 %"))
    assert [len(one["rows"]) for one in (*found.groups, *found.rest)] == [8, 3]


@pytest.mark.parametrize(
    ("middle", "half"), list(product((0.0, 1e-9, 1e6, -1e140), (0.0, 1e-12, 3.0, 1e140)))
)
def test_any_numbers_can_be_drawn(middle: float, half: float) -> None:
    _, ((one,),) = drawn(group(row(middle, half)))
    assert all(0 <= float(part) <= 100 for part in one["outer"])


@pytest.mark.parametrize("ends", [(-1.0, 5.0), (-0.003, 0.0004), (-1e140, 1e139), (0.0, 7.0)])
def test_ticks_are_round_and_in_order(ends: tuple[float, float]) -> None:
    found = nice(*ends, 270.0)
    numbers = [number for number, _ in found]
    assert numbers == sorted(numbers)
    assert 0 in numbers
    assert all(ends[0] <= one <= ends[1] for one in numbers)


def test_numbers_have_equal_decimals_and_signs() -> None:
    assert fixed(-0.0004, 2, sign=True) == "0.00"
    assert fixed(1234.5, 1, sign=True) == "+1,234.5"
    assert fixed(-2.345, 1) == "−2.3"
    assert fixed(1e12, 0) == "1e+12"
    assert Ruler(50.0, 0.0).ticks == [("50.0", "0")]


def test_bands_and_lines_are_in_scale() -> None:
    frame = Frame(0.0, 10.0, -1.0, 3.0)
    assert frame.across(np.array([0.0, 5.0, 10.0])).tolist() == [8.0, 52.5, 97.0]
    assert frame.down(np.array([3.0, 1.0, -1.0, -9.0])).tolist() == [0.0, 50.0, 100.0, 100.0]
    assert frame.line(np.array([0.0, 10.0]), np.array([3.0, np.nan])) == "8.00,0.00"
