"""Pipes, devices, folders and dangling links are told from files without being opened."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.runtime.reading.regular_files import check_regular, other_than_file
from schemas.errors import InputError


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def _nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "gone")


def _to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _round(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "is a pipe, not a file"),
        (Path.mkdir, "is a folder, not a file"),
        (_socket, "is a socket, not a file"),
        (_to_zero, "is a device, not a file"),
        (_nowhere, "there is a link of this name to nothing"),
        (_round, "cannot be looked at"),
        (lambda _: None, "there is no such file"),
    ],
)
def test_what_is_no_file_is_named(
    tmp_path: Path, make: Callable[[Path], None], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets have to be short
    path = Path("x.csv")
    make(path)
    with pytest.raises(InputError, match=told) as caught:
        check_regular(path)
    assert str(caught.value).startswith("x.csv: ")


def test_a_name_that_no_file_can_have_is_named() -> None:
    assert other_than_file(Path("a\0b")) == "no file can have this name"
    assert "cannot be looked at" in str(other_than_file(Path("a" * 5_000)))


def test_files_and_links_to_files_are_files(tmp_path: Path) -> None:
    file, link = tmp_path / "a", tmp_path / "b"
    file.write_text("x")
    link.symlink_to(file)
    assert other_than_file(file) is None
    assert other_than_file(link) is None
