"""The page of a release with several outcomes, ratios and attributes, also in a browser."""

from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser

from flows.released.estimates.release import estimate_file
from flows.released.page.contents import Contents
from flows.released.report import report, write_report
from tests.browser import DESKTOP, PAPER, PHONE, Scheme, seen
from tests.conftest import EXACT, a_log, build_experiment
from tests.flows.released.page.test_sections import head_of, rows_of, table_of
from tests.support.contents import read_contents, text_of

pytest_plugins = ["tests.browser"]

ARMS = ("none", "mail", "post")
OUTCOMES = [
    {"name": "bought", "column": "bought", "values": [0, 1], "label": "Purchase"},
    {"name": "spend", "column": "clicks", "values": [0, 1, 2, 3], "measured_in": "EUR"},
    {"name": "views", "column": "views", "values": [1, 2], "label": "Pages viewed"},
]
RATIOS = [
    {"name": "each", "numerator": "spend", "denominator": "views", "label": "Spend per page"},
    {
        "name": "rate", "numerator": "bought", "denominator": "views", "label": "Purchase rate",
        "measured_in": "share",
    },
]  # fmt: skip
METRICS = ["bought", "spend", "views", "each", "rate"]
NAMES = ["Purchase", "spend", "Pages viewed", "Spend per page", "Purchase rate"]
NUMBER = pl.col("customer").str.slice(1).cast(pl.Int64)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = a_log(3000, arms=ARMS).with_columns(
        (pl.col("clicks") > 1).cast(pl.Float64).alias("bought"),
        (NUMBER // 7 % 2 + 1.0).alias("views"),
        (NUMBER // 30 % 3).replace_strict([0, 1, 2], ["it", "fr", "de"]).alias("country"),
        (NUMBER // 30 % 2 == 0).alias("member"),
    )
    built = build_experiment(
        tmp_path_factory.mktemp("several") / "made",
        log,
        arms={"control": "none", "treatments": ["mail", "post"]},
        columns={"outcome": None, "attributes": ["country", "member"]},
        outcome=None,
        outcomes=OUTCOMES,
        ratios=RATIOS,
        privacy={"epsilon": 12.0},
    )
    return built.run().path


@pytest.fixture(scope="module")
def contents(release: Path) -> Contents:
    return read_contents(release)


@pytest.fixture(scope="module")
def page(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(release, tmp_path_factory.mktemp("page") / "page.html")


def test_every_metric_has_its_rows_in_order(page: Path) -> None:
    source = page.read_text(encoding="utf-8")
    found = [text_of(one) for one, _, _ in rows_of(source, "rows")]
    assert list(dict.fromkeys(found)) == NAMES
    assert [arm for _, arm, _ in rows_of(source, "rows")] == ["mail", "post"] * 5
    told = head_of(source)
    assert all(name in told for name in NAMES)


def test_the_rows_have_the_numbers_of_the_estimators(page: Path, release: Path) -> None:
    source = page.read_text(encoding="utf-8")
    expected = [one for one in estimate_file(release) if one.estimator == "combined"]
    assert list(dict.fromkeys(one.metric for one in expected)) == METRICS
    told = rows_of(source, "rows")
    more = table_of(source, "table-effects")
    assert [arm for arm, _ in more] == [arm for _, arm, _ in told] == [one.arm for one in expected]
    for (_, _, numbers), (_, others), one in zip(told, more, expected, strict=True):
        assert numbers == pytest.approx([one.estimate, one.ci_lower, one.ci_upper], rel=1e-9)
        wanted = [
            one.relative, one.relative_ci_lower, one.relative_ci_upper,
            one.minimum_detectable_effect,
        ]  # fmt: skip
        assert others == pytest.approx([x for x in wanted if x is not None], rel=1e-9)


def test_arms_are_compared_in_every_metric(contents: Contents) -> None:
    for one in contents.metrics:
        (pair,) = one.between
        assert (pair.metric, pair.arm, pair.control) == (one.metric.metric, "post", "mail")
        by_control = {row["arm"]: row["estimate"] for row in one.estimates[::-1]}
        assert pair.estimate == pytest.approx(by_control["post"] - by_control["mail"], abs=1e-9)


def test_a_ratio_says_what_it_is(contents: Contents) -> None:
    text = text_of(report(contents))
    assert "spend divided by views: the ratio of two means" in text
    assert text.count("publishes neither units nor counts") == 0


def test_attributes_are_shown_for_every_outcome_and_said_to_be_public(page: Path) -> None:
    source = page.read_text(encoding="utf-8")
    for attribute, values in ((1, ["de", "fr", "it"]), (2, ["false", "true"])):
        told = rows_of(source, f"by-{attribute}")
        assert [segment for _, segment, _ in told] == values * 10  # five metrics, two arms
        assert [one for one, _ in table_of(source, f"table-by-{attribute}")] == values * 10
        assert [one for one, _, _ in told[:: len(values)]] == [
            f"{name}, {arm}" for name in NAMES for arm in ("mail", "post")
        ]
    text = text_of(source)
    assert "Each unit’s country and member stand in the file as they are" in text
    assert "every unit’s outcomes, all of them together" in text
    assert "all 3 outcomes of the unit at once" in text


@pytest.mark.parametrize(
    ("size", "scheme"), [(PHONE, "light"), (PHONE, "dark"), (DESKTOP, "light"), (DESKTOP, "dark")]
)
@pytest.mark.parametrize("is_open", [False, True])
def test_it_can_be_read_folded_and_unfolded(
    browser: Browser, page: Path, size: tuple[int, int], scheme: Scheme, *, is_open: bool
) -> None:
    with seen(browser, page, size, scheme) as found:
        if is_open:
            found.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = 1)")
        assert found.faults() == {}


def test_it_prints_what_was_opened(browser: Browser, page: Path) -> None:
    with seen(browser, page, PAPER) as found:
        found.page.emulate_media(media="print")
        is_shown = "document.querySelector('#table-estimates').getClientRects().length > 0"
        assert not found.page.evaluate(is_shown)
        assert found.overflow() <= 0
        assert "folded on the page is not printed" in found.page.inner_text("footer")
        found.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = 1)")
        assert found.page.evaluate(is_shown)
        assert found.overflow() <= 0


def test_it_can_be_heard_and_steered_by_keys(browser: Browser, page: Path) -> None:
    with seen(browser, page, PHONE) as found:
        assert found.disorder() == {}
        captions = found.page.evaluate(
            "[...document.querySelectorAll('caption')].map(one => one.textContent)"
        )
        assert len(captions) == len(set(captions)) > 10  # each box that scrolls has its own name
        found.page.focus("#estimates summary")
        found.page.keyboard.press("Enter")
        assert found.page.evaluate("document.querySelector('#estimates').open")


def test_a_ratio_without_a_number_has_its_place_on_the_page(tmp_path: Path) -> None:
    """Nothing is told of it on everybody or by attribute, and the rest of the page is there."""
    built = build_experiment(
        tmp_path / "made",
        a_log(120).with_columns(zero=pl.lit(0.0), country=pl.lit("it")),
        columns={"outcome": None, "attributes": ["country"]},
        outcome=None,
        outcomes=[
            {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
            {"name": "zero", "column": "zero", "values": [0, 1]},
        ],
        ratios=[{"name": "per_zero", "numerator": "clicks", "denominator": "zero"}],
        privacy=EXACT,
    )
    path = built.run().path
    assert not [one for one in estimate_file(path, metrics=("per_zero",)) if one.estimate]
    page = report(read_contents(path))
    assert "or the mean below the line is not told from zero" in text_of(page)
    assert "Near zero below." in page
