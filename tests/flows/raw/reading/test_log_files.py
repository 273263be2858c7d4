"""The files of a log: what a pattern matches is read, or the run ends and names it."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from flows.cli.main import run
from flows.runtime.reading.table_files import read_table
from schemas.errors import InputError
from tests.conftest import Builder, Experiment, a_log, write_content


def in_folder(experiment: Builder, pattern: str = "logs/*") -> Experiment:
    """A log of one sound file; the folder may hold more."""
    return experiment({"logs/a.parquet": a_log(4)}, source={"path": pattern})


def refusal(built: Experiment) -> str:
    with pytest.raises(InputError) as caught:
        built.read()
    assert caught.value.exit_code == 2
    return str(caught.value)


def as_spark_writes(folder: Path, log: pl.DataFrame, ending: str = ".parquet") -> None:
    """Two part files, and what else lies beside them."""
    write_content(folder / f"part-00000-6f{ending}", log[:2])
    write_content(folder / f"part-00001-6f{ending}", log[2:])
    for name in ("_SUCCESS", "_committed_17", "_started_17", f".part-00000-6f{ending}.crc"):
        (folder / name).write_bytes(b"" if name == "_SUCCESS" else b"x")


@pytest.mark.parametrize(
    "pattern", ["logs/*", "logs/x.*", "logs/**", "logs/**/*", "logs/**/*.*", "logs/x.*/*-6f*"]
)
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".json"])
def test_a_folder_as_spark_writes_it_is_read_once(
    experiment: Builder, pattern: str, ending: str
) -> None:
    built = experiment({}, source={"path": pattern})
    as_spark_writes(built.folder / "logs" / f"x{ending}", a_log(6), ending)
    frame = built.read()
    assert frame["unit"].to_list() == a_log(6)["customer"].to_list()
    assert frame["source_file"].to_list() == [0, 0, 1, 1, 1, 1]
    assert frame["source_row"].to_list() == [1, 2, 1, 2, 3, 4]


def test_partitions_of_a_folder_are_read_and_add_no_columns(experiment: Builder) -> None:
    built = experiment({"logs/z.parquet": a_log(2)}, source={"path": "logs/*"})
    for day, share in (("1", a_log(4)), ("2", a_log(6))):
        as_spark_writes(built.folder / "logs" / "x.parquet" / f"day={day}" / "hour=0", share)
    assert built.read().height == 12
    as_spark_writes(built.folder / "logs" / "y.parquet" / "region=east", a_log(4).drop("region"))
    assert "there is no column 'region'" in refusal(built)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.mkdir(), "holds no file of a table"),
        (lambda path: (path / "_SUCCESS").mkdir(parents=True), "holds no file of a table"),
        (lambda path: as_spark_writes(path / "nested", a_log(4)), "is no partition"),
        (lambda path: as_spark_writes(path / "_delta_log", a_log(4)), "a Delta table"),
        (lambda path: as_spark_writes(path / "_temporary", a_log(4)), "still being written"),
        (lambda path: write_content(path / "readme.txt", "x"), "not a format"),
    ],
)
def test_a_folder_that_is_no_plain_table_is_refused(
    experiment: Builder, make: Callable[[Path], None], says: str
) -> None:
    built = in_folder(experiment)
    make(built.folder / "logs" / "x.parquet")
    error = refusal(built)
    assert says in error
    assert "x.parquet" in error


@pytest.mark.parametrize("empty", [True, False])
def test_a_plain_folder_that_matches_is_refused(experiment: Builder, empty: bool) -> None:
    built = in_folder(experiment)
    (built.folder / "logs" / "old").mkdir()
    if not empty:
        write_content(built.folder / "logs" / "old" / "b.parquet", a_log(2))
    assert "logs/old is a folder" in refusal(built)


def test_a_folder_whose_files_match_is_passed_through(experiment: Builder) -> None:
    built = in_folder(experiment, "logs/**")
    write_content(built.folder / "logs" / "old" / "b.parquet", a_log(2))
    assert built.read().height == 6


def test_a_file_that_matches_twice_by_a_link_is_read_once(experiment: Builder) -> None:
    built = in_folder(experiment)
    (built.folder / "logs" / "latest.parquet").symlink_to("a.parquet")
    (built.folder / "logs" / "b.parquet").hardlink_to(built.folder / "logs" / "a.parquet")
    assert built.read().height == 4


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        folder = os.open(path.parent, os.O_RDONLY)  # a socket's path may not be long
        try:
            one.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "a pipe": (a_pipe, "a pipe, not a file"),
    "a socket": (a_socket, "a socket, not a file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "a device, not a file"),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "a link of this name to nothing"),
    "a ring of links": (lambda path: path.symlink_to(path.name), "cannot be looked at"),
}


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".csv.gz"])
@pytest.mark.parametrize(("make", "says"), ODD.values(), ids=ODD.keys())
def test_what_is_no_regular_file_is_refused_unopened(
    experiment: Builder, make: Callable[[Path], None], says: str, ending: str
) -> None:
    built = in_folder(experiment)
    make(built.folder / "logs" / f"x{ending}")
    error = refusal(built)
    assert f"logs/x{ending}: " in error
    assert says in error


@pytest.mark.parametrize(("make", "says"), ODD.values(), ids=ODD.keys())
def test_so_it_is_in_a_table(experiment: Builder, make: Callable[[Path], None], says: str) -> None:
    built = in_folder(experiment)
    as_spark_writes(built.folder / "logs" / "x.parquet", a_log(4))
    make(built.folder / "logs" / "x.parquet" / "part-9.parquet")
    assert says in refusal(built)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize(("make", "says"), ODD.values(), ids=ODD.keys())
def test_so_it_is_of_segments(
    tmp_path: Path, make: Callable[[Path], None], says: str, ending: str
) -> None:
    path = tmp_path / f"segments{ending}"
    make(path)
    with pytest.raises(InputError, match=says):
        read_table(path)


def test_a_folder_that_cannot_be_looked_into_is_refused(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = in_folder(experiment, "logs/*/*.parquet")
    for name in ("one", "two"):
        write_content(built.folder / "logs" / name / "b.parquet", a_log(2))
    assert len(built.read()) == 4
    shut = built.folder / "logs" / "two"
    # Root may look into any folder, so the question is answered here.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != shut)
    assert refusal(built) == f"{shut}: cannot look into this folder; allow reading it"


def test_the_program_says_so_in_a_sentence(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built = in_folder(experiment)
    (built.folder / "logs" / "x.parquet").symlink_to("nowhere")
    assert run(["check", str(built.config)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("there is a link of this name to nothing\n")
