"""The image, built by buildah on a Debian of mmdebstrap's, and run as the compose file says.

crun runs it: as the service's user, on a read-only root, without capabilities or a network.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.deploy.machine import folders_of_packages, make_root, needs, temporary_root
from tests.docs.blocks import ROOT, blocks, run_shell

CONTAINER = ROOT / "deploy" / "container"
PAGE = ROOT / "docs" / "debian.md"
SERVICE = 64_001
BASE, IMAGE = "localhost/base", "localhost/clusterdp"
_OWN_CGROUPS = (
    *("unshare", "--mount", "sh", "-euc"),
    'mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec "$@"',
    "sh",
)
"""crun runs nothing where version 1 of cgroups is mounted, too; it makes none here."""
BUILDAH = ("buildah", "--storage-driver", "vfs")

pytestmark = [pytest.mark.process, pytest.mark.soak]


@dataclass(frozen=True)
class Image:
    """What was built: its files, what it says of itself, and the folders of its volumes."""

    base: Path
    root: Path
    says: dict[str, Any]

    @property
    def volumes(self) -> Path:
        return self.base / "volumes"

    def run(
        self, service: dict[str, Any], *command: str, entrypoint: list[str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a service of the compose file, with its command or another."""
        words = [*(entrypoint or self.says["Entrypoint"]), *(command or service["command"])]
        bundle = self.base / "bundle"
        bundle.mkdir(exist_ok=True)
        text = json.dumps(self._config(service, words))
        (bundle / "config.json").write_text(text, encoding="utf-8")
        crun = ["crun", "--cgroup-manager=disabled", "--root", str(self.base / "crun")]
        return subprocess.run(
            [*_OWN_CGROUPS, *crun, "run", "--bundle", str(bundle), "clusterdp-test"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def _config(self, service: dict[str, Any], words: list[str]) -> dict[str, Any]:
        """What crun is told, from the image and the service."""
        user, group = map(int, service.get("user", self.says["User"]).split(":"))
        assert service["cap_drop"] == ["ALL"]
        home = service.get("environment", {}).get("HOME", "/var/lib/clusterdp")
        spaces = ["pid", "mount", "ipc", "uts", "network"]
        return {
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": user, "gid": group, "umask": 0o022},
                "args": words,
                "env": [*self.says["Env"], f"HOME={home}"],
                "cwd": service.get("working_dir", self.says["WorkingDir"]),
                "capabilities": {},
                "noNewPrivileges": "no-new-privileges:true" in service["security_opt"],
            },
            "root": {"path": str(self.root), "readonly": service["read_only"]},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]},
                *map(_tmpfs, service["tmpfs"]),
                *map(self._volume, service["volumes"]),
            ],
            "linux": {"namespaces": [{"type": each} for each in spaces]},
        }

    def _volume(self, line: str) -> dict[str, Any]:
        """A bind mount of ``from:to[:ro]``, where ``from`` is a folder of its own here."""
        plain = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", line)
        source, destination, *how = plain.split(":")
        place = self.volumes / source.removeprefix("/")
        options = ["bind", "nosuid", "nodev", *how]
        return {"destination": destination, "source": str(place), "options": options}


def _tmpfs(line: str) -> dict[str, Any]:
    destination, _, options = line.partition(":")
    options_list = options.split(",")
    return {"destination": destination, "type": "tmpfs", "source": "tmpfs", "options": options_list}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    (compose,) = YAML(typ="safe").load_all((CONTAINER / "compose.yaml").read_text("utf-8"))
    found: dict[str, Any] = compose["services"]
    return found


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    needs("buildah", "crun", "mmdebstrap", "unshare")
    with temporary_root() as base:
        yield built(base)


def built(base: Path) -> Image:
    """Build the image in a storage of its own below a folder, and make the volumes."""
    storage = [*BUILDAH, "--root", str(base / "storage"), "--runroot", str(base / "runroot")]

    def buildah(*words: str) -> str:
        done = subprocess.run(
            [*storage, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=3600
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()

    make_root(base / "debian", "python3", "python3-venv", "ca-certificates")
    empty = buildah("from", "scratch")
    buildah("add", "--quiet", empty, str(base / "debian"), "/")
    buildah("commit", "--quiet", "--rm", empty, BASE)
    shutil.rmtree(base / "debian")
    shared = [f"--volume={place}:{place}:ro" for place in folders_of_packages()]
    what = ["--build-arg", f"BASE={BASE}", "--file", str(CONTAINER / "Containerfile")]
    isolated = ["--network", "host", "--isolation", "chroot"]
    buildah("build", "--quiet", *isolated, *shared, *what, "--tag", IMAGE, ".")
    says = json.loads(buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
    container = buildah("from", IMAGE)
    image = Image(base, Path(buildah("mount", container)), says)
    _fill(image)
    return image


def _fill(image: Image) -> None:
    """The volumes as compose makes them from the image, and the page's experiment."""
    folders = {"releases": "srv/clusterdp/releases", "private": "var/lib/clusterdp"}
    for volume, inside in folders.items():
        run_shell(f"mkdir -p {image.volumes}; cp -a {image.root}/{inside} {image.volumes}/{volume}")
    for place in ("etc/clusterdp", "srv/clusterdp/logs"):
        (image.volumes / place).mkdir(parents=True)
    text = blocks(PAGE, "sh")[2].text.replace("-g clusterdp", f"-g {SERVICE}")
    text = text.replace("deploy/example.toml", str(ROOT / "deploy" / "example.toml"))
    run_shell(re.sub(r"(?<![\w.])/(srv|etc)/clusterdp", rf"{image.volumes}/\1/clusterdp", text))


def test_a_night_is_released_on_a_read_only_root(image: Image, services: dict[str, Any]) -> None:
    done = image.run(services["due"])
    assert done.returncode == 0, done.stdout + done.stderr
    releases = image.volumes / "releases" / "autumn"
    files = [path for path in releases.iterdir() if path.suffix == ".duckdb"]
    assert len(files) == 4  # two nights, latest, series
    assert {path.stat().st_uid for path in files} == {SERVICE}
    told = image.run(services["analyst"])
    assert told.returncode == 0, told.stdout + told.stderr
    assert "mens" in told.stdout
    again = image.run(services["due"])  # and whatever it left behind, the next night can go on
    assert again.returncode == 0, again.stdout + again.stderr


_PROBE = """
import os
for line in open("/proc/self/status"):
    if line.startswith(("Uid", "Cap", "NoNewPrivs")):
        print(*line.split()[:2])
for place in ("/", "/opt/clusterdp", "/etc/clusterdp", "/srv/clusterdp/logs", "/tmp",
              "/srv/clusterdp/releases", "/var/lib/clusterdp"):
    try:
        open(os.path.join(place, "probe"), "x").close()
        os.remove(os.path.join(place, "probe"))
        print("writes", place)
    except OSError as error:
        print("cannot write", place)
print("networks", *os.listdir("/sys/class/net") if os.path.isdir("/sys/class/net") else ())
"""


@pytest.mark.parametrize("name", ["due", "analyst"])
def test_a_container_is_shut_in(image: Image, services: dict[str, Any], name: str) -> None:
    """Seen from within."""
    python = ["/opt/clusterdp/bin/python", "-c", _PROBE]
    done = image.run({**services[name], "command": []}, entrypoint=python)
    assert done.returncode == 0, done.stderr
    seen = set(done.stdout.splitlines())
    user = services[name]["user"].split(":")[0]
    assert {f"Uid: {user}", "NoNewPrivs: 1"} <= seen
    assert {line for line in seen if line.startswith("Cap")} == {
        f"Cap{kind}: {'0' * 16}" for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")
    }
    volumes = [line for line in services[name]["volumes"] if not line.endswith(":ro")]
    writable = {line.split(":")[1] for line in volumes}
    writable |= {line.split(":")[0] for line in services[name]["tmpfs"]}
    assert {line.split()[1] for line in seen if line.startswith("writes")} == writable


def test_nothing_that_builds_is_in_it(image: Image) -> None:
    assert list((image.root / "opt/clusterdp/lib").glob("python3*/site-packages/pip")) == []
    for place in ("build", "requirements.lock", "tests"):
        assert not (image.root / place).exists()
