"""The locks: one version of everything for each Python, from files with known hashes."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.supply.locked import LOCKS, ROOT, SupplyError, here, installed_by, read_lock

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
HASH = "a" * 64


def linux(python: str) -> dict[str, str]:
    """The values of markers for a CPython of that version on Linux."""
    system = {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
    }
    return {**here(), **system, "python_version": python, "python_full_version": f"{python}.9"}


def direct(*extras: str) -> set[str]:
    """What the project itself names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_gets_one_version_of_all_that_is_asked_for(python: str) -> None:
    run = installed_by([ROOT / "requirements.lock"], linux(python))
    every = installed_by([ROOT / name for name in LOCKS], linux(python))
    assert direct("demo") <= set(run)
    assert direct("demo", "distributed", "docs", "test") <= set(every)
    assert {name: one.version for name, one in run.items()}.items() <= {
        name: one.version for name, one in every.items()
    }.items()


def test_the_makefile_asks_the_index_about_the_same_pythons() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"^PYTHONS := (.*)$", text, re.MULTILINE)
    assert tuple(line.split()) == PYTHONS


def test_every_locked_file_is_known_by_its_hash() -> None:
    for name in LOCKS:
        for one in read_lock(ROOT / name):
            assert one.hashes
            assert all(re.fullmatch(r"[0-9a-f]{64}", each) for each in one.hashes), one.name


def test_a_line_is_read_with_its_marker_and_its_hashes(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text(
        f"# some\nSome_Thing==1.0 ; python_full_version < '3.12' \\\n    --hash=sha256:{HASH}\n",
        encoding="utf-8",
    )
    (one,) = read_lock(lock)
    assert (one.name, one.version, one.hashes) == ("some-thing", "1.0", (HASH,))
    assert [one.applies(linux(python)) for python in PYTHONS] == [True, False, False, False]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"thing>=1.0 --hash=sha256:{HASH}", "no version or no SHA-256"),
        ("thing==1.0", "no version or no SHA-256"),
        (f"thing==1.0 --hash=md5:{HASH}", "no version or no SHA-256"),
        (f"==1.0 --hash=sha256:{HASH}", "is no requirement"),
    ],
)
def test_a_line_that_pins_nothing_is_refused(tmp_path: Path, line: str, said: str) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(SupplyError, match=f"^some.lock: .*{said}"):
        read_lock(lock)


def test_two_versions_for_one_python_are_refused(tmp_path: Path) -> None:
    lines = [f"thing=={version} --hash=sha256:{HASH}\n" for version in ("1.0", "2.0")]
    for name, line in zip(("one.lock", "two.lock"), lines, strict=True):
        (tmp_path / name).write_text(line, encoding="utf-8")
    paths = [tmp_path / "one.lock", tmp_path / "two.lock"]
    with pytest.raises(SupplyError, match=r"thing is locked as 1\.0 and as 2\.0"):
        installed_by(paths, here())


def test_a_lock_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SupplyError, match=r"no\.lock: cannot be read"):
        read_lock(tmp_path / "no.lock")
