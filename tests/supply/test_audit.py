"""The audit: locked versions that a database names, by made-up records in OSV's form."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from deploy.supply.__main__ import all_locked, main
from deploy.supply.audit import audit
from deploy.supply.locked import Locked, SupplyError

THING = Locked("some-thing", "2.5", None, ())


def record(name: str = "some_thing", **affected: Any) -> dict[str, Any]:
    """A record of OSV that names a package, as its database writes it."""
    return {
        "id": "PYSEC-2026-1",
        "aliases": ["CVE-2026-1"],
        "summary": "It reads what it should not",
        "affected": [{"package": {"name": name, "ecosystem": "PyPI"}, **affected}],
    }


def ranges(*events: dict[str, str], kind: str = "ECOSYSTEM") -> list[dict[str, Any]]:
    return [{"type": kind, "events": list(events)}]


def export(folder: Path, *records: object) -> Path:
    folder.mkdir(exist_ok=True)
    for number, each in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(each), encoding="utf-8")
    return folder


def is_found(folder: Path, one: dict[str, Any]) -> bool:
    return len(audit(export(folder, one), [THING]).found) == 1


INTRODUCED, FIXED = {"introduced": "0"}, {"fixed": "2.6"}


@pytest.mark.parametrize(
    ("affected", "is_hit"),
    [
        ({"versions": ["2.4", "2.5.0"]}, True),  # 2.5.0 is 2.5
        ({"versions": ["2.4", "2.50", "2.5.1", "not-a-version"]}, False),
        ({"ranges": ranges(INTRODUCED, FIXED)}, True),
        ({"ranges": ranges(INTRODUCED)}, True),
        ({"ranges": ranges(INTRODUCED, {"fixed": "2.5"})}, False),
        ({"ranges": ranges({"introduced": "2.5"}, FIXED)}, True),
        ({"ranges": ranges({"introduced": "2.5.1"}, FIXED)}, False),
        ({"ranges": ranges(INTRODUCED, {"last_affected": "2.5"})}, True),
        ({"ranges": ranges(INTRODUCED, {"last_affected": "2.4.9"})}, False),
        # fixed once, and back again; written in no order
        ({"ranges": ranges(FIXED, {"introduced": "2.5"}, {"fixed": "1.1"}, INTRODUCED)}, True),
        ({"ranges": ranges(INTRODUCED, {"fixed": "1.1"}, {"introduced": "2.10"})}, False),
        ({"ranges": ranges(INTRODUCED, {"fixed": "abc"}, kind="GIT"), "versions": ["2.5"]}, True),
        ({"ranges": ranges(INTRODUCED, {"fixed": "1.1"}), "versions": ["2.5"]}, True),
    ],
)
def test_a_version_is_found_where_a_record_names_it(
    tmp_path: Path, affected: dict[str, Any], is_hit: bool
) -> None:
    assert is_found(tmp_path, record(**affected)) is is_hit


def test_others_packages_ecosystems_and_withdrawn_records_do_not_count(tmp_path: Path) -> None:
    other = record("something", versions=["2.5"])
    npm = record(versions=["2.5"])
    npm["affected"][0]["package"]["ecosystem"] = "npm"
    withdrawn = {**record(versions=["2.5"]), "withdrawn": "2026-01-01T00:00:00Z"}
    commits = {"id": "OSV-1", "affected": [{"ranges": ranges(INTRODUCED, kind="GIT")}]}
    result = audit(export(tmp_path, other, npm, withdrawn, commits), [THING])
    assert (result.records, result.packages, result.found) == (1, 1, ())


def test_what_cannot_be_judged_of_packages_that_are_not_locked_does_not_matter(
    tmp_path: Path,
) -> None:
    odd = record("other", ranges=ranges(INTRODUCED, {"fixed": "abc"}, kind="GIT"))
    assert audit(export(tmp_path, odd), [THING]).records == 1


def test_what_is_found_is_told_with_all_its_names_and_its_fix(tmp_path: Path) -> None:
    (one,) = audit(export(tmp_path, record(ranges=ranges(INTRODUCED, FIXED))), [THING]).found
    assert str(one) == (
        "some-thing 2.5: PYSEC-2026-1, CVE-2026-1: It reads what it should not; fixed in 2.6"
    )
    (other,) = audit(export(tmp_path, record(versions=["2.5"])), [THING]).found
    assert str(other).endswith("; no fix is known")


@pytest.mark.parametrize(
    "broken",
    [
        [],
        {"affected": []},
        record(),
        {**record(versions=["2.5"]), "affected": "everything"},
        {"id": "A", "affected": [{"package": {"name": "some-thing"}}]},
        record(ranges=ranges({"introduced": "not-a-version"})),
        record(ranges=ranges({"appeared": "1.0"})),
        record(ranges=[{"type": "ECOSYSTEM"}]),
    ],
)
def test_a_broken_record_is_refused_and_named(tmp_path: Path, broken: object) -> None:
    good = record("other", versions=["1.0"])
    with pytest.raises(SupplyError, match=r"^1\.json: .*bring a whole export"):
        audit(export(tmp_path, good, broken), [THING])


def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    for name, content in (("cut.json", '{"id": "A", '), ("bytes.json", "\udcff")):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_bytes(content.encode("utf-8", "surrogateescape"))
        with pytest.raises(SupplyError, match="this database cannot be read"):
            audit(folder, [THING])
    with pytest.raises(SupplyError, match="this database cannot be read"):
        audit(tmp_path / "nowhere", [THING])
    with pytest.raises(SupplyError, match="holds no record of PyPI"):
        audit(export(tmp_path / "empty"), [THING])


def test_the_archive_that_osv_offers_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("PYSEC-2026-1.json", json.dumps(record(versions=["2.5"])))
    assert len(audit(path, [THING]).found) == 1
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SupplyError, match="this database cannot be read"):
        audit(path, [THING])


# the command


def test_without_a_database_it_says_that_it_was_not_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit"]) == 0
    assert "audit not run: no database" in capsys.readouterr().out
    assert main(["audit", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "not run"


def test_a_locked_version_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of another Python than this, too."""
    versions = [one.version for one in all_locked() if one.name == "numpy"]
    assert len(versions) > 1
    database = export(tmp_path, record("NumPy", versions=versions))
    assert main(["audit", "--database", str(database)]) == 3
    told = capsys.readouterr().out
    assert all(f"numpy {version}: PYSEC-2026-1" in told for version in versions)
    assert main(["audit", "--database", str(database), "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "found"
    assert {one["version"] for one in document["found"]} == set(versions)


def test_a_version_that_is_not_locked_is_not_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = export(tmp_path, record("numpy", versions=["1.0"]))
    assert main(["audit", "--database", str(database)]) == 0
    assert capsys.readouterr().out.startswith("audit: 0 found in ")


def test_a_broken_database_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = export(tmp_path, {"id": "A", "affected": 1})
    assert main(["audit", "--database", str(database)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "cannot be understood" in told.err
