"""What somebody does who can write in the folder of releases, and nowhere else: none is believed.

Files are planted under names of nights, removed and swapped. A run publishes, lists, signs, charges
and counts what its ledger has drawn, and nothing else; people are told, and exit codes say so.
"""

import json
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

import duckdb
import pytest

import clusterdp
from flows.cli.main import run
from flows.ledger.account import Account
from flows.released.checksums import read_sums
from flows.runtime.reading import regular_files
from schemas.errors import ConflictError
from tests.conftest import Builder, Experiment, build_experiment, released
from tests.effect_logs import Campaign, campaign
from tests.flows.operate.test_due import DAYS, night, scheduled
from tests.flows.operate.test_verify import rewrite, signing_key
from tests.support.made_once import made_once

__all__ = ["campaign"]  # a fixture

pytestmark = pytest.mark.release

NIGHTS = DAYS[:2]
COMING = DAYS[2]


def file_of(built: Experiment, day: str, revision: int = 1) -> Path:
    return built.releases / f"trial.{day}.r{revision}.duckdb"


def digests(built: Experiment) -> dict[str, str]:
    return {one.name: sha256(one.read_bytes()).hexdigest() for one in releases(built)}


def releases(built: Experiment) -> list[Path]:
    return [one for one in sorted(built.releases.glob("trial.*.duckdb")) if one.is_file()]


def charges(built: Experiment) -> list[str]:
    return [one.name.release_id for one in Account.of(built.load()).statement().entries]


@pytest.fixture
def two(experiment: Builder, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """Two nights that were released, and signed, with a third to come."""
    publish = {"signing_key": "signing.pem"}
    built = scheduled(experiment, *DAYS[:3], publish=publish, schedule={"until": COMING})
    night(monkeypatch, COMING)
    built = made_once(release_and_sign, built)
    night(monkeypatch, DAYS[3])
    return built


def release_and_sign(built: Experiment) -> None:
    signing_key(built.folder)
    assert run(["release", str(built.config), "--due"]) == 0


def of_another_ledger(built: Experiment) -> bytes:
    other = build_experiment(built.folder / "other", publish={"directory": "theirs"})
    return other.run(COMING).path.read_bytes()


def swapped(path: Path, content: bytes) -> None:
    """Another file of the same name, and times, and if it can be of the same size."""
    before = path.stat()
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def plant_of_another_ledger(built: Experiment) -> None:
    file_of(built, COMING).write_bytes(of_another_ledger(built))


def plant_rubbish(built: Experiment) -> None:
    file_of(built, COMING).write_bytes(b"rubbish")


def plant_a_copy(built: Experiment) -> None:
    shutil.copy(file_of(built, NIGHTS[0]), file_of(built, COMING))


def plant_a_revision(built: Experiment) -> None:
    file_of(built, NIGHTS[0], 9).write_bytes(of_another_ledger(built))


def plant_a_pipe(built: Experiment) -> None:
    os.mkfifo(file_of(built, COMING))


def remove(built: Experiment) -> None:
    file_of(built, NIGHTS[0]).unlink()


def swap_for_another_ledgers(built: Experiment) -> None:
    swapped(file_of(built, NIGHTS[0]), of_another_ledger(built))


def swap_a_byte(built: Experiment) -> None:
    path = file_of(built, NIGHTS[0])
    swapped(path, flipped(path.read_bytes()))


def swap_for_a_link(built: Experiment) -> None:
    file_of(built, NIGHTS[0]).unlink()
    file_of(built, NIGHTS[0]).symlink_to(file_of(built, NIGHTS[1]))


def swap_for_a_folder(built: Experiment) -> None:
    file_of(built, NIGHTS[0]).unlink()
    file_of(built, NIGHTS[0]).mkdir()


def swap_two(built: Experiment) -> None:
    one, other = (file_of(built, day) for day in NIGHTS)
    one.rename(one.with_suffix(".aside"))
    other.rename(one)
    one.with_suffix(".aside").rename(other)


PLANTED = [plant_of_another_ledger, plant_rubbish, plant_a_copy, plant_a_revision, plant_a_pipe]
SWAPPED = [swap_for_another_ledgers, swap_a_byte, swap_for_a_link, swap_for_a_folder, swap_two]


def assert_nothing_else_is_believed(built: Experiment, before: dict[str, str]) -> None:
    """What the list, the signature and ``latest.duckdb`` say is what was drawn."""
    sums = read_sums(built.releases) or {}
    drawn = {name: one for name, one in sums.items() if name.startswith("trial.")}
    assert {name: drawn[name] for name in drawn if name in before} == {
        name: before[name] for name in drawn if name in before
    }
    assert set(drawn) <= {*before, file_of(built, COMING).name}
    latest = sha256((built.releases / "latest.duckdb").read_bytes()).hexdigest()
    assert latest in drawn.values()
    key = built.folder / "public.pem"
    for path in releases(built):
        (found,) = clusterdp.verify(path, key=key).releases
        is_drawn = drawn.get(path.name) == sha256(path.read_bytes()).hexdigest()
        assert (found.intact is True) == is_drawn


@pytest.mark.parametrize("attack", PLANTED, ids=lambda one: one.__name__)
def test_a_planted_file_is_refused_and_never_charged_or_listed(
    two: Experiment, attack: Callable[[Experiment], None], capsys: pytest.CaptureFixture[str]
) -> None:
    before, charged = digests(two), charges(two)
    names = {path.name for path in two.releases.iterdir()}
    attack(two)
    (planted,) = {path.name for path in two.releases.iterdir()} - names
    for arguments in (["release", two.config, "--due"], ["check", two.config, "--period", COMING]):
        assert run([str(one) for one in arguments]) == 4
        told = capsys.readouterr().err
        assert planted in told
        assert "the ledger knows nothing of this file" in told
    with pytest.raises(ConflictError):
        two.run(COMING)
    assert run(["status", str(two.config), "--json"]) == 4
    (found,) = json.loads(capsys.readouterr().out)["experiments"]
    states = {one["period"]: (one["state"], one["release_id"]) for one in found["periods"]}
    period = planted.split(".")[1]
    assert states[period] == ("altered", None)
    assert (charges(two), found["closing"]) == (charged, None)
    assert_nothing_else_is_believed(two, before)
    (two.releases / planted).unlink()
    assert run(["release", str(two.config), "--due"]) == 0  # and the night is drawn
    assert {**digests(two), **before} == digests(two)
    assert len(charges(two)) == 3


@pytest.mark.parametrize("attack", [remove, *SWAPPED], ids=lambda one: one.__name__)
def test_a_file_that_is_removed_or_swapped_is_told_of_and_others_go_on(
    two: Experiment, attack: Callable[[Experiment], None], capsys: pytest.CaptureFixture[str]
) -> None:
    before, kept = digests(two), two.folder / "kept"
    shutil.copytree(two.releases, kept)
    attack(two)
    wrong = {NIGHTS[0]} | ({NIGHTS[1]} if attack is swap_two else set())
    state = "lost" if attack is remove else "altered"
    assert run(["release", str(two.config), "--due", "--json"]) == 4
    out = capsys.readouterr().out
    told = {one["period"]: one["status"] for one in json.loads(out)["releases"]}
    assert told == dict.fromkeys(wrong, state) | {COMING: "published"}
    assert run(["status", str(two.config)]) == 4
    assert f"trial {NIGHTS[0]}: " in capsys.readouterr().err
    with pytest.raises(ConflictError):  # nor does it count as unchanged
        two.run(NIGHTS[0])
    assert_nothing_else_is_believed(two, before)
    periods = released(two.releases / "series.duckdb", "periods")["period"].to_list()
    assert periods == [day for day in DAYS[:3] if day not in wrong]
    for day in wrong:
        path = file_of(two, day)
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        shutil.copy(kept / path.name, path)
    assert run(["release", str(two.config), "--due"]) == 0
    assert run(["status", str(two.config)]) == 0
    assert len(charges(two)) == 3


def lie_of_withdrawn(built: Experiment) -> None:
    release = {"release_id": f"trial.{NIGHTS[0]}.r1", "withdrawn_at": "2026-11-03", "reason": "x"}
    rewrite(built.releases / "withdrawn.json", json.dumps({"releases": [release]}))


def lie_of_pruned(built: Experiment) -> None:
    release = {"release_id": "trial.z.r1", "pruned_at": "2026-11-03", "epsilon": 1, "delta": 0}
    rewrite(built.releases / "pruned.json", json.dumps({"releases": [{**release, "sha256": None}]}))


def damage(name: str) -> Callable[[Experiment], None]:
    def act(built: Experiment) -> None:
        rewrite(built.releases / name, '{"releases": 3')

    act.__name__ = f"damage_{name}"
    return act


def swap_latest(built: Experiment) -> None:
    swapped(built.releases / "latest.duckdb", of_another_ledger(built))


def swap_series(built: Experiment) -> None:
    path = built.releases / "series.duckdb"
    path.chmod(0o644)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE estimates SET estimate = 100")


def add_to_the_list(built: Experiment) -> None:
    path = built.releases / "SHA256SUMS"
    rewrite(path, f"{path.read_text()}{'0' * 64}  trial.z.r1.duckdb\n")


BESIDE = [
    lie_of_withdrawn,
    lie_of_pruned,
    *(damage(name) for name in ("withdrawn.json", "pruned.json", "closed.json")),
    swap_latest,
    swap_series,
    add_to_the_list,
]


@pytest.mark.parametrize("attack", BESIDE, ids=lambda one: one.__name__)
def test_what_lies_beside_releases_is_made_anew_and_stops_no_night(
    two: Experiment, attack: Callable[[Experiment], None]
) -> None:
    before = digests(two)
    attack(two)
    assert run(["release", str(two.config), "--due"]) == 0
    assert_nothing_else_is_believed(two, before)
    assert (two.releases / "latest.duckdb").samefile(file_of(two, COMING))
    assert not (two.releases / "withdrawn.json").exists()
    assert not (two.releases / "pruned.json").exists()
    assert json.loads((two.releases / "closed.json").read_text())["n_periods"] == 3
    series = released(two.releases / "series.duckdb", "estimates")
    assert series["estimate"].abs().max() != 100
    assert series["period"].unique().sort().to_list() == DAYS[:3]
    assert set(read_sums(two.releases) or {}) == {*digests(two), "closed.json"}


def test_a_look_at_files_that_have_not_changed_reads_none(two: Experiment) -> None:
    read: list[Path] = []
    original = regular_files.digest_of

    def watched(path: Path) -> str:
        read.append(path)
        return original(path)

    with (
        patch("flows.ledger.shelves.files._YOUNG", 0),
        patch("flows.ledger.shelves.files._SECOND", 1),
    ):
        Account.of(two.load()).settle()
    with patch("flows.ledger.shelves.files.digest_of", watched):
        clusterdp.status(two.config)
        assert read == []
        swap_a_byte(two)
        clusterdp.status(two.config)
    assert read == [file_of(two, NIGHTS[0])]


def test_a_model_that_is_planted_removed_or_swapped_is_not_believed(campaign: Campaign) -> None:
    built = campaign(privacy="budget_epsilon = 20\nbudget_delta = 1e-4")
    first = built.run("a").path
    planted = first.with_name("mail+cate.b.r1.json")
    shutil.copy(first, planted)
    with pytest.raises(ConflictError, match="the ledger knows nothing of this file"):
        built.run("b")
    assert built.paid == 4.0
    planted.unlink()
    content = first.read_bytes()
    first.unlink()
    (warning,) = (one for one in built.run("b").warnings if str(first) in one)
    assert "is gone" in warning
    first.write_bytes(flipped(content))
    with pytest.raises(ConflictError, match="is not the file that was published"):
        built.run("a")
    (warning,) = (one for one in built.run("c").warnings if str(first) in one)
    assert "is not the file that was published" in warning
