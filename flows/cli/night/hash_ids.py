"""``clusterdp hash-ids``."""

from pathlib import Path

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile, Table


def hash_ids(config: ConfigFile, file: Table, output: Path, column: str = "unit_id") -> Answer:
    """Replace ids in a file by the hashed ids of a release.

    So the file can be joined with a release whose ids are hashed (publish.unit_id = "keyed-hash" in
    CONFIG). Reads CONFIG, its key and FILE: run it where the key may be read. Writes a new file:
    the same rows and columns, with the ids hashed.

    Options:
        file (FILE): A CSV or Parquet file with ids.
        output (--output -o FILE): The file to write, CSV or Parquet by its name.
        column (NAME): The column of the ids.
    """
    from flows.hash_ids import hash_ids as replace_ids

    result = replace_ids(config, file, output, column)
    missing = f"; {result.n_missing:,} had no id" if result.n_missing else ""
    text = f"{result.path}: {result.n_rows:,} rows, ids hashed{missing}"
    return Answer(lambda: text, result.as_json(), result.warnings)
