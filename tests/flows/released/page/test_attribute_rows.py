"""Effects by an attribute: their rows, and which of many segments there is room for."""

from dataclasses import replace

import numpy as np

from estimators.arm_effects import Estimate
from flows.released.estimates.by_attribute import AttributeEstimate, among_segments
from flows.released.page.results import MOST_SEGMENTS, largest, verdict_of
from flows.released.page.rows import Finding, Group, Ruler, by_interval, rulers_of


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


def group_of(rows: list[AttributeEstimate]) -> Group:
    findings = [
        Finding(
            name=one.segment, verdict=by_interval(one.ci_lower, one.ci_upper),
            estimate=one.estimate, low=one.ci_lower, high=one.ci_upper,
        )
        for one in rows
    ]  # fmt: skip
    return Group(name="mail", about="", findings=findings)


def ruler_of(group: Group) -> Ruler:
    return rulers_of([group])[0]


def test_an_interval_of_little_use_does_not_set_the_ruler() -> None:
    plain, odd = (
        [one for one in effects(["de", "fr", "it", "es", "uk"], wide=wide) if one.segment != "es"]
        for wide in (None, 3)
    )
    assert ruler_of(group_of(plain)) == ruler_of(group_of(odd))
    whole = group_of(effects(["de", "fr", "it", "es", "uk"], wide=3))
    ruler = ruler_of(whole)
    cut = [ruler.cut(one.outer) for one in whole.findings if one.outer]
    assert [bool(one) for one in cut] == [False, False, False, True, False]
    assert all(0 < ruler.place(one.estimate or 0.0) < 100 for one in whole.findings)


def test_of_many_segments_the_largest_are_shown_in_their_order() -> None:
    rows = effects([str(place) for place in range(MOST_SEGMENTS + 5)])
    assert [one.segment for one in largest(rows)] == [
        str(place) for place in range(5, MOST_SEGMENTS + 5)
    ]
    assert largest(rows[:3]) == rows[:3]


def test_a_verdict_needs_the_interval_and_holm() -> None:
    (one, *_) = effects(["de", "fr", "it"])
    row = vars(one) | {"estimate": 1.0, "ci_lower": 0.1, "ci_upper": 1.9}
    assert verdict_of(row, 0.01, 3, "segments").word == "higher"
    among = verdict_of(row, 0.2, 3, "segments")
    assert (among.word, among.is_clear) == ("no clear difference", False)
    assert "of 3 segments one may do so by chance" in str(among.note)
    assert verdict_of(row | {"ci_lower": -0.1}, 0.2, 3, "segments").note == ""
    assert verdict_of(
        row | {"estimate": -1.0, "ci_lower": -2, "ci_upper": -1}, 0.01, 3, ""
    ).word == ("lower")
    assert verdict_of(row | {"skewness": 0.9}, 0.01, 3, "segments").word == "cannot be told"
    assert verdict_of(vars(replace(one, estimate=None)), None, 3, "").word == "cannot be told"
