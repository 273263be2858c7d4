"""How effects and releases look in a terminal of 80 columns, and in a notebook."""

from html.parser import HTMLParser

import polars as pl
import pytest

import clusterdp
from flows.released.estimates.frames import EffectsFrame
from tests.conftest import Builder, a_log

HOSTILE = "<b>&\u202e\n"


class _Cells(HTMLParser):
    """The texts of a table's cells, and the tags that there are."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - the parser's
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


@pytest.fixture
def release(experiment: Builder) -> clusterdp.Release:
    """A release of two treatment arms, one of which is called what no page may take for its own."""
    log = a_log(600, arms=("none", HOSTILE, "mail")).with_columns(
        pl.Series("country", [("here", "there")[unit // 60 % 2] for unit in range(600)])
    )
    built = experiment(
        log, arms={"treatments": [HOSTILE, "mail"]}, columns={"attributes": ["country"]}
    )
    return clusterdp.open(built.run().path)


LOOKED_FOR = ["arm", "estimator", "estimate", "ci_lower", "ci_upper", "p_value"]


def test_effects_print_what_is_looked_for_in_eighty_columns(release: clusterdp.Release) -> None:
    found = release.ate()
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert [name.strip() for name in lines[1].strip("│").split("┆")] == LOOKED_FOR
    (sharpest, *_) = (line for line in lines if "mail" in line)
    cells = [cell.strip() for cell in sharpest.strip("│").split("┆")]
    (row,) = found.filter(arm="mail", estimator=cells[1]).to_dicts()
    assert [float(cell) for cell in cells[2:]] == pytest.approx(
        [row[name] for name in LOOKED_FOR[2:]], rel=1e-3
    )
    assert all(name in " ".join(lines) for name in found.columns)
    assert repr(found) == str(found)


def test_segments_and_metrics_are_shown_where_they_tell_rows_apart(
    release: clusterdp.Release,
) -> None:
    assert "segment" in str(release.ate(by="country")).splitlines()[1]
    several = EffectsFrame(release.ate().with_columns(metric=pl.lit("visit")))
    assert "metric" in str(several).splitlines()[1]


def test_what_is_made_of_effects_is_a_plain_frame(release: clusterdp.Release) -> None:
    found = release.ate()
    assert isinstance(found, pl.DataFrame)
    assert type(found.filter(arm="mail")) is pl.DataFrame
    assert found.to_pandas().shape == found.shape
    found.drop_in_place("p_value")
    assert "ci_upper" in str(found)
    assert str(EffectsFrame(found.clear())).count("\n") >= 3


def test_notebooks_show_tables_without_what_names_would_do(release: clusterdp.Release) -> None:
    effects = _Cells(release.ate()._repr_html_())
    assert effects.cells[: len(LOOKED_FOR)] == LOOKED_FOR
    assert f'"{"<b>&"}\\u202e\\n"' in effects.cells
    assert "b" not in effects.tags
    page = _Cells(release._repr_html_())
    assert release.manifest.release_id in release._repr_html_()
    assert {"600 in 2 clusters", "cluster-dp", "country", str(release.path)} <= set(page.cells)
