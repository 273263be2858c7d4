"""Nights of made-up people, by the very run of a release, and everything public about them.

Each is run with outcomes that could hardly differ more, in each way that a run may go: in memory,
by workers, with ids as they are and hashed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from estimators.ends import ends_warnings
from flows.config.model.experiment import AnyDesign, Config
from flows.config.resolve import resolve_release
from flows.lab.raw.draws import Truth
from flows.lab.raw.made_up_config import made_up
from flows.lab.raw.made_up_log import MadeUpPeople, mixed, people, period_of
from flows.lab.raw.published import FileTables, of_file
from flows.lab.raw.small_runs import on_grids
from flows.ledger.account import Account
from flows.release import ReleaseResult
from privatizers.accounting.budget import Budget
from schemas.arrays import Ints
from schemas.raw import FILE

MIXED, OTHER_WAY, LOWEST = "mixed", "mixed the other way round", "all the lowest"

_TIMED = re.compile(r"\b\d+\.\d+ s\b")
_OF_TIME = re.compile(r"^clusterdp_\w*(seconds|time|last)\w*.*$", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """How a run ended, and what was told of it meanwhile."""

    made: ReleaseResult | None
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

    @property
    def made(self) -> ReleaseResult:
        """What it made."""
        if self.ended.made is None:
            raise AssertionError("a night without a file")
        return self.ended.made

    @cached_property
    def release(self) -> FileTables:
        """What was published."""
        return of_file(self.made.path)

    @cached_property
    def public(self) -> dict[str, pl.Series]:
        """Everything public about it, by its name."""
        told = {
            "the ending": [self.ending],
            "the log": list(map(self._without_place, self.ended.lines)),
            "notices": list(self.ended.notices),
            **self.left,
        }
        columns: dict[str, pl.Series] = {}
        if self.ended.made is not None:
            made, follow = self.made, ends_warnings(self.release.ends)
            told["notices"] = [one for one in self.ended.notices if one != "\n".join(follow)]
            told["warnings"] = [one for one in made.warnings if one not in follow]
            told["the roster"] = [repr(sorted(asdict(made.roster).items()))]
            told["what was paid"] = [repr(made.statement.as_json())]
            columns = dict(self.release.fixed())
        return columns | {name: pl.Series(of, dtype=pl.String) for name, of in told.items()}

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


def nights_of(
    plan: NightPlan, config: Config, designs: Sequence[AnyDesign], folder: Path, run: Run
) -> Iterator[AuditNight]:
    """Write the logs of nights of one experiment in a ``folder``, and run each."""
    asked = made_up(config, designs, folder, workers=plan.workers, hashed=plan.hashed)
    who = people(asked)
    chosen = resolve_release(asked, who.sizes)
    levels = levels_of(chosen.config, who, plan.outcomes)
    released_before = -1
    for number in range(plan.n_nights):
        numbers = who.numbers(number)
        who.write(period_of(number), numbers, on_grids(chosen.config, levels))
        if asked.privacy.returning == "set_aside":
            numbers = numbers[numbers > released_before]
            released_before = int(numbers.max())
        truth = Truth(chosen.config, chosen.designs, who, levels, numbers)
        yield AuditNight(plan, number, truth, run(asked, period_of(number)), _left(asked))


def levels_of(config: Config, who: MadeUpPeople, outcomes: str) -> list[Ints]:
    """The position of each outcome on its grid, by place; shape [n] each.

    Lower ones are more frequent where there is something to learn.
    """
    uneven = 2.5 if config.privacy.mechanism == "cluster-optimal-dp" else 1.0
    found = []
    for position, one in enumerate(config.outcomes):
        k = len(one.grid)
        level = (mixed(who.n_units, 20 + position) ** uneven * k).astype(np.int64)
        ways = {MIXED: level, OTHER_WAY: k - 1 - level, LOWEST: np.zeros_like(level)}
        found.append(ways[outcomes])
    return found
