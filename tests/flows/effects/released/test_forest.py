"""The forest plot: what it shows, that it can be read, and that it stands alone."""

import io
import re
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import matplotlib.colors as colours
import pytest
from matplotlib.text import Text

from flows.effects.released.forest import (
    _SETTINGS,
    INK,
    MOST_SITES,
    MUTED,
    SITE,
    TOTAL,
    _figure,
    check_format,
    write_forest,
)
from flows.effects.released.site_aggregates import Combined, combine
from flows.runtime.plots import plain_matplotlib
from schemas.errors import ConfigError, InputError
from tests.site_reports import a_report

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
    hollow = re.compile(rb"fill: #ffffff; stroke: " + SITE.encode())
    assert (len(hollow.findall(both)), len(hollow.findall(one))) == (0, 1)


def test_of_many_sites_the_largest_are_drawn() -> None:
    reports = tuple(a_report(f"s{n:03}", n_units=100 + n) for n in range(MOST_SITES + 5))
    found = texts(svg_of(combine(reports)))
    drawn = [line for line in found if re.fullmatch(r"s\d{3}", line)]
    assert drawn == [f"s{n:03}" for n in range(5, MOST_SITES + 5)]
    assert any("5 smaller sites are not drawn" in line for line in found)


@pytest.mark.parametrize("n_sites", [1, 3, MOST_SITES + 5])
def test_no_text_is_cut_or_covers_another(n_sites: int) -> None:
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
    with plain_matplotlib(_SETTINGS):
        figure = _figure(combine(reports))
        figure.savefig(io.BytesIO(), format="png", dpi=figure.dpi)  # gives all texts their places
        texts = [one for one in figure.findobj(Text) if one.get_text() and one.get_visible()]
        boxes = {one.get_text(): one.get_window_extent() for one in texts}
    assert len(boxes) > 10
    for name, box in boxes.items():
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, name
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1, name
    for (one, first), (other, second) in combinations(boxes.items(), 2):
        assert not first.overlaps(second), (one, other)


@pytest.mark.parametrize(("spread", "middle"), [(1e-9, 1e6), (1e140, 0.0), (0.0, 0.0)])
def test_any_numbers_can_be_drawn(spread: float, middle: float) -> None:
    report = a_report(estimate=middle, variance=spread, noise_variance=0.0)
    assert texts(svg_of(combine((report, a_report("south")))))


def test_files_are_written_whole_in_either_format(tmp_path: Path) -> None:
    combined = combine((a_report(),))
    for name, begin in (("plot.svg", b"<?xml"), ("plot.PNG", b"\x89PNG")):
        path = write_forest(combined, tmp_path / name)
        assert path.read_bytes().startswith(begin)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plot.PNG", "plot.svg"]


def test_a_name_or_place_that_cannot_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--plot: .*must end in \.svg or \.png"):
        check_format(tmp_path / "plot.pdf")
    with pytest.raises(InputError, match=r"none/plot\.svg: cannot write the figure"):
        write_forest(combine((a_report(),)), tmp_path / "none" / "plot.svg")


def contrast_on_white(colour: str) -> float:
    """By the formula of WCAG 2."""
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in colours.to_rgb(colour)
    ]
    return 1.05 / (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05)


def test_colours_can_be_read() -> None:
    assert contrast_on_white(INK) > 7
    assert contrast_on_white(MUTED) > 4.5
    assert min(contrast_on_white(SITE), contrast_on_white(TOTAL)) > 4.5
