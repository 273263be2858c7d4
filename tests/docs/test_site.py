"""The documentation as a site: complete, without loose ends, and readable without a network."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from flows.config.keys import fields
from flows.config.model.experiment import Config
from flows.effects.config.effects import EffectConfig
from flows.effects.config.site import SiteConfig

ROOT = Path(__file__).parents[2]
BUILD = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "."]
_AWAY = re.compile(r"^(https?:)?//")


class Page(HTMLParser):
    """What a page points at, and what it can be pointed at by."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.names.update(filter(None, (found.get("id"), found.get("name"))))
        target = found.get("href") or found.get("src") or ""
        if tag == "a":
            self.links.append(target)
        elif target:
            self.loads.append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; whatever is wrong with a page, or a link on it, is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [*BUILD, "-d", str(folder / "trees"), str(folder / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    found = {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(found) > 25
    return found


def test_every_paper_is_a_page(site: Path) -> None:
    folders = ("docs", "deploy", "privatizers", "flows", "estimators", "schemas", "tests")
    papers = [
        *ROOT.glob("*.md"),
        *(one for each in folders for one in ROOT.glob(f"{each}/**/*.md")),
    ]
    for paper in papers:
        assert (site / paper.relative_to(ROOT).with_suffix(".html")).is_file(), paper


def test_links_lead_somewhere(pages: dict[Path, Page]) -> None:
    for page in pages.values():
        for link in page.links:
            if _AWAY.match(link) or link.startswith("mailto:"):
                continue
            target, _, name = unquote(link).partition("#")
            there = (page.path.parent / target).resolve() if target else page.path
            assert there.is_file(), (page.path, link)
            assert not name or there.suffix != ".html" or name in pages[there].names, link


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    for page in pages.values():
        for load in page.loads:
            assert not _AWAY.match(load), (page.path, load)
            if not load.startswith("data:"):
                there = page.path.parent / unquote(load).split("?")[0].split("#")[0]
                assert there.exists(), (page.path, load)
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", text), sheet
    assert (site / "searchindex.js").stat().st_size > 10_000  # it is searched from a file, too


def test_every_key_is_in_the_reference(site: Path) -> None:
    page = (site / "docs" / "reference" / "configuration.html").read_text(encoding="utf-8")
    assert "made of the code" not in page
    for model in (Config, SiteConfig, EffectConfig):
        for name in fields(model):
            assert name == "directory" or f"{name}" in page
    for key in ("outcomes_path", "budget_delta", "centres_epsilon", "spill_directory", "edges"):
        assert f">{key}<" in page, key
    assert "stochastic" in page  # a default
    rows = dict(
        re.findall(r"<tr.*?><code.*?>([a-z-]+)</span></code></p></td>(.*?)</tr>", page, re.S)
    )
    assert "means" in rows["uniform-prior-dp"]
    assert "means" not in rows["cluster-dp"]
    assert "truncation_threshold" in rows["cluster-dp"]


def test_every_command_is_in_the_reference(site: Path) -> None:
    page = (site / "docs" / "reference" / "commands.html").read_text(encoding="utf-8")
    for name in ("demo", "check", "release", "serve", "hash-ids", "aggregate", "replicate"):
        assert f"<h2>clusterdp {name}<" in page, name
    assert "--revise" in page
    assert "--covariates" in page


def test_the_front_door_is_explained(pages: dict[Path, Page], site: Path) -> None:
    names = pages[site / "docs" / "reference" / "python.html"].names
    assert {"clusterdp.open", "clusterdp.Release.ate", "clusterdp.release"} <= names


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    """The build is as strict as these tests take it to be."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n\n[b](nowhere.md)\n", encoding="utf-8")
    strict = [*BUILD[:-2], str(ROOT / "docs"), ".", "site"]
    done = subprocess.run(strict, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
