"""What is published is put up in a store: whole or not at all, once, whoever else puts up."""

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

import clusterdp
from flows.ledger.account import Account
from flows.operate.prune import prune
from flows.released.located import located
from flows.runtime import clock
from flows.runtime.paths import Address
from flows.runtime.reading import object_stores
from flows.runtime.reading.object_stores import Tagged, put_new, read_tagged, swap
from schemas.errors import InputError
from tests.conftest import Builder, Experiment, Section, a_log, build_experiment
from tests.effect_logs import AtHome, Campaign, campaign
from tests.flows.effects.test_multisite import AtSite, Hospital, hospital
from tests.support.odd_store import OddStore, odd_store
from tests.support.stores import SECRET, Store

__all__ = ["campaign", "hospital"]  # fixtures

pytestmark = pytest.mark.release

AT = "s3://bucket/releases"
FOLDER = "releases/trial"
LOG: Section = {"path": "logs/{period}.csv"}
PERIODS = ("2026-11-01", "2026-11-02")


@pytest.fixture(autouse=True)
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OddStore]:
    with odd_store() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "made-up")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(object_stores, "_PAUSE", 0.01)
        yield store


def built(experiment: Builder, **sections: Section) -> Experiment:
    given: dict[str, Section] = {"source": LOG, "publish": {"directory": AT}, **sections}
    return experiment({f"logs/{period}.csv": a_log(80) for period in PERIODS}, **given)


def names(odd: OddStore) -> list[str]:
    """What lies in the folder, digests left out."""
    found = (key.removeprefix(f"{FOLDER}/") for key in odd.objects)
    return sorted(".".join(part for part in name.split(".") if len(part) < 64) for name in found)


def beside(odd: OddStore) -> dict[str, bytes]:
    files = json.loads(odd.objects[f"{FOLDER}/beside.json"])["files"]
    return {name: base64.b64decode(content) for name, content in files.items()}


def check_whole(odd: OddStore) -> None:
    """Every name that is there leads to the bytes it means."""
    for key, content in dict(odd.objects).items():
        digest = next((part for part in key.split(".") if len(part) == 64), None)
        if digest is not None:
            assert hashlib.sha256(content).hexdigest() == digest
        if key.endswith(".pointer.json"):
            told = json.loads(content)
            file = f"{FOLDER}/{told['release_id']}.{told['sha256']}.duckdb"
            assert len(odd.objects[file]) == told["bytes"]
    if f"{FOLDER}/beside.json" in odd.objects:
        for line in beside(odd)["SHA256SUMS"].decode().splitlines():
            digest, name = line.split()
            if name.endswith(".duckdb"):
                assert f"{FOLDER}/{name.removesuffix('.duckdb')}.{digest}.duckdb" in odd.objects


def test_nights_are_put_up_and_read_there(experiment: Builder, odd: OddStore) -> None:
    made = built(experiment)
    first = made.run(PERIODS[0])
    assert first.warnings == made.run(PERIODS[0]).warnings
    release = clusterdp.open(f"{AT}/trial/latest.duckdb")
    assert release.manifest.release_id == "trial.2026-11-01.r1"
    assert release.path.read_bytes() == first.path.read_bytes()
    made.run(PERIODS[1])
    check_whole(odd)
    assert names(odd) == [
        "beside.json",
        "latest.pointer.json",
        "series.duckdb",
        "series.pointer.json",
        "trial.2026-11-01.r1.duckdb",
        "trial.2026-11-01.r1.pointer.json",
        "trial.2026-11-02.r1.duckdb",
        "trial.2026-11-02.r1.pointer.json",
    ]
    latest = f"{AT}/trial/latest.duckdb"
    assert clusterdp.open(latest).manifest.period == PERIODS[1]
    assert clusterdp.verify(latest).exit_code == 0
    puts = [one for one in odd.asked if one.startswith("PUT")]
    made.run(PERIODS[1])
    assert [one for one in odd.asked if one.startswith("PUT")] == puts
    clusterdp.withdraw(made.config, "trial.2026-11-02.r1", "wrong")
    check_whole(odd)
    assert clusterdp.open(latest).manifest.period == PERIODS[0]
    with pytest.warns(clusterdp.ClusterdpWarning, match="was withdrawn"):
        clusterdp.open(f"{AT}/trial/trial.2026-11-02.r1.duckdb")


@pytest.mark.parametrize("kind", ["model", "report"])
def test_models_and_reports_are_put_up_and_read_there(
    campaign: Campaign, hospital: Hospital, odd: OddStore, kind: str
) -> None:
    more = f'\n[publish]\ndirectory = "{AT}"\n'
    made: AtHome | AtSite
    if kind == "model":
        made, place = campaign(more=more), "releases/mail/mail+cate.once.r1"
    else:
        made, place = hospital(), "releases/stroke@north/stroke@north.once.r1"
        made.config.write_text(made.config.read_text("utf-8") + more, "utf-8")
    found = made.run()
    (here,) = made.config.parent.glob("re*s/*/*.json")
    digest = hashlib.sha256(here.read_bytes()).hexdigest()
    assert not any("put up" in one for one in found.warnings)
    assert sorted(odd.objects) == [f"{place}.{digest}.json", f"{place}.pointer.json"]
    assert located(f"s3://bucket/{place}.json").read_bytes() == here.read_bytes()
    asked = len(odd.asked)
    assert made.run().status == "unchanged"
    assert not any(one.startswith("PUT") for one in odd.asked[asked:])
    odd.objects[f"{place}.pointer.json"] = b"{}"
    with pytest.raises(InputError, match="release_id"):
        located(f"s3://bucket/{place}.json")


def test_a_server_that_others_have_written_takes_it_too(experiment: Builder, s3: Store) -> None:
    made = built(experiment)
    assert not any("put up" in one for period in PERIODS for one in made.run(period).warnings)
    latest = f"{AT}/trial/latest.duckdb"
    assert s3.endpoint == os.environ["AWS_ENDPOINT_URL"]
    assert clusterdp.open(latest).manifest.period == PERIODS[1]
    assert clusterdp.verify(latest).exit_code == 0


def test_what_is_pruned_goes_there_too(experiment: Builder, odd: OddStore) -> None:
    made = built(experiment, retention={"releases": "1d"})
    made.run_all(*PERIODS)
    with pytest.MonkeyPatch.context() as patch:
        now = clock.now() + timedelta(days=3)
        patch.setattr(clock, "now", lambda: now)
        prune(made.config)
    check_whole(odd)
    assert "trial.2026-11-01.r1.duckdb" not in names(odd)
    assert "trial.2026-11-02.r1.duckdb" in names(odd)
    assert b"trial.2026-11-01.r1" in beside(odd)["pruned.json"]


@pytest.mark.parametrize("loss", ["before", "after"])
def test_a_run_that_is_cut_off_at_any_put_is_mended_by_the_next(
    experiment: Builder, odd: OddStore, loss: str
) -> None:
    made = built(experiment)
    made.run(PERIODS[0])
    n_puts = sum(one.startswith("PUT") for one in odd.asked)
    assert n_puts == 6
    whole = names(odd)
    for cut in range(n_puts):
        odd.objects.clear()
        done: list[str] = []

        def loses(key: str, cut: int = cut, done: list[str] = done) -> str:
            done.append(key)
            return loss if len(done) > cut else ""

        odd.loses = loses
        warnings = made.run(PERIODS[0]).warnings
        assert any("not all is put up in the store" in one for one in warnings)
        check_whole(odd)
        odd.loses = None
        assert not any("put up" in one for one in made.run(PERIODS[0]).warnings)
        check_whole(odd)
        assert names(odd) == whole


def test_an_answer_that_is_lost_is_no_conflict(experiment: Builder, odd: OddStore) -> None:
    lost: set[str] = set()

    def loses(key: str) -> str:
        is_first = key not in lost
        lost.add(key)
        return "after" if is_first else ""

    odd.loses = loses
    made = built(experiment)
    assert not any("put up" in one for one in made.run(PERIODS[0]).warnings)
    assert len(lost) == 6
    check_whole(odd)


def test_two_machines_with_one_ledger_make_one_series(
    tmp_path: Path, odd: OddStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = {"url": f"sqlite:///{tmp_path}/ledger.sqlite"}
    logs = {f"logs/{period}.csv": a_log(80) for period in PERIODS}
    machines = []
    for name in ("one", "two"):
        made = build_experiment(
            tmp_path / name, logs, source=LOG, publish={"directory": AT}, ledger=url
        )
        machines.append(made)
    for place, made in enumerate(machines):
        monkeypatch.setattr("socket.gethostname", lambda place=place: f"machine-{place}")
        made.run(PERIODS[place])
        check_whole(odd)
    there = sorted(path.name for path in machines[1].releases.glob("trial.*"))
    assert there == ["trial.2026-11-01.r1.duckdb", "trial.2026-11-02.r1.duckdb"]
    assert names(odd).count("trial.2026-11-01.r1.duckdb") == 1
    assert clusterdp.open(f"{AT}/trial/latest.duckdb").manifest.period == PERIODS[1]
    assert len(beside(odd)["SHA256SUMS"].splitlines()) == 2


def test_something_else_under_our_name_is_a_conflict_that_is_told(
    experiment: Builder, odd: OddStore
) -> None:
    made = built(experiment)
    odd.objects[f"{FOLDER}/trial.2026-11-01.r1.pointer.json"] = json.dumps(
        {"release_id": "trial.2026-11-01.r1", "sha256": "0" * 64, "bytes": 1, "created_at": "x"}
    ).encode()
    (warning,) = [one for one in made.run(PERIODS[0]).warnings if "put up" in one]
    assert "another ledger publishes into this folder" in warning
    assert f"{FOLDER}/beside.json" not in odd.objects


def test_another_ledger_takes_nothing_away(
    tmp_path: Path, odd: OddStore, experiment: Builder
) -> None:
    built(experiment).run(PERIODS[0])
    before = dict(odd.objects)
    logs = {f"logs/{PERIODS[1]}.csv": a_log(80)}
    other = build_experiment(tmp_path / "other", logs, source=LOG, publish={"directory": AT})
    (warning,) = [one for one in other.run(PERIODS[1]).warnings if "put up" in one]
    assert "lists trial.2026-11-01.r1, which this ledger has not drawn" in warning
    assert odd.objects == before


def test_a_folder_that_was_lost_comes_back(experiment: Builder, odd: OddStore) -> None:
    made = built(experiment)
    first = made.run(PERIODS[0])
    whole = first.path.read_bytes()
    shutil.rmtree(made.releases)
    made.run(PERIODS[1])
    assert first.path.read_bytes() == whole
    check_whole(odd)
    assert len(beside(odd)["SHA256SUMS"].splitlines()) == 2


def test_what_was_lost_in_the_store_is_put_up_again(experiment: Builder, odd: OddStore) -> None:
    """As docs/runbooks.md says: without what lies beside, all is put up that is not there."""
    made = built(experiment)
    made.run(PERIODS[0])
    objects = dict(odd.objects)
    for loss in (".r1.pointer", ".duckdb", ".r1."):
        for key in objects:
            if (PERIODS[0] in key and loss in key) or key.endswith("beside.json"):
                del odd.objects[key]
        assert not any("put up" in one for one in made.run(PERIODS[0]).warnings)
        check_whole(odd)
        changed = [key for key, content in objects.items() if odd.objects[key] != content]
        assert all(".pointer." in key for key in changed)  # made at another time
        assert odd.objects.keys() == objects.keys()


N_RACES = 100


def test_of_four_that_put_one_name_one_wins(odd: OddStore) -> None:
    barrier = Barrier(4)

    def race(number: int) -> list[bool]:
        won = []
        for place in range(N_RACES):
            barrier.wait()
            won.append(put_new(Address("bucket", f"race/{place}"), b"%d" % number))
        return won

    with ThreadPoolExecutor(4) as threads:
        won = list(threads.map(race, range(4)))
    for place, of_race in enumerate(zip(*won, strict=True)):
        assert sum(of_race) == 1
        assert odd.objects[f"race/{place}"] == b"%d" % of_race.index(True)


def test_of_four_that_replace_one_object_each_is_counted(odd: OddStore) -> None:
    place = Address("bucket", "counter")
    assert swap(place, b"0", Tagged())

    def count(number: int) -> None:
        for _ in range(N_RACES // 4):
            while True:
                before = read_tagged(place, 100)
                after = b"%d of %d" % (int(before.content.split()[0]) + 1, number)
                if swap(place, after, before):
                    break

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))
    assert int(odd.objects["counter"].split()[0]) == N_RACES // 4 * 4


@pytest.mark.parametrize("tag", ["", 'W/"1"', '"a b"'])
def test_what_has_no_tag_is_not_replaced(odd: OddStore, tag: str) -> None:
    place = Address("bucket", "counter")
    assert swap(place, b"0", Tagged())
    odd.answer = lambda request, content: request.send_object(content, ETag=tag)
    before = read_tagged(place, 100)
    with pytest.raises(InputError, match="gives no strong e-tag"):
        swap(place, b"1", before)
    assert odd.objects["counter"] == b"0"


def test_readers_find_a_whole_release_whenever_they_look(
    experiment: Builder, odd: OddStore
) -> None:
    made = built(experiment)
    made.run(PERIODS[0])
    running = ThreadPoolExecutor(1).submit(made.run, PERIODS[1])
    seen = set()
    while not running.done():
        seen.add(located(f"{AT}/trial/latest.duckdb").name)
    running.result()
    seen.add(located(f"{AT}/trial/latest.duckdb").name)
    assert seen == {"trial.2026-11-01.r1.duckdb", "trial.2026-11-02.r1.duckdb"}


@pytest.mark.parametrize("at", ["gs://bucket/x", "az://bucket/x", "s3://", "http://host/x"])
def test_other_stores_are_refused(experiment: Builder, at: str) -> None:
    made = experiment(a_log(8), publish={"directory": at})
    with pytest.raises(clusterdp.ConfigError, match=r"publish\.directory"):
        made.load()


def test_a_store_that_cannot_be_reached_is_told_and_caught_up_with(
    experiment: Builder, odd: OddStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(experiment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        done = made.run(PERIODS[0])
    assert done.status == "published"
    assert any("the store cannot be reached" in one for one in done.warnings)
    with pytest.raises(InputError, match="no such object"):
        located(f"{AT}/trial/latest.duckdb")
    made.run(PERIODS[0])
    assert located(f"{AT}/trial/latest.duckdb").read_bytes() == done.path.read_bytes()


def test_who_puts_up_is_named_before_anything_is_drawn(
    experiment: Builder, odd: OddStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(experiment)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(InputError, match="does not say AWS_SECRET_ACCESS_KEY"):
        made.run(period=PERIODS[0])
    assert (Account.of(made.load()).entries(), odd.objects) == ([], {})
