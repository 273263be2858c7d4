"""What `make` says while it installs, with a pip that stands in for the real one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make") or "make"
PIP = """\
#!/bin/sh
case "$*" in *requirements*) ;; *) exit 0 ;; esac
told() {{ n=0; until grep -q "$1\\$" {said} || [ $((n += 1)) = 600 ]; do sleep 0.1; done; }}
echo Collecting one==1; told ': .*1'; echo Processing two.whl; told ' 2'
echo Installing collected packages: one, two
for name in one two; do mkdir -p {packages}/$name.dist-info; told "place: .*$((i += 1))"; done
{end}
"""
"""A pip that brings two packages, and waits until each is told of."""


def made(venv: Path, end: str, shell: str = "/bin/sh") -> tuple[int, str]:
    """Install into an environment whose Python is that pip: the exit code, and all that is said."""
    python, said = venv / "bin" / "python", venv / "said.txt"
    python.parent.mkdir()
    packages = venv / "lib" / "python3" / "site-packages"
    python.write_text(PIP.format(packages=packages, said=said, end=end), encoding="utf-8")
    python.chmod(0o755)
    (venv / "build").touch()
    words = ["-C", str(ROOT), f"VENV={venv}", "TICK=0.1", f"SHELL={shell}", f"{venv}/demo"]
    with said.open("w") as file:
        done = subprocess.run([MAKE, *words], stdout=file, stderr=file, check=False)
    return done.returncode, said.read_text(encoding="utf-8")


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_a_line_grows_while_packages_are_installed(tmp_path: Path, shell: str) -> None:
    code, said = made(tmp_path, "", shell)
    assert code == 0, said
    (line,) = re.findall(r"^up to \d+ packages; brought:([\d ]*); in place:([\d ]*)$", said, re.M)
    brought, placed = ([int(word) for word in part.split()] for part in line)
    assert brought == sorted(brought)
    assert placed == sorted(placed)
    assert {1, 2} <= set(brought)
    assert {1, 2} <= set(placed)
    assert (tmp_path / "demo").exists()


def test_a_pip_that_fails_fails_make(tmp_path: Path) -> None:
    code, said = made(tmp_path, "echo no such package >&2; exit 1")
    assert code == 2
    assert "no such package" in said
    assert not (tmp_path / "demo").exists()
