"""Which locked versions are known to be vulnerable, by a database that lies on this machine.

The database is an export of OSV for PyPI: a folder of records, a JSON file each, or the ``all.zip``
of such a folder. Nothing is fetched: whoever runs this brings the export, and knows its age.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from deploy.supply.locked import Locked, SupplyError


@dataclass(frozen=True)
class Vulnerability:
    """A locked version that a record of the database names."""

    name: str
    version: str
    record: str
    """Its identifier, such as ``PYSEC-2021-1``."""
    also: tuple[str, ...]
    """What others call it, such as ``CVE-2021-1``."""
    summary: str
    fixed_in: tuple[str, ...]

    def __str__(self) -> str:
        """A line for people."""
        names = ", ".join((self.record, *self.also))
        better = f"; fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "; no fix is known"
        what = f": {self.summary}" if self.summary else ""
        return f"{self.name} {self.version}: {names}{what}{better}"


@dataclass(frozen=True)
class Audit:
    """What was compared, and what was found."""

    records: int
    packages: int
    found: tuple[Vulnerability, ...]


def audit(database: Path, packages: Iterable[Locked]) -> Audit:
    """Look every locked version up in a database.

    Raises:
        SupplyError: it is no export of OSV, holds nothing of PyPI, or a record of it cannot be
            understood. None of it is then taken for the truth.
    """
    locked: dict[str, set[str]] = {}
    for each in packages:
        locked.setdefault(each.name, set()).add(each.version)
    count, found = 0, set[Vulnerability]()
    for place, record in _records(database):
        try:
            affected = [one for one in record["affected"] if _is_of_pypi(one)]
            if not affected or record.get("withdrawn"):
                continue
            count += 1
            found |= set(_hits(record, affected, locked))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise SupplyError(
                f"{place}: this record of the database cannot be understood"
                f" ({type(error).__name__}: {error}); bring a whole export"
            ) from error
    if count == 0:
        raise SupplyError(f"{database}: holds no record of PyPI; bring an export of OSV for PyPI")
    order = sorted(found, key=lambda one: (one.name, one.version, one.record))
    return Audit(count, sum(map(len, locked.values())), tuple(order))


def _records(database: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each record and where it stands."""
    try:
        for place, content in _files(database):
            record = json.loads(content)
            if not isinstance(record, dict) or not isinstance(record.get("id"), str):
                raise SupplyError(f"{place}: is no record of OSV; bring a whole export")
            if "affected" in record:
                yield place, record
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SupplyError(
            f"{database}: this database cannot be read ({type(error).__name__}: {error});"
            " bring a whole export"
        ) from error


def _files(database: Path) -> Iterator[tuple[str, bytes]]:
    if database.is_dir():
        for path in sorted(database.rglob("*.json")):
            yield path.name, path.read_bytes()
        return
    with zipfile.ZipFile(database) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".json"):
                yield name, archive.read(name)


def _is_of_pypi(affected: dict[str, Any]) -> bool:
    package = affected.get("package")  # records of commits alone have none
    return package is not None and package["ecosystem"] == "PyPI"


def _hits(
    record: dict[str, Any], affected: list[dict[str, Any]], locked: dict[str, set[str]]
) -> Iterator[Vulnerability]:
    for each in affected:
        name = canonicalize_name(each["package"]["name"])
        if name not in locked:
            continue
        ranges = [one for one in each.get("ranges", []) if one["type"] in ("ECOSYSTEM", "SEMVER")]
        if not ranges and not each.get("versions"):
            raise ValueError("it names no versions")
        fixes = {event["fixed"] for one in ranges for event in one["events"] if "fixed" in event}
        for version in locked[name]:
            if _is_listed(version, each.get("versions", [])) or any(
                _is_within(Version(version), one["events"]) for one in ranges
            ):
                yield Vulnerability(
                    name,
                    version,
                    str(record["id"]),
                    tuple(str(one) for one in record.get("aliases", [])),
                    str(record.get("summary", "")),
                    tuple(sorted(fixes, key=Version)),
                )


def _is_listed(version: str, versions: list[str]) -> bool:
    """Whether a list names a version; old versions, which no lock has, may be written anyhow."""
    wanted = Version(version)
    for each in versions:
        try:
            if Version(each) == wanted:
                return True
        except InvalidVersion:
            continue
    return False


def _is_within(version: Version, events: list[dict[str, str]]) -> bool:
    """Whether the last thing that happened up to a version is that the fault came in."""
    is_affected = False
    for kind, at in sorted(
        ((kind, at) for event in events for kind, at in event.items()), key=_when
    ):
        if kind == "introduced":
            is_affected |= at == "0" or version >= Version(at)
        elif kind == "fixed":
            is_affected &= version < Version(at)
        elif kind == "last_affected":
            is_affected &= version <= Version(at)
        elif kind != "limit":
            raise ValueError(f"an event {kind!r} is not known")
    return is_affected


def _when(event: tuple[str, str]) -> tuple[Version, bool]:
    """The order of events: at one version, what comes in comes first."""
    kind, at = event
    return Version("0.dev0" if at in ("0", "*") else at), kind != "introduced"
