"""Tables of analysts that are damaged where no row of theirs stands."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.runtime.reading.table_files import read_table
from schemas.errors import InputError

NOTED = ({b"k": b"\xff"}, {b"\xff": b"v"}, {b"k": b"v"})
"""What may be noted beside rows: the last alone is text."""


def tables(noted: dict[bytes, bytes]) -> list[pa.Table]:
    """One that has it beside the whole, beside a column, and beside a part of one."""
    part = pa.field("part", pa.int64(), metadata=noted)
    column = pa.field("age", pa.int64(), metadata=noted)
    return [
        pa.table({"age": [1]}, schema=pa.schema([("age", pa.int64())], metadata=noted)),
        pa.table({"age": [1]}, schema=pa.schema([column])),
        pa.table({"age": [[1]]}, schema=pa.schema([("age", pa.list_(part))])),
        pa.table({"age": [{"part": 1}]}, schema=pa.schema([("age", pa.struct([part]))])),
    ]


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("noted", NOTED, ids=str)
def test_what_is_noted_beside_rows_is_text_or_refused(
    tmp_path: Path, noted: dict[bytes, bytes], place: int
) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(tables(noted)[place], path)
    if noted == NOTED[-1]:
        assert read_table(path).columns == ["age"]
        return
    with pytest.raises(InputError, match=r"table\.parquet: cannot be read as Parquet"):
        read_table(path)
