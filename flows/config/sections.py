"""The sections of a configuration: their keys, types and defaults, read strictly."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from privatizers.planning.grids import even_grid
from schemas.errors import ConfigError, shown

_FINE = 1001  # values that stand for a continuous outcome in a plan
_WINDOW = re.compile(r"([1-9][0-9]{0,9})([dhms])")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LONGEST = 36_525 * 86_400 * 1_000_000  # a century in microseconds

GREATEST_FEATURE = 1e100
"""Of a coordinate of a centre or a unit, which is squared; one beyond it is unreadable."""


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _adding_up_to_one(weights: Sequence[float]) -> tuple[float, ...]:
    """The weights, none below 0 and one above, divided by their sum, however great they are."""
    greatest = max(weights)
    parts = [weight / greatest for weight in weights]
    whole = sum(parts)
    return tuple(part / whole for part in parts)


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
Numbers = Annotated[
    tuple[Annotated[float, Field(allow_inf_nan=False)], ...], BeforeValidator(_as_tuple)
]
Number = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A table of the configuration: strict types, no unknown keys, never changed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Source(Section):
    """Where the log lies."""

    path: Name
    grain: Literal["unit", "event"] = "unit"
    """What a row of ``path`` is: a unit with its outcome, or an exposure of a unit to its arm."""
    outcomes_path: Name | None = None
    """Where the outcome events lie, of grain "event"; may hold ``{period}`` as ``path`` may."""
    window: str | None = None
    """How long outcomes count from exposure on: a whole number and d, h, m or s; None: for ever."""

    @property
    def window_microseconds(self) -> int | None:
        """The attribution window; None where it has no end. Raises ConfigError if it is no time."""
        if self.window is None:
            return None
        found = _WINDOW.fullmatch(self.window)
        if found is None:
            raise ConfigError(
                "source.window",
                f"{shown(self.window)} is not a whole number above 0 and d, h, m or s, such as "
                '"7d", "12h", "30m" or "90s"',
            )
        length = int(found[1]) * _SECONDS[found[2]] * 1_000_000
        if length > _LONGEST:
            raise ConfigError(
                "source.window", f"{shown(self.window)} is over a century; leave it out for no end"
            )
        return length


class Columns(Section):
    """Which columns of the log mean what."""

    unit: Name
    arm: Name
    outcome: Name = ""
    """Empty where it may be left out and is: events that are counted need no value."""
    cluster: Annotated[str | Texts | None, BeforeValidator(_as_tuple)] = None
    time: Name | None = None
    """When an exposure was, of grain "event"; and an outcome event, unless ``outcome_time``."""
    event: Name | None = None
    """The id of an outcome event, by which its copies are known."""
    outcome_time: Name | None = None
    """The time in the outcome log, where it is called otherwise than ``time``."""
    outcome_unit: Name | None = None
    """The unit in the outcome log, where it is called otherwise than ``unit``."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The cluster columns; none where no cluster is configured."""
        if self.cluster is None:
            return ()
        return (self.cluster,) if isinstance(self.cluster, str) else self.cluster

    @property
    def time_of_events(self) -> str:
        """The column of an outcome event's time in the outcome log; empty where none is."""
        return self.outcome_time or self.time or ""

    @property
    def unit_of_events(self) -> str:
        """The column of an outcome event's unit in the outcome log."""
        return self.outcome_unit or self.unit


class Arms(Section):
    """The arms, declared so that a missing one is noticed."""

    control: Name
    treatments: Texts
    same_shares: bool = False
    shares: dict[str, Number] | Literal["undeclared"] | None = None
    """Intended arm shares (any positive weights) for the sample-ratio check; None for equal."""

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


class Outcome(Section):
    """The public grid and the public rules that bring any outcome onto it."""

    values: Numbers | None = None
    low: Number | None = None
    high: Number | None = None
    levels: int | Literal["auto"] | None = None
    missing: Number | None = None
    aggregate: Literal["count", "sum", "max", "any"] | None = None
    """How the events of a unit make its outcome, of grain "event"."""
    cap: Annotated[Number, Field(gt=0)] | None = None
    """Outcomes made of events are clipped to [−cap, cap], before they are brought to the grid."""
    rounding: Literal["stochastic", "nearest"] = "stochastic"
    guess: Literal["uniform"] | Numbers = "uniform"

    @property
    def grid(self) -> tuple[float, ...]:
        """The grid points, increasing; of a planned grid, once it is settled."""
        if self.levels == "auto":
            raise ConfigError("outcome.levels", '"auto" has no grid before it is planned')
        return self.support

    @property
    def support(self) -> tuple[float, ...]:
        """Where outcomes may lie, increasing: the grid, or what a grid is planned for."""
        if self.values is not None:
            return self.values
        low, high, levels = self.low, self.high, self.levels
        if low is None or high is None or levels is None:
            raise ConfigError("outcome", "give either values, or low, high and levels")
        if levels == "auto":
            levels = _FINE if self.guess == "uniform" else len(self.guess)
        return even_grid(low, high, levels)

    @property
    def weights(self) -> tuple[float, ...]:
        """The declared guess at the outcomes' distribution over ``support``, adding up to one."""
        weights = [1.0] * len(self.support) if self.guess == "uniform" else list(self.guess)
        return _adding_up_to_one(weights)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest grid value."""
        return self.support[0], self.support[-1]

    @property
    def missing_value(self) -> float:
        """What a missing or unreadable outcome counts as."""
        return self.ends[0] if self.missing is None else self.missing


class Privacy(Section):
    """The mechanism and what one release may cost."""

    mechanism: Literal[
        "auto",
        "cluster-dp",
        "cluster-free-dp",
        "uniform-prior-dp",
        "noisy-histogram",
        "noisy-horvitz-thompson",
    ] = "auto"
    epsilon: Number | None = None
    delta: Number = 0.0
    population: str | None = None
    budget_epsilon: Number | None = None
    budget_delta: Number | None = None
    resampling_probability: Number | None = None
    truncation_threshold: Number | None = None
    noise_scale: Number | None = None
    strata_statistic: Literal["auto", "counts", "means", "none"] = "auto"
    min_stratum: Annotated[int, Field(ge=1, le=10**15)] = 10
    segment_shares: Numbers = (0.1, 0.5)
    overall_effect: bool = True
    """Whether the effect on everybody matters to a plan, beside segments."""


class PrivateClusters(Section):
    """Clusters that are private: each unit's is randomised before anything else sees it."""

    epsilon: Number
    """ε₁, what it costs; a part of ``privacy.epsilon``."""
    labels: Texts | None = None
    """All there may be, where ``columns.cluster`` names each unit's."""
    centres: dict[Name, Numbers] | None = None
    """Else: a point for each cluster, public or found privately; a unit's is the nearest."""
    features: Texts | None = None
    """The columns whose values are a unit's point, as the centres are."""
    centres_epsilon: Annotated[Number, Field(ge=0)] = 0.0
    """What finding the centres has cost these people; 0 where they are public or paid for."""
    missing: str | None = None
    """What a cluster counts as that is missing, unreadable or not declared; None: the first."""

    @property
    def names(self) -> tuple[str, ...]:
        """The declared clusters, in the order they are declared in."""
        return self.labels if self.labels is not None else tuple(self.centres or ())

    @property
    def missing_name(self) -> str:
        """The cluster that anything unknown counts as."""
        return self.names[0] if self.missing is None else self.missing


class Publish(Section):
    """Where releases go."""

    directory: Name = "releases"
    unit_id: Literal["plain", "keyed-hash"] = "plain"
    key_file: Name | None = None


class Ledger(Section):
    """Where the budget is kept."""

    url: Name = "sqlite:///ledger.sqlite"


class Quarantine(Section):
    """Where rows that were set aside are kept for the operator."""

    directory: Name = "quarantine"


class Run(Section):
    """How a run uses the machine."""

    memory_limit: Annotated[
        str, Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})? ?(KB|MB|GB|TB|KiB|MiB|GiB|TiB)$")
    ] = "8GB"
    """How much memory reading, ordering and writing may take, together."""
    spill_directory: Name | None = None
    """Where rows go that do not fit into memory; None for the quarantine's folder."""
    workers: Annotated[int, Field(ge=1, le=1000)] | Name | None = None
    """Who randomises the parts of a release: so many processes of this machine, or the Dask
    scheduler at an address, whose workers see ``spill_directory``; None for this process."""
