"""Examples in the papers, and how a page of them is run from beginning to end.

``python -m tests.docs.blocks`` runs the walk-through and writes what it answers into the page.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

ROOT = Path(__file__).parents[2]
WALK = ROOT / "docs" / "walkthrough.md"
ANSWER = "text"
"""The language of a block that shows what the block before it answers."""

_BLOCK = re.compile(r"^```([a-z]+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"[-−]?\d[\d,.]*(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what stands in it, and where."""

    language: str
    text: str
    span: tuple[int, int]
    """Of ``text``, in the page."""


def papers() -> list[Path]:
    """Every page of the checkout that people read."""
    folders = ("docs", "deploy", "privatizers", "flows", "estimators", "schemas", "tests")
    deep = (path for name in folders for path in (ROOT / name).rglob("*.md"))
    return sorted([*ROOT.glob("*.md"), *deep])


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The examples of a page, in order; of one language, or of all."""
    text = page.read_text(encoding="utf-8")
    found = (Block(each[1], each[2], each.span(2)) for each in _BLOCK.finditer(text))
    return [each for each in found if language in (None, each.language)]


def without_numbers(text: str) -> str:
    """A text in which numbers, and the widths that they need, do not count."""
    lines = (_NUMBER.sub("#", re.sub(r"[─═┄-]{2,}", "─", line)) for line in text.splitlines())
    return "\n".join(" ".join(line.split()) for line in lines).strip()


def run_shell(text: str) -> str:
    """Run lines of a shell, and give what they print; an AssertionError where one fails."""
    done = in_shell(text)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_shell(text: str) -> subprocess.CompletedProcess[str]:
    """Run lines of a shell in the current folder, with the program of this environment."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    return subprocess.run(
        ["/bin/sh", "-eu", "-c", text],
        env={**ours, "PATH": programs},
        capture_output=True,
        text=True,
        check=False,
    )


def run_python(text: str, names: dict[str, Any]) -> object:
    """Run a block, and give the value of its last line if that is an expression."""
    tree = ast.parse(text)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "<block>", "exec"), names)  # noqa: S102 - an example of ours
        return None
    tree.body.pop()
    exec(compile(tree, "<block>", "exec"), names)  # noqa: S102 - an example of ours
    return eval(compile(ast.Expression(last.value), "<block>", "eval"), names)  # noqa: S307 - ours


def run_sql(text: str, connection: duckdb.DuckDBPyConnection) -> list[duckdb.DuckDBPyRelation]:
    """Run every statement, and give what each of the queries finds."""
    found = []
    for statement in connection.extract_statements(text):
        if statement.type == duckdb.StatementType.SELECT:
            found.append(connection.sql(statement.query))
        else:
            connection.execute(statement.query)
    return found


def run_page(page: Path) -> Iterator[tuple[Block, str]]:
    """Run a page's examples in the current folder; gives each shown answer and the true one."""
    answer: object = None
    names: dict[str, Any] = {}
    with duckdb.connect() as connection:
        for block in blocks(page):
            if block.language == "sh":
                run_shell(block.text)
            elif block.language == "python":
                answer = run_python(block.text, names)
            elif block.language == "sql":
                answer = run_sql(block.text, connection)[-1]
            else:
                assert block.language == ANSWER, block.language
                yield (
                    block,
                    "\n".join(line.rstrip() for line in str(answer).strip("\n").splitlines()),
                )


def write_answers(page: Path) -> None:
    """Write what a page's examples answer into the page, and its plot beside it."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        with chdir(folder):
            answers = list(run_page(page))
        shutil.copy(Path(folder) / "effects.svg", page.with_name("effects.svg"))
    for block, answer in reversed(answers):
        start, end = block.span
        text = f"{text[:start]}{answer}\n{text[end:]}"
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_answers(WALK)
