"""Containers and pods: who they run as, what they may write, and who mounts what."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.client.schemas.schedules import CronSchedule
from ruamel.yaml import YAML

from tests.docs.blocks import ROOT

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "container" / "Containerfile").read_text(encoding="utf-8")
OURS = ("flows", "due", "prefect", "worker", "analyst")
READS_RAW = ("flows", "due", "worker")


def documents(path: Path) -> list[Any]:
    return list(YAML(typ="safe").load_all(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    (compose,) = documents(DEPLOY / "container" / "compose.yaml")
    found: dict[str, Any] = compose["services"]
    return found


def test_the_image_is_pinned_by_the_lock_and_is_nobody_s_but_its_user_s() -> None:
    installs = re.findall(r"pip install (.*)", CONTAINERFILE)
    assert len(installs) == 3
    for line in installs:
        is_this_checkout = re.search(r" \.( |$)", line) is not None
        assert "--no-deps" in line
        assert is_this_checkout or "--require-hashes" in line
    (user,) = re.findall(r"^USER (\d+):", CONTAINERFILE, re.MULTILINE)
    assert int(user) > 0
    assert re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]


def test_what_is_copied_into_the_image_is_there_and_no_more() -> None:
    first, *let_in = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    assert first == "*"
    names = [line.removeprefix("!") for line in let_in if line.startswith("!")]
    assert all((ROOT / name).exists() for name in names)
    assert not {"tests", ".git", ".venv", "deploy"} & set(names)


@pytest.mark.parametrize("name", OURS)
def test_a_container_of_ours_is_shut_in(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert int(service["user"].split(":")[0]) > 0
    writable = [each for each in service.get("volumes", []) if not each.endswith(":ro")]
    wanted = ["releases:/srv/clusterdp/releases", "private:/var/lib/clusterdp"]
    assert writable == (wanted if name in READS_RAW else [])


def test_analysts_mount_releases_alone_and_reach_nobody(services: dict[str, Any]) -> None:
    analyst = services["analyst"]
    assert analyst["volumes"] == ["releases:/srv/clusterdp/releases:ro"]
    assert analyst["network_mode"] == "none"
    users = {name: service.get("user") for name, service in services.items()}
    assert len({users["analyst"], users["prefect"], users["due"]}) == 3
    assert users["due"] == users["worker"]
    assert "secrets" not in analyst


def test_the_servers_answer_on_this_machine_alone(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:4200:4200"]


def pods() -> dict[str, Any]:
    """What is to be run, by its kind: the flows, and the small way."""
    files = (DEPLOY / "kubernetes" / name for name in ("clusterdp.yaml", "cronjob.yaml"))
    specs = {one["kind"]: one.get("spec", {}) for path in files for one in documents(path)}
    return {
        "Deployment": specs["Deployment"]["template"]["spec"],
        "CronJob": specs["CronJob"]["jobTemplate"]["spec"]["template"]["spec"],
    }


def test_nights_are_not_run_side_by_side() -> None:
    (job,) = documents(DEPLOY / "kubernetes" / "cronjob.yaml")
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    (served,) = [
        one["spec"]
        for one in documents(DEPLOY / "kubernetes" / "clusterdp.yaml")
        if one["kind"] == "Deployment"
    ]
    assert (served["replicas"], served["strategy"]["type"]) == (1, "Recreate")


def test_the_image_and_the_cluster_run_the_flows() -> None:
    (command,) = re.findall(r"^CMD (.*)$", CONTAINERFILE, re.MULTILINE)
    (container,) = pods()["Deployment"]["containers"]
    for arguments in (json.loads(command), container["args"]):
        assert arguments[0] == "serve"
        CronSchedule(cron=arguments[arguments.index("--cron") + 1])
    (small,) = pods()["CronJob"]["containers"]
    assert small["args"][-1] == "--due"


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_a_pod_is_shut_in(kind: str) -> None:
    pod = pods()[kind]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    read_only = {each["name"] for each in container["volumeMounts"] if each.get("readOnly")}
    assert read_only == {"experiments", "logs"}
    assert (user := pod["securityContext"]["runAsUser"]) > 0
    assert f"USER {user}:{user}" in CONTAINERFILE


# by tools that carry the schemas


HADOLINT = ["hadolint", "--no-color"]
COMPOSE_SCHEMA = ["check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
MANIFESTS_SCHEMA = ["kubernetes-validate", "--strict"]


def checked(command: list[str], text: str, folder: Path, name: str) -> tuple[int, str]:
    """How a tool of this environment ends on a text, and what it says."""
    tool = shutil.which(command[0], path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip(f"there is no {command[0]} for this kind of machine")
    path = folder / name
    path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [tool, *command[1:], str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


SHIPPED = [
    (HADOLINT, DEPLOY / "container" / "Containerfile", ("USER 64001", "USER root\nUSERS 64001")),
    (COMPOSE_SCHEMA, DEPLOY / "container" / "compose.yaml", ("read_only: true", "read_only: 7")),
    (
        MANIFESTS_SCHEMA,
        DEPLOY / "kubernetes" / "clusterdp.yaml",
        ("readOnlyRootFilesystem", "readOnlyRootFileSystem"),
    ),
    (
        MANIFESTS_SCHEMA,
        DEPLOY / "kubernetes" / "cronjob.yaml",
        ("readOnlyRootFilesystem", "readOnlyRootFileSystem"),
    ),
]


@pytest.mark.process
@pytest.mark.parametrize(("command", "path", "_mistake"), SHIPPED)
def test_what_is_shipped_follows_its_schema(
    command: list[str], path: Path, _mistake: tuple[str, str], tmp_path: Path
) -> None:
    code, told = checked(command, path.read_text(encoding="utf-8"), tmp_path, path.name)
    assert code == 0, told


@pytest.mark.process
@pytest.mark.parametrize(("command", "path", "mistake"), SHIPPED)
def test_a_mistake_would_be_noticed(
    command: list[str], path: Path, mistake: tuple[str, str], tmp_path: Path
) -> None:
    right = path.read_text(encoding="utf-8")
    assert mistake[0] in right
    code, _ = checked(command, right.replace(*mistake), tmp_path, path.name)
    assert code != 0
