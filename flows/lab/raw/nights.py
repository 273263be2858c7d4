"""Nights of made-up people, by the very run of a release, and everything public about them.

Each is run with outcomes that could hardly differ more, in each way that a run may go: in memory,
by workers, with ids as they are and hashed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from estimators.ends import ends_warnings
from flows.config.model.experiment import AnyDesign, Config
from flows.config.resolve import resolve_release
from flows.lab.raw.draws import Truth
from flows.lab.raw.made_up_config import made_up
from flows.lab.raw.made_up_log import MadeUpPeople, on_grid, people, period_of
from flows.lab.raw.published import FileTables, of_file
from flows.ledger.account import Account
from flows.ledger.statement import Statement
from privatizers.accounting.budget import Budget
from schemas.arrays import Ints
from schemas.raw import FILE
from schemas.roster import Roster

MIXED, OTHER_WAY, LOWEST = "mixed", "mixed the other way round", "all the lowest"

_TIMED = re.compile(r"\b\d+\.\d+ s\b")
_OF_TIME = re.compile(r"^clusterdp_\w*(seconds|time|last)\w*.*$", re.MULTILINE)


class Made(Protocol):
    """What a run says of the release that it made."""

    @property
    def path(self) -> Path:
        """Its file."""

    @property
    def roster(self) -> Roster:
        """Who is in it."""

    @property
    def statement(self) -> Statement:
        """What was paid."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator is told."""


@dataclass(frozen=True)
class Ended:
    """How a run ended, and what was told of it meanwhile."""

    made: Made | None
    error: Exception | None
    lines: tuple[str, ...]
    """Of the log."""
    notices: tuple[str, ...]


Run = Callable[[Config, str], Ended]
"""Releases a period of a configuration."""


@dataclass(frozen=True)
class NightPlan:
    """Nights that are run one after the other, in one of the ways that a run may go."""

    outcomes: str
    """What outcomes people have."""
    workers: int | None = None
    hashed: bool = False
    n_nights: int = 1

    def __str__(self) -> str:
        """Tell it apart."""
        way = "in memory" if self.workers is None else "by workers"
        return f"{way}{', with hashed ids' * self.hashed}, outcomes {self.outcomes}"


PLANS = (
    (
        NightPlan(MIXED, n_nights=2),
        NightPlan(OTHER_WAY),
        NightPlan(LOWEST),
        NightPlan(OTHER_WAY, workers=2),
    ),
    (NightPlan(MIXED, hashed=True), NightPlan(OTHER_WAY, workers=2, hashed=True)),
)
"""Of each group everything public is the same, whatever the outcomes and the way."""


@dataclass(frozen=True)
class AuditNight:
    """One run."""

    plan: NightPlan
    number: int
    truth: Truth
    ended: Ended
    left: dict[str, list[str]]
    """What was in its folder and its ledger when it ended."""

    def __str__(self) -> str:
        """Tell it apart."""
        return f"{self.plan}, night {self.number + 1}"

    @property
    def config(self) -> Config:
        """That of the run."""
        return self.truth.config

    @property
    def charged(self) -> Budget:
        """What it was charged."""
        entries = Account(self.config).entries()
        (cost,) = (one.cost for one in entries if one.name.period == period_of(self.number))
        return cost

    @cached_property
    def release(self) -> FileTables | None:
        """What was published; None where the run failed."""
        return None if self.ended.made is None else of_file(self.ended.made.path)

    @cached_property
    def public(self) -> dict[str, pl.Series]:
        """Everything public about it, by its name."""
        made, ended = self.ended.made, self.ended
        follow = () if self.release is None else ends_warnings(self.release.ends)
        told = {
            "the ending": [self.ending],
            "the log": list(map(self._without_place, ended.lines)),
            "notices": [line for line in ended.notices if line != "\n".join(follow)],
            **self.left,
        }
        if made is not None:
            told["warnings"] = [one for one in made.warnings if one not in follow]
            told["the roster"] = [repr(sorted(asdict(made.roster).items()))]
            told["what was paid"] = [repr(made.statement.as_json())]
        found = {name: pl.Series(lines, dtype=pl.String) for name, lines in told.items()}
        return found | ({} if self.release is None else dict(self.release.fixed()))

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        error = self.ended.error
        told = "published" if error is None else f"{type(error).__name__}: {error}"
        return self._without_place(told)

    def _without_place(self, line: str) -> str:
        """A line without how long anything took, and where."""
        return _TIMED.sub("… s", line.replace(str(self.config.directory), "…"))


def _left(config: Config) -> dict[str, list[str]]:
    """What a run has left in its folder and its ledger."""
    kept = sorted(config.quarantined.glob("*.parquet"))
    aside = (pl.read_parquet(path).drop(FILE, strict=False) for path in kept)
    metrics = sorted((config.directory / "metrics").glob("*"))
    return {
        "files": sorted(
            str(path.relative_to(config.directory))
            for folder in (config.releases, config.quarantined)
            for path in folder.rglob("*")
        ),
        "rows set aside": [repr(row) for frame in aside for row in frame.rows()],
        "metrics": [_OF_TIME.sub("", path.read_text(encoding="utf-8")) for path in metrics],
        "the ledger": [repr(entry.cost) for entry in Account(config).entries()],
    }


def nights(
    config: Config,
    designs: Sequence[AnyDesign],
    folder: Path,
    run: Run,
    plans: Sequence[Sequence[NightPlan]] = PLANS,
) -> Iterator[list[AuditNight]]:
    """Run all nights; those of a group are yielded together."""
    for number, group in enumerate(plans):
        found: list[AuditNight] = []
        for position, one in enumerate(group):
            found += _nights_of(one, config, designs, folder / f"{number}-{position}", run)
        yield found


def _nights_of(
    plan: NightPlan, config: Config, designs: Sequence[AnyDesign], folder: Path, run: Run
) -> Iterator[AuditNight]:
    """Write the logs of nights of one experiment, and run each."""
    asked = made_up(config, designs, folder, workers=plan.workers, hashed=plan.hashed)
    who = people(asked)
    chosen = resolve_release(asked, who.sizes)
    levels = levels_of(chosen.config, who, plan.outcomes)
    for number in range(plan.n_nights):
        written = write_log(chosen.config, who, levels, number)
        once = asked.privacy.returning == "set_aside" and number > 0
        numbers = written[written > who.numbers(number - 1).max()] if once else written
        truth = Truth(chosen.config, chosen.designs, who, levels, numbers)
        ended = run(asked, period_of(number))
        yield AuditNight(plan, number, truth, ended, _left(asked))


def levels_of(config: Config, who: MadeUpPeople, outcomes: str) -> list[Ints]:
    """The position of each outcome on its grid, by place; shape [n] each."""
    learns = config.privacy.mechanism == "cluster-optimal-dp"
    levels = on_grid(config, who.n_units, uneven=learns)
    if outcomes == LOWEST:
        return [np.zeros_like(one) for one in levels]
    if outcomes == OTHER_WAY:
        tops = (len(one.grid) - 1 for one in config.outcomes)
        return [top - one for top, one in zip(tops, levels, strict=True)]
    return levels


def write_log(config: Config, who: MadeUpPeople, levels: Sequence[Ints], number: int) -> Ints:
    """Write the log of a night; returns the numbers of its people."""
    values = [np.array(one.grid)[level] for one, level in zip(config.outcomes, levels, strict=True)]
    numbers = who.numbers(number)
    who.write(period_of(number), numbers, values)
    return numbers
