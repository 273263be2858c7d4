"""Tables that an analyst would give, as files."""

from pathlib import Path

import polars as pl


def written(rows: pl.DataFrame, path: Path) -> Path:
    """Write a table as CSV or Parquet, as its name says; returns the file."""
    if path.suffix == ".csv":
        rows.write_csv(path)
    else:
        rows.write_parquet(path)
    return path
