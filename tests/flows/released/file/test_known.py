import shutil
from pathlib import Path

import duckdb
import pytest

from flows.released.file import read
from flows.released.file.read import open_release
from flows.runtime.reading.known_files import Known, identity
from schemas.errors import InputError
from tests.conftest import Builder, a_log


def test_a_file_is_judged_once_until_anything_of_it_changes(
    experiment: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, judged = tmp_path / "release.duckdb", read.check_sound, list[Path]()

    def judge(connection: duckdb.DuckDBPyConnection, file: Path, but: frozenset[str]) -> None:
        judged.append(file)
        real(connection, file, but)

    def times(*, at_any_loss: bool = False) -> int:
        with open_release(path, at_any_loss=at_any_loss) as connection:
            connection.execute("FROM main.units").fetchone()
        return len(judged)

    monkeypatch.setattr(read, "check_sound", judge)
    sound = Path(shutil.copy(experiment(a_log()).run().path, tmp_path / "sound"))
    shutil.copy(sound, path)
    assert [times(at_any_loss=True), times(at_any_loss=True)] == [1, 1]
    assert [times(), times(), times(at_any_loss=True)] == [2, 2, 2]
    path.chmod(0o600)
    assert times() == 3
    shutil.copy(sound, path)  # the same bytes in the same file
    assert times() == 4
    Path(shutil.copy(sound, tmp_path / "other")).replace(path)
    assert times() == 5
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE release SET epsilon = -1")
    with pytest.raises(InputError, match="epsilon"):
        times()
    with pytest.raises(InputError, match="epsilon"):  # what is not sound is not kept
        times()
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE MACRO spy() AS 1")
    with pytest.raises(InputError, match="it holds the macro 'spy'"):
        times()


def test_nothing_is_kept_of_a_file_that_changed_while_it_was_read(tmp_path: Path) -> None:
    known, path = Known[str](), tmp_path / "file"
    path.write_text("before", encoding="utf-8")
    file = identity(path)
    path.write_text("after", encoding="utf-8")
    known.keep(path, file, "sound")
    assert known.of(path, file) is None
    assert known.of(path, identity(path)) is None
    known.keep(path, identity(path), "sound")
    assert known.of(path, identity(path)) == "sound"
    assert known.of(path, file) is None
