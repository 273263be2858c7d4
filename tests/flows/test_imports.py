"""What each command imports of what takes long: which libraries, not how many seconds.

Every command is run in a fork of its own of a process that has imported the program alone.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import Builder
from tests.effect_logs import Campaign, campaign
from tests.flows.effects.test_multisite import Hospital, hospital

__all__ = ["campaign", "hospital"]  # fixtures

HEAVY = [
    "cryptography", "dp_accounting", "duckdb", "matplotlib", "numpy", "opendp", "pandas", "pandera",
    "polars", "prefect", "pyarrow", "pyarrow.compute", "pydantic", "scipy", "scipy.optimize",
    "scipy.special", "scipy.stats", "sqlalchemy", "statsmodels", "highspy", "hypothesis",
    "flows.runtime.reading.object_stores",
]  # fmt: skip

FORKS = """
import json, os, sys
import flows.cli.main

commands, heavy = map(json.loads, sys.argv[1:])
for arguments in commands:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        told = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv[1:] = arguments
        try:
            flows.cli.main.main()
        except SystemExit as end:
            code = end.code
        found = [name for name in heavy if name in sys.modules]
        os.write(told, json.dumps([arguments[0], code, found]).encode() + b"\\n")
        os._exit(0)
    os.waitpid(child, 0)
"""

RUN = {"cryptography", "duckdb", "numpy", "pandera", "polars", "pyarrow", "pydantic", "scipy"}
RUN |= {"sqlalchemy"}

ALLOWED = {
    "--help": set(),
    # pydantic by typer, which every command pays; the others to see what its units give
    "inspect": {"duckdb", "numpy", "polars", "pydantic", "scipy"},
    "ledger": {"cryptography", "numpy", "pydantic", "sqlalchemy"},
    "status": {"cryptography", "duckdb", "numpy", "polars", "pydantic", "sqlalchemy"},
    "estimate": {"duckdb", "numpy", "polars", "pydantic", "scipy"},
    "check": RUN,
    "release": RUN,
    "site": RUN,
    "cate": RUN | {"opendp"},  # the latter draws Gaussian noise
    "cate-predict": {"numpy", "polars", "pyarrow", "pydantic", "scipy"},
    "demo": RUN | {"pandas", "pyarrow.compute", "statsmodels"},  # with its data
    "plan": RUN,  # the ledger knows which releases teach
}


def test_each_command_imports_what_it_needs_and_nothing_of_prefect(
    experiment: Builder, hospital: Hospital, campaign: Campaign, tmp_path: Path
) -> None:
    built, site, effects = experiment(), hospital(), campaign()
    path = built.run("earlier").path
    model = effects.run("earlier").path
    commands = [
        ["--help"],
        ["inspect", str(path)],
        ["ledger", str(built.config)],
        ["status", str(built.config)],
        ["estimate", str(path)],
        ["check", str(built.config)],
        ["release", str(built.config)],
        ["plan", str(built.config)],
        ["site", str(site.config)],
        ["cate", str(effects.config)],
        [
            "cate-predict",
            str(model),
            str(effects.folder / "log.parquet"),
            "-o",
            str(tmp_path / "o.csv"),
        ],
        ["demo", "--directory", str(tmp_path / "demo")],
    ]
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    done = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(commands), json.dumps(HEAVY)],
        env=ours,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(name, code) for name, code, _ in found] == [(one[0], 0) for one in commands]
    too_much = {name: sorted(set(modules) - ALLOWED[name]) for name, _, modules in found}
    assert not any(too_much.values()), too_much
