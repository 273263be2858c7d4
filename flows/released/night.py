"""What one release has to share with the others of its experiment, as its file says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from flows.released.file.read import read_manifest
from flows.runtime.engine import ask
from schemas.names import ReleaseName
from schemas.released import Manifest

_ARMS = "SELECT DISTINCT arm FROM main.pools WHERE arm IS NOT NULL ORDER BY 1"
_RANGES = "SELECT metric, min(outcome), max(outcome) FROM main.outcomes GROUP BY 1 ORDER BY 1"


@dataclass(frozen=True)
class Night:
    """One period's release, and what it has to share with the others."""

    path: Path
    """Absolute."""
    manifest: Manifest
    arms: tuple[str, ...]
    """Control first, then the treatments by name."""
    ranges: dict[str, tuple[float, float]]
    """The least and the greatest outcome of each metric."""

    @property
    def name(self) -> ReleaseName:
        """Experiment, period, revision."""
        manifest = self.manifest
        return ReleaseName(manifest.experiment, manifest.period, manifest.revision)

    @property
    def measured(self) -> dict[str, tuple[str, str | None]]:
        """What each metric is, and the unit it is measured in."""
        return {one.metric: (one.kind, one.measured_in) for one in self.manifest.metrics}


@dataclass(frozen=True)
class MadeNight:
    """A night that this run has just released, as its file has it: nobody need read that again."""

    night: Night
    estimates: tuple[dict[str, Any], ...]
    """The rows of the file's table ``estimates``."""
    outputs: Sequence[dict[str, Any]] = ()
    """How many units have each output: :func:`flows.released.estimates.taught.read_outputs`."""


def night_of(path: Path, connection: duckdb.DuckDBPyConnection) -> Night:
    """What the release at ``path``, which is open, is about."""
    manifest = read_manifest(connection)
    found = [str(arm) for (arm,) in ask(connection, _ARMS).fetchall()]
    ranges = {
        str(metric): (float(low), float(high))
        for metric, low, high in ask(connection, _RANGES).fetchall()
    }
    others = (arm for arm in found if arm != manifest.control)
    return Night(path.absolute(), manifest, (manifest.control, *others), ranges)
