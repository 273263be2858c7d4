"""``clusterdp export``."""

from pathlib import Path

from flows.cli.answer import Answer
from flows.cli.options import ReleaseFile


def export(
    release: ReleaseFile, output: Path, table: str = "units", keep_formulas: bool = False
) -> Answer:
    """Write a table of a release to a CSV or Parquet file.

    For programs that do not read DuckDB files. Reads RELEASE alone. Writes a new file, whole or not
    at all, with the rows of the table as they are.

    Options:
        output (--output -o FILE): The file to write, CSV or Parquet by its name.
        table (units | estimates | counts | debias): The table to write.
        keep_formulas: Write a CSV file even if text in it begins as a formula of a spreadsheet
            does.
    """
    from flows.released.export import export as write_table

    result = write_table(release, output, table, keep_formulas=keep_formulas)
    text = f"{result.path}: {result.n_rows:,} rows of {result.table}"
    return Answer(lambda: text, result.as_json()).about(release)
