"""What experiments, sites, periods, releases and effect models may be called.

Files are named by these, so names have neither dots nor slashes; a period does not begin with - or
_ either. And what outcomes may be called, which are columns of a release.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

NAME: Final = "[A-Za-z0-9_-]+"
"""Of an experiment or a site, as a regular expression for the whole name."""

PERIOD: Final = "[A-Za-z0-9][A-Za-z0-9_-]*"
"""Of a period, likewise."""

COLUMN: Final = "[A-Za-z][A-Za-z0-9_]{0,62}"
"""Of an attribute, likewise: it is a column of ``units``, and is asked for in SQL."""

EFFECTS: Final = "+cate"
"""What follows the name of an experiment in those of its effect models."""

AGREED: Final = frozenset(
    {"experiment", "arms", "outcome", "propensity", "features", "subgroups"}
    | {"pairs", "degree", "usual"}
)
"""What sites have alike that add up the sums of an effect model: keys of one public document."""

METRIC: Final = "[A-Za-z][A-Za-z0-9_]*"
"""Of an outcome that is a column of releases, likewise: SQL needs no quotes around it."""

LONGEST_METRIC: Final = 60
"""Characters of such a name."""

OUR_COLUMNS: Final = (
    "unit_id", "cluster", "arm", "assigned_to", "weight",
    "segment", "period", "release_id", "rowid",
)  # fmt: skip
"""Columns of ``units``, of the tables that it is joined with, and of those that unite releases,
that are not outcomes; ``weight`` is kept free. SQL does not tell capitals from small letters."""

TAKEN: Final = frozenset(OUR_COLUMNS)
"""Names that no outcome and no attribute may have, in small letters."""

RANDOMISED: Final = "_randomised"
"""What follows an outcome's name in the column of what was drawn for it."""

DEBIASED: Final = "_debiased"
"""What follows it in the column of its debiased values."""

_RELEASE_ID: Final = re.compile(
    rf"({NAME}(?:@{NAME})?(?:{re.escape(EFFECTS)})?)\.({PERIOD})\.r([1-9][0-9]*)"
)


def metric_problem(name: str) -> str | None:
    """What keeps a name from being that of an outcome's column; None where nothing does."""
    if not re.fullmatch(METRIC, name):
        return "is no name of a column: begin with a letter, and use letters, digits and _ alone"
    if len(name) > LONGEST_METRIC:
        return f"has {len(name):,} characters; at most {LONGEST_METRIC} can be"
    if name.lower() in OUR_COLUMNS:
        return "is the name of another column of every release; take another name"
    if is_derived(name):
        return f"ends as the columns of outcomes do ({RANDOMISED}, {DEBIASED}); take another name"
    return None


def is_derived(name: str) -> bool:
    """Whether a name ends as the columns of outcomes do, so that nothing else may have it."""
    return name.lower().endswith((RANDOMISED, DEBIASED))


@dataclass(frozen=True, order=True)
class ReleaseName:
    """Which release, effect model, or report of a site: they sort by period, then revision."""

    experiment: str
    """``EXPERIMENT``, of effect models ``EXPERIMENT+cate``, of sites ``EXPERIMENT@SITE``, and of
    what a site reports for an effect model of many ``EXPERIMENT@SITE+cate``."""
    period: str
    revision: int

    @property
    def release_id(self) -> str:
        """``EXPERIMENT.PERIOD.rN``."""
        return f"{self.experiment}.{self.period}.r{self.revision}"

    @property
    def kind(self) -> Literal["release", "site", "cate"]:
        """What is called so."""
        if self.experiment.endswith(EFFECTS):
            return "cate"
        return "site" if "@" in self.experiment else "release"

    @classmethod
    def parse(cls, release_id: str) -> "ReleaseName | None":
        """Read a :attr:`release_id`; None for any other text."""
        parts = _RELEASE_ID.fullmatch(release_id)
        return cls(parts[1], parts[2], int(parts[3])) if parts else None
