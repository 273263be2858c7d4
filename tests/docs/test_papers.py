"""The papers of the house: what they show works, and where they point there is something."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from flows.cli.main import app
from flows.config.model.experiment import Config
from tests.docs.blocks import ROOT, blocks, papers

PAPERS = papers()
FILES = [
    str(path.relative_to(ROOT))
    for place in ("", "flows", "privatizers", "estimators", "schemas", "tests", "docs")
    for path in ((ROOT / place).rglob("*.py") if place else ROOT.glob("*.py"))
]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
COMMAND = re.compile(r"(?:`|^)clusterdp ([a-z][a-z-]*)([^`\n#]*)", re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """What a link may name behind ``#``, as GitHub spells it."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_there_are_papers_for_every_reader() -> None:
    names = {str(path.relative_to(ROOT)) for path in PAPERS}
    assert names >= {"README.md", "SECURITY.md", "CONTRIBUTING.md", "docs/analyst.md"}


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(paper: Path) -> None:
    for target, anchor in LINK.findall(paper.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        there = (paper.parent / target) if target else paper
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), anchor


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_first_readings_are_read_in_an_hour() -> None:
    """What somebody reads who was given a release, or is to run a first night."""
    pages = ("walkthrough", "analyst", "operator")
    texts = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in pages]
    assert sum(len(text.split()) for text in texts) <= 8_000


def test_the_picture_of_the_readme_is_small() -> None:
    assert 10_000 < (ROOT / "docs" / "page.webp").stat().st_size < 150_000


def test_the_readme_shows_the_required_keys_in_twelve_lines() -> None:
    (block,) = blocks(ROOT / "README.md", "toml")
    assert len(block.text.splitlines()) == 12
    shown = tomllib.loads(block.text)
    required = {name for name, field in Config.model_fields.items() if field.is_required()}
    required |= {"outcome"}  # or [[outcomes]]
    assert set(shown) == required
    for name in required - {"experiment"}:
        section = Config.model_fields[name].annotation
        assert isinstance(section, type)
        needed = {key for key, field in section.model_fields.items() if field.is_required()}
        assert needed <= set(shown[name]), name


def test_every_folder_says_what_it_is_in_ten_lines_or_so() -> None:
    houses = ("flows/operate", "flows/effects", "flows/lab")
    for folder in ("flows", *houses, "privatizers", "estimators", "schemas", "tests"):
        lines = (ROOT / folder / "README.md").read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {Path(folder).name}: ")
        most = 24 if folder == "flows" else 14  # it has the map of the houses
        assert len(lines) <= most, folder


def test_the_first_version_is_dated() -> None:
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert heads[0] == "Unreleased"
    assert re.fullmatch(r"0\.1\.0 \(\d{4}-\d\d-\d\d\)", heads[-1])


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_are_named_exist_with_their_options(paper: Path) -> None:
    """``clusterdp estimate RELEASE --level 0.9``, within a line or in a block of a shell."""
    program: Any = typer.main.get_command(app)
    for name, rest in COMMAND.findall(paper.read_text(encoding="utf-8")):
        assert name in program.commands, name
        options = {option for each in program.commands[name].params for option in each.opts}
        for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rest):
            assert option in options | {"--help", "--debug"}, (name, option)


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_of_code_that_are_named_exist(paper: Path) -> None:
    """By their path from the root, or as much of its end as a page says."""
    for named in re.findall(r"`((?:[\w.-]+/)*[\w-]+\.py)`", paper.read_text(encoding="utf-8")):
        end = named.removeprefix("../")
        assert any(path == end or path.endswith(f"/{end}") for path in FILES), named
