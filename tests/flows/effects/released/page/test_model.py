"""The page of an effect model: its numbers are the model's, and a browser finds it sound."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from estimators.effects.models.table import PREDICTED
from flows.effects.released.page.curves import along_number, common_limits
from flows.effects.released.page.model import effects_model_page, targeting
from flows.released.page.chart import Mark
from flows.released.page.html import environment
from schemas.effects.model import Curve, LevelFeature, NumberFeature, SubgroupEffect
from tests.browser import DESKTOP, PAPER, PHONE, Scheme, seen
from tests.flows.released.page.effect_models_made import (
    AGE,
    FACTS,
    REFUSED,
    N,
    effect,
    model_of,
    table_of,
)
from tests.support.contents import text_of

pytest_plugins = ["tests.browser"]

EVIL = "<script>console.error('level')</script>"
EVIL_FEATURE = "<img src=http://127.0.0.1:9/x onerror=console.error(1)> $x_1$"
LONG = "a name that is much too long for a figure, " * 3 + "漢字"

Pages = Mapping[str, Path]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("pages")
    levels = tuple(f"level {one}" for one in range(150))
    features = (
        NumberFeature(EVIL_FEATURE, -3.0, 7.0),
        LevelFeature(LONG, (EVIL, LONG, *levels)),
    )
    evil = replace(
        FACTS, model_id=EVIL, experiment=EVIL_FEATURE, control=EVIL, treatment=LONG, guarantee=EVIL
    )
    many = tuple(NumberFeature(f"feature {one}", 0.0, 10.0 ** (one % 9)) for one in range(30))
    made = {
        "plain": effects_model_page(model_of(), FACTS),
        "learnt": effects_model_page(model_of(learnt=True), FACTS),
        "evil": effects_model_page(replace(model_of(features), warnings=(EVIL,)), evil),
        "many": effects_model_page(model_of(many), FACTS),
        "release": effects_model_page(
            replace(model_of(), sums=()), replace(FACTS, release_id="stroke.once.r1")
        ),
    }
    found = {name: folder / f"{name}.html" for name in made}
    for name, page in made.items():
        found[name].write_text(page, encoding="utf-8")
    return found


KINDS = ["plain", "learnt", "evil", "many", "release"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP])
@pytest.mark.parametrize("kind", KINDS)
def test_a_browser_finds_it_sound(
    browser: Browser, pages: Pages, kind: str, size: tuple[int, int], scheme: Scheme
) -> None:
    with seen(browser, pages[kind], size, scheme) as found:
        assert found.faults() == {}
        assert found.disorder() == {}
        assert found.number("document.querySelectorAll('script, img').length") == 0


def test_axe_finds_nothing(browser: Browser, pages: Pages, axe: str) -> None:
    for page in pages.values():
        with seen(browser, page) as found:
            assert found.violations(axe) == []


def test_it_fits_on_paper(browser: Browser, pages: Pages) -> None:
    with seen(browser, pages["plain"], PAPER) as found:
        found.page.emulate_media(media="print")
        assert found.overflow() <= 0


def test_the_table_of_groups_has_the_models_numbers(browser: Browser, pages: Pages) -> None:
    model = model_of()
    with seen(browser, pages["plain"]) as found:
        told = found.page.evaluate(
            "['#groups .r', '#table-groups tbody tr:not(.heading)'].map(which =>"
            "[...document.querySelectorAll(which)].map(row => [row.querySelector('th').textContent,"
            "  [...row.querySelectorAll('data')].map(one => Number(one.value))]))"
        )
    cells = [one for one in model.subgroups if one.name != PREDICTED]
    expected = [("everybody", model.ate), *((one.level, one.effect) for one in cells)]
    for which in told:
        assert [label for label, _ in which] == [label for label, _ in expected]
    for (_, effects), (_, errors), (_, one) in zip(*told, expected, strict=True):
        if one is None:
            assert effects == errors == []
            continue
        assert effects == [one.estimate, one.ci_lower, one.ci_upper]
        assert errors[:2] == [one.std_error, one.privacy_std_error]
        assert errors[2] == pytest.approx((one.privacy_std_error / one.std_error) ** 2)


def test_what_is_refused_is_said_in_words(pages: Pages) -> None:
    assert REFUSED in text_of(pages["plain"])
    learnt = text_of(pages["learnt"])
    assert "No interval is given: the propensity was learnt" in learnt
    assert "there is no average effect with an interval here" in learnt
    assert "It has no band" in learnt
    assert "Its band is noise only" not in learnt
    assert 'id="table-groups"' not in pages["learnt"].read_text(encoding="utf-8")


def test_the_band_is_called_what_it_is(pages: Pages) -> None:
    text = text_of(pages["plain"])
    assert "Its band is noise only: it allows for chance and for privacy" in text
    assert "its band is noise only" in text  # at the levels


def test_what_it_cost_is_shown_by_query(pages: Pages) -> None:
    text = text_of(pages["plain"])
    assert "Effects along featureseffects10" in text
    assert "43 %" in text
    assert "With ε = 2 in place of 1 every sum would have 53 % of the noise" in text
    assert "the publisher’s ledger keeps the account" in text
    release = text_of(pages["release"])
    assert "This page cost nothing more" in release
    assert "What the budget was spent on" not in release
    assert "ledger" not in release


def test_figures_say_what_they_leave_out(pages: Pages) -> None:
    assert "The first 24 of 30 features, the most important ones." in text_of(pages["many"])
    evil = text_of(pages["evil"])
    assert "The first 30 of 152 levels." in evil
    assert "144 more rows" in evil  # the first 8 of 153 groups are open
    assert pages["evil"].stat().st_size < 400_000


def test_the_same_model_gives_the_same_bytes(pages: Pages) -> None:
    assert effects_model_page(model_of(), FACTS) == pages["plain"].read_text(encoding="utf-8")
    other = replace(model_of(), ate=effect(0.0211))
    assert effects_model_page(other, FACTS) != pages["plain"].read_text(encoding="utf-8")


def test_the_gain_adds_up_from_the_top() -> None:
    """Fifths of effects −0.01, 0.01, 0.02, 0.04 and 0.07; errors are added as if they were one."""
    found = targeting(model_of())
    assert found is not None
    told = [(row["share"], row["gain"], row["ci_upper"] - row["gain"]) for row in found["rows"]]
    gains = (0.014, 0.022, 0.026, 0.028, 0.026)
    for place, (share, gain, reach) in enumerate(told, 1):
        assert share == pytest.approx(place / 5)
        assert gain == pytest.approx(gains[place - 1])
        noise = 1.959964 * 10 / N  # of a share
        assert reach == pytest.approx(
            place * 0.03 / 5 + noise * sum(map(abs, (0.07, 0.04, 0.02, 0.01, -0.01)[:place]))
        )
    assert not found["is_cut"]


def test_the_gain_ends_before_what_is_refused() -> None:
    model = model_of()
    refused = SubgroupEffect(PREDICTED, "40 to 60 %", None, REFUSED)
    cells = tuple(
        refused if (one.name, one.level) == (PREDICTED, refused.level) else one
        for one in model.subgroups
    )
    found = targeting(replace(model, subgroups=cells))
    assert found is not None
    assert [row["share"] for row in found["rows"]] == pytest.approx([0.2, 0.4])
    assert found["is_cut"]


def test_groups_count_as_large_as_they_are() -> None:
    """Half of all are in the highest group; next to nobody in the one below, which is refused."""
    model = model_of()
    cells = list(model.subgroups)
    cells[-2] = replace(cells[-2], effect=None, refused=REFUSED)
    counts = [N, *(N / 5 for _ in cells[:-5]), *(N * part for part in (0.2, 0.1, 0.2, 0.0, 0.5))]
    sums = (*model.sums[:-1], table_of(counts))
    found = targeting(replace(model, subgroups=tuple(cells), sums=sums))
    assert found is not None
    told = [(row["share"], row["gain"]) for row in found["rows"]]
    assert [share for share, _ in told] == pytest.approx([0.5, 0.7, 0.8, 1.0])
    assert told[0][1] == pytest.approx(0.5 * 0.07)
    assert told[1][1] == pytest.approx(0.5 * 0.07 + 0.2 * 0.02)


def test_where_all_are_predicted_alike_nobody_comes_first() -> None:
    """All are in the highest group: what its effect is, everybody's is."""
    model = model_of()
    cells = [
        replace(one, effect=None, refused=REFUSED)
        if one.name == PREDICTED and place < len(model.subgroups) - 1
        else one
        for place, one in enumerate(model.subgroups)
    ]
    counts = [N, *(N / 5 for _ in cells[:-5]), -3.0, 5.0, 0.0, 2.0, N]
    alike = replace(model, subgroups=tuple(cells), sums=(*model.sums[:-1], table_of(counts)))
    assert "names nobody who should be treated first" in re.sub(
        r"\s+", " ", effects_model_page(alike, FACTS)
    )


def test_without_its_cells_nothing_is_said_of_targeting(pages: Pages) -> None:
    model = model_of(predicted=False)
    assert targeting(model) is None
    assert "Whom to treat first" not in effects_model_page(model, FACTS)
    assert "Whom to treat first" not in text_of(pages["learnt"])


def test_subgroups_stand_on_the_curve_where_they_belong() -> None:
    """From edge to edge, in scale; with arrows where an interval goes on beyond the axis."""
    curve = Curve("x", (0.0, 5.0, 10.0), np.zeros(3), None)
    shapes = np.zeros(3), np.full(3, -0.1), np.full(3, 0.1)
    points = [Mark(2.0, 0.5, 0.25, 0.75, (0.0, 4.0)), Mark(7.0, -0.5, -1.5, 0.0, (4.0, 10.0))]
    found = along_number("a", curve, shapes, points, (-1.0, 1.0), log=False)
    text = '{% from "chart.html" import chart %}{{ chart(found) }}'
    drawn = environment().from_string(text).render(found=found)
    lines = re.findall(r'<line class="w" x1="(.*?)%" x2="(.*?)%" y1="(.*?)%" y2="(.*?)%"/>', drawn)
    assert lines == [
        ("8.00", "43.60", "25.00", "25.00"), ("25.80", "25.80", "37.50", "12.50"),
        ("43.60", "97.00", "75.00", "75.00"), ("70.30", "70.30", "100.00", "50.00"),
    ]  # fmt: skip
    assert re.findall(r'<svg x="(.*?)%" y="(.*?)%".*?d="(.*?)"', drawn) == [
        ("70.30", "100.00", "M-5-6 5-6 0 2z")
    ]


def test_a_wide_interval_does_not_set_the_axis() -> None:
    usual = [(0.0, 1.0), (-1.0, 0.5), (0.2, 0.9)]
    assert common_limits([*usual, (-90.0, 80.0)]) == common_limits(usual)


def test_a_feature_without_a_partition_has_no_points(pages: Pages) -> None:
    model = model_of((AGE,))
    bare = replace(model, subgroups=(), design=replace(model.design, subgroups=()))
    source = effects_model_page(bare, FACTS)
    assert '<circle class="d" cx="' not in source.partition('id="features"')[2]
    assert "believe the dots" not in source
