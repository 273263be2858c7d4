"""`clusterdp audit`: the whole promise of a configuration, kept or not, on data that are made up.

No outcome is read; who is in the log is read only where the design is planned. Of an effect model
its sums are looked at, and no log is read.
"""

from pathlib import Path

from flows.config.load import kind_at
from flows.effects.house import EFFECTS, load_effects
from flows.lab.raw.whole import Audit, look
from flows.plan import resolved_release_of
from privatizers.lab.audit.effect_models import EffectsAudit, audit_effects
from schemas.errors import ConfigError


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
    return look(release, release.price)
