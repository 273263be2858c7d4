"""`clusterdp audit`: a configuration's whole promise, kept or not, on data that are made up."""

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from flows.config.load import kind_at
from flows.config.resolve import ResolvedRelease
from flows.effects.house import EFFECTS, load_effects
from flows.lab.raw import nights, small_runs
from flows.lab.raw.draws import Drawn
from flows.lab.raw.made_up import people
from flows.lab.raw.nights import PLANS, AuditNight, NightPlan, nights_of
from flows.plan import resolved_release_of
from privatizers.accounting.budget import Budget
from privatizers.lab.audit.checks import Check, Events, Findings, judge
from privatizers.lab.audit.effect_models import EffectsAudit, audit_effects
from privatizers.lab.audit.lower_bounds import Bound
from schemas.errors import ConfigError

ENDS = "every made-up run ends as it should"
LOSS = "a released file keeps its rules, and loses no more than it states and than is claimed"
CHARGE = "the ledger is charged what a file loses, for each row of whoever pays"
PUBLIC = "all that is public is the same, whatever the outcomes"
FOLLOWS = "tables of outputs follow from what is published"
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
_ERROR = (1.0 - CONFIDENCE) / 8  # that of each check that looks at draws; there are eight at most
_log = logging.getLogger("clusterdp")


@dataclass
class Audit:
    """An audit of a configuration's promise, and what it has found so far."""

    release: ResolvedRelease
    claimed: Budget
    folder: Path
    plans: Sequence[NightPlan]
    checks: list[Check] = field(default_factory=list)
    exact_epsilon: float | None = None
    """The most that a made-up file loses, by the file alone; the claim where it rounds to that."""
    bound: Bound = field(default_factory=lambda: Bound(0.0, "none was looked for"))

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp audit --json``."""
        return {
            "claimed_epsilon": self.claimed.epsilon,
            "delta": self.claimed.delta,
            "exact_epsilon": self.exact_epsilon,
            "sampled_lower_bound": self.bound.epsilon,
            "holds": self.holds,
            "confidence": CONFIDENCE,
            "n_samples": self.bound.n_samples,
            "mechanism": self.release.mechanism,
            "metrics": [one.name for one in self.release.config.outcomes],
            "checks": [asdict(check) for check in self.checks],
        }

    def ask(self, name: str, found: Findings, *seen: str) -> None:
        """Ask one question, whose answer is found while it is asked; an error is one, too."""
        try:
            answer = judge(name, found, _ERROR, *seen)
        except Exception as error:  # whatever the code under audit does
            answer = Check(name, holds=False, evidence=f"{type(error).__name__}: {error}")
        self.checks.append(answer)


def ask_of_nights(audit: Audit) -> None:
    """Run nights by the very run, and ask of their files, charges and all that is public."""
    _log.info("running nights of made-up units")
    n_units, n_runs = people(audit.release.config).n_units, sum(one.n_nights for one in audit.plans)
    seen, ran = f"{n_runs} runs of {n_units:,} made-up units", list[AuditNight]()

    def runs() -> Iterator[str]:
        for number, plan in enumerate(audit.plans):
            ran.extend(nights_of(plan, audit.release, audit.folder / str(number)))
        yield from (f"{night}: {night.ending}" for night in ran if night.result is None)

    def losses() -> Iterator[str]:
        for night in made:
            loss, stated = night.loss, Budget(night.loss.stated_epsilon, night.loss.stated_delta)
            most, claimed = max(loss.epsilon, audit.exact_epsilon or 0.0), audit.claimed.epsilon
            audit.exact_epsilon = claimed if abs(most - claimed) <= 1e-10 * most else most
            if not loss.holds:
                yield f"{night}: its file, which loses epsilon {loss.epsilon:.6g}: {loss.broken[0]}"
            if stated != audit.claimed:
                told = f"epsilon {stated.epsilon!r} and delta {stated.delta!r}"
                yield f"{night}: its file states {told}"

    audit.ask(ENDS, runs(), seen)
    made = [night for night in ran if night.result is not None]
    audit.ask(PUBLIC, nights.differences(ran), seen)
    audit.ask(LOSS, losses(), seen)
    audit.ask(CHARGE, nights.undercharged(made), seen)
    audit.ask(FOLLOWS, chain(*map(nights.not_learnt, made)), seen)
    audit.ask(NIGHTS, chain(*map(nights.laws_of, made)))
    audit.ask(APART, nights.repeated(made))


def ask_of_draws(audit: Audit) -> None:
    """Draw small runs, of outcomes that differ as much as may be, and ask of their laws."""
    _log.info("drawing made-up units again and again")
    n_outcomes, each = len(audit.release.config.outcomes), list[Sequence[Drawn]]()

    def noise() -> Iterator[Events]:
        drawn = small_runs.draw_all(audit.release, audit.folder / "small")
        each.extend(zip(*drawn, strict=True))
        yield from chain(*map(small_runs.noise_of, each))

    audit.ask(NOISE, noise())
    outcomes, clusters = each[:n_outcomes], each[n_outcomes:]  # none of both where noise() failed
    if outcomes:
        audit.ask(DRAWS, chain(*map(small_runs.responses_of, outcomes)))
    for own in clusters:
        beside = small_runs.shared((one, own) for one in outcomes)
        audit.ask(LABELS, chain(small_runs.responses_of(own), beside))
    if len(outcomes) > 1:
        alike = all(one.alike for one in chain(*outcomes))
        twice = () if alike else ("a unit has two outputs, and one draw is published",)
        audit.ask(PAIRS, chain(twice, small_runs.shared(combinations(outcomes, 2))))


def ask_of_rounding(audit: Audit) -> None:
    """Ask how outcomes between points of the grid get onto it."""
    audit.ask(ROUNDED, small_runs.rounding(audit.release, audit.folder / "rounded"))


def ask_for_bound(audit: Audit) -> None:
    """Ask what samples of neighbours show to be lost."""
    _log.info("sampling made-up neighbours")

    def above() -> Iterator[str]:
        audit.bound = small_runs.sampled_bound(audit.release, audit.folder / "bound", _ERROR)
        if audit.bound.epsilon > audit.claimed.epsilon:
            yield f"epsilon {audit.bound.epsilon:.4g} at least: {audit.bound.evidence}"

    audit.ask(BOUND, above(), "samples of neighbours show no more")


QUESTIONS = (ask_of_nights, ask_of_draws, ask_of_rounding, ask_for_bound)


def look(
    release: ResolvedRelease,
    claimed: Budget,
    questions: Sequence[Callable[[Audit], None]] = QUESTIONS,
    plans: Sequence[NightPlan] = PLANS,
) -> Audit:
    """Audit a release, without reading its log."""
    with tempfile.TemporaryDirectory(prefix="clusterdp-audit-") as folder:
        audit = Audit(release, claimed, Path(folder), plans)
        for question in questions:
            question(audit)
    return audit


def audit(config_path: Path, period: str | None) -> Audit | EffectsAudit:
    """Audit the release that ``period`` would have, or an effect model's sums."""
    if kind_at(config_path) is EFFECTS:
        config = load_effects(config_path)
        if config.privacy.learner != "moments":
            why = 'audits look at the sums of "moments", the default, alone'
            raise ConfigError("privacy.learner", why)
        return audit_effects(config.design)
    release = resolved_release_of(config_path, period)
    return look(release, release.price)
