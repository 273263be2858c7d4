"""`clusterdp audit`: the guarantee that a configuration claims, and the private step of a release.

Both are looked at on data that are made up. No outcome is read; who is in the log is read only
where the design is planned. Of an effect model its sums are looked at, and no log is read.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flows.config.load import load_any
from flows.config.model.effects import EffectConfig
from flows.config.resolve import ResolvedRelease
from flows.plan import resolved_release_of
from flows.raw.audit.private_step import audit_step
from flows.raw.audit.several_outcomes import Whole, sampled_bound
from privatizers.audit.audit import AuditResult
from privatizers.audit.audit import audit as audit_claim
from privatizers.audit.checks import Check
from privatizers.audit.effect_models import EffectsAudit, audit_effects
from privatizers.audit.sampling import UNDER_TWO_MINUTES
from privatizers.audit.several_outcomes import JointLoss, joint_loss
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
class SeveralAudit:
    """What was found of a claim about several outcomes together, and of each."""

    mechanism: str
    metrics: tuple[str, ...]
    claims: tuple[AuditResult, ...]
    """Of each outcome at its part of ε."""
    together: JointLoss
    sampled_lower_bound: float
    """From made-up releases of all outcomes: a bound on what they lose together."""
    n_samples: int
    confidence: float
    step: tuple[Check, ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        """Everything that was looked at."""
        bound = f"epsilon {self.sampled_lower_bound:.4g} at least, from {self.n_samples:,} strata"
        within = self.sampled_lower_bound <= self.together.claimed_epsilon
        of_each = (
            replace(check, name=f"{metric}: {check.name}")
            for metric, claim in zip(self.metrics, self.claims, strict=True)
            for check in claim.checks
        )
        return (self.together.check, Check(_BOUND, within, bound), *of_each, *self.step)

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp audit --json``."""
        return {
            "claimed_epsilon": self.together.claimed_epsilon,
            "delta": self.together.delta,
            "exact_epsilon": self.together.epsilon,
            "sampled_lower_bound": self.sampled_lower_bound,
            "holds": self.holds,
            "confidence": self.confidence,
            "n_samples": self.n_samples,
            "mechanism": self.mechanism,
            "metrics": [
                {
                    "metric": metric,
                    "claimed_epsilon": claim.claimed_epsilon,
                    "delta": claim.delta,
                    "exact_epsilon": claim.exact_epsilon,
                    "sampled_lower_bound": claim.sampled_lower_bound,
                }
                for metric, claim in zip(self.metrics, self.claims, strict=True)
            ],
            "checks": [asdict(check) for check in self.checks],
        }


_BOUND = "no bound from samples of all outcomes together exceeds the claim"
_CONFIDENCE = 0.9999
_SAMPLED = 400_000  # made-up units behind the bound for all outcomes together


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


def audit(config_path: Path, period: str | None) -> Audit | SeveralAudit | ModelAudit:
    """Audit the design that a release of ``period`` would have, or an effect model's sums."""
    config = load_any(config_path)
    if isinstance(config, EffectConfig):
        if config.privacy.learner != "moments":
            raise ConfigError(
                "privacy.learner", 'audits look at the sums of "moments", the default, alone'
            )
        return ModelAudit(audit_effects(config.design))
    release = resolved_release_of(config_path, period)
    if release.config.named_outcomes:
        return _audit_several(release)
    (chosen,) = release.outcomes
    design = chosen.design
    claim = audit_claim(design.mechanism, design.epsilon, design.delta)
    step = audit_step(chosen.config, design)
    return Audit(design.mechanism.name, claim, tuple(step))


def _audit_several(release: ResolvedRelease) -> SeveralAudit:
    """Audit each outcome at its part, all together, and the release of all.

    What all cost is claimed without private clusters, as of one outcome.
    """
    config, designs, number = release.config, release.designs, len(release.designs)
    each = 1.0 - (1.0 - _CONFIDENCE) / (number + 2)
    effort = UNDER_TWO_MINUTES.divided(number)
    claims = tuple(
        audit_claim(one.mechanism, one.epsilon, one.delta, confidence=each, effort=effort)
        for one in designs
    )
    stated = config.cost.left_after(config.cluster_cost)
    together = joint_loss([one.mechanism for one in designs], stated.epsilon, stated.delta)
    bound, n_samples = sampled_bound(Whole(config, designs), _SAMPLED, 1.0 - each)
    step = audit_step(config, designs, confidence=each)
    return SeveralAudit(
        mechanism=release.mechanism,
        metrics=tuple(one.name for one in config.outcomes),
        claims=claims,
        together=together,
        sampled_lower_bound=bound.epsilon,
        n_samples=n_samples,
        confidence=_CONFIDENCE,
        step=tuple(step),
    )
