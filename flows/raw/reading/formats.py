"""The formats of a log's files, which their names tell."""

from pathlib import PurePosixPath

TEXT_FORMATS = frozenset({".csv", ".jsonl", ".ndjson", ".json"})
FORMATS = TEXT_FORMATS | {".parquet"}

UNFINISHED = {
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
