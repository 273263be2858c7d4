"""Releases in a store are read as checked copies; whatever a store answers ends in plain words."""

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

import clusterdp
from flows.released.located import located
from flows.runtime.reading import object_stores
from flows.runtime.reading.regular_files import digest_of
from schemas.errors import InputError
from tests.conftest import Experiment, a_log, build_experiment, told
from tests.support.odd_store import Answer, OddStore, Request, odd_store
from tests.support.stores import SECRET, Store
from tests.support.surroundings import Command

pytestmark = pytest.mark.release

FOLDER = "releases/trial"


def beside(**files: bytes) -> bytes:
    """What lies beside releases, as one object."""
    told = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return json.dumps({"files": told}).encode()


def put(store: OddStore | Store, built: Experiment) -> dict[str, str]:
    """Put the releases of an experiment and what lies beside them into a store: their addresses."""
    addresses = {}
    objects = {}
    for path in built.releases.iterdir():
        content = path.read_bytes()
        if path.name.startswith("trial."):
            digest = hashlib.sha256(content).hexdigest()
            objects[f"{path.stem}.{digest}{path.suffix}"] = content
            pointer = {
                "release_id": path.stem,
                "sha256": digest,
                "bytes": len(content),
                "created_at": "2026-11-20T03:15:00Z",
            }
            for name in (path.stem, "latest"):
                objects[f"{name}.pointer.json"] = json.dumps(pointer).encode()
            addresses[path.stem] = f"s3://bucket/{FOLDER}/{path.stem}.{digest}{path.suffix}"
    objects["beside.json"] = beside(SHA256SUMS=(built.releases / "SHA256SUMS").read_bytes())
    for name, content in objects.items():
        if isinstance(store, Store):
            store.put_bytes(f"{FOLDER}/{name}", content)
        else:
            store.objects[f"{FOLDER}/{name}"] = content
    return addresses


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    made = build_experiment(tmp_path_factory.mktemp("built") / "e", a_log(80))
    made.run()
    return made


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "clusterdp"


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[OddStore]:
    with odd_store() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "made-up")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield store


def test_a_release_in_a_store_is_the_release(built: Experiment, s3: Store) -> None:
    (address,) = put(s3, built).values()
    folder = f"s3://bucket/{FOLDER}"
    release = clusterdp.open(address)
    here = clusterdp.open(built.releases / "trial.once.r1.duckdb")
    assert release.ate().equals(here.ate())
    assert release.path.name == "trial.once.r1.duckdb"
    assert release.withdrawn is None
    for name in ("latest", "trial.once.r1"):
        assert clusterdp.open(f"{folder}/{name}.duckdb").path == release.path
    assert clusterdp.open_series([address]).ate().height > 0
    assert clusterdp.verify(address).releases[0].against == "SHA256SUMS"
    s3.remove(f"{FOLDER}/beside.json")
    assert clusterdp.verify(address).exit_code == 2


@pytest.mark.parametrize(
    "command_line",
    [
        ["inspect"],
        ["estimate"],
        ["estimate", "--level", "0.9"],
        ["verify"],
        ["verify", "--loss"],
        ["effects", "--covariates", "people.csv"],
        ["report", "-o", "page.html"],
        ["export", "-o", "units.csv"],
    ],
    ids=" ".join,
)
def test_every_command_that_reads_releases_reads_them_in_a_store(
    built: Experiment,
    odd: OddStore,
    command: Command,
    command_line: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answered(place: str) -> object:
        folder = tmp_path / place.rpartition("/")[2]
        folder.mkdir()
        monkeypatch.chdir(folder)
        people.write_csv("people.csv")
        ran = command(command_line[0], place, *command_line[1:], "--json")
        assert ran.returncode == 0, ran.stderr
        return without_paths(json.loads(ran.stdout))

    people = a_log(80).select(unit_id="customer", before=pl.int_range(80) % 7)

    (address,) = put(odd, built).values()
    assert answered(address) == answered(str(built.releases / "trial.once.r1.duckdb"))


def without_paths(document: object) -> object:
    if isinstance(document, dict):
        return {key: without_paths(one) for key, one in document.items() if key != "path"}
    return list(map(without_paths, document)) if isinstance(document, list) else document


def test_a_copy_is_fetched_once_and_checked_each_time(
    built: Experiment, odd: OddStore, cache: Path
) -> None:
    (address,) = put(odd, built).values()
    path = located(address)
    whole = path.read_bytes()
    assert [folder.stat().st_mode & 0o777 for folder in (cache, path.parent)] == [0o700, 0o700]
    assert path.stat().st_mode & 0o777 == 0o400
    objects = [one for one in odd.asked if ".duckdb" in one]
    assert located(address) == path
    assert [one for one in odd.asked if ".duckdb" in one] == objects
    path.chmod(0o600)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert located(address).read_bytes() == whole


def test_several_at_once_get_one_whole_copy(built: Experiment, odd: OddStore) -> None:
    (address,) = put(odd, built).values()
    path = located(address)
    path.unlink()
    left = path.with_name(f".{path.name}.half-written")
    left.write_bytes(b"of a run that was killed")
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(located, [address] * 8)) == {path}
    assert sorted(path.parent.iterdir()) == [path.parent / "SHA256SUMS", path]
    assert digest_of(path) in address


def test_what_is_said_beside_it_is_read_anew(built: Experiment, odd: OddStore) -> None:
    (address,) = put(odd, built).values()
    assert clusterdp.open(address).withdrawn is None
    row = {"release_id": "trial.once.r1", "withdrawn_at": "2026-11-21T03:15:00Z", "reason": "wrong"}
    key, before = f"{FOLDER}/beside.json", odd.objects[f"{FOLDER}/beside.json"]
    odd.objects[key] = beside(**{"withdrawn.json": json.dumps({"releases": [row]}).encode()})
    with pytest.warns(clusterdp.ClusterdpWarning, match="was withdrawn on 2026-11-21: wrong"):
        assert clusterdp.open(address).withdrawn == "wrong"
    odd.objects[key] = before
    assert clusterdp.open(address).withdrawn is None
    odd.objects[key] = beside(**{"withdrawn.json": b"<html>"})
    with pytest.raises(InputError, match=r"withdrawn\.json: not a JSON document"):
        clusterdp.open(address)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"files": 3}',
        b'{"files": {"SHA256SUMS": 3}}',
        b'{"files": {"SHA256SUMS": "."}}',
        b'{"files": {"SHA256SUMS": "\xc3\xa9"}}',
        b'{"files": {}, "files": {}}',
        b"[" * 100_000,
    ],
)
def test_what_does_not_say_what_lies_beside_is_refused(
    built: Experiment, odd: OddStore, content: bytes
) -> None:
    (address,) = put(odd, built).values()
    odd.objects[f"{FOLDER}/beside.json"] = content
    with pytest.raises(InputError, match=r"beside\.json: "):
        located(address)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"release_id": "other.once.r1"}, "leads to another release, 'other.once.r1'"),
        ({"release_id": "../../trial.once.r1"}, "leads to another release"),
        ({"sha256": "0" * 64}, "there is no such object"),
        ({"sha256": "short"}, "sha256: "),
        ({"sha256": None}, "sha256: "),
        ({"more": "x" * 10_000}, "is far too large: more than 10,000 bytes"),
    ],
)
def test_a_pointer_that_leads_elsewhere_is_refused(
    built: Experiment, odd: OddStore, change: dict[str, object], problem: str
) -> None:
    put(odd, built)
    key = f"{FOLDER}/trial.once.r1.pointer.json"
    odd.objects[key] = json.dumps(json.loads(odd.objects[key]) | change).encode()
    with pytest.raises(InputError, match=problem):
        located(f"s3://bucket/{FOLDER}/trial.once.r1.duckdb")


def test_a_pointer_says_which_bytes_and_not_where_they_are(
    built: Experiment, odd: OddStore
) -> None:
    """Else it would lead to another release than the one that was asked for."""
    (address,) = put(odd, built).values()
    key, digest = f"{FOLDER}/trial.once.r1.pointer.json", address.split(".")[-2]
    other = f"x/other.once.r1.{digest}"
    odd.objects[f"{FOLDER}/trial.once.r1.{other}.duckdb"] = odd.objects[
        address[len("s3://bucket/") :]
    ]
    odd.objects[key] = odd.objects[key].replace(digest.encode(), other.encode())
    with pytest.raises(InputError, match="sha256: "):
        located(f"s3://bucket/{FOLDER}/trial.once.r1.duckdb")
    assert not [one for one in odd.asked if "other" in one]


@pytest.mark.parametrize(
    "name", ["trial.duckdb", "page.html", f"other.{'0' * 64}.duckdb", "trial.once.r1", "latest"]
)
def test_what_is_no_name_of_a_release_is_refused(odd: OddStore, name: str) -> None:
    with pytest.raises(InputError, match=r"not the name of a release|there is no such object"):
        located(f"s3://bucket/{name}")
    assert len(odd.asked) <= 1


def test_a_folder_for_copies_that_others_may_enter_is_refused(
    built: Experiment, odd: OddStore, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (address,) = put(odd, built).values()
    located(address)
    cache.chmod(0o755)
    with pytest.raises(InputError, match="others may enter it"):
        located(address)
    monkeypatch.setenv("XDG_CACHE_HOME", str(built.config))
    with pytest.raises(InputError, match="cannot make this folder"):
        located(address)


def test_a_full_disk_is_said_before_anything_is_fetched(
    built: Experiment, odd: OddStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (address,) = put(odd, built).values()
    monkeypatch.setattr("flows.released.stored._SPARE", 1 << 60)
    with pytest.raises(InputError, match="and there is room for 0 in"):
        located(address)


CONTENT = os.urandom(100_000)
KEY = f"trial.once.r1.{hashlib.sha256(CONTENT).hexdigest()}.duckdb"
ELSEWHERE = "http://127.0.0.1:9/"


def but_head(answer: Answer) -> Answer:
    return lambda asked, content: (
        asked.send_object(content) if asked.command == "HEAD" else answer(asked, content)
    )


def head_says(length: str) -> Answer:
    def answer(asked: Request, content: bytes) -> None:
        told = {"Content-Length": length} if asked.command == "HEAD" else {}
        asked.send_object(content, **told)

    return answer


def status(code: int, content: bytes = b"", **headers: str) -> Answer:
    return lambda asked, _: asked.send(code, content, **headers)


def raw(text: bytes) -> Answer:
    def answer(asked: Request, _: bytes) -> None:
        asked.wfile.write(text)
        asked.close_connection = True

    return answer


def half(asked: Request, content: bytes) -> None:
    asked.send(206, content[:50_000], **{"Content-Length": str(len(content))})
    asked.close_connection = True


def endless(asked: Request, _: bytes) -> None:
    asked.send_response(206)
    asked.send_header("Transfer-Encoding", "chunked")
    asked.end_headers()
    for _number in range(10_000):
        asked.wfile.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")


def trickling(asked: Request, content: bytes) -> None:
    asked.send(206, b"", **{"Content-Length": str(len(content))})
    for _ in range(100):
        asked.wfile.write(b"x")
        time.sleep(0.1)


def trickling_head(asked: Request, content: bytes) -> None:
    asked.wfile.write(b"HTTP/1.1 200 OK\r\nA: ")
    for _ in range(3_000):  # minutes, if nobody ends it
        asked.wfile.write(b"x")
        time.sleep(0.1)


def silent(asked: Request, _: bytes) -> None:
    time.sleep(1.5)
    asked.close_connection = True


NO_KEY, EXPIRED = b"<Code>InvalidAccessKeyId</Code>", b"<Code>ExpiredToken</Code>"
UNKNOWN = "the store cannot be reached, or does not answer as one"
DENIED = "access is denied"
UNKNOWN_KEY = "the store does not accept the environment's credentials"
OTHER = "its bytes are not those that its name says"
LESS = "does not send the bytes that are asked for"
LARGE = "is far too large: more than 100,000 bytes"
NONE = "there is no such object"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(status(500, SECRET.encode()), UNKNOWN, id="broken"),
        pytest.param(status(503), UNKNOWN, id="busy"),
        pytest.param(status(429), UNKNOWN, id="too many"),
        pytest.param(status(403, b"<Code>AccessDenied</Code>"), DENIED, id="denied"),
        pytest.param(but_head(status(403, NO_KEY)), UNKNOWN_KEY, id="no key"),
        pytest.param(but_head(status(400, EXPIRED)), UNKNOWN_KEY, id="expired"),
        pytest.param(status(401), UNKNOWN_KEY, id="unauthenticated"),
        pytest.param(status(400, b"x" * 1_000_000), UNKNOWN, id="bad request"),
        pytest.param(status(404, b"<html>"), NONE, id="vanished"),
        pytest.param(but_head(status(404)), NONE, id="vanished meanwhile"),
        pytest.param(status(410), UNKNOWN, id="gone"),
        pytest.param(status(204), UNKNOWN, id="nothing in it"),
        pytest.param(status(304), UNKNOWN, id="not modified"),
        pytest.param(status(301), UNKNOWN, id="moved nowhere"),
        pytest.param(status(302, Location=ELSEWHERE), UNKNOWN, id="found elsewhere"),
        pytest.param(status(307, Location=ELSEWHERE), UNKNOWN, id="moved elsewhere"),
        pytest.param(status(308, Location="file:///etc/passwd"), UNKNOWN, id="moved to a file"),
        pytest.param(lambda a, c: a.send_object(c[::-1]), OTHER, id="altered"),
        pytest.param(but_head(half), UNKNOWN, id="cut short"),
        pytest.param(but_head(lambda a, c: a.send(206, c[:-1])), LESS, id="less"),
        pytest.param(but_head(lambda a, c: a.send(206, c + c)), LARGE, id="more"),
        pytest.param(but_head(lambda a, c: a.send(200, c)), LESS, id="not what was asked for"),
        pytest.param(but_head(status(200, b"<Error/>")), LESS, id="an error that is none"),
        pytest.param(but_head(endless), LARGE, id="endless"),
        pytest.param(head_says(str(10**17)), "and there is room for", id="huge"),
        pytest.param(head_says(str(2**64)), UNKNOWN, id="more than huge"),
        pytest.param(head_says("-5"), UNKNOWN, id="negative"),
        pytest.param(head_says("many"), UNKNOWN, id="no number"),
        pytest.param(head_says("٣"), UNKNOWN, id="another digit"),
        pytest.param(head_says(""), UNKNOWN, id="without a length"),
        pytest.param(head_says("0"), OTHER, id="empty"),
        pytest.param(head_says("99999"), OTHER, id="smaller"),
        pytest.param(head_says("100001"), LESS, id="larger"),
        pytest.param(raw(b""), UNKNOWN, id="closed"),
        pytest.param(raw(b"SSH-2.0-OpenSSH_9\r\n"), UNKNOWN, id="another protocol"),
        pytest.param(raw(b"HTTP/1.1 2000 OK\r\n\r\n"), UNKNOWN, id="no status"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200), UNKNOWN, id="many headers"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000), UNKNOWN, id="long header"),
        pytest.param(silent, UNKNOWN, id="silent"),
        pytest.param(trickling_head, UNKNOWN, id="a byte of a header at a time"),
        pytest.param(but_head(trickling), UNKNOWN, id="a byte at a time"),
    ],
)
def test_whatever_a_store_answers_ends_in_plain_words(
    odd: OddStore,
    answer: Answer,
    problem: str,
    command: Command,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_stores, "_MOMENT", 0.5)
    monkeypatch.setattr(object_stores, "_ANSWER", 0.5)
    monkeypatch.setattr(object_stores, "_PAUSE", 0.0)
    odd.objects[KEY], odd.answer = CONTENT, answer
    with pytest.raises(InputError, match=problem) as caught:
        located(f"s3://bucket/{KEY}")
    assert str(caught.value).startswith(f"s3://bucket/{KEY}: ")
    assert SECRET not in told(caught.value)
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    ran = command("inspect", f"s3://bucket/{KEY}")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.search(problem, ran.stderr)
    assert SECRET not in ran.stderr


def test_the_store_has_to_be_there(odd: OddStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ELSEWHERE)
    monkeypatch.setattr(object_stores, "_PAUSE", 0.0)
    with pytest.raises(InputError, match=UNKNOWN):
        located(f"s3://bucket/{KEY}")
    assert odd.asked == []
