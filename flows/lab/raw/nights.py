"""Nights of made-up people, by the very run of a release, and what an audit asks of them."""

import logging
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from logging.handlers import BufferingHandler
from pathlib import Path

import numpy as np
import polars as pl

from flows.config.resolve import ResolvedRelease, resolve_release
from flows.lab.raw.draws import Drawn, FileTables, draws_of, of_file
from flows.lab.raw.made_up import LOWEST, MIXED, OTHER_WAY, MadeUpPeople, made_up, people
from flows.lab.raw.small_runs import noise_of, responses_of, shared
from flows.ledger.account import Account
from flows.operate.watch.notices import WAITING, Waiting
from flows.release import ReleaseResult, release_of
from flows.released.file.checks.stated import stated_warnings
from flows.released.loss.check import check_loss
from flows.released.loss.loss import Loss
from privatizers.accounting.budget import Budget, of_group
from privatizers.lab.audit.checks import Events
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from schemas.arrays import Floats
from schemas.raw import FILE

_TIMED = re.compile(r"\b\d+\.\d+ s\b")
_OF_TIME = re.compile(r"^clusterdp_\w*(seconds|time|last)\w*.*$", re.MULTILINE)
_ENOUGH = 1.0 - 1e-9  # of a sum of losses that was computed in doubles


@dataclass(frozen=True)
class NightPlan:
    """Nights that are run one after the other, in one of the ways that a run may go."""

    outcomes: str
    workers: int | None = None
    hashed: bool = False
    n_nights: int = 1


PLANS = (
    NightPlan(MIXED, n_nights=2),
    NightPlan(OTHER_WAY),
    NightPlan(LOWEST),
    NightPlan(OTHER_WAY, workers=2),
    NightPlan(MIXED, hashed=True),
    NightPlan(OTHER_WAY, workers=2, hashed=True),
)
"""Everything public is the same, whatever the outcomes and the way, but for ids that are hashed."""


@dataclass(frozen=True)
class AuditNight:
    """One run, and everything that was told or left by it."""

    plan: NightPlan
    number: int
    people: MadeUpPeople
    result: ReleaseResult | None
    ending: str
    told: dict[str, list[str]]
    """What was told of it meanwhile, and what was in its folder and its ledger when it ended."""

    def __str__(self) -> str:
        """Tell it apart."""
        way = "in memory" if self.plan.workers is None else "by workers"
        hashed = ", with hashed ids" * self.plan.hashed
        return f"{way}{hashed}, outcomes {self.plan.outcomes}, night {self.number + 1}"

    @property
    def made(self) -> ReleaseResult:
        """What it made."""
        if self.result is None:
            raise AssertionError("a night without a file")
        return self.result

    @cached_property
    def release(self) -> FileTables:
        """What was published."""
        return of_file(self.made.path)

    @cached_property
    def drawn(self) -> list[Drawn]:
        """What was drawn."""
        drawn = draws_of(self.people, self.release)
        return [replace(one, name=f"{one.name} ({self})") for one in drawn]

    @cached_property
    def loss(self) -> Loss:
        """What its file costs, by the file alone."""
        return check_loss(self.made.path)

    @cached_property
    def public(self) -> dict[str, pl.Series]:
        """Everything public about it, by its name, without how long anything took, and where."""
        told, columns = {"the ending": [self.ending], **self.told}, dict[str, pl.Series]()
        if self.result is not None:
            follow = stated_warnings(self.made.path)
            told["notices"] = [one for one in told["notices"] if one != "\n".join(follow)]
            told["warnings"] = [one for one in self.result.warnings if one not in follow]
            told["the roster"] = [repr(sorted(asdict(self.result.roster).items()))]
            told["what was paid"] = [repr(self.result.statement.as_json())]
            columns = dict(self.release.fixed())
        place = str(self.people.config.directory)
        return columns | {
            name: pl.Series(
                [_TIMED.sub("… s", one.replace(place, "…")) for one in of], dtype=pl.String
            )
            for name, of in told.items()
        }


def nights_of(plan: NightPlan, release: ResolvedRelease, folder: Path) -> Iterator[AuditNight]:
    """Write the logs of nights of one experiment in a ``folder``, and run each."""
    config = made_up(release, folder, workers=plan.workers, hashed=plan.hashed)
    who = people(config).having(plan.outcomes)
    for number in range(plan.n_nights):  # half of the people of each are new
        period = f"2001-01-{number + 1:02d}"
        night = replace(who, numbers=who.numbers + number * (who.n_units // 2))
        night.write(period, who.outcomes)
        if number and config.privacy.returning == "set_aside":  # who was there the night before
            night = replace(night, numbers=night.numbers[-(who.n_units // 2) :])
        made, ending = None, "published"
        with _listening() as (records, notices):
            try:
                made = release_of(config, period)
            except Exception as error:  # what an audit has to tell of
                ending = f"{type(error).__name__}: {error}"
        # What goes on beside another step may tell of itself before or after what that tells.
        records.sort(key=lambda one: one.thread != threading.get_ident())
        told = {
            "the log": [one.getMessage() for one in records],
            "notices": [one.news.reason or one.notice.title for one in notices],
            "files": sorted(
                str(path.relative_to(folder))
                for kept in (config.releases, config.quarantined)
                for path in kept.rglob("*")
            ),
            "rows set aside": [
                repr(row)
                for path in sorted(config.quarantined.glob("*.parquet"))
                for row in pl.read_parquet(path).drop(FILE, strict=False).rows()
            ],
            "metrics": [
                _OF_TIME.sub("", path.read_text(encoding="utf-8"))
                for path in sorted((folder / "metrics").glob("*"))
            ],
            "the ledger": [repr(entry.cost) for entry in Account.of(config).entries()],
        }
        yield AuditNight(plan, number, night, made, ending, told)


@contextmanager
def _listening() -> Iterator[tuple[list[logging.LogRecord], list[Waiting]]]:
    """Keep what a run tells, its log and its notices, from everybody else."""
    log, handler = logging.getLogger("clusterdp"), BufferingHandler(sys.maxsize)
    notices: list[Waiting] = []
    handlers, level, propagate = log.handlers, log.level, log.propagate
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    token = WAITING.set(notices)
    try:
        yield handler.buffer, notices
    finally:
        WAITING.reset(token)
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)


def differences(ran: Sequence[AuditNight]) -> Iterator[str]:
    """Everything public that differs between first nights of people who have other outcomes."""
    known: dict[bool, AuditNight] = {}
    for night in (night for night in ran if night.number == 0):
        first = known.setdefault(night.plan.hashed, night)
        for name in first.public | night.public:
            one, two = first.public.get(name), night.public.get(name)
            if one is None or two is None or not one.equals(two, check_dtypes=True):
                yield f"{night}: {name} is another than {first}"


def undercharged(made: Sequence[AuditNight]) -> Iterator[str]:
    """Where the ledger was charged less than files lose, by each night and by all of a person's."""
    lost_by: dict[Path, Floats] = {}
    for night in made:
        who, period = night.people, night.made.manifest.period
        entries = Account.of(who.config).entries()
        (charged,) = (one.cost for one in entries if one.name.period == period)
        payers, rows = np.unique(who.payers, return_counts=True)
        loss, spent = night.loss, night.made.statement.spent
        lost = of_group(Budget(loss.epsilon, loss.stated_delta), int(rows.max()))
        by_now = lost_by.setdefault(who.config.directory, np.zeros(2 * who.n_units))
        by_now[payers] += lost.epsilon
        of_all = Budget(float(by_now[payers].max()))
        for what, amount, paid in (("", lost, charged), ("by now ", of_all, spent)):
            if not Budget(amount.epsilon * _ENOUGH, amount.delta * _ENOUGH) <= paid:
                told = f"epsilon {amount.epsilon:.6g}, and {paid.epsilon:.6g} is charged"
                yield f"{night}: all rows of one who pays lose {what}{told}"


def not_learnt(night: AuditNight) -> Iterator[str]:
    """Response tables that are not those which the mechanism makes of the published counts."""
    chosen = resolve_release(night.people.config, night.people.sizes)
    for one, design in zip(chosen.config.outcomes, chosen.designs, strict=True):
        mechanism, own = design.mechanism, night.release.of_outcome(one.name)
        # Readers hold the tables of a pair's second outcome against those of its first.
        second = isinstance(mechanism, PairedOptimalDP) and mechanism.place == 1
        if not isinstance(mechanism, ClusterOptimalDP) or second:
            continue
        of_strata, of_arms = (
            None if noisy is None else noisy.astype(np.int64)
            for noisy in (own.of_each(name, "noisy_count") for name in ("counts", "arm_counts"))
        )
        arm = np.argmax(own.cells["arm"].to_numpy()[:, None] == own.arms["arm"].to_numpy(), axis=1)
        n_units = own.frames["pools"]["n_units"].to_numpy().astype(np.int64)
        made, (q, table_of) = mechanism.response(of_strata, n_units, arm, of_arms), own.tables()
        if not np.array_equal(q[table_of], made.probabilities[made.table_of]):
            yield f"{night}: {one.name}: tables are not those of the published counts"


def laws_of(night: AuditNight) -> Iterator[Events]:
    """Noise and draws of a night by itself: whatever way it went."""
    for one in night.drawn:
        yield from noise_of([one])
        yield from responses_of([one])


def repeated(made: Sequence[AuditNight]) -> Iterator[Events]:
    """Pairs of nights: neither noise nor draws of one are those of another.

    Units are paired that are in the same place both nights; they need not be the same people.
    """
    for one, other in combinations(made, 2):
        yield from shared(([a], [b]) for a, b in zip(one.drawn, other.drawn, strict=True))
