"""Effects as an artifact of the run that is going on: whoever sees the server sees them there."""

import logging
import re
from collections.abc import Sequence

from estimators.arm_effects import Estimate
from flows.orchestration.states import running_flow

log = logging.getLogger("clusterdp")

_SHOWN = ("metric", "arm", "control", "segment", "estimator", "estimate", "ci_lower", "ci_upper")
_MOST_ROWS = 500  # an artifact is looked at; the document has all


def show_effects(experiment: str, source: str, estimates: Sequence[Estimate]) -> None:
    """Show effects that are published as the artifact ``clusterdp-EXPERIMENT``, if a flow runs.

    ``source`` says what they are of. That a server does not take it changes nothing of the run.
    """
    if running_flow() is None:
        return
    from prefect.artifacts import create_table_artifact

    rows = [{name: getattr(one, name) for name in _SHOWN} for one in estimates[:_MOST_ROWS]]
    key = re.sub(r"[^a-z0-9]+", "-", f"clusterdp-{experiment}".lower()).strip("-")
    try:
        create_table_artifact(rows, key=key, description=f"Effects: {source}")
    except Exception as error:
        log.warning("the Prefect server took no artifact of %s: %s", source, type(error).__name__)
