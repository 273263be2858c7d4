"""Effects by each published attribute, as the report needs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from flows.released.estimates.by_attribute import AttributeEstimate, estimate_values
from flows.released.file.evidence import Released
from schemas.errors import InputError


@dataclass(frozen=True)
class AttributeContents:
    """Effects by the values of an attribute, on all metrics; none where it has too many values."""

    attribute: str
    estimates: Sequence[AttributeEstimate]


def read_by_attribute(
    connection: duckdb.DuckDBPyConnection, path: Path, every: Sequence[Released], level: float
) -> tuple[AttributeContents, ...]:
    """Estimate the effects by each attribute of the release at ``path``, which is open."""
    manifest = every[0].manifest
    found: list[AttributeContents] = []
    for name in manifest.attributes:
        try:
            by = estimate_values(connection, path, name, level, every, manifest.metrics)
        except InputError:  # it has too many values
            found.append(AttributeContents(name, ()))
        else:
            found.append(AttributeContents(name, by.estimates))
    return tuple(found)
