"""An audit of the whole promise: made-up people are released, and everything is looked at.

Each question is a check. An error within one, of the code under audit or in what it made, fails
that check by its name; none of them can leave the rest unasked.
"""

import itertools
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flows.config.model.experiment import AnyDesign, Config
from flows.lab.raw import draw_checks, night_checks
from flows.lab.raw.bound import SampledBound, sampled_bound
from flows.lab.raw.draws import DrawnOutcome, draws_of
from flows.lab.raw.made_up_config import made_up
from flows.lab.raw.made_up_log import people
from flows.lab.raw.nights import (
    MIXED,
    OTHER_WAY,
    PLANS,
    AuditNight,
    NightPlan,
    Run,
    levels_of,
    nights_of,
)
from flows.lab.raw.small_runs import on_grids, small_run
from flows.released.loss.check import check_loss
from flows.released.loss.loss import Loss
from privatizers.accounting.budget import Budget
from privatizers.lab.audit.checks import Check, Events, exactly, judge_events
from privatizers.lab.audit.laws import Responses

ENDS = "every made-up run ends as it should"
LOSS = "what a released file tells loses no more than it states, which is what is claimed"
CHARGE = "the ledger is charged what a file loses, for each row of whoever pays"
PUBLIC = "all that is public is the same, whatever the outcomes"
FOLLOWS = "priors, tables, weights and unit values follow from what is published"
NIGHTS = "noise and draws of every night are as published, in each way that a run goes"
APART = "no night has the noise or the draws of another"
NOISE = "noise has the published scale in every pool and arm, and no two share it"
DRAWS = "outcomes are drawn as published, in every pool and arm, each by itself"
LABELS = "private clusters are drawn as stated, each by itself"
PAIRS = "no two outcomes share noise or a draw, unless they are published as drawn together"
ROUNDED = "outcomes are rounded onto the grid one by one, and counted as rounded"
BOUND = "no bound from samples of neighbours exceeds the claim"

CONFIDENCE = 0.9999
"""An audit accuses sound code with a probability of at most 1 − this."""
_ERROR = (1.0 - CONFIDENCE) / 8
"""That of each check that looks at draws; there are eight at most."""
_log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class AuditSubject:
    """What is to be audited: a configuration with resolved grids, and how it is run."""

    config: Config
    designs: Sequence[AnyDesign]
    """Those that were resolved for it."""
    claimed: Budget
    """What a release of it states."""
    run: Run
    folder: Path
    plans: Sequence[Sequence[NightPlan]] = PLANS

    def made_up(self, name: str) -> Config:
        """The configuration of small runs in a folder of this name."""
        return made_up(self.config, self.designs, self.folder / name)


@dataclass
class AuditFindings:
    """What an audit has found so far."""

    checks: list[Check] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    """Of the made-up files, in the order of their nights."""
    bound: SampledBound = field(default_factory=lambda: SampledBound(0.0, 0, "none was looked for"))

    def ask(self, name: str, question: Callable[[], Check]) -> None:
        """Ask one question; an error is an answer, too."""
        try:
            answer = question()
        except Exception as error:  # whatever the code under audit does
            answer = Check(name, holds=False, evidence=f"{type(error).__name__}: {error}")
        self.checks.append(answer)

    def ask_exactly(self, name: str, problems: Callable[[], Iterable[str]], seen: str) -> None:
        """Ask for problems that sound code never has."""
        self.ask(name, lambda: exactly(name, list(problems()), seen))

    def ask_laws(self, name: str, events: Callable[[], Iterable[Events]]) -> None:
        """Ask whether something was drawn as it should."""
        self.ask(name, lambda: judge_events(name, list(events()), _ERROR))


def ask_of_nights(found: AuditFindings, asked: AuditSubject) -> None:
    """Run nights by the very run, and ask of their files, charges and all that is public."""
    _log.info("running nights of made-up units")
    groups: list[list[AuditNight]] = []
    found.ask(ENDS, lambda: _ended(asked, groups))
    made = [night for night in itertools.chain(*groups) if night.ended.made is not None]
    drawn: list[list[DrawnOutcome]] = []

    def losses() -> Iterator[str]:
        for night in made:
            found.losses.append(check_loss(night.made.path))
            yield from night_checks.overspent(night, found.losses[-1], asked.claimed)

    def laws() -> Iterator[Events]:
        for night in made:
            drawn.append(draws_of(night.truth, night.release))
            yield from night_checks.laws_of(drawn[-1], night)

    seen = _seen(groups)
    found.ask_exactly(PUBLIC, lambda: itertools.chain(*map(night_checks.differences, groups)), seen)
    found.ask_exactly(LOSS, losses, seen)
    found.ask_exactly(CHARGE, lambda: night_checks.undercharged(made, found.losses), seen)
    found.ask_exactly(FOLLOWS, lambda: night_checks.not_following(made, found.losses), seen)
    found.ask_laws(NIGHTS, laws)
    found.ask_laws(APART, lambda: night_checks.repeated(drawn, made))


def _ended(asked: AuditSubject, groups: list[list[AuditNight]]) -> Check:
    """Run all nights into ``groups``: whether each ends as it should."""
    for number, plans in enumerate(asked.plans):
        groups.append([])
        for place, plan in enumerate(plans):
            folder = asked.folder / f"{number}-{place}"
            groups[-1] += nights_of(plan, asked.config, asked.designs, folder, asked.run)
    every = itertools.chain(*groups)
    failed = [f"{one}: {one.ending}" for one in every if one.ended.made is None]
    return exactly(ENDS, failed, _seen(groups))


def _seen(groups: Sequence[Sequence[AuditNight]]) -> str:
    people_of = [night.truth.people.n_units for night in itertools.chain(*groups)]
    return f"{len(people_of)} runs of {max(people_of, default=0):,} made-up units"


def ask_of_draws(found: AuditFindings, asked: AuditSubject) -> None:
    """Draw small runs, of outcomes that differ as much as may be, and ask of their laws."""
    _log.info("drawing made-up units again and again")
    drawn: list[list[DrawnOutcome]] = []
    labels: list[Responses] = []

    def noise() -> Iterator[Events]:
        config = asked.made_up("small")
        who = people(config)
        first, second = (levels_of(config, who, kind) for kind in (MIXED, OTHER_WAY))
        with (
            small_run(config, who, on_grids(config, first), "first") as one,
            small_run(config, who, on_grids(config, second), "second") as other,
        ):
            for outcomes, own in draw_checks.draw_all((one, other), (first, second)):
                drawn.append(outcomes)
                labels.extend([] if own is None else [own])
        yield from draw_checks.noise_of_all(drawn)

    def shared() -> Iterator[Events]:
        if not all(one.alike for outcomes in drawn for one in outcomes):
            raise AssertionError("a unit has two outputs, and one draw is published")
        yield from draw_checks.shared_by_outcomes(drawn)

    found.ask_laws(NOISE, noise)
    found.ask_laws(DRAWS, lambda: draw_checks.responses_of_all(drawn))
    if asked.config.private_clusters is not None:
        found.ask_laws(LABELS, lambda: draw_checks.labels_of_all(drawn, labels))
    if len(asked.config.outcomes) > 1:
        found.ask_laws(PAIRS, shared)


def ask_of_rounding(found: AuditFindings, asked: AuditSubject) -> None:
    """Ask how outcomes between points of the grid get onto it."""

    def rounding() -> Check:
        config = asked.made_up("rounded")
        who = people(config)
        values = draw_checks.between(config, who.n_units)
        with small_run(config, who, values, "off-grid") as run:
            problems, events = draw_checks.rounding(run, values)
        return (
            judge_events(ROUNDED, events, _ERROR)
            if not problems
            else exactly(ROUNDED, problems, "")
        )

    found.ask(ROUNDED, rounding)


def ask_for_bound(found: AuditFindings, asked: AuditSubject) -> None:
    """Ask what samples of neighbours show to be lost."""
    _log.info("sampling made-up neighbours")

    def bound() -> Check:
        found.bound = sampled_bound(asked.made_up("bound"), _ERROR)
        evidence = f"epsilon {found.bound.epsilon:.4g} at least: {found.bound.evidence}"
        return Check(BOUND, found.bound.epsilon <= asked.claimed.epsilon, evidence)

    found.ask(BOUND, bound)


QUESTIONS = (ask_of_nights, ask_of_draws, ask_of_rounding, ask_for_bound)


def look(
    config: Config,
    designs: Sequence[AnyDesign],
    claimed: Budget,
    run: Run,
    questions: Sequence[Callable[[AuditFindings, AuditSubject], None]] = QUESTIONS,
    plans: Sequence[Sequence[NightPlan]] = PLANS,
) -> AuditFindings:
    """Audit a configuration, see :class:`AuditSubject`, without reading its log."""
    found = AuditFindings()
    with tempfile.TemporaryDirectory(prefix="clusterdp-audit-") as folder:
        asked = AuditSubject(config, designs, claimed, run, Path(folder), plans)
        for question in questions:
            question(found, asked)
    return found
