"""docs/debian.md as a script, on a clean Debian whose systemd is process 1."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.machine import (
    CHECKOUT,
    Machine,
    booted,
    copy_checkout,
    make_root,
    needs,
    temporary_root,
)
from tests.docs.blocks import ROOT, blocks

PAGE = ROOT / "docs" / "debian.md"
UNIT = ROOT / "deploy" / "systemd" / "clusterdp@.service"
FLOWS_SECONDS = 600.0
_LOOPBACK_HEARS = " 0100007F:"
"""Part of a line of /proc/PID/net/tcp: something listens at, or is connected to, 127.0.0.1."""
STOP = 120.0
"""Seconds that the unit has to end in: TimeoutStopSec."""

pytestmark = [pytest.mark.process, pytest.mark.soak]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """Debian's least system with systemd, and the checkout."""
    needs("mmdebstrap")
    with temporary_root() as base:
        root = base / "root"
        make_root(root, "systemd")
        copy_checkout(root / CHECKOUT.removeprefix("/"))
        with booted(root) as machine:
            yield machine


@pytest.fixture(scope="module")
def told(machine: Machine) -> list[str]:
    """What each block of the page says, run one after another."""
    return [machine.run(block.text) for block in blocks(PAGE, "sh")]


def test_the_page_ends_in_a_release_by_the_unit_itself(machine: Machine, told: list[str]) -> None:
    assert len(told) == 6
    _, _, _, night, timer, _ = told
    assert night.count("published") >= 1
    assert "Active: active" in timer
    asked = "Result,ExecMainStatus,User,UMask"
    shown = set(machine.run(f"systemctl show clusterdp@autumn --property {asked}").split())
    assert shown == {"Result=success", "ExecMainStatus=0", "User=clusterdp", "UMask=0077"}
    released = machine.run("ls /srv/clusterdp/releases/autumn").split()
    files = [name for name in released if name.endswith(".duckdb")]
    assert len(files) == 4  # two nights, latest, series


_EVERY_MINUTE = """
day=$(TZ=Europe/Zurich date -d '2 hours ago 3 days ago' +%F)
first=$(ls /srv/clusterdp/logs/autumn | head -n 1)
cp -p /srv/clusterdp/logs/autumn/$first /srv/clusterdp/logs/autumn/$day.csv
sed -i "s/^since = .*/since = \\"$day\\"/" /etc/clusterdp/autumn.toml
mkdir -p /etc/systemd/system/clusterdp-flows@autumn.service.d
printf '[Service]\\nEnvironment="RELEASES=* * * * *" "ESTIMATES=* * * * *" ZONE=Europe/Zurich\\n' \
    > /etc/systemd/system/clusterdp-flows@autumn.service.d/often.conf
systemctl daemon-reload
systemctl restart clusterdp-flows@autumn
"""


def test_flows_of_the_unit_release_and_estimate_on_schedule(
    machine: Machine, told: list[str]
) -> None:
    """One more day is due then; effects of all are for analysts, and for nobody else."""
    before = machine.run("sha256sum /srv/clusterdp/releases/autumn/autumn.*")
    n_before = len(before.splitlines())
    machine.run(_EVERY_MINUTE)
    document = machine.root / "srv/clusterdp/estimates/autumn.json"
    end = time.monotonic() + FLOWS_SECONDS
    while not document.exists() or len(json.loads(document.read_text())["periods"]) <= n_before:
        assert time.monotonic() < end, machine.run("journalctl -u clusterdp-flows@autumn -n 80")
        time.sleep(1)
    assert set(before.splitlines()) < set(
        machine.run("sha256sum /srv/clusterdp/releases/autumn/autumn.*").splitlines()
    )
    machine.run("runuser -u alice -- cat /srv/clusterdp/estimates/autumn.json >/dev/null")
    assert "Active: active" in machine.run("systemctl status --no-pager clusterdp-flows@autumn")
    first = machine.run("systemctl show clusterdp-flows@autumn --property MainPID --value").strip()
    # Its server hears the unit alone: there is no way in from the machine around it.
    assert _LOOPBACK_HEARS in machine.run(f"cat /proc/{first}/net/tcp")
    assert len(set(machine.run(f"readlink /proc/{first}/ns/net /proc/self/ns/net").split())) == 2
    machine.run(f"kill -9 {first}; sleep 2; systemctl stop clusterdp-flows@autumn")
    running = machine.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "uvicorn" not in running
    assert "clusterdp serve" not in running


def test_analysts_read_releases_and_nothing_else(told: list[str]) -> None:
    assert told[-1].split("\n")[-3:-1] == ["reads releases", "and nothing else"]


def test_what_is_private_is_for_its_user_alone(machine: Machine, told: list[str]) -> None:
    open_to_others = machine.run("find /var/lib/clusterdp -perm /077 ! -type l")
    assert open_to_others == ""
    ways = "/srv/clusterdp/releases /srv/clusterdp/releases/autumn/latest.duckdb"
    owners = machine.run(f"stat --format='%U %G %a' {ways}").splitlines()
    assert owners == ["clusterdp analysts 750", "clusterdp clusterdp 444"]


def test_the_same_lines_bring_a_newer_version(machine: Machine, told: list[str]) -> None:
    """And what was released is left as it is."""
    first, second, *_ = blocks(PAGE, "sh")
    before = machine.run("sha256sum /srv/clusterdp/releases/autumn/*")
    machine.run(f"{first.text}\n{second.text}\nsystemctl start clusterdp@autumn")
    assert machine.run("sha256sum /srv/clusterdp/releases/autumn/*") == before


_WINTER = """
sed 's/autumn/winter/' /etc/clusterdp/autumn.toml | sed 's#logs/autumn#logs/winter#' |
    install -m 0640 -g clusterdp /dev/stdin /etc/clusterdp/winter.toml
install -d -m 0750 -g clusterdp /srv/clusterdp/logs/winter
for log in /srv/clusterdp/logs/autumn/*.csv; do
    awk 'BEGIN { print "customer_id,variant,region,clicks"
        for (i = 0; i < 3000000; i++) printf "c%08d,%s,%s,%d\\n",
            i, i % 2 ? "mens" : "none", i % 4 < 2 ? "east" : "west", (i * 7919) % (5 + i % 2) }' |
        install -m 0640 -g clusterdp /dev/stdin "/srv/clusterdp/logs/winter/$(basename "$log")"
done
"""


def test_a_run_at_work_is_stopped_in_order(machine: Machine, told: list[str]) -> None:
    """Within TimeoutStopSec, with nothing left behind; the next start publishes what was due."""
    assert f"TimeoutStopSec={STOP / 60:.0f}min" in UNIT.read_text(encoding="utf-8")
    machine.run(_WINTER)
    machine.run("systemctl start --no-block clusterdp@winter")
    releases = machine.root / "srv/clusterdp/releases/winter"
    end = time.monotonic() + STOP
    while not list(releases.glob(".draft-*")):
        assert time.monotonic() < end, journal_of(machine)
        time.sleep(0.05)
    begun = time.monotonic()
    machine.run("systemctl stop clusterdp@winter")
    lasted = time.monotonic() - begun
    journal = journal_of(machine)
    shown = machine.run("systemctl show clusterdp@winter --property Result --value").strip()
    assert lasted < STOP
    assert shown in ("success", "exit-code"), journal  # "timeout" and "signal": it was killed
    assert "interrupted" in journal
    assert list(releases.glob(".*")) == []
    assert {each["state"] for each in periods(machine)} <= {"due", "failed"}
    machine.run("systemctl reset-failed clusterdp@winter; systemctl start clusterdp@winter")
    assert {each["state"] for each in periods(machine)} == {"published"}


def journal_of(machine: Machine) -> str:
    return machine.run("journalctl --unit clusterdp@winter --no-pager --lines 50")


def periods(machine: Machine) -> list[dict[str, str]]:
    """What status says of each due period of the large experiment."""
    status = "runuser -u clusterdp -- /opt/clusterdp/bin/clusterdp status --json"
    document = json.loads(machine.run(f"{status} /etc/clusterdp/winter.toml 2>/dev/null || true"))
    (experiment,) = document["experiments"]
    found: list[dict[str, str]] = experiment["periods"]
    return [each for each in found if each["state"] != "waiting"]


def test_the_page_is_run_to_its_end() -> None:
    """Each of its blocks of commands, and no other file's."""
    text = Path(PAGE).read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(blocks(PAGE, "sh"))
