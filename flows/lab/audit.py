"""`clusterdp audit`: the whole promise of a configuration, kept or not, on data that are made up.

No outcome is read; who is in the log is read only where the design is planned. Of an effect model
its sums are looked at, and no log is read.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.config.load import kind_at
from flows.config.model.experiment import Config
from flows.effects.house import EFFECTS, load_effects
from flows.lab.raw.bound import SampledBound
from flows.lab.raw.nights import Ended
from flows.lab.raw.whole import CONFIDENCE, look
from flows.operate.watch.notices import WAITING, Waiting
from flows.plan import resolved_release_of
from flows.release import release_of
from privatizers.accounting.budget import Budget
from privatizers.lab.audit.checks import Check
from privatizers.lab.audit.effect_models import EffectsAudit, audit_effects
from schemas.errors import ConfigError

_ROUNDED = 1e-10
"""By how much of itself a computed ε may be rounded up."""


@dataclass(frozen=True)
class Audit:
    """What was found of a configuration's promise."""

    mechanism: str
    claimed: Budget
    metrics: tuple[str, ...]
    losses: tuple[float, ...]
    """ε of each made-up file, by the file alone."""
    bound: SampledBound
    checks: tuple[Check, ...]
    """Everything that was looked at."""

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    @property
    def exact_epsilon(self) -> float | None:
        """The most that a made-up file loses; the claim itself where at most 10⁻¹⁰ from it."""
        if not self.losses:
            return None
        most, claimed = max(self.losses), self.claimed.epsilon
        return claimed if abs(most - claimed) <= _ROUNDED * max(1.0, claimed) else most

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
            "mechanism": self.mechanism,
            "metrics": list(self.metrics),
            "checks": [asdict(check) for check in self.checks],
        }


def audit(config_path: Path, period: str | None) -> Audit | EffectsAudit:
    """Audit the release that ``period`` would have, or an effect model's sums."""
    if kind_at(config_path) is EFFECTS:
        config = load_effects(config_path)
        if config.privacy.learner != "moments":
            raise ConfigError(
                "privacy.learner", 'audits look at the sums of "moments", the default, alone'
            )
        return audit_effects(config.design)
    release = resolved_release_of(config_path, period)
    found = look(release.config, release.designs, release.price, release_night)
    return Audit(
        release.mechanism,
        release.price,
        tuple(one.name for one in release.config.outcomes),
        tuple(loss.epsilon for loss in found.losses),
        found.bound,
        tuple(found.checks),
    )


def release_night(config: Config, period: str) -> Ended:
    """Release a made-up night; what would be told to people is kept."""
    waiting: list[Waiting] = []
    token = WAITING.set(waiting)
    made, failure = None, None
    with _lines() as lines:
        try:
            made = release_of(config, period)
        except Exception as error:  # what an audit has to tell of
            failure = error
        finally:
            WAITING.reset(token)
    notices = (one.news.reason or one.notice.title for one in waiting)
    return Ended(made, failure, tuple(lines), tuple(notices))


@contextmanager
def _lines() -> Iterator[list[str]]:
    """What is logged meanwhile, of which nobody else is told."""
    log, lines = logging.getLogger("clusterdp"), list[str]()
    kept = log.handlers, log.level, log.propagate
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign] # one line
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.handlers, log.propagate = kept[0], kept[2]
        log.setLevel(kept[1])
