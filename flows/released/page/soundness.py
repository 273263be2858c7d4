"""Whether a release's experiment looks sound, for ``templates/soundness.html``."""

from typing import Any, Final

from estimators.ends import ends_warnings
from flows.released.page.contents import Contents
from schemas.roster import SAMPLE_RATIO_ALARM

MUCH_ASIDE: Final = 0.05
"""Where a greater share of the rows was set aside, this is a warning."""


def soundness_facts(contents: Contents) -> dict[str, Any]:
    """Arm sizes, rows set aside, units that came back, and outcomes at the ends of grids."""
    manifest = contents.manifest
    aside, p_value = manifest.n_set_aside, manifest.sample_ratio_p
    share = None if aside is None else aside / max(aside + manifest.n_units, 1)
    return {
        "p_value": p_value,
        "is_mismatch": p_value is not None and p_value < SAMPLE_RATIO_ALARM,
        "alarm": SAMPLE_RATIO_ALARM,
        "sizes": [(arm, contents.sizes.get(arm, 0)) for arm in contents.arms],
        "aside": aside,
        "aside_share": share,
        "is_much_aside": share is not None and share > MUCH_ASIDE,
        "is_assigned": manifest.assigned,
        "is_clustered": contents.is_clustered,
        "assigned": contents.assigned or {},
        "returning": manifest.n_returning,
        "arm_changed": manifest.n_arm_changed,
        "ends": contents.ends,
        "one_value": ends_warnings(contents.ends),
    }
