"""What the page says of each metric: in words, in its unit, with the numbers of the estimators."""

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
from flows.released.page.contents import Contents
from flows.released.page.results import MOST_SEGMENTS
from flows.released.page.words import relative, relative_words
from flows.released.report import report
from tests.conftest import a_log, build_experiment, rows
from tests.support.contents import read_contents, text_of

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


def head_of(page: str) -> str:
    """Banners, and the answer."""
    return text_of(page[page.index("<header>") : page.index('<p class="small">')])


def rows_of(page: str, anchor: str) -> list[tuple[str, str, list[float]]]:
    """Of each row the group, what it is called, and the exact numbers."""
    source = page[page.index(f'<table class="rows" role="table" id="{anchor}"') :]
    over = r'<th class="m".*?>(.*?) <span>'
    row = r'<tr class="r (?:up|down|calm).*?</b></td>\n<th class="a".*?>(.*?)</th>(.*?)</tr>'
    found = re.findall(f"{over}|{row}", source.partition("</table>")[0], re.DOTALL)
    group, rows = "", []
    for head, name, cells in found:
        group = text_of(head) if head else group
        if name:
            exact = re.findall(r'<data value="([^"]+)"', cells)
            rows.append((group, text_of(name), [float(value) for value in exact]))
    return rows


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


# the answer


def test_the_answer_names_every_metric_and_the_rows_every_arm(count: Path) -> None:
    page = page_of(count)
    assert "Spend" in head_of(page)
    told = rows_of(page, "rows")
    expected = sharpest(count)
    assert [(group, arm) for group, arm, _ in told] == [("Spend", one.arm) for one in expected]
    for (_, _, numbers), one in zip(told, expected, strict=True):
        assert numbers == pytest.approx([one.estimate, one.ci_lower, one.ci_upper], rel=1e-9)
    assert "average in EUR" in text_of(page)


def test_base_and_new_are_the_means(count: Path) -> None:
    """The shown texts; a mean that lies outside the outcome's range is not shown."""
    page = page_of(count)
    cells = re.findall(r'<td class="n" role="cell">(.*?)<small>', page)
    for text, one in zip(cells, sharpest(count), strict=False):
        assert one.control_mean is not None
        assert one.estimate is not None
        base, _, new = text.partition(" → ")
        assert float(base) == pytest.approx(one.control_mean, abs=0.006)
        mean = one.control_mean + one.estimate
        assert (float(new) == pytest.approx(mean, abs=0.006)) if 0 <= mean <= 3 else not new


def test_a_yes_no_outcome_is_in_per_cent(yes_no: Path) -> None:
    page = page_of(yes_no)
    assert "in %, effects in points" in text_of(page)
    shown = re.findall(r'<td class="e" role="cell"><b><data value="([^"]+)">([^<]+)<', page)
    assert len(shown) >= 4
    for exact, text in shown[:4]:
        assert float(text.replace("−", "-")) == pytest.approx(100 * float(exact), abs=0.501)


def test_an_outcome_without_a_name_has_words(count: Path, tmp_path: Path) -> None:
    page = report(read_contents(labelled(count, tmp_path, None, None)))
    assert "the mean outcome" in head_of(page).lower()
    assert "None" not in text_of(page)


# all estimates


def test_one_estimate_an_arm_is_to_be_read_and_all_are_there(count: Path) -> None:
    page = page_of(count)
    for (arm, numbers), one in zip(table_of(page, "table-effects"), sharpest(count), strict=True):
        assert arm == one.arm
        wanted = [
            one.relative, one.relative_ci_lower, one.relative_ci_upper,
            one.minimum_detectable_effect,
        ]  # fmt: skip
        assert numbers == pytest.approx([x for x in wanted if x is not None], rel=1e-9)
    folded = page[page.index('<details id="estimates">') :].partition("</details>")[0]
    assert len(table_of(folded, "table-estimates")) == len(estimate_file(count)) == 12


# arm against arm


def test_arms_stand_against_each_other_with_their_own_errors(count: Path) -> None:
    page = page_of(count)
    rows, told = rows_of(page, "between"), table_of(page, "table-between")
    with open_release(count) as connection:
        (released,) = read_every(connection, read_manifest(connection))
    expected = effects_between(released.whole, released.arms, "none", same_shares=False)
    against = [f"{one.arm} against {one.control}" for one in expected]
    assert [name for name, _ in told] == [name for _, name, _ in rows] == against
    for (_, _, effect), (_, numbers), one in zip(rows, told, expected, strict=True):
        assert effect[:3] == pytest.approx([one.estimate, one.ci_lower, one.ci_upper], rel=1e-9)
        assert numbers == pytest.approx(
            [one.std_error, one.p_value, one.p_value_holm, one.n_units], rel=1e-9
        )
    assert len(told) == 6


# is it sound


@pytest.mark.parametrize(
    ("p_value", "words", "is_warned"),
    [
        (None, "Arm sizes cannot be checked", False),
        (0.4, "Arm sizes fit the intended shares", False),
        (1e-7, "Arm sizes do not fit the intended shares (sample ratio mismatch, p = 1e−07)", True),
    ],
)
def test_the_sample_ratio_is_told_with_what_it_means(
    count: Path, p_value: float | None, words: str, *, is_warned: bool
) -> None:
    page = report(changed(count, sample_ratio_p=p_value))
    assert words in text_of(page)
    assert ("find out why before an effect is believed" in head_of(page)) == is_warned
    assert ("difference?" in page) == is_warned  # no word stands as it is then


def test_rows_set_aside_are_told_and_many_warned_about(count: Path) -> None:
    assert "No row was set aside" in text_of(report(changed(count, n_set_aside=0)))
    few = text_of(report(changed(count, n_set_aside=3)))
    assert "3 rows were set aside, 0.2 % of the log" in few
    assert "These are many" not in few
    assert "These are many" in text_of(report(changed(count, n_set_aside=500)))


@pytest.mark.parametrize(
    ("is_clustered", "words"),
    [(True, "Errors and intervals follow these groups"), (False, "count each unit by itself")],
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
    assert "as leaving out these groups would" in words


# by attribute


def test_effects_by_attribute_are_those_of_the_command(count: Path) -> None:
    page = page_of(count)
    expected = [
        one for one in estimate_by(count, "country").estimates if one.estimator == "combined"
    ]
    ordered = [one for arm in sorted(ARMS[1:]) for one in expected if one.arm == arm]
    rows, told = rows_of(page, "by-1"), table_of(page, "table-by-1")
    assert [group for group, _, _ in rows[::3]] == [f"Spend, {arm}" for arm in sorted(ARMS[1:])]
    assert [name for _, name, _ in rows] == [name for name, _ in told] == ["de", "fr", "it"] * 4
    for (_, _, effect), (_, numbers), one in zip(rows, told, ordered, strict=True):
        assert effect == pytest.approx([one.estimate, one.ci_lower, one.ci_upper], rel=1e-9)
        wanted = [
            one.p_value_holm_segments, one.shrunken, one.shrunken_ci_lower, one.shrunken_ci_upper,
            one.n_units,
        ]  # fmt: skip
        assert numbers[: len(wanted)] == pytest.approx(wanted, rel=1e-9)


def test_of_many_segments_the_largest_are_shown(count: Path) -> None:
    page = page_of(count)
    assert f"The {MOST_SEGMENTS} largest of 50 segments" in text_of(page)
    assert len(rows_of(page, "by-2")) == len(table_of(page, "table-by-2")) == 4 * MOST_SEGMENTS


def test_an_attribute_with_too_many_values_is_told(tmp_path: Path) -> None:
    log = a_log(2400).with_columns(pl.col("customer").alias("own"))
    built = build_experiment(tmp_path, log, columns={"attributes": ["own"]})
    page = report(read_contents(built.run().path))
    assert "By owntoo many values There is no effect to show: it has too many values" in text_of(
        page
    )


def test_relative_effects_have_a_sign() -> None:
    assert relative(0.1234) == '<data value="0.1234">+12</data>'
    assert relative_words(-0.5) == "−50\u00a0%"
    assert relative_words(1.234) == "+123\u00a0%"
    assert relative_words(0.0) == "0\u00a0%"
    assert (relative(None), relative_words(None)) == ("–", "relative –")


def test_an_effect_that_compares_few_is_in_the_head(tmp_path: Path) -> None:
    alone = [(f"x{one}", "mail", f"island {one}", 1.0) for one in range(300)]
    log = pl.concat([a_log(600), rows(*alone)])
    head = head_of(report(read_contents(build_experiment(tmp_path, log).run().path)))
    assert "The effect of mail on The mean outcome compares only 66.7 % of the people" in head
