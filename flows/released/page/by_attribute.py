"""Effects by each published attribute, as the report needs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.released.by_attribute import AttributeEstimate, estimate_by
from schemas.errors import InputError


@dataclass(frozen=True)
class ByAttribute:
    """Effects by the values of an attribute, on all metrics; none where it has too many values."""

    attribute: str
    estimates: Sequence[AttributeEstimate]


def read_by_attribute(path: Path, names: Sequence[str], level: float) -> tuple[ByAttribute, ...]:
    """Estimate the effects by each attribute of a release."""
    return tuple(ByAttribute(name, _estimates(path, name, level)) for name in names)


def _estimates(path: Path, name: str, level: float) -> Sequence[AttributeEstimate]:
    try:
        return estimate_by(path, name, level).estimates
    except InputError:  # it has too many values
        return ()
