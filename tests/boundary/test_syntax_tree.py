"""What import contracts cannot see, looked for in the syntax trees of the code.

Every rule is tried on planted violations, on innocent code, and on the one place it excepts.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("flows", "privatizers", "schemas", "estimators")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

Finder = Callable[[ast.Module], Iterator[ast.AST]]

GENERATOR = "numpy.random.Generator"
"""Of a simulation's made-up people and assignments; it is imported by this name."""
SIMULATIONS = ("privatizers/lab/simulation/simulate.py", "privatizers/lab/simulation/trial.py")
REPLICATION = "flows/lab/replication/"
"""Runs simulations from fixed numbers, on made-up people."""


@dataclass(frozen=True)
class Rule:
    """Code that ``finds`` yields may stand only in ``excepted`` (files, or folders with a slash).

    ``within`` are the folders that it speaks of.
    """

    name: str
    finds: Finder
    excepted: tuple[str, ...] = ()
    within: tuple[str, ...] = PACKAGES

    def speaks_of(self, place: str) -> bool:
        """Whether the rule holds in a file, named from the root."""
        return place.startswith(tuple(f"{folder}/" for folder in self.within)) and not any(
            place.startswith(one) if one.endswith("/") else place == one for one in self.excepted
        )

    def broken_by(self, source: str) -> bool:
        """Whether a piece of code is what the rule forbids."""
        return any(True for _ in self.finds(ast.parse(source)))


# reading code


@lru_cache(maxsize=1)  # one tree after another is asked by all rules
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All of a tree."""
    return tuple(ast.walk(tree))


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of such an expression, else what of it is known."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(node: ast.AST) -> Iterator[str]:
    """What a statement imports, by full names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def mentioned(node: ast.AST) -> Iterator[str]:
    """What a node imports, or reaches by attributes, with NumPy's usual alias spelt out."""
    yield from imported(node)
    if isinstance(node, ast.Attribute):
        yield dotted(node).replace("np.", "numpy.", 1)


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in nodes(tree) if isinstance(node, ast.Call))


def last(node: ast.AST) -> str:
    """The name that is called, whatever it is an attribute of."""
    return dotted(node).rpartition(".")[2]


def is_of(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


# the rules


def opens_what_is_sealed(tree: ast.Module) -> Iterator[ast.AST]:
    """``x.open()`` without arguments, ``x.open`` passed on, or a way around.

    Files can still be opened: by a mode, which says more anyway.
    """
    called = {id(call.func): call for call in calls(tree)}
    for node in nodes(tree):
        if isinstance(node, ast.Attribute):
            call = called.get(id(node))
            bare = call is None or not (call.args or call.keywords)
            if (node.attr == "open" and bare) or node.attr.endswith("__value"):
                yield node
        elif isinstance(node, ast.Constant) and node.value in ("open", "_Sealed__value"):
            yield node  # getattr, attrgetter, methodcaller


def reads_files(tree: ast.Module) -> Iterator[ast.AST]:
    readers = {"open", "fdopen", "fromfile", "from_file", "loadtxt", "genfromtxt", "memmap"}
    for call in calls(tree):
        name = last(call.func)
        listed = name in readers or name.startswith(("read_", "scan_"))
        if listed or "numpy.load" in mentioned(call.func):
            yield call


def imports_by_name(tree: ast.Module) -> Iterator[ast.AST]:
    innocent = ("importlib.metadata", "importlib.resources")
    for node in nodes(tree):
        if isinstance(node, ast.Name) and node.id in ("__import__", "eval", "exec"):
            yield node
        for name in imported(node):
            if is_of(name, ("importlib", "runpy", "pkgutil")) and not is_of(name, innocent):
                yield node


def draws(tree: ast.Module) -> Iterator[ast.AST]:
    sources = (
        "random", "numpy.random", "secrets", "opendp", "cryptography",
        "os.urandom", "os.getrandom", "uuid.uuid4",
    )  # fmt: skip
    for node in nodes(tree):
        for name in mentioned(node):
            if name == GENERATOR:
                continue  # the name of what a caller may hand in: a rule of its own
            if is_of(name, sources) or name.endswith((".rvs", ".sample", ".shuffle")):
                yield node


def prints(tree: ast.Module) -> Iterator[ast.AST]:
    writers = ("print", "sys.stdout.write", "sys.stderr.write", "typer.echo", "pprint")
    yield from (call for call in calls(tree) if dotted(call.func) in writers)


def connects(tree: ast.Module) -> Iterator[ast.AST]:
    own = ("duckdb.connect", "duckdb.sql", "duckdb.query", "duckdb.execute")
    for node in nodes(tree):
        if any(name in own for name in mentioned(node)):
            yield node


def makes_tasks(tree: ast.Module) -> Iterator[ast.AST]:
    for node in nodes(tree):
        if any(is_of(name, ("prefect.task", "prefect.tasks")) for name in mentioned(node)):
            yield node


def imports_prefect(tree: ast.Module) -> Iterator[ast.AST]:
    for node in nodes(tree):
        if any(is_of(name, ("prefect",)) for name in imported(node)):
            yield node


def takes_a_seed(tree: ast.Module) -> Iterator[ast.AST]:
    seeds = {"seed", "random_seed", "random_state", "rng", "generator", "bit_generator"}
    for node in nodes(tree):
        given = node.arg if isinstance(node, ast.arg | ast.keyword) else None
        declared = last(node.target) if isinstance(node, ast.AnnAssign) else None
        if {given, declared} & seeds:
            yield node


def is_handed_a_generator(tree: ast.Module) -> Iterator[ast.AST]:
    for node in nodes(tree):
        if GENERATOR in mentioned(node):
            yield node


RULES = [
    Rule(
        "raw values are unsealed in the houses' raw rooms alone",
        opens_what_is_sealed,
        ("flows/raw/", "flows/effects/raw/", "flows/lab/raw/"),
    ),
    Rule("nothing outside flows reads a file", reads_files, ("flows/",)),
    Rule(
        "nothing is imported or run by a name made up at run time",
        imports_by_name,
        ("flows/runtime/houses.py",),  # by names that stand in it
    ),
    Rule(
        "there is one door for randomness",
        draws,  # signatures are drawn from nothing: Ed25519 has no use for chance
        (
            "privatizers/noise/randomness.py",
            "privatizers/noise/checksums.py",  # GMAC is a function of key and content
            "privatizers/noise/keyed_digests.py",  # as is CMAC
            "flows/runtime/signatures.py",
            REPLICATION,
        ),
    ),
    Rule(
        "generators are handed to simulations alone",
        is_handed_a_generator,
        (*SIMULATIONS, REPLICATION),
    ),
    Rule(
        "nothing but the command line and its progress prints",
        prints,
        ("flows/cli/main.py", "flows/runtime/progress.py"),
    ),
    Rule(
        "plain runs do without Prefect",
        imports_prefect,
        (
            "flows/orchestration/",
            "flows/operate/serve.py",
            "flows/runtime/progress.py",
            "flows/deployed.py",
        ),
    ),
    Rule("DuckDB is reached by the one that is quiet", connects, ("flows/runtime/engine.py",)),
    Rule("every task is a step", makes_tasks, ("flows/orchestration/step.py",)),
    Rule("privacy noise takes no seed", takes_a_seed, SIMULATIONS, ("privatizers", "flows")),
]

BY_FINDER = {rule.finds: rule for rule in RULES}


# the code


@cache
def found() -> dict[Rule, list[tuple[str, int]]]:
    """By rule, file and line of all that it finds, wherever that stands; each file is read once."""
    every: dict[Rule, list[tuple[str, int]]] = {rule: [] for rule in RULES}
    for path in FILES:
        place = path.relative_to(ROOT).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for rule, places in every.items():
            places += [(place, getattr(node, "lineno", 0)) for node in rule.finds(tree)]
    return every


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_code_keeps_the_rule(rule: Rule) -> None:
    assert [(place, line) for place, line in found()[rule] if rule.speaks_of(place)] == []


def test_package_files_are_empty() -> None:
    """A re-export would carry code across the boundary without an import that shows it."""
    inits = [path for path in FILES if path.name == "__init__.py"]
    assert {path.parent.name for path in inits} >= {*PACKAGES, "raw", "released"}
    assert [path for path in inits if path.read_text(encoding="utf-8").strip()] == []


def test_all_the_code_is_looked_at() -> None:
    places = {path.relative_to(ROOT).as_posix() for path in FILES}
    assert places >= {
        "flows/release.py",
        "flows/raw/ingest.py",
        "flows/released/file/read.py",
        "privatizers/noise/randomness.py",
        "schemas/raw.py",
        "estimators/arm_effects.py",
    }


# the rules themselves


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.excepted], ids=lambda rule: rule.name
)
def test_the_excepted_place_does_what_the_rule_forbids_elsewhere(rule: Rule) -> None:
    """Else the exception is not needed, or the rule is blind to how the code does it."""
    assert [place for place, _ in found()[rule] if place.startswith(rule.excepted)]


@pytest.mark.parametrize(
    ("finder", "source"),
    [
        (opens_what_is_sealed, "frame = rows.open()"),
        (opens_what_is_sealed, "frame = step(ingest)(config).open()"),
        (opens_what_is_sealed, "look = rows.open\nlook()"),
        (opens_what_is_sealed, "list(map(Sealed.open, rows))"),
        (opens_what_is_sealed, "getattr(rows, 'open')()"),
        (opens_what_is_sealed, "rows._Sealed__value"),
        (opens_what_is_sealed, "getattr(rows, '_Sealed__value')"),
        (reads_files, "open('log.csv')"),
        (reads_files, "path.open('rb')"),
        (reads_files, "Path('x').read_text()"),
        (reads_files, "path.read_bytes()"),
        (reads_files, "pl.read_parquet('x')"),
        (reads_files, "pl.scan_csv('x')"),
        (reads_files, "np.load('x')"),
        (reads_files, "np.fromfile('x')"),
        (imports_by_name, "import importlib\nimportlib.import_module('flows.raw')"),
        (imports_by_name, "from importlib import import_module"),
        (imports_by_name, "__import__('flows.raw')"),
        (imports_by_name, "exec('import flows.raw')"),
        (imports_by_name, "import runpy"),
        (draws, "import random"),
        (draws, "from random import random"),
        (draws, "import secrets"),
        (draws, "import os\nos.urandom(8)"),
        (draws, "from os import urandom as u"),
        (draws, "import numpy as np\nnp.random.default_rng()"),
        (draws, "from numpy.random import default_rng"),
        (draws, "from numpy import random"),
        (draws, "import opendp.prelude as dp"),
        (draws, "from cryptography.hazmat.primitives.ciphers import Cipher"),
        (draws, "stats.laplace.rvs(scale=1)"),
        (draws, "frame.sample(fraction=1)"),
        (draws, "from numpy.random import Generator, PCG64"),
        (draws, "np.random.Generator(np.random.PCG64(1))"),
        (is_handed_a_generator, "from numpy.random import Generator"),
        (is_handed_a_generator, "def noise(made: np.random.Generator): ..."),
        (prints, "print(rows)"),
        (prints, "sys.stdout.write('x')"),
        (connects, "duckdb.connect()"),
        (connects, "from duckdb import connect"),
        (connects, "import duckdb\nduckdb.sql('SELECT 1')"),
        (makes_tasks, "from prefect import flow, task"),
        (makes_tasks, "import prefect\n@prefect.task\ndef f(): ..."),
        (makes_tasks, "import prefect.tasks"),
        (imports_prefect, "from prefect import flow"),
        (imports_prefect, "import prefect.runtime"),
        (imports_prefect, "def later():\n    from prefect.context import FlowRunContext"),
        (takes_a_seed, "def noise(scale, seed=None): ..."),
        (takes_a_seed, "def noise(scale, *, rng): ..."),
        (takes_a_seed, "lambda seed: seed"),
        (takes_a_seed, "np.shuffle(x, random_state=1)"),
        (takes_a_seed, "class Run:\n    seed: int | None = None"),
    ],
)
def test_a_planted_violation_is_caught(finder: Finder, source: str) -> None:
    assert BY_FINDER[finder].broken_by(source)


@pytest.mark.parametrize(
    ("finder", "source"),
    [
        (opens_what_is_sealed, "with path.open('rb') as file: ..."),
        (opens_what_is_sealed, "os.open(path, os.O_RDONLY)"),
        (opens_what_is_sealed, "open(path)"),
        (opens_what_is_sealed, "path.open(encoding='utf-8')"),
        (reads_files, "frame.write_parquet(path)"),
        (reads_files, "read = 1"),
        (imports_by_name, "from importlib.metadata import version"),
        (draws, "import numpy as np\nnp.zeros(3)"),
        (draws, "import os\nos.fsync(1)"),
        (draws, "from privatizers.noise.randomness import random_words"),
        (draws, "from numpy.random import Generator"),
        (prints, "log.info('x')"),
        (makes_tasks, "from prefect import flow"),
        (makes_tasks, "task = 1"),
        (imports_prefect, "import sys\nsys.modules.get('prefect.context')"),
        (imports_prefect, "from flows.orchestration.prefect_server import prefect_server"),
        (takes_a_seed, "def noise(scale, size): ..."),
    ],
)
def test_innocent_code_is_left_alone(finder: Finder, source: str) -> None:
    assert not BY_FINDER[finder].broken_by(source)


@pytest.mark.parametrize(
    ("finder", "place", "held"),
    [
        (opens_what_is_sealed, "flows/raw/privatize.py", False),
        (opens_what_is_sealed, "flows/release.py", True),
        (opens_what_is_sealed, "flows/rawish.py", True),
        (opens_what_is_sealed, "privatizers/mechanisms/statistics/noisy_counts.py", True),
        (draws, "privatizers/noise/randomness.py", False),
        (draws, "privatizers/randomness_too.py", True),
        (draws, "privatizers/lab/simulation/simulate.py", True),
        (draws, "flows/lab/replication/efficiency/measured.py", False),
        (draws, "flows/release.py", True),
        (is_handed_a_generator, "privatizers/lab/simulation/simulate.py", False),
        (is_handed_a_generator, "privatizers/lab/simulation/trial.py", False),
        (is_handed_a_generator, "privatizers/lab/simulation/pools.py", True),
        (is_handed_a_generator, "privatizers/mechanisms/mechanism.py", True),
        (takes_a_seed, "privatizers/lab/simulation/simulate.py", False),
        (takes_a_seed, "privatizers/lab/simulation/pools.py", True),
        (takes_a_seed, "flows/lab/replication/efficiency/measured.py", True),
        (reads_files, "flows/released/file/read.py", False),
        (reads_files, "schemas/raw.py", True),
        (imports_prefect, "flows/release.py", True),
        (imports_prefect, "flows/effects/multisite.py", True),
        (imports_prefect, "flows/orchestration/flow.py", False),
        (takes_a_seed, "flows/config/model/experiment.py", True),
        (takes_a_seed, "estimators/arm_effects.py", False),
    ],
)
def test_a_rule_holds_where_it_should(finder: Finder, place: str, held: bool) -> None:
    assert BY_FINDER[finder].speaks_of(place) == held
