"""The formats of a log's files, which their names tell, and folders that stand for files.

The rules hold on this machine and in an object store alike; files and folders go by their addresses
here, in which slashes part names.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from schemas.errors import InputError

F = TypeVar("F")

TEXT_FORMATS = frozenset({".csv", ".jsonl", ".ndjson", ".json"})
FORMATS = TEXT_FORMATS | {".parquet"}

_UNFINISHED = {
    "_delta_log": "a Delta table, whose files hold rows that were deleted, too; write its rows out",
    "_temporary": "still being written, or was left so; write it again",
}
"""What a folder of a table is, by the name of something in it, where it cannot be read."""


def format_of(name: str) -> str:
    """The ending that names the format, in small letters; of compressed text without ``.gz``."""
    name = name.lower()
    if name.endswith(".gz"):
        inner = PurePosixPath(name[: -len(".gz")]).suffix
        return inner if inner in TEXT_FORMATS else ".gz"
    return PurePosixPath(name).suffix


def above(address: str) -> Iterator[str]:
    """The folders that something lies in, the innermost first."""
    while address := address.rpartition("/")[0]:
        yield address


def files_and_tables(matches: Mapping[str, bool], place: str) -> Iterator[tuple[str, bool]]:
    """The files among the matches, and the folders that are tables; whether each is one.

    ``matches`` says of each address whether a folder is there. Raises InputError, behind the
    ``place``, for a folder that is no table and in which nothing matches.
    """
    tables = {one for one, is_folder in matches.items() if is_folder and format_of(one) in FORMATS}
    holding = {folder for address in matches for folder in above(address)}
    for address, is_folder in matches.items():
        if tables.intersection(above(address)):
            continue  # of a table, with which it is listed
        if not is_folder or address in tables:
            yield address, is_folder
        elif address not in holding:  # else other matches lie in it
            raise InputError(
                f"{place}{address} is a folder, and no file matches in it; name its files (as in "
                f"{address.rpartition('/')[2]}/*), or give a table's folder the ending of its "
                "format"
            )


def files_of_table(table: str, content: Iterable[tuple[Sequence[str], F | None]]) -> Iterator[F]:
    """The part files of a table; as in Spark, names that begin with ``_`` or ``.`` are left out.

    ``content`` is what is in its folder, by the parts of its address from there on; None for a
    folder. Raises InputError where one is no partition, or where the table is not whole.
    """
    is_empty = True
    for parts, file in content:
        for part in parts:
            if part in _UNFINISHED:
                raise InputError(f"{table}: this folder is {_UNFINISHED[part]}")
        if any(part.startswith(("_", ".")) for part in parts):
            continue
        folders = parts if file is None else parts[:-1]
        other = next((part for part in folders if "=" not in part), None)
        if other is not None:
            place = "/".join(parts[: parts.index(other) + 1])
            raise InputError(
                f"{table}/{place}: a folder in a table's folder that is no partition (KEY=VALUE); "
                "take it out, or name the files themselves"
            )
        if file is not None:
            is_empty = False
            yield file
    if is_empty:
        raise InputError(f"{table}: this folder holds no file of a table; is it whole?")
