"""The files of a log in an object store: all that match a pattern, by the rules of local files.

A store has keys and no folders; what stands before a slash of a key counts as one. So a pattern's
parts match those of keys, ``*`` none that begins with a dot, and a folder that is a table stands
for the files in it.

A process of its own lists them, which ends itself in time: nothing else ends a library that waits.
"""

import glob
import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TypeVar

from flows.raw.reading.stores import SHALLOW, StoredFile, entries, split
from flows.schedule.paths_of_periods import filled
from schemas.errors import InputError, shown

F = TypeVar("F")

TEXT_FORMATS = frozenset({".csv", ".jsonl", ".ndjson", ".json"})
FORMATS = TEXT_FORMATS | {".parquet"}

_UNFINISHED = {
    "_delta_log": "a Delta table, whose files hold rows that were deleted, too; write its rows out",
    "_temporary": "still being written, or was left so; write it again",
}
"""What a folder of a table is, by the name of something in it, where it cannot be read."""

_SECONDS = 60.0  # that a listing may take


def find_stored(
    key: str, pattern: str, periods: Sequence[str], *, may_be_absent: bool
) -> list[tuple[StoredFile, ...]]:
    """List the files that match, by period, in the order of their addresses; none where none does.

    ``pattern`` is the value of ``key`` in a configuration. Raises InputError where the store cannot
    be asked or does not come to an end, or where a match is a folder and no table. That a period
    ``may_be_absent`` counts only of a store that lists something else than the period's files:
    whatever lies below the part of the pattern before the period.
    """
    child = subprocess.run(
        [sys.executable, "-P", "-m", "flows.raw.reading.stored_logs"],
        input=json.dumps([_SECONDS, pattern, periods, may_be_absent]),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # libraries quote what was sent
        text=True,
        check=False,
    )
    if child.returncode == 0:
        found, failure = json.loads(child.stdout)
    elif child.returncode == -signal.SIGALRM:
        failure = (
            f"{pattern}: the store did not list it within {_SECONDS:g} s; check the network and "
            "the endpoint, and put the period in a folder of its own"
        )
    else:
        failure = f"{pattern}: cannot be listed"
    if failure:
        raise InputError(f"{key}: {failure}", key=key)
    return [tuple(StoredFile(*file) for file in files) for files in found]


def main() -> None:
    """List what standard input asks for, or say why not, on standard output."""
    seconds, pattern, periods, may_be_absent = json.load(sys.stdin)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    found, failure = [], ""
    try:
        found = [_find(pattern, period, from_period=may_be_absent) for period in periods]
    except InputError as error:
        failure = str(error)
    json.dump([[list(map(astuple, files)) for files in found], failure], sys.stdout)


def _find(pattern: str, period: str, *, from_period: bool) -> list[StoredFile]:
    """The files of a period; ``from_period``: what is absent is so among others that are listed."""
    address = split(filled(pattern, period))
    if address is None or glob.has_magic(address[1]):
        raise InputError(f"{shown(pattern)} names no bucket and file in it; write s3://bucket/name")
    scheme, bucket, name = address
    parts = name.split("/")
    unfilled = pattern.split("/")[3:-1]  # its folders, behind scheme and bucket
    varies = [glob.has_magic(part) or (from_period and "{period" in part) for part in unfilled]
    fixed = [*varies, True].index(True)
    folder = "/".join(parts[:fixed])
    if "**" in parts or scheme not in SHALLOW:
        found = dict(entries(scheme, bucket, folder, deep=True))
    else:
        found = _walk(scheme, bucket, folder, parts[fixed:])
    if from_period and not found:
        raise InputError(
            f"{scheme}://{bucket}/{folder}: nothing is listed here, as where something else "
            "answers than the store, so a day without a file cannot be told; check the endpoint "
            "and the network, and put an empty file here that stays"
        )
    for key in list(found):  # a folder is one by being listed, or by files in it
        for holding in above(key):
            found.setdefault(holding, None)
    return sorted(set(_expanded(scheme, bucket, parts, found)))


def _walk(
    scheme: str, bucket: str, folder: str, pattern: Sequence[str], *, known: bool = False
) -> dict[str, StoredFile | None]:
    """What is in a folder, and in those folders of it in which there may be matches."""
    first, *rest = pattern
    found = dict(entries(scheme, bucket, folder, deep=False, known=known))
    for key, file in list(found.items()):
        if file is None and rest and _is_like(key.rpartition("/")[2], first):
            found |= _walk(scheme, bucket, key, rest, known=True)
    return found


def _expanded(
    scheme: str, bucket: str, parts: list[str], by_key: dict[str, StoredFile | None]
) -> Iterator[StoredFile]:
    """The files among the matches, and the files in the folders of tables."""
    place = f"{scheme}://{bucket}/"
    folders = {key: file is None for key, file in by_key.items() if _matches(key.split("/"), parts)}
    for key, is_table in files_and_tables(folders, place):
        if is_table:
            content = (
                (below.removeprefix(f"{key}/").split("/"), file)
                for below, file in entries(scheme, bucket, key, deep=True).items()
            )
            yield from files_of_table(f"{place}{key}", content)
        elif (file := by_key[key]) is not None:
            yield file


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a key match those of a pattern, as the parts of a path do."""
    if not pattern:
        return not parts
    first, *rest = pattern
    if first != "**":
        return bool(parts) and _is_like(parts[0], first) and _matches(parts[1:], rest)
    hidden = (place for place, part in enumerate(parts) if part.startswith("."))
    end = next(hidden, len(parts))
    if not rest:
        return end == len(parts) > 0
    return any(_matches(parts[place:], rest) for place in range(end + 1))


def _is_like(part: str, pattern: str) -> bool:
    if not glob.has_magic(pattern):
        return part == pattern
    return fnmatchcase(part, pattern) and (pattern.startswith(".") or not part.startswith("."))


# rules that hold on this machine, too, where addresses are paths: slashes part their names


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


if __name__ == "__main__":
    main()
