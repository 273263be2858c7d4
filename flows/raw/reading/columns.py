"""From columns as they stand in a file to those that the steps know; no private value can fail.

A column's type is public; messages name it by its kind alone, as the names of a struct's fields or
of an enumeration's categories may be values.
"""

from pathlib import Path

import polars as pl

from schemas.errors import InputError
from schemas.released import ALL

TEXT_LIKE = (pl.String, pl.Categorical, pl.Enum)

_REPLACEMENT = "\ufffd"  # what an undecodable byte becomes; an identifier with it is unreadable


def kind_name(kind: pl.DataType) -> str:
    """A type as messages call it: without fields, categories or types within."""
    return str(kind.base_type())


def identifier(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
    """Text or integer as it is; empty or undecodable text is null."""
    kind = frame.schema[name]
    if kind.is_integer():
        return pl.col(name).cast(pl.UInt64 if kind == pl.UInt64 else pl.Int64, strict=False)
    if kind == pl.Null:
        return pl.col(name).cast(pl.String)
    if isinstance(kind, TEXT_LIKE):
        text = pl.col(name).cast(pl.String)
        readable = (text != "") & ~text.str.contains(_REPLACEMENT, literal=True)
        return pl.when(readable).then(text)
    raise InputError(
        f"{path}: column {name!r} ({key}) is {kind_name(kind)}; it has to be text or integer"
    )


def label(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
    """An arm or cluster as text; empty or undecodable text is null."""
    if frame.schema[name] == pl.Boolean:
        return pl.col(name).cast(pl.String)
    return identifier(frame, path, name, key).cast(pl.String)


def few_labels(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
    """The same as a Categorical: what is unreadable is found among the distinct labels."""
    cleaned = label(frame, path, name, key).cast(pl.Categorical)
    if frame.schema[name] != pl.String:
        return cleaned
    labels = frame[name].cast(pl.Categorical)
    readable = all(_is_readable(one) for one in labels.unique().to_list())
    return pl.lit(labels) if readable else cleaned


def arm_labels(frame: pl.DataFrame, path: Path, name: str, arms: tuple[str, ...]) -> pl.Expr:
    """Arms as an Enum of those declared, where all are; else as text."""
    if frame.schema[name] == pl.String:
        declared = frame[name].cast(pl.Enum(arms), strict=False)
        if declared.null_count() == 0:
            return pl.lit(declared)
    return label(frame, path, name, "arm")


def _is_readable(text: str | None) -> bool:
    return bool(text) and _REPLACEMENT not in (text or "")


def cluster(frame: pl.DataFrame, path: Path, names: tuple[str, ...]) -> pl.Expr:
    """The cluster, a Categorical: several columns joined by `` / ``, a slash in a value doubled.

    The doubling keeps different combinations different.
    """
    if not names:
        return pl.lit(ALL).cast(pl.Categorical)
    if len(names) == 1:
        return few_labels(frame, path, names[0], "cluster")
    labels = [label(frame, path, name, "cluster") for name in names]
    escaped = [one.str.replace_all("/", "//", literal=True) for one in labels]
    return pl.concat_str(escaped, separator=" / ").cast(pl.Categorical)


def private_label(frame: pl.DataFrame, path: Path, name: str) -> pl.Expr:
    """A private cluster as text, null where there is none; no value can fail.

    Whole numbers are the same as integers: a column has them where somebody's label is missing.
    """
    kind = frame.schema[name]
    if kind.is_float() or kind.is_decimal():
        value = pl.col(name).cast(pl.Float64, strict=False)
        whole = (value == value.floor()) & (value.abs() < 2.0**53)
        return pl.when(whole).then(value).cast(pl.Int64, strict=False).cast(pl.String)
    if isinstance(kind, TEXT_LIKE) or kind.is_integer() or kind in (pl.Boolean, pl.Null):
        return pl.col(name).cast(pl.String)
    raise InputError(
        f"{path}: column {name!r} (cluster) is {kind_name(kind)}; it has to be text or number"
    )


def outcome(frame: pl.DataFrame, path: Path, name: str) -> pl.Expr:
    """The outcome as a number, NaN where it is missing or cannot be read; no value can fail."""
    return number(frame, path, name, "outcome")


def number(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
    """The same of any private number; ``key`` says in messages what it is."""
    kind = frame.schema[name]
    column = pl.col(name)
    if isinstance(kind, TEXT_LIKE):
        text = column.cast(pl.String).str.strip_chars()
        truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None)
        found = pl.coalesce(text.cast(pl.Float64, strict=False), truth.cast(pl.Float64))
    elif kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        found = column.cast(pl.Float64, strict=False)
    else:
        raise InputError(
            f"{path}: column {name!r} ({key}) is {kind_name(kind)}; it has to be number or text"
        )
    return found.fill_null(float("nan"))
