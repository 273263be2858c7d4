"""Effects of all that an experiment has published, from its folder alone, on a schedule of theirs.

Whoever runs this reads releases and nothing else: it is for analysts as for operators.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from flows.operate.series.estimates import (
    ByAttribute,
    ForAttributes,
    SeriesEstimates,
    Split,
    covariates_table,
    estimate_series,
    segments_table,
)
from flows.released.estimates.frames import check_asked
from flows.runtime.files import replace_file
from schemas.errors import InputError


@dataclass(frozen=True)
class Asked:
    """What effects are estimated by, or adjusted for: at most one of these."""

    by: str | None = None
    adjust: tuple[str, ...] = ()
    segments: str | None = None
    covariates: str | None = None

    @property
    def split(self) -> Split | None:
        """The one that is asked for, tables read; None where none is."""
        if self.by:
            return ByAttribute(self.by)
        if self.adjust:
            return ForAttributes(self.adjust)
        if self.segments:
            return segments_table(Path(self.segments))
        return covariates_table(Path(self.covariates)) if self.covariates else None


def estimate_folder(
    path: Path, asked: Asked, level: float, output: Path | None = None
) -> SeriesEstimates:
    """Estimate from the release, or the folder of releases, at ``path``.

    ``output`` gets the document of ``clusterdp estimate --json`` for several releases, whole or not
    at all; it replaces one that is there.
    """
    check_asked(level, **{name: value or None for name, value in vars(asked).items()})
    effects = estimate_series([path], level, table=asked.split)
    if output is not None:
        document = json.dumps(effects.as_json(), indent=2, ensure_ascii=False) + "\n"
        try:
            with replace_file(output, mode=0o644) as file:
                os.fchmod(file.fileno(), 0o644)  # whatever the mask, as of releases
                file.write(document.encode())
        except OSError as error:
            problem = f"{output.absolute()}: cannot be written ({error.strerror})"
            raise InputError(problem) from None
    return effects
