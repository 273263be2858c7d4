"""The forest plot: what it shows, that it can be read, and that it stands alone."""

import re
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser

from flows.effects.released.forest import MOST_SITES, check_format, write_forest
from flows.effects.released.site_aggregates import Combined, combine
from schemas.errors import ConfigError, InputError
from tests.browser import seen
from tests.site_reports import a_report

pytest_plugins = ["tests.browser"]

SVG = "{http://www.w3.org/2000/svg}"


def svg_of(combined: Combined) -> bytes:
    with TemporaryDirectory() as folder:
        return write_forest(combined, Path(folder) / "plot.svg").read_bytes()


def texts(svg: bytes) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - our own


def test_it_shows_sites_and_aggregates_with_their_numbers() -> None:
    reports = (a_report(), a_report("south", estimate=-0.5, variance=4.0, epsilon=0.5))
    found = texts(svg_of(combine(reports)))
    assert "stroke: effect of aspirin against placebo" in found
    for line in (
        "north", "south", "best set (mvagg)", "by inverse variance (ivw)", "all, by units (all)",
        "largest site (largest)", "0.25  [0.054, 0.446]", "−0.5  [−4.42, 3.42]",
        "100 units, ε 1", "100 units, ε 0.5", "1 of 2 sites", "2 of 2 sites",
    ):  # fmt: skip
        assert line in found
    assert any("Cochran's Q, p = " in line for line in found)


def test_the_same_reports_give_the_same_bytes() -> None:
    combined = combine((a_report(), a_report("south")))
    assert svg_of(combined) == svg_of(combined)


def test_what_sites_are_called_is_text() -> None:
    svg = svg_of(combine((a_report(treatment="<b>$x$ & co"),)))
    assert "stroke: effect of <b>$x$ & co against placebo" in texts(svg)


def test_a_site_outside_the_best_set_is_hollow() -> None:
    both = svg_of(combine((a_report(), a_report("south"))))
    one = svg_of(combine((a_report(), a_report("south", variance=9.0))))
    hollow = re.compile(rb'fill="#ffffff" stroke="#0a6a6c"')
    assert (len(hollow.findall(both)), len(hollow.findall(one))) == (0, 1)


def test_of_many_sites_the_largest_are_drawn() -> None:
    reports = tuple(a_report(f"s{n:03}", n_units=100 + n) for n in range(MOST_SITES + 5))
    found = texts(svg_of(combine(reports)))
    drawn = [line for line in found if re.fullmatch(r"s\d{3}", line)]
    assert drawn == [f"s{n:03}" for n in range(5, MOST_SITES + 5)]
    assert any("5 smaller sites are not drawn" in line for line in found)


@pytest.mark.parametrize("n_sites", [1, 3, MOST_SITES + 5])
def test_no_text_is_cut_or_covers_another(browser: Browser, tmp_path: Path, n_sites: int) -> None:
    reports = tuple(
        a_report(
            f"{place:03}-a-hospital-of-a-long-name",
            treatment="WMWM " * 9,
            control="MWMW " * 9,
            estimate=-0.000123456,
            variance=1.234e-8,
            n_units=10_000_000 + place,
            epsilon=0.12345,
        )
        for place in range(n_sites)
    )
    path = write_forest(combine(reports), tmp_path / "plot.svg")
    with seen(browser, path) as found:
        boxes = found.page.evaluate(
            "[...document.querySelectorAll('text')].map(one => [one.textContent,"
            " one.getBoundingClientRect()].flatMap(x => x.left === undefined ? [x] :"
            " [x.left, x.right, x.top, x.bottom]))"
        )
        right, bottom = found.page.evaluate(
            "(box => [box.right, box.bottom])(document.documentElement.getBoundingClientRect())"
        )
    assert len(boxes) > 10
    for name, x0, x1, y0, y1 in boxes:
        assert 0 <= x0 < x1 <= right, name
        assert 0 <= y0 < y1 <= bottom, name
    for (one, *first), (other, *second) in combinations(boxes, 2):
        apart = first[1] <= second[0] or second[1] <= first[0]
        assert apart or first[3] <= second[2] + 3 or second[3] <= first[2] + 3, (one, other)


@pytest.mark.parametrize(("spread", "middle"), [(1e-9, 1e6), (1e140, 0.0), (0.0, 0.0)])
def test_any_numbers_can_be_drawn(spread: float, middle: float) -> None:
    report = a_report(estimate=middle, variance=spread, noise_variance=0.0)
    assert texts(svg_of(combine((report, a_report("south")))))


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    path = write_forest(combine((a_report(),)), tmp_path / "plot.SVG")
    assert path.read_bytes().startswith(b"<svg")
    assert path.read_bytes().endswith(b"</svg>\n")
    assert [one.name for one in tmp_path.iterdir()] == ["plot.SVG"]


def test_intervals_and_dots_are_in_scale() -> None:
    svg = svg_of(combine((a_report(), a_report("south", estimate=-0.5, variance=4.0)))).decode()
    (north, south) = re.findall(
        r'<line x1="([\d.]+)%" x2="([\d.]+)%" stroke="#0a6a6c" stroke-width="2"/>\s*'
        r'<circle cx="([\d.]+)%"', svg
    )  # fmt: skip
    (a, b, x), (c, d, y) = ([float(one) for one in each] for each in (north, south))
    assert (b - a) / (d - c) == pytest.approx(0.392 / 7.84, abs=0.02)
    assert (x - y) / (d - c) == pytest.approx(0.75 / 7.84, abs=0.02)


def test_a_name_or_place_that_cannot_be_is_told(tmp_path: Path) -> None:
    for name in ("plot.pdf", "plot.png"):
        with pytest.raises(ConfigError, match=r"--plot: .*must end in \.svg"):
            check_format(tmp_path / name)
    with pytest.raises(InputError, match=r"none/plot\.svg: cannot be written"):
        write_forest(combine((a_report(),)), tmp_path / "none" / "plot.svg")


def test_it_can_be_read(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(svg_of(combine((a_report(), a_report("south")))).decode(), encoding="utf-8")
    with seen(browser, page) as found:
        assert found.hard_to_read(5.5) == []
        assert found.unnamed_figures() == 0
        assert (found.errors, found.requests) == ([], [])
