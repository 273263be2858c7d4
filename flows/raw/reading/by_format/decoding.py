"""Text of Arrow's whose bytes may not be UTF-8."""

from typing import Any

import polars as pl
import pyarrow as pa


def is_arrow_text(kind: pa.DataType) -> bool:
    """Whether a type is text, or codes of a dictionary of texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_view = pa.types.is_string_view(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_view)


def decode(name: str, column: Any) -> pl.Series:
    """The text of an Arrow array, bytes that are not UTF-8 replaced by U+FFFD."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.view(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    texts = (
        None if value is None else value.decode(errors="replace") for value in column.to_pylist()
    )
    return pl.Series(name, list(texts), dtype=pl.String)
