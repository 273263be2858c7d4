"""The forest plot of effects by an attribute."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from estimators.arm_effects import Estimate
from flows.released.estimates.by_attribute import AttributeEstimate, among_segments
from flows.released.page.attributes import MOST_SEGMENTS, drawn_segments, forest_by
from flows.released.page.figures import Drawing

DRAWING = Drawing("by-country", "Effects by country", "A forest plot.")


def effects(names: list[str], wide: int | None = None) -> list[AttributeEstimate]:
    """Effects of segments of these names; ``wide`` has the place of one of little use."""
    random = np.random.default_rng(5)
    rows = []
    for place, name in enumerate(names):
        error = 100.0 if place == wide else 0.1 + 0.05 * place % 0.3
        effect = 0.2 + error * float(random.standard_normal())
        ends = {"ci_lower": effect - 1.96 * error, "ci_upper": effect + 1.96 * error}
        rows.append(
            Estimate(
                metric="outcome", arm="mail", control="none", segment=name, estimator="combined",
                estimate=effect, std_error=error, privacy_std_error=error / 2, **ends,
                p_value=0.1, p_value_holm=0.1, minimum_detectable_effect=1.0,
                confidence_level=0.95, relative=None, relative_ci_lower=None,
                relative_ci_upper=None, n_units=100 + place, n_segment=100 + place, coverage=1.0,
            )
        )  # fmt: skip
    return among_segments(rows, AttributeEstimate)


def nothing(one: AttributeEstimate, n_units: int = 0) -> AttributeEstimate:
    """The segment where nothing can be compared, or where a ratio has no number."""
    gone = ("estimate", "std_error", "privacy_std_error", "ci_lower", "ci_upper", "p_value")
    plain = {name: value for name, value in vars(one).items() if "shrunken" not in name}
    plain |= dict.fromkeys((*gone, "p_value_holm_segments")) | {"n_units": n_units}
    return AttributeEstimate(**plain)


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)  # noqa: S314 - ours
    return [one.text or "" for one in root.iter() if one.tag.endswith("text")]


def test_every_segment_has_its_name_and_both_effects() -> None:
    rows = effects(["de", "fr", "it"])
    found = texts(forest_by(DRAWING, rows, "effect of mail"))
    for one in rows:
        assert one.segment in found
    pairs = [text for text in found if "→" in text]
    assert len(pairs) == 3
    first = re.findall(r"[−-]?[\d.]+", pairs[0].replace("−", "-"))
    assert [float(number) for number in first] == pytest.approx(
        [rows[0].estimate, rows[0].shrunken], rel=0.01
    )
    assert {"as it is", "shrunken", "effect of mail"} <= set(found)


def test_the_same_effects_give_the_same_bytes() -> None:
    rows = effects(["de", "fr", "it"])
    assert forest_by(DRAWING, rows, "effect") == forest_by(DRAWING, rows, "effect")


def test_names_are_text_and_nothing_else() -> None:
    hostile = ["<script>", "$\\frac{a}{b}$", "a\x00b", "&amp;", "x" * 500]
    found = texts(forest_by(DRAWING, effects(hostile), "effect"))
    assert "<script>" in found
    assert "$\\frac{a}{b}$" in found
    assert max(map(len, found)) < 60


def test_a_segment_without_effect_says_so() -> None:
    rows = effects(["de", "fr", "it"])
    found = texts(forest_by(DRAWING, [rows[0], nothing(rows[1]), rows[2]], "effect"))
    assert "too few units" in found
    assert texts(forest_by(DRAWING, [nothing(rows[0])], "effect")).count("too few units") == 1
    assert "near zero below" in texts(forest_by(DRAWING, [nothing(rows[0], 9)], "effect"))


def test_an_interval_of_little_use_does_not_set_the_axis() -> None:
    plain, odd = (texts(forest_by(DRAWING, rows, "effect")) for rows in (
        effects(["de", "fr", "it", "es"]), effects(["de", "fr", "it", "es"], wide=3)
    ))  # fmt: skip
    assert plain != odd
    rows = effects(["de", "fr", "it", "es"], wide=3)
    drawn = forest_by(DRAWING, [one for one in rows if one.segment != "es"], "effect")
    assert "1000" not in "".join(texts(drawn))


def test_of_many_segments_the_largest_are_drawn_in_their_order() -> None:
    rows = effects([str(place) for place in range(MOST_SEGMENTS + 5)])
    assert [one.segment for one in drawn_segments(rows)] == [
        str(place) for place in range(5, MOST_SEGMENTS + 5)
    ]
    assert drawn_segments(rows[:3]) == rows[:3]
