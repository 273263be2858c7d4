"""What the page has to hold: its size, and what stands where on a phone, in print and for keys."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser

from flows.released.page.cost import half_width, noise_at
from flows.released.page.results import answered
from flows.released.report import report, write_report
from tests.browser import Scheme, seen
from tests.conftest import build_experiment
from tests.support.contents import read_contents

pytest_plugins = ["tests.browser"]

PHONE = (390, 844)
NARROW = (320, 700)
LONG = "a name that has sixty letters and more, to be read all the same"
RIGHT_TO_LEFT = "بريد إلكتروني"
ARMS = ("No mail", "Mail A", "Mail B")


def made(
    folder: Path, arms: tuple[str, ...], labels: tuple[str, str, str], epsilon: float = 6.0
) -> Path:
    """Three metrics and an attribute; outcomes of a generator: the same every time."""
    random, n = np.random.default_rng(7), 6000
    arm = np.arange(n) % len(arms)
    visit = (random.random(n) < 0.13 + 0.06 * (arm == 1)).astype(float)
    log = pl.DataFrame(
        {
            "customer": [f"c{one:05d}" for one in range(n)],
            "variant": [arms[one] for one in arm],
            "region": random.choice(["east", "west", "north"], n),
            "clicks": visit * random.integers(0, 4, n),
            "visit": visit,
            "channel": random.choice(["phone", "web", "several"], n),
        }
    )
    built = build_experiment(
        folder, log,
        arms={"control": arms[0], "treatments": list(arms[1:])},
        columns={"outcome": None, "attributes": ["channel"]},
        outcome=None,
        outcomes=[
            {"name": "visit", "column": "visit", "values": [0, 1], "label": labels[0]},
            {"name": "spend", "column": "clicks", "values": [0, 1, 2, 3], "label": labels[1],
             "measured_in": "USD"},
        ],
        ratios=[{"name": "each", "numerator": "spend", "denominator": "visit", "label": labels[2],
                 "measured_in": "USD"}],
        privacy={"epsilon": epsilon},
    )  # fmt: skip
    return built.run().path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("limits")
    ten = ("No mail", *(f"Mail {one}" for one in "ABCDEFGHIJ"))
    kinds = {
        "three": (ARMS, ("Visit", "Spend", "Spend per visit")),
        "ten": (ten, ("Visit", "Spend", "Spend per visit")),
        "long": ((LONG, LONG.upper(), RIGHT_TO_LEFT), (RIGHT_TO_LEFT, LONG, "זכר קנייה")),
    }
    found = {}
    for kind, (arms, labels) in kinds.items():
        release = made(folder / kind, arms, labels)
        found[kind] = (release, write_report(release, folder / f"{kind}.html"))
    return found


Pages = dict[str, tuple[Path, Path]]


def bottom(found: Any, last: str) -> float:
    return float(found.page.evaluate(f"[...document.querySelectorAll('{last}')].at(-1)"
                                     ".getBoundingClientRect().bottom"))  # fmt: skip


def test_three_metrics_and_two_arms_are_answered_at_a_glance(
    browser: Browser, pages: Pages
) -> None:
    page = pages["three"][1]
    assert page.stat().st_size <= 90_000
    with seen(browser, page, PHONE) as found:
        words = re.findall(r"[\w.,−+%]*\w[\w.,−+%]*", found.page.inner_text("body"))
        assert len(words) <= 600
        assert bottom(found, "#rows .r .v") <= 1.2 * PHONE[1]
        folds = "document.querySelector('#more').getBoundingClientRect().top"
        assert found.page.evaluate(folds) <= 3.3 * PHONE[1]
        assert found.number("document.querySelectorAll('a, summary, pre').length") <= 20
        assert found.number("[...document.querySelectorAll('table')].filter("
                            "one => one.checkVisibility()).length") == 1  # fmt: skip
    with seen(browser, page) as found:
        pdf = found.page.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page[^s]", pdf)) <= 4


@pytest.mark.parametrize("kind", ["three", "ten", "long"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [NARROW, PHONE, (1200, 900)])
def test_any_names_and_arms_can_be_read(
    browser: Browser, pages: Pages, kind: str, scheme: Scheme, size: tuple[int, int]
) -> None:
    with seen(browser, pages[kind][1], size, scheme) as found:
        for is_open in (False, True):
            if is_open:
                found.page.evaluate(
                    "document.querySelectorAll('details').forEach(one => one.open = 1)"
                )
            assert found.faults(5.5) == {}


@pytest.mark.parametrize("kind", ["three", "ten", "long"])
def test_axe_finds_nothing(browser: Browser, pages: Pages, kind: str, axe: str) -> None:
    with seen(browser, pages[kind][1]) as found:
        assert found.violations(axe) == []


def test_bars_are_seen_where_colours_are_forced(browser: Browser, pages: Pages) -> None:
    context = browser.new_context(forced_colors="active")
    try:
        page = context.new_page()
        page.goto(pages["three"][1].as_uri())
        fills = page.evaluate(
            "['.bar .i', '.bar .o', '.open .d'].map(one =>"
            " getComputedStyle(document.querySelector(one)))"
            ".map(one => [one.fill, one.stroke])"
        )
        canvas = page.evaluate("getComputedStyle(document.body).backgroundColor")
    finally:
        context.close()
    (inner, _), (outer, edge), (dot, rim) = fills
    assert inner != canvas == outer == dot
    assert edge != canvas != rim


def test_another_epsilon_is_forecast_from_this_one(pages: Pages) -> None:
    """At the release's own the interval is its own; without noise it is that of chance alone."""
    contents = read_contents(pages["three"][0])
    for metric in contents.metrics:
        one = answered(contents, metric)
        lead = one.leads[0]
        half = (lead["ci_upper"] - lead["ci_lower"]) / 2
        found = [half_width(contents, one, times) for times in (0.1, 0.5, 1.0, 2.0, np.inf)]
        assert found == sorted(found, key=lambda each: -(each or 0.0))
        assert found[2] == pytest.approx(half)
        chance = lead["std_error"] ** 2 - lead["privacy_std_error"] ** 2
        assert found[4] == pytest.approx(half * np.sqrt(max(chance, 0.0)) / lead["std_error"])
    assert "(this release)" in report(contents)


def test_the_forecast_is_that_of_a_release_with_that_epsilon(tmp_path: Path) -> None:
    """Of the outcomes within a fifth: 5 % off were seen, and 10 to 120 % of a ratio."""
    halves, forecasts = [], []
    for epsilon, other in ((3.0, 8.0), (8.0, 3.0)):
        contents = read_contents(made(tmp_path / f"at {epsilon}", ARMS, ("a", "b", "c"), epsilon))
        found = [answered(contents, one) for one in contents.metrics[:2]]
        halves.append([(one.leads[0]["ci_upper"] - one.leads[0]["ci_lower"]) / 2 for one in found])
        forecasts.append([half_width(contents, one, other / epsilon) for one in found])
    assert forecasts[0] == pytest.approx(halves[1], rel=0.2)
    assert forecasts[1] == pytest.approx(halves[0], rel=0.2)
    assert halves[0] != pytest.approx(halves[1], rel=0.2)  # to leave it out would be seen


def test_noise_falls_with_epsilon() -> None:
    metric: Any = type("Two", (), {"n_outcomes": 2})
    for estimator in ("tau_q", "histogram"):
        noise = [noise_at(metric, estimator, one) for one in (0.1, 1.0, 3.0, 30.0, 5000.0)]
        assert noise == sorted(noise, reverse=True)
        assert noise[-1] > 0
    # Of two values (1 - λ) = tanh(ε/2): response of ε = 2 log 3 keeps with probability 0.8.
    assert noise_at(metric, "tau_q", 2 * np.log(3)) == pytest.approx(0.8**-2 - 1)
