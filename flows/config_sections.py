"""The sections of a configuration: their keys, types and defaults, read strictly."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from privatizers.planner import even_grid
from schemas.errors import ConfigError

_FINE = 1001  # values that stand for a continuous outcome in a plan


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


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
    outcomes_path: str | None = None
    window: str | None = None


class Columns(Section):
    """Which columns of the log mean what."""

    unit: Name
    arm: Name
    outcome: Name
    cluster: Annotated[str | Texts | None, BeforeValidator(_as_tuple)] = None
    time: str | None = None

    @property
    def clusters(self) -> tuple[str, ...]:
        """The cluster columns; none where no cluster is configured."""
        if self.cluster is None:
            return ()
        return (self.cluster,) if isinstance(self.cluster, str) else self.cluster


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
        return tuple(weight / sum(weights) for weight in weights)


class Outcome(Section):
    """The public grid and the public rules that bring any outcome onto it."""

    values: Numbers | None = None
    low: Number | None = None
    high: Number | None = None
    levels: int | Literal["auto"] | None = None
    missing: Number | None = None
    aggregate: Literal["count", "sum", "max", "any"] | None = None
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
        return tuple(weight / sum(weights) for weight in weights)

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
    min_stratum: Annotated[int, Field(ge=1)] = 10
    segment_shares: Numbers = (0.1, 0.5)
    overall_effect: bool = True
    """Whether the effect on everybody matters to a plan, beside segments."""


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
        str, Field(pattern=r"^[0-9]+(\.[0-9]+)? ?(KB|MB|GB|TB|KiB|MiB|GiB|TiB)$")
    ] = "8GB"
