"""The papers of the house: what they show works, and where they point there is something."""

import re
from pathlib import Path

import duckdb
import pytest

from flows.config.load import load
from flows.release import release_period
from tests.conftest import a_log, write_content

ROOT = Path(__file__).parents[2]
PAPERS = sorted(
    path
    for folder in (".", "docs", "deploy", "privatizers")
    for path in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


def blocks(path: Path, language: str) -> list[str]:
    """The examples in one language."""
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


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
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 180


def test_the_example_of_the_readme_is_released_and_asked(tmp_path: Path) -> None:
    """Its configuration, a log that fits, and then its SQL, word for word."""
    (configuration,) = blocks(ROOT / "README.md", "toml")
    (questions,) = blocks(ROOT / "README.md", "sql")
    config = tmp_path / "autumn.toml"
    config.write_text(configuration, encoding="utf-8")
    columns = {"customer": "customer_id", "variant": "variant", "region": "region"}
    log = a_log(600, arms=("none", "mens", "womens"), n_outcomes=6).rename(columns)
    write_content(tmp_path / "logs" / "2026-11-01" / "log.parquet", log)
    release_period(str(config), "2026-11-01")
    segments = "SELECT 'c' || lpad(i::VARCHAR, 5, '0') AS unit_id, i % 2 AS segment"
    plain = re.sub("--.*", "", questions).replace("releases/", f"{tmp_path}/releases/")
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE my_segments AS {segments} FROM range(600) AS t (i)")
        rows = [connection.execute(one).fetchall() for one in plain.split(";") if one.strip()]
    assert len(rows) == 3
    assert all(rows[1:])


def test_the_whole_configuration_of_the_operator_is_one(tmp_path: Path) -> None:
    whole = blocks(ROOT / "docs" / "operator.md", "toml")[0]
    (tmp_path / "whole.toml").write_text(whole, encoding="utf-8")
    assert load(tmp_path / "whole.toml").experiment == "autumn-campaign"
