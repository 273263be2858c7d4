"""What follows alike from every kind of configuration: places, who pays, and what judges a log."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from flows.config.model.sections import (
    Columns,
    ConfigSection,
    LedgerSection,
    LogSection,
    NamedOutcome,
    PrivateClusters,
    Quarantine,
    SourceSection,
)
from flows.runtime.paths import Address, absolute, is_address, parse_address
from flows.schedule.periods import Schedule
from privatizers.accounting.budget import Budget
from schemas.errors import shown

OF_OUTCOMES = "who is released would follow from outcomes; keep exposures apart from them"
"""Why exposures and outcome events are never read from one place."""


class _Directory(Protocol):
    """A section that says where published files go."""

    directory: str


class _Payer(Protocol):
    """A section that says who pays, and how much they may."""

    population: str | None
    budget_epsilon: float | None
    budget_delta: float | None


@dataclass(frozen=True)
class Terms:
    """Who pays for an experiment's releases, how much for one, and how much in all."""

    experiment: str
    population: str
    cost: Budget
    limit: Budget
    """The population's budget; infinite where none is declared."""
    by_unit: bool = False
    """Whether a unit pays for the releases it is in; else everybody pays for every release."""
    once: bool = False
    """Whether units that were released in another period are set aside."""
    spares: bool = False
    """Whether units that cannot pay are set aside."""
    rows_each: int | None = None
    """How many rows are released of one who pays for several, such as a household; None where each
    unit pays by itself."""

    @property
    def sets_aside(self) -> bool:
        """Whether who is in a release follows from what was released before."""
        return self.once or self.spares


class Declared(ConfigSection):
    """A configuration of any kind: what one kind alone can declare, the others do not."""

    if TYPE_CHECKING:
        experiment: str
        directory: Path
        source: LogSection
        publish: _Directory
        privacy: _Payer
        ledger: LedgerSection
        quarantine: Quarantine

    @property
    def terms(self) -> Terms:
        """Who pays for what is published, and how much: all the same, whatever they have paid."""
        return Terms(self.series, self.population, self.charged, self.budget)

    def path(self, relative: str) -> Path:
        """A path that the configuration names, made absolute."""
        return absolute(self.directory, relative, shown(relative))

    @property
    def series(self) -> str:
        """The first part of the names of what it publishes, there and in the ledger."""
        return self.experiment

    @property
    def folder_name(self) -> str:
        """What the folder of what it publishes is called, here and in a store."""
        return self.series

    @property
    def releases(self) -> Path:
        """The folder of what it publishes."""
        written = self.publish.directory
        here = type(self.publish)().directory if is_address(written) else written
        return self.path(here) / self.folder_name

    @property
    def store(self) -> Address | None:
        """Where what is in that folder is put up; None where it stays there."""
        written = self.publish.directory
        if not is_address(written):
            return None
        return parse_address(f"{written.rstrip('/')}/{self.folder_name}/beside.json")

    @property
    def quarantine_folder(self) -> Path:
        """The folder of rows in quarantine, and of the key of digests of logs."""
        return self.path(self.quarantine.directory)

    @property
    def quarantined(self) -> Path:
        """The folder of its own rows in quarantine."""
        return self.quarantine_folder / self.series

    @property
    def population(self) -> str:
        """The name of who pays: the same for experiments on the same people."""
        return self.privacy.population or self.experiment

    @property
    def budget(self) -> Budget:
        """The total that the population may pay; infinite where nothing is declared."""
        declared = (self.privacy.budget_epsilon, self.privacy.budget_delta)
        return Budget(*(math.inf if limit is None else limit for limit in declared))

    @property
    def calendar(self) -> Schedule | None:
        """When it is due; None where no schedule is declared."""
        return None

    @property
    def log_source(self) -> "LogPlace":
        """Where its log is."""
        return LogPlace(directory=self.directory, source=self.source, calendar=self.calendar)

    @property
    def signing_key_path(self) -> Path | None:
        """Where the key is that signs lists; None where they are not signed."""
        return self._path_of(getattr(self.publish, "signing_key", None))

    @property
    def id_key_path(self) -> Path | None:
        """Where the key is that ids in releases are digested under; None where none is."""
        return self._path_of(getattr(self.publish, "key_file", None))

    @property
    def ledger_key_path(self) -> Path | None:
        """Where the key of its ledger's accounts is named to be; None where it is not."""
        return self._path_of(self.ledger.key_file)

    def _path_of(self, key: str | None) -> Path | None:
        return None if key is None else self.path(key)

    @property
    def needs_account_key(self) -> bool:
        """Whether digests under the ledger's key are made: of units that pay, or of groups."""
        return self.terms.by_unit

    @property
    @abstractmethod
    def cost(self) -> Budget:
        """The cost of what is published at a time."""

    @property
    def charged(self) -> Budget:
        """What one who pays is charged for it."""
        return self.cost


@dataclass(frozen=True)
class Spill:
    """Where rows are put that do not fit into memory, and who works on them."""

    directory: Path
    memory_limit: str
    workers: int | str | None = None


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """Where a log is."""

    directory: Path
    """That paths are relative to."""
    source: LogSection
    calendar: Schedule | None
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions in which tables are read, by their keys; of others, as they are."""


@dataclass(frozen=True, kw_only=True)
class LogSource(LogPlace):
    """Where the log of a release is, and how its rows are read."""

    source: SourceSection
    columns: Columns
    arms: tuple[str, ...]
    """Control first."""
    outcomes: tuple[NamedOutcome, ...]
    private_clusters: PrivateClusters | None
    events_may_be_absent: bool
    """Whether a day of the calendar may be without a file of events."""

    def roster_columns(self, *, outcomes: bool) -> tuple[tuple[str, ...], frozenset[str]]:
        """The columns that are read of units or exposures, and those of them that are private."""
        columns, private = self.columns, self.private_clusters
        of_clusters = columns.clusters
        if private is not None and private.centres is not None:
            of_clusters = private.features or ()
        others = (columns.privacy_unit, columns.assigned_by, *columns.named_attributes.values())
        wanted = [columns.unit, columns.arm, *of_clusters, *(name for name in others if name)]
        hidden = set() if private is None else {*of_clusters}
        if self.source.grain == "event":
            wanted.append(columns.time or "")
        elif outcomes:
            of_outcomes = [one.column for one in self.outcomes]
            wanted += of_outcomes
            hidden.update(of_outcomes)
        return tuple(dict.fromkeys(wanted)), frozenset(hidden - {columns.unit, columns.arm})

    @property
    def event_columns(self) -> tuple[str, ...]:
        """The columns that are read of outcome events: all are private."""
        columns = self.columns
        # A count needs its column, too: events without a readable value do not count.
        read = (one.column for one in self.outcomes)
        named = (columns.unit_of_events, columns.time_of_events, *read, columns.event)
        return tuple(dict.fromkeys(name for name in named if name))


@dataclass(frozen=True)
class LogFacts:
    """What judges the rows of a log; that, and how they are read, is all that goes to workers."""

    arms: tuple[str, ...]
    """Control first."""
    unit_column: str
    arm_column: str
    at_most: float | None
    """The greatest share of rows with a fault; None for any."""
    facts: tuple[str, ...] = ()
    """The public facts that rows state beside their unit, arm and cluster."""
    shares: tuple[float, ...] | None = None
    """The intended shares of the arms; None where they are not declared."""
    clusters: Literal["public", "private", "dropped"] = "public"
    """Whether they may be told of rows set aside; dropped where they are no column of the log."""
    n_clusters: int | None = None
    """How many there are, where it is declared."""
    asks_for_groups: bool = False
    """Whether to ask if arms were given to clusters, where it looks so."""
    outcomes: tuple[NamedOutcome, ...] = ()
    """Outcomes made of events; none where rows have them, or one outcome alone."""
    n_outcomes: int = 1
    of_events: bool = False
    """Whether rows are exposures of units."""
    window: int | None = None
    """For how many microseconds after an exposure events count."""
    refuses_odd_arms: bool = False
    """Whether arms whose sizes do not fit the shares are refused."""
    ids: Literal["canonical", "exact"] = "canonical"
    """How ids are spelt for accounts."""
    first_counts: bool = False
    """Whether the first row of a unit that has several is kept, where they agree."""
    least_in_arm: int = 1
    """How many units every arm needs."""
    tells_arms: bool = True
    """Whether it may be told how many units each arm has."""
    tells_rows: bool = True
    """Whether it may be told which arms rows set aside have, and what several rows of a unit do."""
