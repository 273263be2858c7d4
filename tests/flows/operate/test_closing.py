"""An experiment that has ended: said once, shown by status, and its report is the final one."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

import clusterdp
from flows.cli.main import run
from flows.operate.due import release_due
from flows.operate.status import status
from flows.operate.withdraw import withdraw
from flows.released.lists import CLOSED, read_closing
from schemas.errors import InputError
from tests.conftest import Builder, Experiment
from tests.flows.operate.test_due import DAYS, bring, night, scheduled

pytestmark = pytest.mark.release

UNTIL = {"until": DAYS[2]}


def due(built: Experiment, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()
    code = run(["release", str(built.config), "--due", "--json"])
    found = capsys.readouterr()
    return code, json.loads(found.out), found.err


def test_the_last_period_ends_it_which_is_said_once(
    experiment: Builder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    built = scheduled(experiment, *DAYS[:3], schedule=UNTIL)
    night(monkeypatch, DAYS[2])
    code, document, error = due(built, capsys)
    assert (code, document["closing"]) == (0, None)
    assert not (built.releases / CLOSED).exists()
    night(monkeypatch, DAYS[3])
    code, document, error = due(built, capsys)
    assert [one["status"] for one in document["releases"]] == ["published"]
    closing = {
        "experiment": "trial", "first_period": DAYS[0], "last_period": DAYS[2], "n_periods": 3,
        "not_published": [], "withdrawn": [], "pruned": [], "elsewhere": [],
    }  # fmt: skip
    assert document["closing"] == closing
    assert f"trial ended with {DAYS[2]}: 3 of 3 periods published; nothing more comes" in error
    before = {path.name: path.stat().st_mtime_ns for path in built.releases.iterdir()}
    night(monkeypatch, DAYS[6])
    code, document, error = due(built, capsys)
    assert (code, document["releases"], document["closing"], error) == (0, [], closing, "")
    assert {path.name: path.stat().st_mtime_ns for path in built.releases.iterdir()} == before
    assert run(["status", str(built.config)]) == 0
    assert "write the final report" in " ".join(capsys.readouterr().out.split())
    assert status(built.config).as_json()["experiments"][0]["closing"] == closing
    assert run(["report", str(built.releases), "-o", str(tmp_path / "pages")]) == 0
    page = (tmp_path / "pages" / "index.html").read_text()
    assert "<strong>Final report.</strong>" in page
    assert "3 of 3 periods published" in page
    assert "not yet" not in page  # as nothing more comes
    assert run(["report", str(built.releases.parent), "-o", str(tmp_path / "all")]) == 0
    assert "(final)" in (tmp_path / "all" / "index.html").read_text()
    assert run(["estimate", str(built.releases)]) == 0
    assert f"ended with {DAYS[2]}" in " ".join(capsys.readouterr().out.split())
    assert clusterdp.open_series(built.releases).is_final
    assert clusterdp.verify(built.releases / "latest.duckdb").releases[0].reason is None


def test_a_night_that_never_came_is_named_and_may_still_come(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = scheduled(experiment, DAYS[0], DAYS[2], schedule=UNTIL)
    night(monkeypatch, DAYS[3])
    code, document, error = due(built, capsys)  # it waits for its files
    assert (code, document["closing"], error) == (0, None, "")
    night(monkeypatch, DAYS[5])
    code, document, error = due(built, capsys)  # it has failed, and each run tries it again
    assert (code, document["closing"], "nothing more comes" in error) == (2, None, False)
    assert read_closing(built.releases) is None
    assert run(["status", str(built.config)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "1 not published, which each run still tries" in told
    bring(built, DAYS[1])
    code, document, error = due(built, capsys)
    assert (code, document["closing"]["not_published"]) == (0, [])
    assert "3 of 3 periods published; nothing more comes by itself" in error
    assert read_closing(built.releases) is not None


def test_a_withdrawn_period_does_not_keep_it_open(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, *DAYS[:3], schedule=UNTIL)
    night(monkeypatch, DAYS[3])
    release_due(str(built.config))
    withdraw(built.config, f"trial.{DAYS[1]}.r1", "wrong prices")
    result = release_due(str(built.config))
    assert (result.releases, result.farewells) == ((), ())
    assert result.closing is not None
    series = clusterdp.open_series(built.releases)
    assert [one.period for one in series.manifests] == [DAYS[0], DAYS[2]]
    assert any("wrong prices" in note for note in series.notes)
    assert "2 of 3 periods published, withdrawn 2026-11-02" in result.closing.in_words


def test_a_last_period_that_is_drawn_anew_does_not_let_the_end_be_said_again(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = scheduled(experiment, *DAYS[:3], schedule=UNTIL)
    night(monkeypatch, DAYS[3])
    assert len(release_due(str(built.config)).farewells) == 1
    assert run(["release", str(built.config), "--period", DAYS[2], "--revise"]) == 0
    code, document, error = due(built, capsys)
    assert (code, document["closing"]["n_periods"], error) == (0, 3, "")


def test_two_folders_on_one_ledger_say_what_lies_in_the_other(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = scheduled(experiment, *DAYS[:3], schedule=UNTIL)
    text = built.config.read_text()
    night(monkeypatch, DAYS[2])
    release_due(str(built.config))  # the first two
    other = built.config.with_name("other.toml")
    other.write_text(text.replace("[schedule]", '[publish]\ndirectory = "theirs"\n\n[schedule]'))
    night(monkeypatch, DAYS[3])
    theirs = release_due(str(other))
    assert [one.period for one in theirs.releases] == [DAYS[2]]
    closing = status(built.config).experiments[0].closing
    assert theirs.closing is not None
    assert theirs.closing.elsewhere == (DAYS[0], DAYS[1])
    assert closing is not None
    assert closing.elsewhere == (DAYS[2],)
    assert f"3 of 3 periods published, in another folder {DAYS[2]}" in closing.in_words
    assert run(["status", str(built.config)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"its file is not here: {socket.gethostname()} released it into" in told
    release_due(str(built.config))
    assert clusterdp.open_series(built.releases).notes == ()
    names = {path.name for path in (built.folder / "theirs" / "trial").glob("trial.*")}
    assert names == {f"trial.{DAYS[2]}.r1.duckdb"}


def test_a_folder_that_lacks_what_its_end_speaks_of_says_so(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = scheduled(experiment, *DAYS[:3], schedule=UNTIL)
    night(monkeypatch, DAYS[3])
    release_due(str(built.config))
    assert clusterdp.open_series(built.releases).notes == ()
    (built.releases / f"trial.{DAYS[2]}.r1.duckdb").unlink()
    (note,) = clusterdp.open_series(built.releases).notes
    assert note == f"closed.json says that this folder has releases that are not here: {DAYS[2]}"


@pytest.mark.parametrize("content", ["{}", '{"experiment": "trial", "n_periods": 1e999}', "["])
def test_a_list_that_is_none_is_told(experiment: Builder, content: str) -> None:
    built = experiment({"log.csv": "customer,variant,region,clicks\n"})
    (built.folder / CLOSED).write_text(content)
    with pytest.raises(InputError, match=r"closed\.json"):
        read_closing(built.folder)
