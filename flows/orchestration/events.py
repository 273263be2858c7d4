"""Events of ours on a Prefect server, for its automations: public facts of an experiment.

They are told within a flow run alone, so runs without Prefect tell it nothing. Prefect adds the
run, its flow and its deployment to them.
"""

from collections.abc import Mapping
from typing import Any

from flows.orchestration.states import running_flow


def tell_prefect(
    event: str, experiment: str, period: str | None, payload: Mapping[str, Any]
) -> None:
    """Tell the server of the flow that is running, if one is, of an event of a period.

    The event is called ``clusterdp.EVENT``. Its resource has the labels ``clusterdp.experiment``
    and ``clusterdp.period``, which is empty where the event is of no period.
    """
    if running_flow() is None:
        return
    from prefect.events import emit_event

    names = (experiment,) if period is None else (experiment, period)
    resource = {
        "prefect.resource.id": ".".join(("clusterdp", *names)),
        "prefect.resource.name": " ".join(names),
        "clusterdp.experiment": experiment,
        "clusterdp.period": period or "",
    }
    emit_event(f"clusterdp.{event}", resource, payload=dict(payload))
