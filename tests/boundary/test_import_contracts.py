"""The import contracts hold, and each of them bites."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import Builder

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = {one["name"] for one in PROJECT["tool"]["importlinter"]["contracts"]}
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]

LAYERS = "the way down: flows > privatizers > estimators > schemas"
BOUNDARY = "code outside the privacy boundary never reaches code inside it"
PURE = "mechanisms and estimators are pure: no orchestration, no database"
FACTS = "facts about tables depend on no engine"
DOOR = "one door for privacy randomness"
UNSOUND = "what has no guarantee is for replication alone"
REPLICATION = "nothing but the command line runs replications"
IN_FLOWS = (
    "inside flows: commands over pages, pages over steps, steps over the account, all over files"
)
IN_PRIVATIZERS = "inside privatizers: from noise up to plans, audits and simulations"
CIRCLES = "no circles, at any depth"

PLANTED = [
    (IN_FLOWS, "flows/runtime/files.py", "import flows.config.sections"),
    (IN_FLOWS, "flows/ledger/rules.py", "import flows.raw.ingest"),
    (IN_FLOWS, "flows/raw/privatize.py", "import flows.release"),
    (IN_FLOWS, "flows/config/load.py", "import flows.released.file.read"),
    (IN_PRIVATIZERS, "privatizers/noise/randomness.py", "import privatizers.domain.lattice"),
    (IN_PRIVATIZERS, "privatizers/sites/matching.py", "import privatizers.mechanisms.prior"),
    (IN_PRIVATIZERS, "privatizers/audit/audit.py", "import privatizers.planning.planner"),
    (CIRCLES, "privatizers/accounting/rounding.py", "import privatizers.accounting.accountant"),
    (CIRCLES, "flows/released/file/read.py", "import flows.released.estimate"),
    (UNSOUND, "flows/release.py", "import privatizers.unprotected.homogeneity"),
    (LAYERS, "schemas/errors.py", "import estimators.debias"),
    (LAYERS, "estimators/debias.py", "import privatizers.mechanisms.noisy_counts"),
    (LAYERS, "privatizers/mechanisms/noisy_counts.py", "import flows.runtime.files"),
    (BOUNDARY, "flows/released/file/read.py", "from flows.raw.boundary.sealed import Sealed"),
    (
        BOUNDARY,
        "flows/released/file/read.py",
        "def later():\n    from flows.raw.reading import sources",
    ),
    (BOUNDARY, "flows/released/estimate.py", "import privatizers.mechanisms.mechanism"),
    (BOUNDARY, "flows/released/publish.py", "from schemas.raw import OUTCOME"),
    (BOUNDARY, "flows/released/publish.py", "from schemas.raw_frame import fits"),
    # through a third module:
    (BOUNDARY, "flows/runtime/files.py", "import flows.raw.boundary.guard"),
    (BOUNDARY, "estimators/effects.py", "import schemas.raw"),
    (BOUNDARY, "schemas/released.py", "import schemas.raw"),
    (PURE, "privatizers/domain/strata.py", "import prefect"),
    (PURE, "privatizers/domain/strata.py", "import duckdb"),
    (PURE, "estimators/effects.py", "from duckdb import connect"),
    (FACTS, "schemas/raw.py", "import duckdb"),
    (FACTS, "schemas/released.py", "import prefect"),
    (DOOR, "privatizers/mechanisms/prior.py", "import opendp.prelude"),
    (DOOR, "privatizers/domain/strata.py", "import random"),
    (DOOR, "flows/raw/privatize.py", "import secrets"),
    (DOOR, "estimators/effects.py", "import random"),
    (DOOR, "schemas/raw.py", "from cryptography.hazmat.primitives.ciphers import Cipher"),
    (UNSOUND, "flows/release.py", "from privatizers.unprotected.as_printed import theorem_3_1"),
    (
        UNSOUND,
        "flows/cli/main.py",
        "def later():\n    import privatizers.unprotected.as_printed",
    ),
    (REPLICATION, "flows/config/experiment.py", "from flows import replication"),
    (REPLICATION, "flows/release.py", "from flows.replication.efficiency import replicate"),
    (REPLICATION, "privatizers/planning/planner.py", "import flows.replication.efficiency"),
    (UNSOUND, "flows/raw/privatize.py", "from privatizers.unprotected import as_printed"),
    (
        UNSOUND,
        "flows/released/publish.py",
        "import privatizers.unprotected.as_printed as claims",
    ),
    (
        UNSOUND,
        "privatizers/accounting/accountant.py",
        "import privatizers.unprotected.as_printed",
    ),
    (UNSOUND, "estimators/effects.py", "from privatizers.unprotected import as_printed"),
]


LINT = """
from importlinter.cli import lint_imports
raise SystemExit(lint_imports(no_cache=True))
"""


def broken_contracts(folder: Path) -> set[str]:
    """The contracts that the code in a folder breaks."""
    done = subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    kept = {name for name in CONTRACTS if f"{name} KEPT" in lines}
    broken = {name for name in CONTRACTS if f"{name} BROKEN" in lines}
    assert kept | broken == CONTRACTS, done.stdout + done.stderr
    assert done.returncode == (1 if broken else 0)
    return broken


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages and their contracts, to be tampered with."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_code_keeps_every_contract() -> None:
    assert broken_contracts(ROOT) == set()


def test_a_copy_keeps_every_contract(copy: Path) -> None:
    """So whatever breaks one below is what was planted."""
    assert broken_contracts(copy) == set()


@pytest.mark.parametrize(("contract", "place", "statement"), PLANTED)
def test_a_planted_import_breaks_its_contract(
    copy: Path, contract: str, place: str, statement: str
) -> None:
    with (copy / place).open("a", encoding="utf-8") as file:
        file.write(f"\n{statement}\n")
    assert contract in broken_contracts(copy)


A_RELEASE = """
import json, sys
import flows.ledger.account, flows.cli.main, flows.hash_ids, flows.serve, flows.cli.show
from flows.release import release_period

assert release_period(sys.argv[1]).status == "published"
print(json.dumps(sorted(name for name in sys.modules if name.startswith("flows."))))
"""


def test_a_release_never_comes_near_an_unsound_claim(experiment: Builder) -> None:
    done = subprocess.run(
        [sys.executable, "-c", A_RELEASE, str(experiment().config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "flows.raw.privatize" in loaded
    assert [name for name in loaded if "replication" in name] == []


def test_every_contract_is_tried() -> None:
    assert {contract for contract, _, _ in PLANTED} == CONTRACTS


def test_every_package_is_under_contract() -> None:
    assert set(PACKAGES) == set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
