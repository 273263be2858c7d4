"""``python -m deploy.supply``: what the program is made of, and whether that is in order.

Exit codes: 0 in order, or nothing to compare with; 2 what was given cannot be read; 3 something is
not in order, and the lines name it.
"""

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from deploy.supply.audit import audit
from deploy.supply.engine import PACKAGES, make_engine
from deploy.supply.licences import Licence, Policy
from deploy.supply.locked import (
    LOCKS,
    ROOT,
    RUN,
    Locked,
    SupplyError,
    here,
    installed_by,
    read_lock,
)
from deploy.supply.sbom import bill

DONE, BAD, NOT_IN_ORDER = 0, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for, and return the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.command == "report":
            return report(asked.into, int(os.environ.get("SOURCE_DATE_EPOCH") or 0))
        if asked.command == "engine":
            sys.stdout.write(f"{make_engine()}\n")
            return DONE
        return compare(asked.database, as_json=asked.json)
    except SupplyError as error:
        sys.stderr.write(f"{error}\n")
        return BAD


def report(into: Path, made_at: int) -> int:
    """Write the bill of materials and the licences into a folder; say what is not allowed."""
    about = installed_here()
    licences = judged(about)
    run = installed_by([ROOT / RUN], here())
    faults = [one for one in licences.values() if one.fault]
    for one in faults:
        sys.stderr.write(f"{one.name} {one.version}: {one.fault}\n")
    if faults:
        sys.stderr.write("see deploy/supply/licences.toml\n")
        return NOT_IN_ORDER
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name']}-{project['version']}"
    into.mkdir(parents=True, exist_ok=True)
    bill_file, licence_file = into / f"{stem}.cdx.json", into / f"{stem}.licences.txt"
    bill_file.write_text(bill(ROOT, run, about, licences, made_at), encoding="utf-8")
    licence_file.write_text(licence_table(licences, run), encoding="utf-8")
    sys.stdout.write(f"{bill_file}: {len(run)} packages of {RUN}\n")
    elsewhere = sorted({one.name for one in all_locked()} - set(licences))
    sys.stdout.write(
        f"{licence_file}: {len(licences)} packages, all of them allowed;"
        f" not of this Python or system, so not read: {', '.join(elsewhere) or 'none'}\n"
    )
    return DONE


def compare(database: Path | None, *, as_json: bool) -> int:
    """Look all locked versions, of every Python, up in a database of vulnerabilities."""
    if database is None:
        _answer(
            {"status": "not run", "reason": "no database was given"},
            ["audit not run: no database of vulnerabilities was given (--database)"],
            as_json=as_json,
        )
        return DONE
    result = audit(database, all_locked())
    compared = f"{result.packages} locked versions, {result.records} records of PyPI"
    lines = [*map(str, result.found), f"audit: {len(result.found)} found in {compared}"]
    status = "found" if result.found else "none found"
    _answer({"status": status, **asdict(result)}, lines, as_json=as_json)
    return NOT_IN_ORDER if result.found else DONE


def installed_here() -> dict[str, Distribution]:
    """The metadata of every package of this environment, by name."""
    return {canonicalize_name(each.name): each for each in distributions()}


def all_locked() -> list[Locked]:
    """Every line of every lock, for whatever Python."""
    return [each for name in LOCKS for each in read_lock(ROOT / name)]


def judged(about: dict[str, Distribution], policy: Policy | None = None) -> dict[str, Licence]:
    """The licence of each package that the locks install here, by name.

    Raises:
        SupplyError: a package is reviewed that is in no lock.
    """
    rules = policy or Policy()
    unknown = sorted(set(rules.reviewed) - {one.name for one in all_locked()})
    if unknown:
        raise SupplyError(f"licences.toml: reviewed, but not locked: {', '.join(unknown)}")
    run = installed_by([ROOT / RUN], here())
    packages = installed_by([ROOT / name for name in LOCKS], here())
    return {
        name: rules.judge(one, about.get(name), is_run=name in run)
        for name, one in sorted(packages.items())
    }


def licence_table(licences: dict[str, Licence], run: dict[str, Locked]) -> str:
    """A line a package, those of a run first."""
    lines = []
    for title, is_run in (("Installed for a run", True), ("For building and tests alone", False)):
        rows = [one for one in licences.values() if (one.name in run) is is_run]
        lines += [title, ""]
        lines += [f"{one.name:30} {one.version:18} {one.expression}" for one in rows]
        lines += [""]
    lines += ["In the explorer's page, from npm", ""]
    lines += [f"{one.name:30} {one.version:18} {one.licence}" for one in PACKAGES]
    lines += [""]
    return "\n".join(lines)


def _answer(document: dict[str, object], lines: list[str], *, as_json: bool) -> None:
    text = json.dumps(document, indent=2) if as_json else "\n".join(lines)
    sys.stdout.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.supply", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("report", help="bill of materials and licences, as files")
    made.add_argument("--into", type=Path, default=Path("dist"), help="folder (dist)")
    commands.add_parser("engine", help="fetch the explorer's engine into the package")
    looked = commands.add_parser("audit", help="compare the locks with known vulnerabilities")
    looked.add_argument(
        "--database", type=Path, help="an export of OSV for PyPI: a folder of JSON, or its all.zip"
    )
    looked.add_argument("--json", action="store_true", help="one JSON document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
