"""Whether files are what was published: by the ledger, the list beside them, its signature."""

import hashlib
import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import clusterdp
from flows.cli.main import run
from flows.released.checksums import read_sums
from schemas.errors import ConfigError, InputError
from tests.conftest import Builder, Experiment, a_log, write_content

LIGHT = {"mechanism": "uniform-prior-dp", "strata_statistic": "none", "epsilon": 20.0}
"""At this epsilon noise is nothing, and never the cause of a warning."""

pytestmark = pytest.mark.process  # sha256sum and openssl check some of what is released


def signing_key(folder: Path) -> tuple[Path, Path]:
    """A key of the operator's, and its public part."""
    private = Ed25519PrivateKey.generate()
    paths = folder / "signing.pem", folder / "public.pem"
    paths[0].write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    paths[0].chmod(0o600)
    paths[1].write_bytes(
        private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return paths


def an_experiment(experiment: Builder, *, signed: bool = False) -> Experiment:
    publish = {"signing_key": "signing.pem"} if signed else {}
    built = experiment(a_log(16), privacy=LIGHT, publish=publish)
    if signed:
        signing_key(built.folder)
    return built


def rewrite(path: Path, text: str) -> None:
    """Replace a file that nobody may write."""
    path.unlink(missing_ok=True)
    path.write_text(text)


def altered(path: Path) -> None:
    """Change one byte of a file that nobody may write."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)


def verified(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    code = run(["verify", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)["releases"]


def verdicts(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["release_id"], one["intact"], one["against"]) for one in found]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_digest_of_a_publication_stands_in_the_ledger_and_beside_it(
    experiment: Builder,
) -> None:
    built = an_experiment(experiment)
    paths = [built.run(period).path for period in ("a", "b")]
    with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as ledger:
        noted = ledger.execute("SELECT file_sha256 FROM clusterdp_charges").fetchall()
    assert noted == [(digest(path),) for path in paths]
    text = (built.releases / "SHA256SUMS").read_text()
    assert text == "".join(f"{digest(path)}  {path.name}\n" for path in paths)
    checked = subprocess.run(
        [shutil.which("sha256sum") or "sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=built.releases, capture_output=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0


def test_files_that_are_as_they_were_are_intact_under_any_name(
    experiment: Builder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built = an_experiment(experiment)
    path = built.run("a").path
    latest, link = built.releases / "latest.duckdb", built.releases / "link.duckdb"
    link.symlink_to(path)
    code, found = verified(capsys, path, latest, link)
    assert code == 0
    assert verdicts(found) == [("trial.a.r1", True, "SHA256SUMS")] * 3
    copy = tmp_path / "from-the-mail.duckdb"
    shutil.copy(path, copy)
    code, found = verified(capsys, copy, "--ledger", built.config)
    assert (code, verdicts(found)) == (0, [("trial.a.r1", True, "ledger")])


def test_a_folder_stands_for_the_releases_in_it(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment)
    paths = [built.run(period).path for period in ("a", "b")]
    code, found = verified(capsys, built.releases)
    assert (code, verdicts(found)) == (0, [(f"trial.{p}.r1", True, "SHA256SUMS") for p in "ab"])
    assert [one["path"] for one in found] == list(map(str, paths))
    altered(paths[1])
    code, found = verified(capsys, built.releases, "--ledger", built.config)
    assert (code, verdicts(found)) == (
        4,
        [("trial.a.r1", True, "ledger"), ("trial.b.r1", False, "ledger")],
    )
    with pytest.raises(InputError, match="no release in it; name the folder of one experiment"):
        clusterdp.verify(built.releases.parent)
    with pytest.raises(InputError, match=r"a folder; clusterdp\.open_series reads its releases"):
        clusterdp.open(built.releases)


def test_a_file_that_was_altered_is_found_by_the_ledger_and_by_the_list(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment)
    path, other = built.run("a").path, built.run("b").path
    altered(path)
    sources: list[list[str | Path]] = [[], ["--ledger", built.config]]
    for source in sources:
        code, found = verified(capsys, other, path, *source)
        assert code == 4
        assert [one["intact"] for one in found] == [True, False]
    sums = built.releases / "SHA256SUMS"
    rewrite(sums, f"{digest(path)}  {path.name}\n")  # whoever alters one can alter the other
    assert verified(capsys, path)[0] == 0
    assert verified(capsys, path, "--ledger", built.config)[0] == 4
    assert run(["verify", str(path), "--ledger", str(built.config)]) == 4
    assert "ALTERED" in capsys.readouterr().out


def test_a_release_under_the_name_of_another_is_not_intact(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment)
    path, other = built.run("a").path, built.run("b").path
    path.unlink()
    shutil.copy(other, path)
    code, (found,) = verified(capsys, path, "--ledger", built.config)
    assert (code, found["intact"]) == (4, False)
    assert "trial.b.r1" in found["reason"]


def test_a_file_that_nobody_knows_a_digest_of(
    experiment: Builder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built = an_experiment(experiment)
    path = built.run("a").path
    shutil.copy(path, tmp_path / path.name)  # away from its list
    code, (found,) = verified(capsys, tmp_path / path.name)
    assert (code, found["intact"], found["against"]) == (2, None, None)
    assert found["reason"].startswith("there is no SHA256SUMS beside it; get that, too")
    (built.folder / "ledger.sqlite").unlink()
    assert verified(capsys, path, "--ledger", built.config)[0] == 2


def test_what_cannot_be_read_is_named(
    experiment: Builder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built = an_experiment(experiment)
    path = built.run("a").path
    wrong = {
        str(tmp_path / "none.duckdb"): "there is no such file",
        str(tmp_path): "no release in it; name the folder of one experiment",
    }
    for name, says in wrong.items():
        assert run(["verify", name]) == 2
        assert says in capsys.readouterr().err
    (tmp_path / "latest.duckdb").write_text("no release")
    assert verified(capsys, tmp_path / "latest.duckdb")[0] == 2
    shutil.copy(tmp_path / "latest.duckdb", built.releases / "mine.duckdb")
    assert verified(capsys, built.releases / "mine.duckdb")[0] == 4
    sums = built.releases / "SHA256SUMS"
    for text, says in {
        "nonsense": "line 1 is not a SHA-256 and the name of a file",
        f"{'0' * 64}  ../x\n": "line 1 is not a SHA-256",
        sums.read_text() * 2: "line 2 names a file that stands there already",
    }.items():
        rewrite(sums, text)
        assert run(["verify", str(path)]) == 2
        assert says in capsys.readouterr().err
    with pytest.raises(ConfigError, match="--key: cannot go with --ledger"):
        clusterdp.verify([path], ledger=built.config, key=path)


# the list is made anew from what is known


def test_what_somebody_did_to_an_older_file_never_becomes_its_digest(
    experiment: Builder,
) -> None:
    built = an_experiment(experiment)
    path = built.run("a").path
    known = digest(path)
    altered(path)
    (built.releases / "SHA256SUMS").unlink()
    result = built.run("b")
    assert result.warnings == ()
    assert (read_sums(built.releases) or {})[path.name] == known != digest(path)
    rewrite(built.releases / "SHA256SUMS", f"{digest(path)}  {path.name}\n")
    (warning,) = built.run("c").warnings
    assert f"somebody has changed what it says of {path.name}" in warning
    assert (read_sums(built.releases) or {})[path.name] == known


def test_a_release_that_no_digest_is_known_of_is_added_with_a_warning(experiment: Builder) -> None:
    """Of a ledger that kept none."""
    built = an_experiment(experiment)
    path = built.run("a").path
    with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE clusterdp_charges SET file_sha256 = NULL")
    assert built.run("b").warnings == ()  # the old list knows it
    rewrite(built.releases / "SHA256SUMS", "not a list")
    warnings = built.run("c").warnings
    assert len(warnings) == 2
    assert "line 1 is not a SHA-256" in warnings[0]
    assert "it was made anew" in warnings[0]
    assert f"nobody has known a digest of {path.name}; what" in warnings[1]
    assert list(read_sums(built.releases) or {}) == [f"trial.{one}.r1.duckdb" for one in "abc"]


def test_a_list_that_cannot_be_written_stops_no_release(experiment: Builder) -> None:
    built = an_experiment(experiment)
    built.run("a")
    (built.releases / "SHA256SUMS").unlink()
    (built.releases / "SHA256SUMS").mkdir()
    result = built.run("b")
    assert result.status == "published"
    assert any("was not renewed, which the next run does" in one for one in result.warnings)
    (built.releases / "SHA256SUMS").rmdir()
    assert built.run("b").status == "unchanged"
    assert len(read_sums(built.releases) or {}) == 2


def test_files_that_were_taken_away_leave_the_list(experiment: Builder) -> None:
    built = an_experiment(experiment)
    built.run("a").path.unlink()
    built.run("b")
    assert list(read_sums(built.releases) or {}) == ["trial.b.r1.duckdb"]


# signatures


def test_a_signed_list_speaks_for_its_files(
    experiment: Builder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built = an_experiment(experiment, signed=True)
    paths = [built.run(period).path for period in ("a", "b")]
    public = built.folder / "public.pem"
    code, found = verified(capsys, *paths, built.releases / "latest.duckdb", "--key", public)
    assert code == 0
    assert verdicts(found) == [
        ("trial.a.r1", True, "signature"),
        ("trial.b.r1", True, "signature"),
        ("trial.b.r1", True, "signature"),
    ]
    other = tmp_path / "other"
    other.mkdir()
    signing_key(other)
    assert verified(capsys, paths[0], "--key", other / "public.pem")[0] == 4
    altered(paths[0])
    sums = built.releases / "SHA256SUMS"
    assert verified(capsys, *paths, "--key", public)[0] == 4
    rewrite(sums, f"{digest(paths[0])}  {paths[0].name}\n")
    code, found = verified(capsys, paths[0], "--key", public)
    assert (code, found[0]["intact"]) == (4, False)
    assert "is no signature of" in found[0]["reason"]
    (built.releases / "SHA256SUMS.sig").unlink()
    assert run(["verify", str(paths[0]), "--key", str(public)]) == 2
    assert "so there is no signature to check" in capsys.readouterr().err


def test_lists_that_were_signed_under_a_key_of_before_are_checked_with_it(
    experiment: Builder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A copy of before has the old signature, the folder has the new one after the next run."""
    built = an_experiment(experiment, signed=True)
    first = built.run("a").path
    copy = Path(shutil.copytree(built.releases, tmp_path / "copy")) / first.name
    old = built.folder / "public.pem"
    old = old.rename(built.folder / "old.pem")
    signing_key(built.folder)
    new = built.folder / "public.pem"
    second = built.run("b").path
    assert verified(capsys, copy, "--key", old)[0] == 0
    assert verified(capsys, copy, "--key", new)[0] == 4
    assert verified(capsys, first, second, "--key", new)[0] == 0
    assert verified(capsys, first, second, "--key", old)[0] == 4
    code, found = verified(capsys, copy, first, second, "--key", old, "--key", new)
    assert code == 0
    assert [one["key"] for one in found] == [str(old), str(new), str(new)]
    assert clusterdp.verify([copy, first], key=[new, old]).exit_code == 0
    assert clusterdp.verify(copy, key=old).releases[0].key == old
    altered(second)
    code, found = verified(capsys, second, "--key", old, "--key", new)
    assert (code, found[0]["key"]) == (4, None)
    other = tmp_path / "other"
    other.mkdir()
    _, stranger = signing_key(other)
    code, found = verified(capsys, first, "--key", old, "--key", stranger)
    assert (code, found[0]["intact"]) == (4, False)
    assert "under any of these keys" in found[0]["reason"]


def test_a_new_key_signs_the_list_though_nothing_else_is_new(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment, signed=True)
    path = built.run("a").path
    _, public = signing_key(built.folder)
    assert verified(capsys, path, "--key", public)[0] == 4
    assert built.run("a").status == "unchanged"
    assert verified(capsys, path, "--key", public)[0] == 0


def test_openssl_takes_the_signature(experiment: Builder) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl here")
    built = an_experiment(experiment, signed=True)
    built.run("a")
    command = [openssl, "pkeyutl", "-verify", "-pubin", "-inkey", str(built.folder / "public.pem")]
    beside = ["-rawin", "-in", "SHA256SUMS", "-sigfile", "SHA256SUMS.sig"]
    checked = subprocess.run(
        [*command, *beside], cwd=built.releases, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_list_and_signature_fit_whenever_a_run_is_killed(
    experiment: Builder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each rename, as after the last of them."""
    built = an_experiment(experiment, signed=True)
    path = built.run("a").path
    public = built.folder / "public.pem"
    replace, renamed = Path.replace, []

    def look(self: Path, target: Path) -> Path:
        if target.name.lstrip(".").startswith("SHA256SUMS"):
            renamed.append(target.name)
            assert verified(capsys, path, "--key", public)[0] == 0
        return replace(self, target)

    with monkeypatch.context() as looking:
        looking.setattr(Path, "replace", look)
        built.run("b")
    assert renamed == [".SHA256SUMS.sig.next", "SHA256SUMS", "SHA256SUMS.sig"]
    assert verified(capsys, path, "--key", public)[0] == 0
    assert not (built.releases / ".SHA256SUMS.sig.next").exists()


def test_a_key_that_is_taken_out_leaves_no_signature_of_another_list(experiment: Builder) -> None:
    built = an_experiment(experiment, signed=True)
    built.run("a")
    text = built.config.read_text()
    built.config.write_text(text.replace('signing_key = "signing.pem"', ""))
    (warning,) = built.run("b").warnings
    assert "is no longer signed" in warning
    assert not (built.releases / "SHA256SUMS.sig").exists()
    built.config.write_text(text)
    assert built.run("b").status == "unchanged"
    assert (built.releases / "SHA256SUMS.sig").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no such file; make one with"),
        (b"", "no Ed25519 private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no Ed25519 private"),
    ],
)
def test_a_key_that_cannot_sign_ends_the_run_before_anything_is_read(
    experiment: Builder, content: bytes | None, says: str
) -> None:
    built = an_experiment(experiment, signed=True)
    key = built.folder / "signing.pem"
    key.unlink() if content is None else key.write_bytes(content)
    write_content(built.folder / "log.parquet", b"unread")
    with pytest.raises(ConfigError, match=rf"publish\.signing_key: .*{says}"):
        built.run("a")
    assert not built.releases.exists()


def test_a_key_that_others_can_read_is_told(experiment: Builder) -> None:
    built = an_experiment(experiment, signed=True)
    (built.folder / "signing.pem").chmod(0o644)
    (warning,) = built.run("a").warnings
    assert "whoever has it can sign in your name. chmod 600 it" in warning


def test_what_is_no_public_key(experiment: Builder) -> None:
    built = an_experiment(experiment, signed=True)
    path = built.run("a").path
    for key in (built.folder / "none", built.folder / "signing.pem", built.config):
        with pytest.raises(ConfigError, match="--key"):
            clusterdp.verify([path], key=key)


def test_from_python(experiment: Builder) -> None:
    built = an_experiment(experiment)
    path = built.run("a").path
    assert clusterdp.verify([path]).exit_code == 0
    assert clusterdp.verify(path, ledger=built.config).as_json()["releases"][0]["intact"] is True
    with pytest.raises(InputError):
        clusterdp.verify(["nowhere.duckdb"])


def test_the_series_beside_releases_is_none_and_left_out(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = an_experiment(experiment)
    built.run("a")
    files = sorted(str(path) for path in built.releases.glob("*.duckdb"))
    assert len(files) == 3
    assert run(["verify", *files]) == 0
    told = capsys.readouterr()
    assert "ALTERED" not in told.out
    assert "series.duckdb is no release" in told.err
    assert run(["verify", str(built.releases / "series.duckdb")]) == 2
