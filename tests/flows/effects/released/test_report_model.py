"""`clusterdp report MODEL.json`: the page of an effect model, from its file alone."""

import html
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from flows.cli.main import run
from flows.effects.released.model_file import read_model
from flows.released.report import write_report
from schemas.errors import InputError
from tests.browser import DESKTOP, PHONE, seen
from tests.effect_logs import Campaign, campaign

pytest_plugins = ["tests.browser"]

__all__ = ["campaign"]  # a fixture
pytestmark = pytest.mark.release


def test_a_model_has_a_page(
    browser: Browser, campaign: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, page = campaign().run().path, tmp_path / "a.html"
    assert run(["report", str(model), "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    found = read_model(model).model
    assert found.ate is not None
    source = page.read_text(encoding="utf-8")
    table = source[source.index('role="table" id="groups"') :].partition("</table>")[0]
    exact = [float(one) for one in re.findall('<data value="([^"]+)">', table)]
    assert exact[:3] == [found.ate.estimate, found.ate.ci_lower, found.ate.ci_upper]
    text = html.unescape(re.sub(r"<[^>]*>", "", source))
    assert "Who benefits in mail, once" in text
    assert "differential privacy: had one unit's whole row" in text
    assert "Whom to treat first" in text
    assert "Effects along features" in text
    for size in (PHONE, DESKTOP):
        with seen(browser, page, size) as looked:
            assert looked.faults() == {}
    again = write_report(model, tmp_path / "b.html")
    assert again.read_bytes() == page.read_bytes()


def test_no_unit_is_named(campaign: Campaign, tmp_path: Path) -> None:
    page = write_report(campaign().run().path, tmp_path / "a.html").read_text(encoding="utf-8")
    assert "p000007" not in page


def test_a_learnt_propensity_has_a_page_without_intervals(
    campaign: Campaign, tmp_path: Path
) -> None:
    model = campaign(propensity="learn = true").run().path
    page = write_report(model, tmp_path / "a.html").read_text(encoding="utf-8")
    assert "there is no average effect with an interval here" in page.replace("\n", " ")
    assert "the propensity was learnt" in page
    assert "Whom to treat first" not in page


def test_what_is_no_model_or_altered_is_refused(campaign: Campaign, tmp_path: Path) -> None:
    model = campaign().run().path
    content = json.loads(model.read_text(encoding="utf-8"))
    content["sums"][0]["steps"][0] += 1
    altered, other = tmp_path / "altered.json", tmp_path / "other.json"
    altered.write_text(json.dumps(content), encoding="utf-8")
    other.write_text("{}", encoding="utf-8")
    for path, words in ((altered, "altered by hand"), (other, "not an effect model")):
        with pytest.raises(InputError, match=words):
            write_report(path, tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()
