"""`clusterdp audit`: the guarantee that a configuration claims, and the private step of a release.

Both are looked at on data that are made up. No outcome is read; who is in the log is read only
where the design is planned. Of an effect model its sums are looked at, and no log is read.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.config.effects import EffectConfig
from flows.config.load import load_any
from flows.plan import resolved_release_of
from flows.raw.audit.private_step import audit_step
from privatizers.audit.audit import AuditResult
from privatizers.audit.audit import audit as audit_claim
from privatizers.audit.checks import Check
from privatizers.audit.effect_models import EffectsAudit, audit_effects
from schemas.errors import ConfigError


@dataclass(frozen=True)
class Audit:
    """What was found of a claim, and of the code that makes a release."""

    mechanism: str
    claim: AuditResult
    step: tuple[Check, ...]
    """What was checked of the private step as a release calls it."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """Everything that was looked at."""
        return (*self.claim.checks, *self.step)

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp audit --json``."""
        return {
            "claimed_epsilon": self.claim.claimed_epsilon,
            "delta": self.claim.delta,
            "exact_epsilon": self.claim.exact_epsilon,
            "sampled_lower_bound": self.claim.sampled_lower_bound,
            "holds": self.holds,
            "confidence": self.claim.confidence,
            "n_samples": self.claim.n_samples,
            "mechanism": self.mechanism,
            "checks": [asdict(check) for check in self.checks],
        }


@dataclass(frozen=True)
class ModelAudit:
    """What was found of an effect model's claim, and of the code that draws its sums."""

    found: EffectsAudit

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return self.found.holds

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp audit --json``, of an effect model."""
        found = self.found
        return {
            "claimed_epsilon": found.claimed_epsilon,
            "delta": found.delta,
            "rho": found.rho,
            "attained_rho": found.attained_rho,
            "attained_epsilon": found.attained_epsilon,
            "n_neighbours": found.n_neighbours,
            "holds": found.holds,
            "mechanism": "moments",
            "checks": [asdict(check) for check in found.checks],
        }


def audit(config_path: Path, period: str | None) -> Audit | ModelAudit:
    """Audit the design that a release of ``period`` would have, or an effect model's sums."""
    config = load_any(config_path)
    if isinstance(config, EffectConfig):
        if config.privacy.learner != "moments":
            raise ConfigError(
                "privacy.learner", 'audits look at the sums of "moments", the default, alone'
            )
        return ModelAudit(audit_effects(config.design))
    (chosen,) = resolved_release_of(config_path, period).outcomes
    design = chosen.design
    claim = audit_claim(design.mechanism, design.epsilon, design.delta)
    step = audit_step(chosen.config, design)
    return Audit(design.mechanism.name, claim, tuple(step))
