"""The wheel holds all of the program and nothing else, and works away from the checkout."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "privatizers", "schemas", "estimators")
_LEFT_OUT = ("__pycache__", ".pyc")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built in this environment; no network is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_every_file_of_the_packages_is_in_it_and_no_other(wheel: Path) -> None:
    files = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and not any(part in str(path) for part in _LEFT_OUT)
    }
    assert {f"{package}/py.typed" for package in PACKAGES} <= files
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "clusterdp = flows.cli.main:main" in archive.read(entry).decode()
        assert archive.read("clusterdp/__init__.py") == (ROOT / "clusterdp.py").read_bytes()
    assert held == files | {"clusterdp/__init__.py", "clusterdp/py.typed"}


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """An environment with the wheel, and this one's libraries without this checkout."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return environment


def ran(folder: Path, *command: str | Path) -> str:
    """What a command says in a folder; it has to end well."""
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_works_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    script = (
        "import clusterdp, flows.cli.main, privatizers.audit.audit, flows.release; "
        "print(clusterdp.__file__); print(flows.__file__)"
    )
    (site,) = installed.glob("lib/python*/site-packages")
    places = ran(tmp_path, installed / "bin" / "python", "-c", script).split()
    assert places == [str(site / "clusterdp/__init__.py"), str(site / "flows/__init__.py")]
    help_text = ran(tmp_path, installed / "bin" / "python", "-m", "flows.cli", "--help")
    assert "release" in help_text


def test_a_user_who_checks_types_finds_them(installed: Path, tmp_path: Path) -> None:
    """As mypy sees an installed package: by its marker."""
    (tmp_path / "mine.py").write_text(_USER, encoding="utf-8")
    checked = ["--strict", "--python-executable", str(installed / "bin" / "python"), "mine.py"]
    kept = ["--cache-dir", str(ROOT / ".mypy_cache" / "user")]  # of polars, which takes long
    ran(tmp_path, sys.executable, "-m", "mypy", *kept, *checked)


_USER = """
from typing import assert_type

import polars as pl

import clusterdp

rel = clusterdp.open("some.duckdb")
assert_type(rel.ate(segments=rel.units()), pl.DataFrame)
assert_type(rel.manifest.epsilon, float)
assert_type(clusterdp.release("some.toml").status == "published", bool)
wrong: int = rel.ate()  # type: ignore[assignment]
"""
