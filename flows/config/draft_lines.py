"""The lines of a new configuration, from what was said of a log and what its names tell."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from flows.config.draft import Draft, Line, Value
from flows.config.guesses import Meaning
from schemas.errors import ConfigError

_BY_NAME = " It was recognised by its name: is it the one?"
_GROUP = "The column, or columns, of the group that a unit belongs to. It is published."
_UNASKED = (
    "The column of a group that a unit is known to belong to, such as its region, or a list of "
    "columns. It makes effects more exact. It is published, so none is taken unasked."
)
_ATTRIBUTES = (
    "Columns of public facts of a unit, to look at effects by. They are published with every unit "
    "as they are, so name none that follows from the outcome, and none that is nobody's business."
)
_ASSIGNED = (
    "The column of what was given its arm as one, such as a household, where that is not the unit. "
    "Standard errors follow it, and a digest of it is published."
)


@dataclass(frozen=True)
class Given:
    """What was said of the log; None and empty for what was not."""

    experiment: str | None = None
    unit: str | None = None
    arm: str | None = None
    outcome: str | None = None
    cluster: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    assigned_by: str | None = None
    control: str | None = None
    treatments: tuple[str, ...] = ()
    values: tuple[float, ...] | tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    levels: int | Literal["auto"] | None = None
    epsilon: float | None = None
    budget_epsilon: float | None = None

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        ranged = {"--low": self.low, "--high": self.high}
        for option, value in {**ranged, "--levels": self.levels}.items():
            if value is not None and self.values:
                raise ConfigError(option, "given together with --values: give one of them")
        if (self.low is None) != (self.high is None):
            raise ConfigError("--low", "goes with --high: give both, or neither")
        if self.scores and not self.has_texts:
            raise ConfigError("--scores", "goes with texts in --values, such as no,yes")
        if self.levels is not None and self.low is None:
            raise ConfigError("--levels", "goes with --low and --high, which are missing")
        for option, number in {
            **ranged,
            "--epsilon": self.epsilon,
            "--budget-epsilon": self.budget_epsilon,
            "--values": math.fsum(value for value in self.values if not isinstance(value, str)),
            "--scores": math.fsum(self.scores),
        }.items():
            if number is not None and not math.isfinite(number):
                raise ConfigError(option, "has to be a finite number")

    @property
    def has_texts(self) -> bool:
        """Whether outcomes are text in the log."""
        return any(isinstance(value, str) for value in self.values)

    @property
    def columns(self) -> dict[str, str]:
        """The columns that were named, and the option that named each."""
        named = [
            (self.unit, "--unit"),
            (self.arm, "--arm"),
            (self.outcome, "--outcome"),
            *((name, "--cluster") for name in self.cluster),
            *((name, "--attributes") for name in self.attributes),
            (self.assigned_by, "--assigned-by"),
        ]
        return {name: option for name, option in reversed(named) if name is not None}

    @property
    def meanings(self) -> tuple[Meaning, ...]:
        """What columns were named for."""
        meanings: tuple[Meaning, ...] = ("unit", "arm", "outcome", "cluster")
        return tuple(meaning for meaning in meanings if getattr(self, meaning))


@dataclass(frozen=True)
class Arms:
    """What is known of the arms; None and empty for what is not."""

    control: str | None
    treatments: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """Those that were read."""
    note: str | None = None


def draft_of(
    experiment: str,
    source: str,
    given: Given,
    found: Mapping[Meaning, str],
    arms: Arms,
    columns: str,
) -> Draft:
    """The lines of the configuration; ``columns`` says which ones the log has."""
    notes = {"columns": columns}
    if arms.labels and arms.control is None:
        notes["arms"] = "Labels in the log: " + ", ".join(map(repr, arms.labels)) + "."
    return Draft(
        {
            "": (
                Line(
                    "experiment",
                    "The experiment's name (letters, digits, - and _). Releases are named so.",
                    experiment,
                ),
            ),
            "source": (
                Line(
                    "path",
                    "The log, a row a unit with its outcome, relative to this file. Patterns (*, "
                    "?, **) and {period}, such as 2026-11-20, may stand in it.",
                    source,
                ),
            ),
            "columns": _column_lines(given, found),
            "arms": _arm_lines(arms),
            "outcome": _outcome_lines(given),
            "privacy": _privacy_lines(given),
            "publish": (
                Line("directory", "The folder of releases, relative to this file.", "releases"),
            ),
        },
        reads_labels=bool(arms.labels),
        notes=notes,
    )


def _column_lines(given: Given, found: Mapping[Meaning, str]) -> tuple[Line, ...]:
    def line(key: Meaning, comment: str, example: str) -> Line:
        name = getattr(given, key) or found.get(key)
        return Line(key, comment + (_BY_NAME if key in found else ""), name, example)

    cluster: Value | None = given.cluster[0] if len(given.cluster) == 1 else given.cluster or None
    return (
        line("unit", "The column of the units' ids. They are published.", "customer_id"),
        line("arm", "The column of the arm that a unit was given. It is published.", "variant"),
        line("outcome", "The column of the outcome, which is protected.", "clicks"),
        Line(
            "cluster",
            _UNASKED if cluster is None else _GROUP,
            cluster,
            found.get("cluster", "region"),
            is_needed=False,
        ),
        Line("attributes", _ATTRIBUTES, given.attributes or None, ("country",), is_needed=False),
        Line("assigned_by", _ASSIGNED, given.assigned_by, "household_id", is_needed=False),
    )


def _arm_lines(arms: Arms) -> tuple[Line, ...]:
    return (
        Line(
            "control",
            "The label of the arm that every other is compared with.",
            arms.control,
            "none",
        ),
        Line(
            "treatments",
            "The labels of all other arms. Rows with any other label are set aside.",
            arms.treatments or None,
            ("mail",),
        ),
        Line(
            "same_shares",
            "Whether every cluster was randomised with the same arm shares. True lets small "
            "clusters be compared together.",
            None,
            True,
            is_needed=False,
        ),
        Line(
            "shares",
            "Intended sizes of the arms, such as { none = 1, mail = 2 }; equal if left out, and "
            '"undeclared" for no check of them.',
            None,
            "undeclared",
            is_needed=False,
        ),
    )


def _outcome_lines(given: Given) -> tuple[Line, ...]:
    missing = Line(
        "missing",
        "What a missing or unreadable outcome counts as; if left out, the least value.",
        None,
        0.0,
        is_needed=False,
    )
    if given.low is not None:
        return (
            Line(
                "low",
                "The least and the greatest outcome that counts; beyond them, the nearest does. "
                "Choose them by what you know beforehand, not by looking at outcomes.",
                given.low,
            ),
            Line("high", "", given.high),
            Line(
                "levels",
                'How many values between them are kept apart; "auto" lets the plan choose.',
                "auto" if given.levels is None else given.levels,
            ),
            missing,
        )
    if given.has_texts:
        return _text_lines(given)
    return (
        Line(
            "values",
            "The values that an outcome can have, increasing; what lies between is rounded. Choose "
            "them by what you know beforehand, not by looking at outcomes. For a wide range, give "
            'low, high and levels = "auto" in place of values.',
            given.values or None,
            (0.0, 1.0),
        ),
        missing,
    )


def _text_lines(given: Given) -> tuple[Line, ...]:
    """Outcomes that are text in the log."""
    n_texts = len(given.values)
    return (
        Line(
            "values",
            "What an outcome can be in the log, from the least to the greatest. Any other text is "
            "a missing outcome.",
            given.values,
        ),
        Line(
            "scores",
            "The numbers that they stand for, increasing; effects are effects on these numbers."
            + (" If left out: 0 and 1." if n_texts == 2 else ""),
            given.scores or None,
            tuple(map(float, range(n_texts))),
            is_needed=n_texts > 2,
        ),
        Line(
            "missing",
            "What a missing or unreadable outcome counts as; if left out, the first.",
            None,
            given.values[0],
            is_needed=False,
        ),
    )


def _privacy_lines(given: Given) -> tuple[Line, ...]:
    return (
        Line(
            "epsilon",
            "What one release costs everybody in it: less is more private, and less exact. "
            "`clusterdp plan` shows how exact.",
            given.epsilon,
            2.0,
        ),
        Line(
            "budget_epsilon",
            "The most that one person may pay over all releases. Without it nothing limits that.",
            given.budget_epsilon,
            20.0,
            is_needed=False,
        ),
    )
