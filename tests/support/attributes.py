"""Releases with attributes, made from releases without."""

import shutil
from pathlib import Path

import duckdb
import polars as pl


def with_attributes(path: Path, target: Path, attributes: pl.DataFrame) -> Path:
    """Copy a release, and add columns to its units; ``attributes`` has their ``unit_id``, too."""
    shutil.copyfile(path, target)
    with duckdb.connect(str(target)) as connection:
        connection.register("given", attributes.to_arrow())
        relation = connection.table("given")
        for name, kind in list(zip(relation.columns, relation.types, strict=True))[1:]:
            connection.execute(f'ALTER TABLE units ADD COLUMN "{name}" {kind}')
            value = f'SET "{name}" = given."{name}"'
            connection.execute(
                f"UPDATE units {value} FROM given WHERE given.unit_id = units.unit_id"
            )
    return target
