"""The import contracts hold, and each of them bites."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import Builder

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = {one["name"] for one in PROJECT["tool"]["importlinter"]["contracts"]}
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]

LAYERS = "the way down: flows > privatizers > estimators > schemas"
BOUNDARY = "code outside the privacy boundary never reaches code inside it"
LOSS = "what checks a loss shares nothing with what prices it"
PURE = "mechanisms and estimators are pure: no orchestration, no database"
FACTS = "facts about tables depend on no engine"
DOOR = "one door for privacy randomness"
UNSOUND = "what has no guarantee is for replication alone"
LAB = "nothing but its commands imports the lab"
OPERATE = "the night, effects and sites import nothing of the operator's house"
EFFECTS = "the night and the operator's house import nothing of effects and sites"
IN_OPERATE = "inside the operator's house"
IN_EFFECTS = "inside the house of effects and sites"
LIBRARY = "the library of published effect models is for replication alone"
IN_FLOWS = (
    "inside flows: commands over houses, pages over steps, steps over the account, all over files"
)
IN_PRIVATIZERS = "inside privatizers: from noise up to plans, audits and simulations"
CIRCLES = "no circles, at any depth"

Planted = tuple[str, str, str]
"""A contract, and where to plant which statement to break it."""

PLANTED: list[Planted] = [
    (IN_FLOWS, "flows/runtime/files.py", "import flows.config.model.sections"),
    (IN_FLOWS, "flows/ledger/rules.py", "import flows.raw.ingest"),
    (IN_FLOWS, "flows/raw/privatize.py", "import flows.release"),
    (IN_FLOWS, "flows/config/load.py", "import flows.released.file.read"),
    (IN_PRIVATIZERS, "privatizers/noise/randomness.py", "import privatizers.domain.lattice"),
    (
        IN_PRIVATIZERS,
        "privatizers/effects/sites/matching.py",
        "import privatizers.mechanisms.prior",
    ),
    (IN_PRIVATIZERS, "privatizers/lab/audit/checks.py", "import privatizers.planning.planner"),
    (CIRCLES, "privatizers/accounting/rounding.py", "import privatizers.accounting.accountant"),
    (CIRCLES, "flows/released/file/read.py", "import flows.released.estimates.release"),
    (UNSOUND, "flows/release.py", "import privatizers.lab.unprotected.homogeneity"),
    (LAYERS, "schemas/errors.py", "import estimators.response.debias"),
    (
        LAYERS,
        "estimators/response/debias.py",
        "import privatizers.mechanisms.prior",
    ),
    (LAYERS, "privatizers/mechanisms/statistics/noisy_counts.py", "import flows.runtime.files"),
    (BOUNDARY, "flows/released/file/read.py", "from flows.raw.boundary.sealed import Sealed"),
    (
        BOUNDARY,
        "flows/released/file/read.py",
        "def later():\n    from flows.raw.reading import sources",
    ),
    (BOUNDARY, "flows/released/estimates/release.py", "import privatizers.mechanisms.mechanism"),
    (BOUNDARY, "flows/released/publish.py", "from schemas.raw import OUTCOME"),
    (BOUNDARY, "flows/released/publish.py", "from schemas.raw_frame import fits"),
    # through a third module:
    (BOUNDARY, "flows/runtime/files.py", "import flows.raw.boundary.guard"),
    (BOUNDARY, "estimators/arm_effects.py", "import schemas.raw"),
    (BOUNDARY, "schemas/released.py", "import schemas.raw"),
    (LOSS, "flows/released/loss/check.py", "import privatizers.accounting.accountant"),
    (LOSS, "flows/released/loss/pairs.py", "from estimators.concentrated import concentrated_rho"),
    (LOSS, "flows/released/file/read.py", "import estimators.concentrated"),
    (LOSS, "flows/released/loss/check.py", "import flows.ledger.account"),
    (PURE, "privatizers/domain/strata.py", "import prefect"),
    (PURE, "privatizers/domain/strata.py", "import duckdb"),
    (PURE, "estimators/arm_effects.py", "from duckdb import connect"),
    (FACTS, "schemas/raw.py", "import duckdb"),
    (FACTS, "schemas/released.py", "import prefect"),
    (DOOR, "privatizers/mechanisms/prior.py", "import opendp.prelude"),
    (DOOR, "privatizers/domain/strata.py", "import random"),
    (DOOR, "flows/raw/privatize.py", "import secrets"),
    (DOOR, "estimators/arm_effects.py", "import random"),
    (DOOR, "schemas/raw.py", "from cryptography.hazmat.primitives.ciphers import Cipher"),
    (
        UNSOUND,
        "flows/release.py",
        "from privatizers.lab.unprotected.as_printed import equation_one",
    ),
    (
        UNSOUND,
        "flows/cli/main.py",
        "def later():\n    import privatizers.lab.unprotected.as_printed",
    ),
    (LAB, "flows/release.py", "from flows.lab.replication.efficiency.measured import tuned"),
    (LAB, "flows/operate/due.py", "from flows import lab"),
    (LAB, "privatizers/planning/planner.py", "import privatizers.lab.audit.checks"),
    (LAB, "flows/effects/cate.py", "def later():\n    import privatizers.lab.simulation.simulate"),
    (OPERATE, "flows/release.py", "import flows.operate.watch.run"),
    (OPERATE, "estimators/means.py", "from estimators.operate.series import pool"),
    (OPERATE, "flows/effects/cate.py", "def later():\n    import flows.operate.series.renew"),
    (EFFECTS, "flows/config/load.py", "from flows.effects.config.site import SiteConfig"),
    (EFFECTS, "flows/operate/verify.py", "def later():\n    import flows.effects.house"),
    (EFFECTS, "privatizers/planning/planner.py", "import privatizers.effects.toolbox.bounded_mean"),
    (EFFECTS, "schemas/released.py", "import schemas.effects.site"),
    (IN_OPERATE, "flows/operate/watch/run.py", "import flows.operate.status"),
    (IN_EFFECTS, "flows/effects/released/forest.py", "import flows.effects.config.site"),
    (LIBRARY, "flows/release.py", "def later():\n    import interpret.privacy"),
    (LIBRARY, "privatizers/effects/models/rows.py", "from interpret.privacy import x"),
    (LIBRARY, "estimators/effects/models/model.py", "import interpret"),
    (UNSOUND, "flows/raw/privatize.py", "from privatizers.lab.unprotected import as_printed"),
    (
        UNSOUND,
        "flows/released/publish.py",
        "import privatizers.lab.unprotected.as_printed as claims",
    ),
    (
        UNSOUND,
        "privatizers/accounting/accountant.py",
        "import privatizers.lab.unprotected.as_printed",
    ),
    (UNSOUND, "estimators/arm_effects.py", "from privatizers.lab.unprotected import as_printed"),
]


LINT = """
import json, sys
from copy import copy
from pathlib import Path

from importlinter import configuration
from importlinter.application.use_cases import create_report, read_user_options
from importlinter.application.use_cases import _register_contract_types as register

configuration.configure()
options = read_user_options()
register(options)


def broken(only):
    chosen = copy(options)
    chosen.contracts_options = [
        one for one in options.contracts_options if only in (None, one["name"])
    ]
    checks = list(create_report(chosen, cache_dir=sys.argv[1]).get_contracts_and_checks())
    assert len(checks) == len(chosen.contracts_options) > 0
    return [contract.name for contract, check in checks if not check.kept]


def planted(contract, place, statement):
    whole = Path(place).read_text(encoding="utf-8")
    try:
        Path(place).write_text(f"{whole}\\n{statement}\\n", encoding="utf-8")
        return broken(contract)
    finally:
        Path(place).write_text(whole, encoding="utf-8")


found = {"alone": broken(None), "planted": [planted(*one) for one in json.load(sys.stdin)]}
print("found: " + json.dumps(found | {"after": broken(None)}))
"""
"""What the linter says of a folder: alone, with each statement planted in turn, and alone again.

It runs once, as reading 160 modules and starting it is what takes the time; its own cache tells it
which file changed. Of a planted statement the contract that it should break is asked alone.
"""


def linted(folder: Path, cache: Path, planted: Sequence[Planted] = ()) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", LINT, str(cache)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        input=json.dumps(planted),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.rpartition("found: ")[2])
    assert isinstance(found, dict)
    return found


def test_the_code_keeps_every_contract(tmp_path: Path) -> None:
    assert linted(ROOT, tmp_path)["alone"] == []


def test_every_planted_import_breaks_its_contract(tmp_path: Path) -> None:
    """In a copy that keeps them all before and after: what breaks one is what was planted."""
    copy = tmp_path / "copy"
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", copy)
    found = linted(copy, tmp_path / "cache", PLANTED)
    assert (found["alone"], found["after"]) == ([], [])
    missed = [
        one for one, broken in zip(PLANTED, found["planted"], strict=True) if broken != [one[0]]
    ]
    assert missed == []


A_RELEASE = """
import json, sys
import flows.ledger.account, flows.cli.main, flows.hash_ids, flows.operate.serve
import flows.cli.night.release
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
