"""The pages of several releases: is it working, since when, is anything odd?"""

import json
import re
import shutil
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser

from flows.cli.main import run
from flows.operate.series.estimates import estimate_series
from flows.operate.series.report import write_series_report
from flows.operate.withdraw import withdraw
from flows.released.file import opening
from flows.released.file.read import check_sound
from schemas.errors import InputError
from tests.browser import DESKTOP, PAPER, PHONE, Scheme, seen
from tests.conftest import Experiment
from tests.flows.operate.series.nights_made import DAYS, nights
from tests.support.contents import text_of

pytest_plugins = ["tests.browser"]
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return nights(tmp_path_factory.mktemp("made") / "e", privacy={"budget_epsilon": 40.0})


@pytest.fixture(scope="module")
def page(made: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, _ = write_series_report([made.releases], tmp_path_factory.mktemp("pages") / "out")
    return path


def test_there_is_a_page_of_all_and_one_of_each(page: Path) -> None:
    names = {path.name for path in page.parent.iterdir()}
    assert names == {"index.html", *(f"trial.{day}.r1.html" for day in DAYS)}
    links = set(re.findall(r'<td.*?|href="([^"#]+\.html)"', page.read_text(encoding="utf-8")))
    assert links - {""} == names - {"index.html"}


def test_axe_finds_nothing(browser: Browser, page: Path, axe: str) -> None:
    with seen(browser, page) as found:
        assert found.violations(axe) == []


def test_each_period_has_its_state(page: Path) -> None:
    found = re.findall(r'<li class="(\w+)" title="([\d-]+), \w+">', page.read_text("utf-8"))
    states = {day: state for state, day in found}
    assert states == dict.fromkeys(DAYS, "published") | {"2026-11-03": "missing"}


def test_a_withdrawn_night_is_counted_apart(tmp_path: Path) -> None:
    made = nights(tmp_path / "e")
    withdraw(made.config, f"trial.{DAYS[1]}.r1", reason="the arms were swapped")
    path, _ = write_series_report([made.releases], tmp_path / "out")
    source = path.read_text("utf-8")
    assert f'<li class="withdrawn" title="{DAYS[1]}, withdrawn">' in source
    assert "the arms were swapped" in source
    assert source.count('<li class="published"') == 2


def test_it_says_what_is_odd_and_what_was_used(page: Path) -> None:
    text = text_of(page)
    assert "1 period is missing: 2026-11-03" in text
    assert '<data value="0.05">5\u00a0%</data>' in page.read_text("utf-8")  # 2 of 40, each once
    assert "240" in text


def test_its_numbers_are_those_of_the_estimates(page: Path, made: Experiment) -> None:
    exact = set(re.findall(r'<data value="([^"]+)">', page.read_text(encoding="utf-8")))
    pooled = next(
        one for one in estimate_series([made.releases]).pooled if one.estimator == "combined"
    )
    for value in (pooled.estimate, pooled.ci_lower, pooled.ci_upper_always, pooled.std_error):
        assert repr(value) in exact


def test_again_the_pages_of_releases_are_left_as_they_are(page: Path, made: Experiment) -> None:
    night = page.parent / f"trial.{DAYS[0]}.r1.html"
    before, first = night.stat().st_mtime_ns, page.read_bytes()
    assert write_series_report([made.releases], page.parent)[0] == page
    assert (night.stat().st_mtime_ns, page.read_bytes()) == (before, first)
    night.write_text("an older page")
    write_series_report([made.releases], page.parent)
    assert "an older page" not in night.read_text(encoding="utf-8")


def test_each_file_is_opened_and_checked_once(
    made: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are small; large ones are opened again, and give the same pages."""
    opened, checked = list[str](), list[str]()
    attached = opening._attached

    def attach(path: Path) -> duckdb.DuckDBPyConnection:
        opened.append(path.name)
        return attached(path)

    def check(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
        checked.append(path.name)
        check_sound(connection, path)

    monkeypatch.setattr(opening, "_attached", attach)
    monkeypatch.setattr("flows.operate.series.report.check_sound", check)
    monkeypatch.chdir(made.releases.parent)  # where a path is not absolute, it is the same file
    names = [f"trial.{day}.r1.duckdb" for day in DAYS]
    write_series_report([Path(made.releases.name)], tmp_path / "kept", told="returning")
    assert sorted(opened) == sorted(checked) == names
    monkeypatch.setattr(opening, "_KEPT_BYTES", 0)
    write_series_report([made.releases], tmp_path / "again", told="returning")
    assert sorted(checked) == sorted(2 * names)
    assert len(opened) >= 3 * len(DAYS)
    for page in (tmp_path / "kept").iterdir():
        assert page.read_bytes() == (tmp_path / "again" / page.name).read_bytes()


def test_of_files_that_are_kept_open_a_failure_names_its_own(made: Experiment) -> None:
    first, last = (made.releases / f"trial.{day}.r1.duckdb" for day in (DAYS[0], DAYS[-1]))
    with opening.kept_open() as open_:
        for path in (first, last):
            with open_(path) as connection:
                connection.execute("FROM main.release")
        named = rf"{first.name}: not a clusterdp release that can be read"
        with pytest.raises(InputError, match=named), open_(first) as connection:
            connection.execute("SELECT error('no more')")


def test_a_folder_of_experiments_has_an_index(made: Experiment, tmp_path: Path) -> None:
    shutil.copytree(made.releases, tmp_path / "all" / "trial")
    assert run(["report", str(tmp_path / "all"), "-o", str(tmp_path / "out"), "--json"]) == 0
    text = text_of(tmp_path / "out" / "index.html")
    assert "trial" in text
    assert DAYS[-1] in text
    assert "../index.html" in (tmp_path / "out" / "trial" / "index.html").read_text("utf-8")


def test_the_command_prints_the_path(
    made: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(made.releases), "-o", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(tmp_path / "out" / "index.html")}


def test_a_page_is_no_place_for_several(made: Experiment, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name a folder"):
        write_series_report([made.releases], tmp_path / "a.html")
    with pytest.raises(InputError, match="holds no release"):
        write_series_report([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_it_can_be_read(
    browser: Browser, page: Path, size: tuple[int, int], scheme: Scheme
) -> None:
    with seen(browser, page, size, scheme) as found:
        assert found.faults() == {}
        assert found.disorder() == {}


def test_it_prints(browser: Browser, page: Path) -> None:
    with seen(browser, page, PAPER, "dark") as found:
        found.page.emulate_media(media="print")
        assert found.overflow() <= 0
        assert found.page.pdf(format="A4", prefer_css_page_size=True).startswith(b"%PDF-")


def test_each_metric_has_its_section_in_its_own_unit(tmp_path: Path) -> None:
    made = nights(
        tmp_path / "e",
        columns={"outcome": None},
        outcome=None,
        outcomes=[
            {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3], "measured_in": "a week"},
            {"name": "any", "column": "clicks", "values": [0, 1], "label": "Clicked at all"},
        ],
    )
    path, _ = write_series_report([made.releases], tmp_path / "pages")
    source = path.read_text(encoding="utf-8")
    found = re.findall(r'<th class="m"[^>]*><bdi>(.*?)</bdi> <span>', source)
    assert found[:2] == ["clicks", "Clicked at all"]
    assert "average in <bdi>a week</bdi>" in source
    assert "in %, effects in points" in source
    exact = set(re.findall(r'<data value="([^"]+)">', source))
    pooled = [one for one in estimate_series([made.releases]).pooled if one.estimator == "combined"]
    assert [one.metric for one in pooled] == ["clicks", "any"]
    for one in pooled:
        assert {repr(one.estimate), repr(one.std_error), repr(one.ci_upper)} <= exact
