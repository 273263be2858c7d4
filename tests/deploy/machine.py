"""A Debian machine below a folder, with systemd as process 1 of namespaces of its own.

For tests that may take minutes: it is made by mmdebstrap, from Debian's packages, and shares the
kernel and the network with what runs the tests. Only root can have one.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

SUITE = "bookworm"
CHECKOUT = "/root/clusterdp"
PATIENCE = 60.0  # seconds that systemd has to come up
_NEEDED = ("mmdebstrap", "unshare", "nsenter", "pivot_root")
_SURROUNDINGS = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/pip.conf",
)
"""How this machine reaches its indexes of packages, as far as it has such files."""
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_TRUSTED = "/root/trusted.crt"
"""A copy of these: Debian's ca-certificates, once installed, writes its own in their place."""

_BOOT = """
set -eu
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
for folder; do mkdir -p "./$folder"; mount --bind -o ro "$folder" "./$folder"; done
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
    touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
pivot_root . mnt
umount -l /mnt
exec env -i container=tests PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system
"""


def needs(*programs: str) -> None:
    """Skip a test for whoever is not root, or where a program is missing."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a machine")
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"there is no {', '.join(missing)}")


@dataclass(frozen=True)
class Machine:
    """A machine that is up."""

    root: Path
    first: int
    """Its process 1, as it is numbered out here."""

    def run(self, text: str, *, check: bool = True) -> str:
        """Let root's shell run a text in the checkout; what is said, errors among it."""
        inside = ["nsenter", "--target", str(self.first), "--mount", "--pid", "--uts", "--ipc"]
        home = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"]
        if (self.root / _TRUSTED.removeprefix("/")).exists():
            home.append(f"PIP_CERT={_TRUSTED}")
        done = subprocess.run(
            [*inside, "--cgroup", "--root", "--wd", *home, "sh", "-euc", f"cd {CHECKOUT}\n{text}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=3600,
        )
        said = f"{text}\nended with {done.returncode}: {done.stdout}"
        assert not check or done.returncode == 0, said
        return done.stdout


def make_root(root: Path, *packages: str) -> None:
    """Debian's least system and some packages, below a folder, and how it reaches indexes."""
    include = [f"--include={','.join(packages)}"] if packages else []
    command = ["mmdebstrap", "--quiet", "--variant=minbase", *include, SUITE, str(root)]
    subprocess.run(command, check=True, timeout=600)
    root.chmod(0o755)
    for path in map(Path, (*_SURROUNDINGS, _CERTIFICATES)):
        if path.exists():
            inside = root / path.relative_to("/")
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.unlink(missing_ok=True)
            shutil.copyfile(path, inside)
    if Path(_CERTIFICATES).exists():
        shutil.copyfile(_CERTIFICATES, root / _TRUSTED.removeprefix("/"))


def folders_of_packages() -> list[str]:
    """Folders out here in which this machine's pip is told to look for packages."""
    config = Path("/etc/pip.conf")
    text = config.read_text(encoding="utf-8") if config.exists() else ""
    found = re.findall(r"(?:file://|[ =])(/[\w./-]+)", text)
    return [place for place in found if Path(place).is_dir()]


def copy_checkout(into: Path) -> None:
    """What belongs to the checkout, and nothing that was made in it."""
    made = ("__pycache__", "dist", "build", "site", "clusterdp-demo", "benchmark-results")
    shutil.copytree(ROOT, into, ignore=shutil.ignore_patterns(".*", *made))


@contextmanager
def temporary_root() -> Iterator[Path]:
    """A folder on a disk: a machine is too large for memory."""
    base = Path(tempfile.mkdtemp(prefix="clusterdp-machine-", dir="/var/tmp"))
    try:
        yield base
    finally:
        shutil.rmtree(base)


@contextmanager
def booted(root: Path) -> Iterator[Machine]:
    """Start a machine's systemd; it and all that it started end with the block."""
    needs(*_NEEDED)
    group = _cgroups() / f"clusterdp-machine-{os.getpid()}"
    group.mkdir()
    spaces = ["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]
    join = 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"'
    start = ["unshare", *spaces, "sh", "-c", _BOOT, "sh", str(root), *folders_of_packages()]
    run = subprocess.Popen(
        ["/bin/sh", "-euc", join, "sh", str(group), *start],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield _is_up(root, run)
    finally:
        run.kill()
        run.wait()
        _remove(group)


def _is_up(root: Path, run: "subprocess.Popen[bytes]") -> Machine:
    """The machine, once its systemd says that it is up."""
    end = time.monotonic() + PATIENCE
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    while time.monotonic() < end and run.poll() is None:
        found = children.read_text(encoding="ascii").split()
        if found and _is_systemd(found[0]):
            machine = Machine(root, int(found[0]))
            if machine.run("systemctl is-system-running || true").strip() in (
                "running",
                "degraded",
            ):
                return machine
        time.sleep(0.2)
    pytest.fail("systemd did not come up")


def _is_systemd(process: str) -> bool:
    """Whether a process has become systemd, in a root of its own."""
    return Path(f"/proc/{process}/comm").read_text(encoding="ascii").strip() == "systemd"


def _cgroups() -> Path:
    """Where groups of processes are made."""
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    pytest.skip("there is no cgroup2 file system")


def _remove(group: Path) -> None:
    """A group and those below it, as soon as their processes are gone."""
    end = time.monotonic() + PATIENCE
    while group.exists() and time.monotonic() < end:
        for each in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            _remove_empty(each)
        _remove_empty(group)
        time.sleep(0.1)


def _remove_empty(group: Path) -> None:
    try:
        group.rmdir()
    except OSError:
        return  # a process of it is still on its way out
