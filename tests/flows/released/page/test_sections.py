"""What the page says of each metric: in words, in its unit, with the numbers of the estimators."""

import html
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from estimators.arm_effects import Estimate
from estimators.between_arms import effects_between
from flows.released.estimates.by_attribute import estimate_by
from flows.released.estimates.release import estimate_file
from flows.released.file.evidence import read_every
from flows.released.file.read import open_release, read_manifest
from flows.released.page import figures
from flows.released.page.attributes import MOST_SEGMENTS
from flows.released.page.contents import Contents
from flows.released.page.effects import relative_words
from flows.released.report import report
from tests.conftest import a_log, build_experiment, rows
from tests.support.contents import read_contents

ARMS = ("none", "mail", "post", "call", "visit")
NUMBER = pl.col("customer").str.slice(1).cast(pl.Int64)


def labelled(release: Path, folder: Path, label: str | None, measured_in: str | None) -> Path:
    """A copy of a release with an outcome that people named."""
    copy = folder / f"{label}.duckdb"
    copy.write_bytes(release.read_bytes())
    with duckdb.connect(str(copy)) as connection:
        connection.execute("UPDATE metrics SET label = ?, measured_in = ?", [label, measured_in])
    return copy


@pytest.fixture(scope="module")
def count(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five arms, an outcome in EUR, two attributes."""
    folder = tmp_path_factory.mktemp("count")
    log = a_log(1500, arms=ARMS).with_columns(
        (NUMBER // 30 % 3).replace_strict([0, 1, 2], ["it", "fr", "de"]).alias("country"),
        (NUMBER // 30).alias("batch"),
    )
    built = build_experiment(
        folder / "made",
        log,
        arms={"control": "none", "treatments": list(ARMS[1:])},
        columns={"attributes": ["country", "batch"]},
        privacy={"epsilon": 6.0},
    )
    return labelled(built.run().path, folder, "Spend", "EUR")


@pytest.fixture(scope="module")
def yes_no(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same arms, an outcome that is 0 or 1."""
    folder = tmp_path_factory.mktemp("yes")
    log = a_log(1500, arms=ARMS).with_columns((pl.col("clicks") > 1).cast(pl.Float64))
    arms = {"control": "none", "treatments": list(ARMS[1:])}
    built = build_experiment(folder / "made", log, arms=arms, outcome={"values": [0, 1]})
    return labelled(built.run().path, folder, "Bought", None)


@cache
def read(release: Path) -> Contents:
    return read_contents(release)


@cache
def page_of(release: Path) -> str:
    """The whole page: its figures take seconds, so it is made once for all who read it."""
    return report(read(release))


def text_of(page: str) -> str:
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]*>", "", body)).replace("\u00a0", " ")
    return re.sub(r"[ \n]+", " ", text)


def head_of(page: str) -> str:
    return text_of(page[page.index("<header>") : page.index("</header>")])


def table_of(page: str, anchor: str) -> list[tuple[str, list[float]]]:
    """The first cell of each row that has numbers, and the exact numbers."""
    source = page[page.index(f'<table id="{anchor}"') :].partition("</table>")[0]
    found = re.findall(r"<tr[^>]*><th scope=\"row\">(.*?)</th>(.*?)</tr>", source, re.DOTALL)
    return [
        (text_of(name), [float(value) for value in re.findall(r'<data value="([^"]+)"', cells)])
        for name, cells in found
    ]


def sharpest(release: Path) -> list[Estimate]:
    return [one for one in estimate_file(release) if one.estimator == "combined"]


def changed(release: Path, **facts: Any) -> Contents:
    """What a page is made of, with other facts, and without the figures of attributes."""
    contents = read(release)
    manifest = replace(contents.manifest, **facts)
    return replace(contents, manifest=manifest, by_attribute={})


# the head


def test_the_head_names_every_arm_with_its_effect(count: Path) -> None:
    head = head_of(page_of(count))
    for one in sharpest(count):
        assert one.estimate is not None
        direction = "lower" if one.estimate < 0 else "higher"
        size = f"{abs(one.estimate):.3g}"
        mean = f"{one.control_mean:.3g}"
        assert f"{one.arm}: Spend is on average {size} EUR {direction} than the {mean} EUR" in head
    assert head.count("95 % confidence interval") == 4


def test_a_yes_no_outcome_is_in_per_cent(yes_no: Path) -> None:
    page = page_of(yes_no)
    for one in sharpest(yes_no):
        assert one.estimate is not None
        assert one.control_mean is not None
        size, mean = f"{100 * abs(one.estimate):.3g}", f"{100 * one.control_mean:.3g}"
        words = f"{one.arm}: Bought is {size} percentage points "
        assert words in head_of(page)
        assert f"than the {mean} % under none" in head_of(page)
    assert ">effect against none (percentage points)</text>" in page


def test_an_outcome_without_a_name_has_words(count: Path, tmp_path: Path) -> None:
    page = report(read_contents(labelled(count, tmp_path, None, None)))
    assert "mail: the mean outcome is " in head_of(page)
    assert "Effects on" not in text_of(page).replace("Effects on the outcome", "")
    assert "None" not in text_of(page)


# one estimate to read


def test_one_estimate_an_arm_is_to_be_read(count: Path) -> None:
    page = page_of(count)
    (control, *told) = table_of(page, "table-effects")
    expected = sharpest(count)
    assert control == ("none (control)", [expected[0].control_mean])
    assert [name for name, _ in told] == [one.arm for one in expected]
    for (_, numbers), one in zip(told, expected, strict=True):
        assert one.control_mean is not None
        assert one.estimate is not None
        wanted = [
            one.control_mean + one.estimate, one.estimate, one.ci_lower, one.ci_upper,
            one.relative, one.relative_ci_lower, one.relative_ci_upper, one.p_value_holm,
            one.minimum_detectable_effect,
        ]  # fmt: skip
        assert numbers == pytest.approx([x for x in wanted if x is not None], rel=1e-9)
    folded = page[page.index('<details class="estimates">') :].partition("</details>")[0]
    assert len(table_of(folded, "table-estimates")) == len(estimate_file(count)) == 12


def test_the_table_is_in_the_unit_that_it_names(yes_no: Path) -> None:
    page = page_of(yes_no)
    source = page[page.index('<table id="table-effects"') :].partition("</table>")[0]
    assert "effects in percentage points, means in %" in source
    shown = re.findall(r'<tr class="arm">.*?</th><td><data value="([^"]+)">([^<]+)<', source)
    assert len(shown) == 4
    for exact, text in shown:
        assert float(text) == pytest.approx(100 * float(exact), rel=0.006)


# arm against arm


def test_arms_stand_against_each_other_with_their_own_errors(count: Path) -> None:
    page = page_of(count)
    told = table_of(page, "table-between")
    with open_release(count) as connection:
        (released,) = read_every(connection, read_manifest(connection))
    expected = effects_between(released.whole, released.arms, "none", same_shares=False)
    assert [name for name, _ in told] == [f"against {one.control}" for one in expected]
    for (_, numbers), one in zip(told, expected, strict=True):
        assert numbers == pytest.approx(
            [one.estimate, one.ci_lower, one.ci_upper, one.std_error, one.p_value,
             one.p_value_holm, one.n_units], rel=1e-9,
        )  # fmt: skip
    assert len(told) == 6


# is it sound


@pytest.mark.parametrize(
    ("p_value", "words", "is_warned"),
    [
        (None, "Arm sizes cannot be checked", False),
        (0.4, "40 % are as uneven as this one", False),
        (1e-7, "Arm sizes do not fit the intended shares (sample ratio mismatch, p = 1e−07)", True),
    ],
)
def test_the_sample_ratio_is_told_with_what_it_means(
    count: Path, p_value: float | None, words: str, *, is_warned: bool
) -> None:
    page = report(changed(count, sample_ratio_p=p_value))
    assert words in text_of(page)
    assert ("Find out why before an effect is believed" in head_of(page)) == is_warned


def test_rows_set_aside_are_told_and_many_warned_about(count: Path) -> None:
    assert "No row was set aside" in text_of(report(changed(count, n_set_aside=0)))
    few = text_of(report(changed(count, n_set_aside=3)))
    assert "3 rows of the log were set aside, 0.2 % of them" in few
    assert "These are many" not in few
    assert "These are many" in text_of(report(changed(count, n_set_aside=500)))


@pytest.mark.parametrize(
    ("is_clustered", "words"),
    [(True, "p-values here follow these groups"), (False, "count each unit by itself")],
)
def test_groups_that_were_assigned_together_are_told(
    count: Path, words: str, *, is_clustered: bool
) -> None:
    assert "Arms were given to groups" not in text_of(page_of(count))
    page = report(replace(changed(count, assigned=True), is_clustered=is_clustered))
    assert words in text_of(page)
    assert "who belongs together" in text_of(page)


def test_the_page_says_how_many_groups_there_are(count: Path) -> None:
    contents = changed(count, assigned=True)
    groups = replace(contents, is_clustered=True, assigned={"none": 1200, "mail": 34})
    words = text_of(report(groups))
    assert "There are 1,234 of them: none 1,200, mail 34." in words


# figures


def test_a_yes_no_outcome_has_one_panel_for_all_arms(yes_no: Path) -> None:
    page = page_of(yes_no)
    source = page[page.index('aria-labelledby="figure-outcomes-title') :].partition("</svg>")[0]
    assert source.count("share (%)") == 1
    for arm in ARMS:
        assert f">{arm}</text>" in source
    assert [name for name, _ in table_of(page, "table-outcomes")] == ["none", *sorted(ARMS[1:])]


def test_bars_of_a_yes_no_outcome_are_in_scale() -> None:
    import numpy as np  # noqa: PLC0415 - for this test alone

    arms = [
        figures.Shares(name, np.array([1 - share, share]), np.array([0.01, 0.01]))
        for name, share in (("a", 0.1), ("b", 0.3), ("c", 0.2))
    ]
    svg = figures.yes_no(figures.Drawing("f", "t", "d"), arms, "share (%)")
    bars = re.findall(r'<path d="M ([\d.]+) [\d.]+ L ([\d.]+) [\d.]+ L [^"]*"[^>]*--arm', svg)
    widths = [float(end) - float(start) for start, end in bars]
    assert widths == pytest.approx([widths[0], 3 * widths[0], 2 * widths[0]], rel=1e-4)


# by attribute


def test_effects_by_attribute_are_those_of_the_command(count: Path) -> None:
    page = page_of(count)
    expected = [
        one for one in estimate_by(count, "country").estimates if one.estimator == "combined"
    ]
    for at, arm in enumerate(sorted(ARMS[1:]), start=1):
        told = table_of(page, f"table-by-1-{at}")
        of_arm = [one for one in expected if one.arm == arm]
        assert [name for name, _ in told] == [one.segment for one in of_arm] == ["de", "fr", "it"]
        for (_, numbers), one in zip(told, of_arm, strict=True):
            wanted = [
                one.estimate, one.ci_lower, one.ci_upper, one.p_value_holm_segments, one.shrunken,
                one.shrunken_ci_lower, one.shrunken_ci_upper, one.n_units,
            ]  # fmt: skip
            assert numbers[: len(wanted)] == pytest.approx(wanted, rel=1e-9)


def test_of_many_segments_the_largest_are_shown(count: Path) -> None:
    page = page_of(count)
    assert f"The {MOST_SEGMENTS} largest of 50 segments" in text_of(page)
    assert len(table_of(page, "table-by-2-1")) == MOST_SEGMENTS


def test_an_attribute_with_too_many_values_is_told(tmp_path: Path) -> None:
    log = a_log(2400).with_columns(pl.col("customer").alias("own"))
    built = build_experiment(tmp_path, log, columns={"attributes": ["own"]})
    page = report(read_contents(built.run().path))
    assert "There is no effect to show by own: it has too many values" in text_of(page)


# the axis of a forest plot


def line(estimate: float | None, lower: float | None, upper: float | None) -> figures.ForestLine:
    return figures.ForestLine("", "x", "", estimate, lower, upper, 1.0)


def test_an_axis_holds_estimates_and_cuts_what_is_far() -> None:
    lines = [line(1.0, 0.5, 1.5), line(-0.5, -90.0, 80.0), line(None, None, None)]
    low, high = figures.reach_of(lines)
    assert (low, high) == pytest.approx((-3.3, 3.3))
    assert figures.is_cut(lines, (low, high))
    assert not figures.is_cut(lines[:1], figures.reach_of(lines[:1]))
    assert figures.reach_of([line(None, None, None)]) == (-1.0, 1.0)


def test_relative_effects_have_a_sign() -> None:
    assert relative_words(0.1234) == "+12.3 %"
    assert relative_words(-0.5) == "−50 %"
    assert relative_words(0.0) == "0 %"


def test_an_effect_that_compares_few_is_in_the_head(tmp_path: Path) -> None:
    alone = [(f"x{one}", "mail", f"island {one}", 1.0) for one in range(300)]
    log = pl.concat([a_log(600), rows(*alone)])
    head = head_of(report(read_contents(build_experiment(tmp_path, log).run().path)))
    assert "The effect of mail compares only 66.7 % of the people" in head
