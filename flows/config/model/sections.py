"""The sections of a configuration: their keys, types and defaults, with strict types."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
)

from estimators.published_guess import PublishedGuess
from flows.schedule.durations import length_of
from privatizers.planning.grids import even_grid
from schemas.errors import ConfigError, shown
from schemas.visible import visible

_MOST_TEXT = 1000  # characters on what numbers stand for
_FINE = 1001  # values that represent a continuous outcome in a plan

GREATEST_FEATURE = 1e100
"""The greatest coordinate of a centre or a unit, as it is squared; one beyond is unreadable."""


def as_tuple(value: object) -> object:
    """A list of a file as a tuple; anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


def duration(key: str, text: str) -> timedelta:
    """A length of time, such as ``7d``. Raises ConfigError naming ``key`` unless it is one."""
    length = length_of(text)
    if length is None:
        raise ConfigError(
            key,
            f'{shown(text)} is not a whole number and d, h, m or s, such as "2d", "12h", "30m" or '
            '"90s", of a century at most',
        )
    return length


def _adding_up_to_one(weights: Sequence[float]) -> tuple[float, ...]:
    """The weights divided by their sum, which may exceed the range of doubles.

    No weight is below 0, and at least one is above.
    """
    greatest = max(weights)
    parts = [weight / greatest for weight in weights]
    whole = sum(parts)
    return tuple(part / whole for part in parts)


Texts = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
NumberList = tuple[Annotated[float, Field(allow_inf_nan=False)], ...]
Numbers = Annotated[NumberList, BeforeValidator(as_tuple)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]
TextsOrNames = Annotated[
    Annotated[Texts, Tag("list[text]")] | Annotated[dict[str, Name], Tag("table[text]")],
    Discriminator(lambda given: "table[text]" if isinstance(given, dict) else "list[text]"),
]
"""A list, or a table of a text by its name; what is wrong is told of the one that was given."""
OneOrSeveral = Annotated[
    Annotated[Texts, Tag("list[text]")] | Annotated[str, Tag("text")],
    Discriminator(lambda given: "list[text]" if isinstance(given, list | tuple) else "text"),
]
Margins = Annotated[
    Annotated[tuple[OneOrSeveral, ...], BeforeValidator(as_tuple), Tag("list[text]")]
    | Annotated[dict[str, Number], Tag("table[number]")],
    Discriminator(lambda given: "table[number]" if isinstance(given, dict) else "list[text]"),
]
Delimiter = Literal[",", ";", "\t", "|"]
Words = Annotated[str, Field(min_length=1, max_length=100)]
"""What people read; shown as it is."""


class ConfigSection(BaseModel):
    """A table of the configuration: strict types, no unknown keys, values that never change."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class LogSection(ConfigSection):
    """Where a log is: files, or a table."""

    path: Name = ""
    """A file or a pattern (``*``, ``?``, ``**``), here or in an object store (``s3://bucket/…``,
    ``gs://bucket/…``, ``az://container/…``); ``{period}`` is filled in, and ``{period:%Y%m%d}`` as
    a day is written."""
    delimiter: Delimiter = ","
    """What stands between the fields of CSV files."""
    table: Name | None = None
    """In place of ``path``, a table: never a query. Of Delta the folder it is in."""
    kind: Literal["delta", "postgresql", "iceberg"] | None = Field(default=None, alias="in")
    """What keeps the tables."""
    at: Name | None = None
    """Where they are kept: a database (``postgresql://user@host/name``, without a password), or, of
    "iceberg", an SQL catalogue (``sqlite:///catalogue.db``)."""
    period: Name | None = None
    """The column of tables that says which period a row is of: its name, its day, or a time within
    the day in the schedule's time zone; None: every row is of every period."""

    @property
    def patterns(self) -> dict[str, str]:
        """Which files it is, by the keys that say so."""
        return {"source.path": self.path}

    @property
    def tables(self) -> dict[str, str]:
        """Which tables it is, by the keys that name them."""
        return {} if self.table is None else {"source.table": self.table}


class SourceSection(LogSection):
    """Where the log of a release is."""

    outcomes_table: Name | None = None
    """The table of outcome events, of grain "event", in place of ``outcomes_path``."""
    grain: Literal["unit", "event"] = "unit"
    """A row of ``path``: a unit with its outcome, or an exposure of a unit to its arm."""
    ids: Literal["canonical", "exact"] = "canonical"
    """By what accounts know a unit, or who pays, again: "canonical", whatever spelling its id has
    (7, 007, 7.0, 7e0; Ab, AB; blanks around it; composed or decomposed letters), or "exact", the id
    as it is written, where people differ by case or zeros alone."""
    repeated: Literal["set_aside", "first"] = "set_aside"
    """What becomes of a unit with several rows, of grain "unit": all are set aside, or the first
    counts, files by their names and rows as they stand, where they agree in all that is public."""
    outcomes_path: Name | None = None
    """Where the outcome events are, of grain "event"; may hold ``{period}``, as ``path`` may."""
    window: str | None = None
    """How long outcomes count from exposure on, of grain "event": a whole number and d, h, m or s;
    None: for ever."""

    @property
    def patterns(self) -> dict[str, str]:
        """Those of outcome events, too."""
        events = self.outcomes_path
        return super().patterns | ({} if events is None else {"source.outcomes_path": events})

    @property
    def tables(self) -> dict[str, str]:
        """That of outcome events, too."""
        events = self.outcomes_table
        return super().tables | ({} if events is None else {"source.outcomes_table": events})

    @property
    def window_microseconds(self) -> int | None:
        """The attribution window; None where it has no end. Raises ConfigError if it is invalid."""
        if self.window is None:
            return None
        length = duration("source.window", self.window)
        if not length:
            raise ConfigError(
                "source.window",
                f"{shown(self.window)} is not a length above 0; leave it out for no end",
            )
        return length // timedelta(microseconds=1)


class Columns(ConfigSection):
    """The names of the log's columns, by their meaning."""

    unit: Name
    """The id of a unit: text or a whole number."""
    arm: Name
    """The arm that a unit was given."""
    outcome: Name = ""
    """The outcome, or the value of an outcome event; empty where events need no value (counts)."""
    cluster: Annotated[str | Texts | None, BeforeValidator(as_tuple)] = None
    """One column, or several that together name a cluster; None: there are no clusters."""
    time: Name | None = None
    """The time of an exposure, of grain "event"; also of an outcome event, if ``outcome_time`` is
    not given."""
    event: Name | None = None
    """The id of an outcome event, of grain "event", by which copies of it are recognised."""
    outcome_time: Name | None = None
    """The time in the outcome log of grain "event", where its name differs from ``time``."""
    outcome_unit: Name | None = None
    """The unit in the outcome log of grain "event", where its name differs from ``unit``."""

    attributes: TextsOrNames = ()
    """Public facts of a unit, such as its country: columns of text, whole numbers, numbers,
    booleans or dates that are published with every unit as they are, so none may follow from an
    outcome. A list, or a table of names to publish columns under, such as
    ``{ back = "Back After 7d" }``. Of grain "event", those of the first exposure."""
    assigned_by: Name | None = None
    """What was given its arm as one, where that is not the unit: the household, say. Its units are
    all in one arm, standard errors follow it, and a digest of it is published; None: the unit."""
    privacy_unit: Name | None = None
    """Who pays for a unit, such as its household; None: the unit itself. What one of them pays is
    ``privacy.rows_each`` times the price of a release."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The columns that make up the cluster; empty where none is configured."""
        if self.cluster is None:
            return ()
        return (self.cluster,) if isinstance(self.cluster, str) else self.cluster

    @property
    def facts(self) -> tuple[str, ...]:
        """The columns of rows that hold public facts beside unit, arm and cluster."""
        from schemas.raw import ASSIGNED, PAYER, attribute_columns  # noqa: PLC0415 - polars

        payer = () if self.privacy_unit is None else (PAYER,)
        group = () if self.assigned_by is None else (ASSIGNED,)
        return (*payer, *group, *attribute_columns(len(self.attributes)))

    @property
    def named_attributes(self) -> dict[str, str]:
        """The column of each attribute by the name that it is published under, in their order."""
        given = self.attributes
        return given if isinstance(given, dict) else {name: name for name in given}

    @property
    def time_of_events(self) -> str:
        """The column of an outcome event's time in the outcome log; empty where there is none."""
        return self.outcome_time or self.time or ""

    @property
    def unit_of_events(self) -> str:
        """The column of an outcome event's unit in the outcome log."""
        return self.outcome_unit or self.unit


class Arms(ConfigSection):
    """The arms; they are declared so that a missing one is noticed."""

    control: Name
    """The arm that every other is compared with."""
    treatments: Texts
    """All other arms."""
    same_shares: bool = False
    """Whether every cluster was randomised with the same arm shares, so that small clusters may be
    compared together."""
    shares: dict[str, Number] | Literal["undeclared"] | None = None
    """Intended arm shares (any positive weights) for the sample-ratio check; None for equal."""
    sample_ratio: Literal["warn", "refuse"] = "warn"
    """What becomes of a release whose arm sizes do not fit the intended shares (p < 0.001): it is
    made with a warning, or refused before anything is charged. Of releases alone."""

    @property
    def names(self) -> tuple[str, ...]:
        """Control first, then the treatments as declared."""
        return (self.control, *self.treatments)

    @property
    def expected_shares(self) -> tuple[float, ...] | None:
        """Intended shares in the order of ``names``, adding up to one; None if undeclared."""
        if self.shares == "undeclared":
            return None
        weights = [1.0] * len(self.names)
        if isinstance(self.shares, dict):
            weights = [self.shares[name] for name in self.names]
        return _adding_up_to_one(weights)


class Metric(ConfigSection):
    """What people are told of an outcome or a ratio, and what it decides."""

    label: Words | None = None
    """Its name for people, such as "Bought within 14 days"."""
    measured_in: Words | None = None
    """Its unit, such as "EUR" or "EUR per visit"."""
    role: Literal["primary", "guardrail", "secondary"] | None = None
    """What it decides: "primary", an arm is to gain in it; "guardrail", no arm may harm it by more
    than ``margin``; "secondary", nothing. None: nothing, and no role is published."""
    margin: Annotated[Number, Field(gt=0)] | None = None
    """Of a guardrail, which needs it: the greatest harm that is acceptable, in its unit."""
    direction: Literal["increase", "decrease"] | None = None
    """Which way is good; None: "increase"."""

    @property
    def goal(self) -> dict[str, str | float]:
        """What is published of role, direction and margin; empty where none is declared."""
        if self.role is None and self.direction is None:
            return {}
        role, direction = self.role or "secondary", self.direction or "increase"
        margin = {} if self.margin is None else {"margin": self.margin}
        return {"role": role, "direction": direction, **margin}


class Outcome(Metric):
    """The public grid, and the public rules that map any outcome onto it."""

    values: Annotated[NumberList | tuple[str, ...] | None, BeforeValidator(as_tuple)] = None
    """The grid, increasing; what lies between its points is rounded. Or texts: an outcome is one of
    them, letter for letter but for blanks around it, and any other is missing. Two texts stand for
    0 and 1; more need ``scores``."""
    scores: Numbers | None = None
    """The numbers that texts in ``values`` stand for, increasing, one each; they are the grid."""
    low: Number | None = None
    """The least grid value, where ``values`` is left out."""
    high: Number | None = None
    """The greatest grid value, where ``values`` is left out."""
    levels: int | Literal["auto"] | None = None
    """How many grid points, evenly spaced; "auto", of the mechanisms "auto" and
    "cluster-optimal-dp": as many as is planned."""
    missing: Number | str | None = None
    """What a missing or unreadable outcome counts as: a number, or one of the texts; None: the
    least grid value."""
    decimal: Literal[".", ","] | None = None
    """The decimal mark of numbers that are text in the log, None: a point. With a comma "3,50" is
    read and "3.50" or "1.234,50" is not: marks of thousands never are."""
    aggregate: Literal["count", "sum", "max", "any"] | None = None
    """How a unit's outcome is made from its events, of grain "event"."""
    cap: Annotated[Number, Field(gt=0)] | None = None
    """Outcomes made from events are clipped to [−cap, cap] before they are mapped to the grid."""
    rounding: Literal["stochastic", "nearest"] = "stochastic"
    """What becomes of a value between two grid points; "stochastic" leaves means as they are."""
    guess: Literal["published", "uniform"] | Numbers = "published"
    """A public guess at the distribution of outcomes, used for plans and weights; a wrong one costs
    precision alone. "published": what earlier releases of the experiment tell of it, at no cost;
    "uniform", which is also what the first release has; or a weight for each grid point."""
    _learnt: PublishedGuess | None = PrivateAttr(default=None)
    """What earlier releases tell; None where none do, or nobody has looked."""

    @property
    def learnt(self) -> PublishedGuess | None:
        """The guess that was learnt from earlier releases, if there is one."""
        return self._learnt

    def taught(self, guess: PublishedGuess | None) -> Self:
        """The same with a guess that was learnt from earlier releases."""
        settled = self.model_copy()
        settled._learnt = guess
        return settled

    @property
    def grid(self) -> tuple[float, ...]:
        """The grid points, increasing. A planned grid exists once the design is resolved."""
        if self.levels == "auto":
            raise ConfigError("outcome.levels", '"auto" has no grid before it is planned')
        return self.support

    @property
    def support(self) -> tuple[float, ...]:
        """The values that outcomes may have, increasing: the grid, or those a grid is planned for.

        Raises ConfigError where the keys do not give any.
        """
        if self.texts:
            return tuple(self.numbers_of_texts.values())
        if self.values is not None:
            return tuple(map(float, self.values))
        low, high, levels = self.low, self.high, self.levels
        if low is None or high is None or levels is None:
            raise ConfigError("outcome", "give either values, or low, high and levels")
        if levels == "auto":
            levels = _FINE if isinstance(self.guess, str) else len(self.guess)
        return even_grid(low, high, levels)

    @property
    def texts(self) -> tuple[str, ...]:
        """What outcomes are in the log, where they are text; empty where they are numbers."""
        return tuple(value for value in self.values or () if isinstance(value, str))

    @property
    def numbers_of_texts(self) -> dict[str, float]:
        """The number that each text stands for, increasing; empty where outcomes are numbers."""
        scores = self.scores or tuple(map(float, range(len(self.texts))))
        return dict(zip(self.texts, scores, strict=False))

    @property
    def texts_in_words(self) -> str | None:
        """Which number stands for which text, as people read it; None where outcomes are numbers.

        What could not be seen is escaped, and of very many texts the first are named.
        """
        if not self.texts:
            return None
        stand_for = self.numbers_of_texts.items()
        whole = visible(", ".join(f"{number:.15g} = {text}" for text, number in stand_for))
        return whole if len(whole) <= _MOST_TEXT else f"{whole[:_MOST_TEXT]}…"

    @property
    def weights(self) -> tuple[float, ...]:
        """The guess at the distribution of outcomes over ``support``; sums to one."""
        if self._learnt is not None:
            return tuple(self._learnt.mixed.on(np.array(self.support)).tolist())
        weights = [1.0] * len(self.support) if isinstance(self.guess, str) else list(self.guess)
        return _adding_up_to_one(weights)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest grid value."""
        return self.support[0], self.support[-1]

    @property
    def missing_value(self) -> float:
        """The value that replaces a missing or unreadable outcome."""
        if isinstance(self.missing, str):
            return self.numbers_of_texts[self.missing]
        return self.ends[0] if self.missing is None else self.missing


class NamedOutcome(Outcome):
    """One of several outcomes that are released together: its column, name and part of epsilon."""

    name: Name
    """Its name, and that of its column in releases: a letter, then letters, digits and _."""
    column: Name = ""
    """Its column in the log, or that of the value of an outcome event; empty where events need no
    value (counts). Several outcomes may be made of one column."""
    share: Annotated[Number, Field(gt=0, le=1)] | Literal["auto"] | None = None
    """The part of ``privacy.epsilon`` (and of ``delta``) that it is released at; None: an equal
    part of what the others leave; "auto", for all of them: planned from public facts."""


class RatioMetric(Metric):
    """The ratio of two outcomes' means, clicks per view say: told beside them, at no cost."""

    name: Name
    """Its name, as that of an outcome: a letter, then letters, digits and _."""
    numerator: Name
    """The name of the outcome above the line."""
    denominator: Name
    """The name of the outcome below the line. Where its mean is not told from zero there are no
    numbers."""


class DecisionSection(ConfigSection):
    """How several primary outcomes decide, declared before anything is seen."""

    primary: Literal["all", "any"]
    """"all": an arm is to gain in each primary outcome, each tested at the level. "any": a gain in
    one of them will do, after Holm over primary outcomes and arms."""


class Privacy(ConfigSection):
    """The mechanism, and what releases may cost."""

    mechanism: Literal[
        "auto",
        "cluster-dp",
        "cluster-free-dp",
        "uniform-prior-dp",
        "cluster-optimal-dp",
        "noisy-histogram",
        "noisy-horvitz-thompson",
    ] = "auto"
    """How outcomes are randomised; "auto": planned from public facts. "cluster-optimal-dp": by the
    least noisy tables there are, which are learnt from noisy counts."""
    epsilon: Number | None = None
    """ε of one release, everything in the file together; else give the parameters below."""
    delta: Number = 0.0
    """δ of one release; 0 for pure differential privacy."""
    population: Annotated[str, Field(pattern=r"\S")] | None = None
    """Who pays: experiments on the same people name the same; None: the experiment."""
    account: Literal["unit", "population"] = "unit"
    """Whether a unit pays for the releases it is in, or everybody for every release."""
    returning: Literal["charge", "set_aside"] = "charge"
    """What becomes of units that the experiment has released before, in another period: they pay
    again, or they are set aside, so that everyone is released once."""
    rows_each: Annotated[int, Field(ge=1, le=1000)] | None = None
    """With ``columns.privacy_unit``: how many rows of whoever pays are released at most."""
    spent: Literal["refuse", "set_aside"] = "refuse"
    """What becomes of a release with units that cannot pay for it: it is refused, or they are set
    aside."""
    budget_epsilon: Annotated[Number, Field(ge=0)] | None = None
    """The most ε that a member of the population may pay over all releases; None: no limit."""
    budget_delta: Annotated[Number, Field(ge=0)] | None = None
    """The same of δ."""
    resampling_probability: Number | None = None
    """λ, the probability that an outcome is drawn anew; in place of ``epsilon``, of mechanisms that
    publish units."""
    truncation_threshold: Number | None = None
    """γ, the least probability of an outcome in a prior; of "cluster-dp" and "cluster-free-dp"."""
    noise_scale: Number | None = None
    """σ, the scale of the noise on what is published of strata; not of statistic "none"."""
    strata_statistic: Literal["auto", "counts", "means", "none"] = "auto"
    """What is published of every stratum, paid from ``epsilon``; "auto": planned."""
    learn_from: Literal["auto", "strata", "arms", "nothing"] = "auto"
    """What the tables of "cluster-optimal-dp" are learnt from: noisy counts of strata, noisy counts
    of whole arms, paid from ``epsilon`` besides, or nothing; "auto": planned."""
    joint: Literal["no", "yes", "auto"] = "no"
    """Whether two outcomes are drawn together, by "cluster-optimal-dp": one output a unit tells of
    both, at both parts of ε; "auto": where that can be had, and is predicted to be less noisy."""
    min_stratum: Annotated[int, Field(ge=1, le=10**15)] = 10
    """Clusters with an arm of fewer units share a pool, and values of a margin a sum."""
    margins: Margins = ()
    """Attributes whose values will be asked for, such as ["country", ["country", "device"]]: for
    every value, or several together, and arm a noisy sum is published, paid from ``epsilon``. Or a
    table that says how they share what they get: { country = 2, "country, device" = 1 }."""
    segment_shares: Numbers = (0.1, 0.5)
    """What to plan for beside the overall effect: segments that hold these shares of the units."""
    overall_effect: bool = True
    """Whether a plan is to serve the effect on everybody, beside those on segments."""


class PrivateClusters(ConfigSection):
    """Private clusters: each unit's cluster is randomised before any other step sees it."""

    epsilon: Annotated[Number, Field(ge=0)]
    """ε₁, the price of a unit's cluster; a part of ``privacy.epsilon``."""
    labels: Texts | None = None
    """The names of all clusters, where ``columns.cluster`` names the cluster of each unit."""
    centres: dict[Name, Numbers] | None = None
    """Instead of ``labels``: a point for each cluster, public or found privately. A unit's cluster
    is the one with the nearest point."""
    features: Texts | None = None
    """The columns that hold the coordinates of a unit's point."""
    centres_epsilon: Annotated[Number, Field(ge=0)] = 0.0
    """What these people have paid for finding the centres; 0 where these are public or paid for."""
    missing: str | None = None
    """The cluster of units whose own is missing, unreadable or not declared; None: the first."""

    @property
    def names(self) -> tuple[str, ...]:
        """The declared clusters, in the order of the configuration."""
        return self.labels if self.labels is not None else tuple(self.centres or ())

    @property
    def missing_name(self) -> str:
        """The cluster of units whose own is unknown."""
        return self.names[0] if self.missing is None else self.missing


class Publish(ConfigSection):
    """Where releases are written, and how unit ids appear in them."""

    directory: Name = "releases"
    """The folder of releases; those of an experiment go to a folder of its name in it. Or one in a
    store, ``s3://bucket/folder``, where all that is in ``releases`` beside the configuration is put
    up."""
    unit_id: Literal["plain", "keyed-hash"] = "plain"
    """Whether ids are published as they are, or as HMAC-SHA-256 under a key."""
    key_file: Name | None = None
    """The key of "keyed-hash"; there is none for "plain"."""
    signing_key: Name | None = None
    """An Ed25519 private key (PEM) that the list of published files, ``SHA256SUMS``, is signed
    with; None for no signature."""


class LedgerSection(ConfigSection):
    """Where the budget is kept."""

    url: Name = "sqlite:///ledger.sqlite"
    """A database in SQLite or PostgreSQL, as SQLAlchemy spells it."""
    key_file: Name | None = None
    """The key of the accounts by unit, 32 bytes, one for a ledger; None: ``account.key`` beside a
    ledger in SQLite, made when it is first needed. PostgreSQL has no default."""


class Quarantine(ConfigSection):
    """Where rows in quarantine are kept for the operator."""

    directory: Name = "quarantine"
    """The folder of rows that were left out; it holds raw data."""
    at_most: Annotated[float | None, Field(ge=0, lt=1, allow_inf_nan=False)] = None
    """The greatest share of a log's rows that may be left out for faults; of more than that no
    release is made. None: any share. Of releases alone."""


class Run(ConfigSection):
    """The memory, folder and workers that a run may use."""

    memory_limit: Annotated[
        str, Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})? ?(KB|MB|GB|TB|KiB|MiB|GiB|TiB)$")
    ] = "8GB"
    """The memory that reading, sorting and writing may take together."""
    spill_directory: Name | None = None
    """The folder for rows that do not fit into memory; None for the quarantine's folder."""
    metrics_directory: Name | None = None
    """The folder for metrics, a file an experiment (``clusterdp_EXPERIMENT.prom``), for the
    textfile collector of Prometheus' node exporter; None for no metrics."""
    workers: Annotated[int, Field(ge=1, le=1000)] | Name | None = None
    """What reads, orders and randomises a log in parts: that many processes of this machine, or
    the workers of the Dask scheduler at an address, which see the log and ``spill_directory`` as
    this process does; None for this process."""
