"""Effects adjusted for published attributes, from a released file alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.released.estimates.covariates import CovariateEstimates, estimate_covariates
from flows.released.file.macros import LEVEL
from flows.released.tables.attribute_table import attribute_table, rare_notes


@dataclass(frozen=True, kw_only=True)
class AdjustedEstimates(CovariateEstimates):
    """Effects without and with adjustment for attributes."""

    attributes: tuple[str, ...]
    rare: dict[str, int]
    """Texts of an attribute that count as one, where there are any."""

    @property
    def misfits(self) -> tuple[str, ...]:
        """Sentences about attributes that are left out, pooled or doubtful."""
        return (*rare_notes(self.rare), *super().misfits)

    def as_json(self) -> dict[str, Any]:
        """What is said of the attributes by ``clusterdp estimate --adjust --json``."""
        return {
            "attributes": list(self.attributes),
            "dropped_attributes": list(self.dropped_columns),
            "n_rare_values": self.rare,
        }


def estimate_adjusted(
    path: Path,
    attributes: tuple[str, ...],
    level: float = LEVEL,
    metrics: Sequence[str] = (),
) -> AdjustedEstimates:
    """Estimate effects from the release at ``path``, adjusted for attributes that it publishes.

    As :func:`flows.released.estimates.covariates.estimate_covariates` with a table of the
    attributes (:func:`flows.released.tables.attribute_table.attribute_table`).

    Raises:
        ConfigError: The release has no such attribute.
        InputError: It publishes no units, or an attribute cannot be used.
    """
    table, rare = attribute_table(path, attributes, "adjust")
    found = estimate_covariates(path, path.absolute(), level, table, metrics)
    return AdjustedEstimates(**vars(found), attributes=tuple(table.columns[1:]), rare=rare)
