"""All kinds of cases, and how many of each are tried."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis.strategies import SearchStrategy

from tests.fuzz.case import Case
from tests.fuzz.configurations import configurations
from tests.fuzz.logs import logs
from tests.fuzz.releases import releases
from tests.fuzz.reports import reports
from tests.fuzz.tables import covariates, segments
from tests.fuzz.whole import whole


@dataclass(frozen=True)
class Kind:
    """Cases of one kind."""

    cases: Callable[[], SearchStrategy[Case]]
    in_tests: int
    """How many `make test` tries."""
    in_soak: int
    """How many `make soak` tries."""


KINDS = {
    "configurations": Kind(configurations, 300, 20_000),
    "reading": Kind(logs, 250, 20_000),
    "reports": Kind(reports, 200, 20_000),
    "releases": Kind(releases, 200, 3_000),
    "segments": Kind(segments, 120, 3_000),
    "covariates": Kind(covariates, 120, 3_000),
    "whole": Kind(whole, 10, 500),
}
