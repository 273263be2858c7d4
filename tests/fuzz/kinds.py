"""All kinds of cases, what they have to change, and how many of each are tried."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from schemas.released import TABLES
from tests.fuzz import configurations, documents, logs, releases, tables, whole
from tests.fuzz.case import Case
from tests.fuzz.values import Draw


@dataclass(frozen=True)
class Kind:
    """Cases of one kind."""

    make: Callable[[int, Draw], Case]
    targets: Callable[[], Iterable[str]]
    """What the cases of `make test-all` have to change, all of it, by the names of hits."""
    in_tests: int
    """How many `make test-all` tries."""
    in_soak: int
    """How many `make soak` tries."""


def _of_releases() -> Iterable[str]:
    """Every table and column; of units also facts of each type, and what was randomised."""
    yield from TABLES
    for table, kinds in TABLES.items():
        yield from (f"{table}.{name}" for name in kinds)
    yield from (f"units.{name}" for name in ("country", "age", "since", "assigned_to"))
    yield "bytes of nights"


KINDS = {
    "configurations": Kind(
        configurations.configurations,
        lambda: (configurations.name_of(*one[:2]) for one in configurations.TARGETS),
        len(configurations.TARGETS),
        20_000,
    ),
    "reading": Kind(logs.logs, lambda: map(logs.name_of, logs.TARGETS), len(logs.TARGETS), 20_000),
    "reports": Kind(
        documents.reports, lambda: map(documents.name_of, documents.places("reports")), 72, 20_000
    ),
    "models": Kind(
        documents.models, lambda: map(documents.name_of, documents.places("models")), 152, 20_000
    ),
    "tables": Kind(
        tables.tables, lambda: map(": ".join, tables.TARGETS), len(tables.TARGETS), 20_000
    ),
    "releases": Kind(releases.releases, _of_releases, 120, 20_000),
    "whole": Kind(whole.whole, lambda: (*whole.MECHANISMS, *whole.FEATURES), 7, 2_000),
}


def case(kind: str, number: int) -> Case:
    """The case of this number: always the same one."""
    return KINDS[kind].make(number, Draw(f"{kind} {number}"))
