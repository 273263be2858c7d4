"""The wheel holds all of the program and nothing else, and works away from the checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "privatizers", "schemas", "estimators")
_BESIDE = ("clusterdp.py", "py.typed", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
_LEFT_OUT = ("__pycache__", ".pyc")


_COMMIT = 1_750_000_000
"""When the checkout was committed, as a builder says it: SOURCE_DATE_EPOCH."""


def built(root: Path, into: Path, *, epoch: int = _COMMIT, umask: int = 0o022) -> Path:
    """The wheel of a checkout, built in this environment; no network is asked."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    done = subprocess.run(
        build,
        cwd=root,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = into.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """What a wheel is made of, elsewhere: written in another order, at another time, closed."""
    copy = tmp_path / "elsewhere" / "checkout"
    parts = [*_BESIDE, *PACKAGES]
    for name in reversed(parts):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, copy_function=shutil.copyfile)
        else:
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
    for number, path in enumerate(sorted(copy.rglob("*"))):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (10**9 + number, 10**9 + number))
    return copy


def test_two_builds_are_the_same_bytes(wheel: Path, copied: Path, tmp_path: Path) -> None:
    again = built(copied, tmp_path / "again", umask=0o077)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(again) as archive:
        entries = archive.infolist()
    assert {each.date_time for each in entries} == {time.gmtime(_COMMIT)[:6]}
    assert {each.external_attr >> 16 & 0o777 for each in entries} == {0o644}


def test_the_time_of_the_commit_is_in_it(wheel: Path, tmp_path: Path) -> None:
    later = built(ROOT, tmp_path / "later", epoch=_COMMIT + 86_400)
    assert later.read_bytes() != wheel.read_bytes()


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
        assert "clusterdp = flows.cli.__main__:main" in archive.read(entry).decode()
        assert archive.read("clusterdp/__init__.py") == (ROOT / "clusterdp.py").read_bytes()
    assert held == files | {"clusterdp/__init__.py", "clusterdp/py.typed"}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and this one's libraries without this checkout."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    into = ["--python", str(environment / "bin" / "python")]
    ran(environment, *pip, *into, "install", "--no-index", "--no-deps", wheel)
    (site,) = environment.glob("lib/python*/site-packages")
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
        "import clusterdp, flows.cli.main, privatizers.lab.audit.checks, flows.release; "
        "print(clusterdp.__file__); print(flows.__file__)"
    )
    (site,) = installed.glob("lib/python*/site-packages")
    places = ran(tmp_path, installed / "bin" / "python", "-c", script).split()
    assert places == [str(site / "clusterdp/__init__.py"), str(site / "flows/__init__.py")]
    help_text = ran(tmp_path, installed / "bin" / "python", "-m", "flows.cli", "--help")
    assert "release" in help_text


def test_its_commands_release_and_estimate(installed: Path, tmp_path: Path) -> None:
    program = installed / "bin" / "clusterdp"
    assert "units" in ran(tmp_path, program, "demo")
    config = tmp_path / "clusterdp-demo" / "demo.toml"
    released = json.loads(ran(tmp_path, program, "release", config, "--json"))
    assert released["status"] == "published"
    told = json.loads(ran(tmp_path, program, "estimate", released["path"], "--json"))
    assert {each["arm"] for each in told["estimates"]} == {"cash"}


def test_a_user_who_checks_types_finds_them(installed: Path, tmp_path: Path) -> None:
    """As mypy sees an installed package: by its marker.

    What the checkout's own types took from libraries is known by then, to the same flags.
    """
    (tmp_path / "mine.py").write_text(_USER, encoding="utf-8")
    of_checkout = ROOT / ".mypy_cache"
    cache = of_checkout / "user"
    if not cache.exists() and of_checkout.exists():
        half, others = of_checkout / "user.half", shutil.ignore_patterns("user*")
        shutil.copytree(of_checkout, half, ignore=others, dirs_exist_ok=True)
        half.rename(cache)
    own = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    flags = [f"--enable-error-code={code}" for code in own["enable_error_code"]]
    flags += ["--strict", "--warn-unreachable", f"--python-version={own['python_version']}"]
    environment = ["--python-executable", str(installed / "bin" / "python")]
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", str(cache)]
    ran(tmp_path, *mypy, *flags, *environment, "mine.py")


_USER = """
from typing import assert_type

import polars as pl

import clusterdp

rel = clusterdp.open("some.duckdb")
assert_type(rel.ate(segments=rel.units()), pl.DataFrame)
assert_type(rel.manifest.epsilon, float)
assert_type(clusterdp.release("some.toml").status == "published", bool)
assert_type(clusterdp.plan("some.toml", nights=3).warnings, tuple[str, ...])
assert_type(clusterdp.verify(["a.duckdb"], key="public.pem").exit_code, int)
assert_type(clusterdp.open_model("some.json").subgroups(), pl.DataFrame)
wrong: int = rel.ate()  # type: ignore[assignment]
clusterdp.status(3)  # type: ignore[arg-type]
clusterdp.audit("some.toml")  # type: ignore[attr-defined]
"""
