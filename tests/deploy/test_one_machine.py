"""One machine under systemd: what its units forbid, and two users who see what is theirs alone."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import PATIENCE
from tests.docs.blocks import ROOT, blocks, run_shell

DEPLOY = ROOT / "deploy"
SYSTEMD = DEPLOY / "systemd"
UNIT = SYSTEMD / "clusterdp@.service"
FLOWS = SYSTEMD / "clusterdp-flows@.service"
BACKUP = "backup.conf"
DEBIAN = ROOT / "docs" / "debian.md"

SERVICE, ANALYSTS, ANALYST, STRANGER = 64_001, 64_002, 64_003, 64_004
IDS = {"root": 0, "clusterdp": SERVICE, "analysts": ANALYSTS}
PRIVATE = ("etc/clusterdp", "srv/clusterdp/logs", "var/lib/clusterdp")

pytestmark = pytest.mark.process


def settings(unit: Path, key: str) -> list[str]:
    """All words that a unit gives a key."""
    found = re.findall(rf"^{key}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
    return [word for value in found for word in value.split()]


# the units


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def analyze(*arguments: str | Path) -> str:
    done = subprocess.run(
        [program("systemd-analyze"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_unit_of_the_flows_has_the_same_walls_and_a_loopback_of_its_own(tmp_path: Path) -> None:
    """Exposure at most .5 of 10; what it has besides the other unit's walls is named here."""
    assert "Overall" in analyze("security", "--offline=yes", "--threshold=5", FLOWS)
    walls = UNIT.read_text("utf-8").split("StateDirectory=clusterdp", 1)[1].splitlines()
    other = FLOWS.read_text("utf-8").splitlines()
    differ = [line for line in walls if line not in other and not line.startswith("#")]
    assert [line.split("=")[0] for line in differ] == [
        "ReadWritePaths", "NoExecPaths", "RestrictAddressFamilies",
    ]  # fmt: skip
    assert settings(FLOWS, "RestrictAddressFamilies") == ["AF_UNIX", "AF_INET"]
    assert (settings(FLOWS, "PrivateNetwork"), settings(FLOWS, "IPAddressAllow")) == (
        ["yes"], ["localhost"],
    )  # fmt: skip
    assert set(settings(FLOWS, "ReadWritePaths")) <= set(settings(FLOWS, "NoExecPaths"))
    text = FLOWS.read_text(encoding="utf-8").replace("/opt/clusterdp/bin/clusterdp", "/bin/true")
    (tmp_path / "clusterdp-flows@autumn.service").write_text(text, encoding="utf-8")
    assert analyze("verify", tmp_path / "clusterdp-flows@autumn.service") == ""


def test_the_unit_is_shut_in(tmp_path: Path) -> None:
    """Exposure, of 10, under 2.5 as it is, and with the network."""
    unit = tmp_path / UNIT.name
    for more in ("", *((SYSTEMD / name).read_text("utf-8") for name in ("network.conf", BACKUP))):
        unit.write_text(f"{UNIT.read_text(encoding='utf-8')}\n{more}", encoding="utf-8")
        told = analyze("security", "--offline=yes", "--threshold=25", unit)
        assert "Overall exposure level" in told


def test_an_open_unit_would_be_noticed(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text("[Service]\nExecStart=/bin/true\n", encoding="utf-8")
    command = [program("systemd-analyze"), "security", "--offline=yes", "--threshold=25", str(unit)]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_units_are_sound(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8").replace("/opt/clusterdp/bin/clusterdp", "/bin/true")
    (tmp_path / UNIT.name).write_text(text, encoding="utf-8")
    shutil.copy(SYSTEMD / "clusterdp@.timer", tmp_path)
    for name in ("clusterdp@autumn.service", "clusterdp@autumn.timer"):
        (tmp_path / name).symlink_to(tmp_path / name.replace("autumn", ""))
    assert analyze("verify", *sorted(tmp_path.glob("*autumn*"))) == ""
    (line,) = re.findall(r"^OnCalendar=(.*)$", (SYSTEMD / "clusterdp@.timer").read_text(), re.M)
    assert "Next elapse" in analyze("calendar", line)


def test_a_night_that_ended_well_is_backed_up(tmp_path: Path) -> None:
    """The line as systemd reads it, run by the shell with another program in its place."""
    text = (SYSTEMD / BACKUP).read_text(encoding="utf-8")
    whole = f"{UNIT.read_text(encoding='utf-8')}\n{text}"
    unit = tmp_path / "clusterdp@autumn.service"
    unit.write_text(whole.replace("/opt/clusterdp/bin/clusterdp", "/bin/true"), encoding="utf-8")
    assert analyze("verify", unit) == ""
    (line,) = re.findall(r"^ExecStartPost=/bin/sh -c '(.*)'$", text, re.MULTILINE)
    shell = line.replace("%i", "autumn").replace("%%", "%").replace("$$", "$")
    shell = shell.replace("/opt/clusterdp/bin/clusterdp", "echo")
    done = subprocess.run(
        ["/bin/sh", "-c", shell],
        cwd=tmp_path,
        umask=0o077,
        capture_output=True,
        text=True,
        check=True,
    )
    made = re.fullmatch(
        r"backup /etc/clusterdp/autumn\.toml -o backups/autumn-\d{8}T\d{6}\n", done.stdout
    )
    assert made
    assert (tmp_path / "backups").stat().st_mode & 0o777 == 0o700


def test_the_unit_runs_the_program_as_the_page_installs_it() -> None:
    program, *arguments = settings(UNIT, "ExecStart")
    assert arguments == ["release", "/etc/clusterdp/%i.toml", "--due"]
    page = DEBIAN.read_text(encoding="utf-8")
    assert str(Path(program).parents[1]) in blocks(DEBIAN, "sh")[0].text
    for shipped in re.findall(r"deploy/[\w./@-]+", page):
        assert (ROOT / shipped.rstrip(".")).exists(), shipped


def test_the_folders_of_the_example_are_those_of_the_machine() -> None:
    folders = {path for path, _, _, _ in machine()}
    example = tomllib.loads((DEPLOY / "example.toml").read_text(encoding="utf-8"))
    places = [
        example["publish"]["directory"],
        example["quarantine"]["directory"],
        str(Path(example["ledger"]["key_file"]).parent),
        str(Path(example["ledger"]["url"].removeprefix("sqlite:///")).parent),
    ]
    assert {place.removeprefix("/") for place in places} <= folders
    assert set(settings(UNIT, "ReadWritePaths")) == {example["publish"]["directory"]}


# two identities


def machine() -> list[tuple[str, int, int, int]]:
    """Each folder of tmpfiles.conf (without its slash): path, mode, user, group."""
    found = []
    for line in (SYSTEMD / "tmpfiles.conf").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            kind, path, mode, user, group, _ = line.split()
            assert kind == "d"
            found.append((path.removeprefix("/"), int(mode, 8), IDS[user], IDS[group]))
    return found


@pytest.fixture
def installed() -> Iterator[Path]:
    """A machine's folders, the page's experiment and its logs, below a folder of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can be two other users")
    program("setpriv")
    base = Path(tempfile.mkdtemp(prefix="clusterdp-machine-", dir="/tmp"))
    base.chmod(0o755)  # others come in, as into the folder around it
    try:
        for path, mode, user, group in machine():
            (base / path).mkdir(parents=True, exist_ok=True)
            (base / path).chmod(mode)
            os.chown(base / path, user, group)
        text = blocks(DEBIAN, "sh")[2].text.replace("-g clusterdp", f"-g {SERVICE}")
        text = text.replace("deploy/example.toml", str(DEPLOY / "example.toml"))
        run_shell(re.sub(r"(?<![\w.])/(srv|etc)/clusterdp", rf"{base}/\1/clusterdp", text))
        config = base / "etc/clusterdp/autumn.toml"
        config.write_text(re.sub(r"/(srv|var/lib)/", rf"{base}/\1/", config.read_text("utf-8")))
        yield base
    finally:
        shutil.rmtree(base)


def a_run(base: Path, *more: str) -> "subprocess.Popen[str]":
    """The unit's command (and ``more`` options), as its user, with its umask and environment."""
    _, *arguments = settings(UNIT, "ExecStart")
    inside = [re.sub(r"^/etc", f"{base}/etc", each).replace("%i", "autumn") for each in arguments]
    return as_service(base, *inside, *more)


def as_service(base: Path, *arguments: str) -> "subprocess.Popen[str]":
    """A command as the unit's user, with its umask and environment; it sees ``base``."""
    (mask,) = settings(UNIT, "UMask")
    environment = dict(each.split("=", 1) for each in settings(UNIT, "Environment"))
    become = ["--reuid", str(SERVICE), "--regid", str(SERVICE), "--clear-groups", "--no-new-privs"]
    python = Path(sys.executable)
    if not all(map(is_reached_by_all, (python, python.resolve(), ROOT / "flows"))):  # root's home
        become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    else:
        become += ["--inh-caps=-all", "--ambient-caps=-all"]
    return subprocess.Popen(
        [program("setpriv"), *become, "--", sys.executable, "-m", "flows.cli", *arguments],
        cwd=base / "var/lib/clusterdp",
        env={name: re.sub(r"^/var", f"{base}/var", each) for name, each in environment.items()},
        umask=int(mask, 8),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def is_reached_by_all(path: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (path, *path.parents))


def read_by(user: int, groups: str, paths: list[Path]) -> set[Path]:
    """Which files a user can read, which folders it can list."""
    look = 'for one; do if [ -d "$one" ]; then ls "$one"; else head -c 1 "$one"; fi'
    look += ' >/dev/null 2>&1 && echo "$one"; done; true'
    done = subprocess.run(
        [program("setpriv"), "--reuid", str(user), "--regid", str(user), "--groups", groups,
         "--inh-caps=-all", "--", "sh", "-c", look, "sh", *map(str, paths)],
        capture_output=True, text=True, check=True, cwd="/", timeout=PATIENCE,
    )  # fmt: skip
    return {Path(line) for line in done.stdout.splitlines()}


def everything(base: Path) -> list[Path]:
    return sorted(path for path in base.rglob("*") if path.is_file() or path.is_dir())


def is_for_analysts(path: Path, base: Path) -> bool:
    """The way to the releases, and the releases, but no draft of one."""
    inside = str(path.relative_to(base))
    is_on_the_way = inside in ("etc", "srv", "srv/clusterdp", "var", "var/lib")
    is_public = inside.startswith(("srv/clusterdp/releases", "srv/clusterdp/estimates"))
    return is_on_the_way or (is_public and "/." not in inside)


def stop_at_work(run: "subprocess.Popen[str]", base: Path) -> None:
    """Stop a run once it has a working folder."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and run.poll() is None:
        if list((base / "srv/clusterdp/releases").glob("*/.draft-*")):
            run.send_signal(signal.SIGSTOP)
            return
        time.sleep(0.002)
    pytest.fail(f"no working folder was seen: {run.communicate()[0]}")


def test_analysts_read_releases_and_nothing_else(installed: Path) -> None:
    """While a run is at work and after it; nor can they change anything."""
    for folder in PRIVATE:  # a file whose own mode lets everybody in
        (installed / folder / "open").write_text("raw", encoding="utf-8")
        (installed / folder / "open").chmod(0o666)
    run = a_run(installed)
    try:
        stop_at_work(run, installed)
        at_work = everything(installed)
        hidden = [Path(f"/proc/{run.pid}/{name}") for name in ("environ", "maps", "mem", "fd")]
        assert read_by(ANALYST, str(ANALYSTS), [*at_work, *hidden]) == {
            path for path in at_work if is_for_analysts(path, installed)
        }
        drafts = [path for path in at_work if path.name.startswith(".draft-")]
        assert drafts
        assert read_by(SERVICE, str(SERVICE), drafts) == set(drafts)  # it can be read by its own
        run.send_signal(signal.SIGCONT)
        told, _ = run.communicate(timeout=PATIENCE)
    finally:
        run.kill()
    assert run.returncode == 0, told
    found = everything(installed)
    released = {path.name for path in found if path.suffix == ".duckdb"}
    assert len(released) == 4, told  # two nights, latest, series
    own = {path for path in found if is_for_analysts(path, installed)}
    assert read_by(ANALYST, str(ANALYSTS), found) == own
    ways = [path for path in own if not str(path).startswith(f"{installed}/srv/clusterdp/rel")]
    assert read_by(STRANGER, str(STRANGER), found) == set(ways)
    assert {path.name for path in found} >= {"account.key", "digest.key", "ledger.sqlite"}
    assert [path for path in found if is_writable_by_others(path)] == []


def test_analysts_read_no_backup(installed: Path) -> None:
    """Nor can a stranger, nor is what a killed one has left open to them."""
    run = a_run(installed)
    told, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, told
    output = installed / "srv/clusterdp/releases/backup"  # where an analyst may look, even there
    backup = as_service(
        installed, "backup", f"{installed}/etc/clusterdp/autumn.toml", "-o", str(output)
    )
    told, _ = backup.communicate(timeout=PATIENCE)
    assert backup.returncode == 0, told
    files = sorted(output.iterdir())
    assert {path.name for path in files} >= {"backup.json", "ledger.sqlite", "key-1-1", "key-1-2"}
    assert read_by(SERVICE, str(SERVICE), files) == set(files)
    for user, group in ((ANALYST, ANALYSTS), (STRANGER, STRANGER)):
        assert read_by(user, str(group), [output, *files]) == set()


# what a run starts


def family(pid: int) -> list[int]:
    """A process and all that it has started, and these."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            after_name = (place / "stat").read_text().rpartition(")")[2].split()
            parents[int(place.name)] = int(after_name[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def sockets_of(pids: list[int]) -> set[str]:
    """The numbers of the sockets that processes hold."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if match := re.fullmatch(r"socket:\[(\d+)\]", str(handle.readlink())):
                        found.add(match[1])
    return found


def ports_of(pids: list[int]) -> dict[int, str]:
    """The ports of TCP that processes listen on, and at which address (in the kernel's words)."""
    mine, found = sockets_of(pids), {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in mine:
                address, _, port = words[1].rpartition(":")
                found[int(port, 16)] = address
    return found


def doors_of(pids: list[int]) -> set[str]:
    """The names of Unix sockets that processes listen on; with @ those that no folder guards."""
    mine = sockets_of(pids)
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {words[7] for words in lines if len(words) > 7 and words[6] in mine}


def told_to(user: int, port: int, text: str) -> bytes:
    """What a server answers to somebody else on the machine, in five seconds."""
    talk = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{text}' >&3; timeout 5 head -c 900 <&3"
    done = subprocess.run(
        [program("setpriv"), "--reuid", str(user), "--regid", str(user), "--clear-groups",
         "--inh-caps=-all", "--", program("bash"), "-c", talk],
        capture_output=True, check=False, cwd="/", timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout


def can_enter(user: int, door: str) -> bool:
    """Whether somebody else can connect to a Unix socket."""
    read = read_by(user, str(user), [Path(door).parent])
    return read != set()


def stop_with_servers(run: "subprocess.Popen[str]") -> None:
    """Stop a run once a process of its own listens; that one goes on."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and run.poll() is None:
        if ports_of(family(run.pid)[1:]):
            run.send_signal(signal.SIGSTOP)
            return
        time.sleep(0.01)
    pytest.fail(f"nobody listened: {run.communicate()[0]}")


SECRETS = ("environ", "maps", "smaps", "mem", "fd", "fdinfo", "cwd", "root", "exe", "io", "auxv")
"""Of a process, in /proc."""
EMPTY = "/sitemap.json"
"""Dask's list of all pages that there are: itself."""
PAGES = (
    *("/", "/docs", "/api/health", "/api/admin/version"),  # Prefect's
    *("/health", "/metrics", "/info/main/workers.html", "/json/counts.json", EMPTY),
    *("/status", "/statics/css/base.css", "/individual-plots.json"),  # Dask's
)
LOOPBACK = ("0100007F", "00000000000000000000000001000000")


@pytest.mark.soak  # minutes
@pytest.mark.parametrize("kind", ["prefect", "workers"])
def test_nobody_else_reads_or_talks_to_what_a_run_starts(installed: Path, kind: str) -> None:
    """Prefect's server and database, Dask's scheduler and workers; each process in /proc."""
    more = ["--prefect"] if kind == "prefect" else []
    if kind == "workers":
        pytest.importorskip("distributed")
        config = installed / "etc/clusterdp/autumn.toml"
        config.write_text(config.read_text("utf-8").replace("[run]\n", "[run]\nworkers = 2\n"))
    run = a_run(installed, *more)
    try:
        if kind == "prefect":
            stop_at_work(run, installed)
        else:
            stop_with_servers(run)
        pids = family(run.pid)
        at_work = everything(installed)
        hidden = [Path(f"/proc/{pid}/{name}") for pid in pids for name in SECRETS]
        for user, group in ((ANALYST, ANALYSTS), (STRANGER, STRANGER)):
            assert read_by(user, str(group), hidden) == set()
        assert read_by(ANALYST, str(ANALYSTS), at_work) == {
            path for path in at_work if is_for_analysts(path, installed)
        }
        if kind == "prefect":
            assert [path for path in at_work if path.name.endswith(".db")]
        ports = ports_of(pids)
        assert ports_of(pids[1:])  # of those that are not stopped
        for port, address in ports.items():
            assert address in LOOPBACK
            for path in PAGES:
                answer = told_to(STRANGER, port, f"GET {path} HTTP/1.0\\r\\n\\r\\n")
                first = answer.splitlines()[0] if answer else b""
                if kind == "prefect":
                    assert b" 401 " in first, (path, answer)
                elif path == EMPTY:
                    assert b" 200 " not in first or answer.endswith(b'{"paths": ["/sitemap.json"]}')
                else:  # nothing, an alert (it speaks TLS with who has its keys), or no page at all
                    assert answer[:1] in (b"", b"\x15") or b" 404 " in first, path
        doors = doors_of(pids)
        assert not [door for door in doors if door.startswith("@")]
        assert not [door for door in doors if can_enter(STRANGER, door)]
    finally:
        for pid in reversed(family(run.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.communicate()


def is_writable_by_others(path: Path) -> bool:
    """Whether anybody but its owner may change it; planted files aside."""
    return path.name != "open" and path.stat().st_mode & 0o022 != 0


def test_the_service_changes_no_log_and_no_configuration(installed: Path) -> None:
    run = a_run(installed)
    told, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, told
    owned = {path for path in everything(installed) if path.stat().st_uid == SERVICE}
    theirs = ("srv/clusterdp/releases", "var/lib/clusterdp")
    assert {path for path in owned if not str(path.relative_to(installed)).startswith(theirs)} == (
        set()
    )
