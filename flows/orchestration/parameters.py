"""What flows may be given, as the schema of a deployment states it.

A Prefect server holds parameters against that schema when a deployment is made, and when a run is
asked for: what does not fit is refused before there is a run, and no log is looked at for it. Who
calls a flow is told by the flow itself, in the words of the configuration.
"""

from typing import Annotated, Any

from pydantic import WithJsonSchema

from schemas.names import PERIOD


def _text(pattern: str, example: str) -> WithJsonSchema:
    stated: dict[str, Any] = {"type": "string", "pattern": f"^{pattern}$", "examples": [example]}
    return WithJsonSchema(stated)


ConfigPath = Annotated[str, _text(r"/.*[^/]", "/etc/clusterdp/autumn.toml")]
"""A file of the machine that the run is on, as an absolute path: a worker runs in any folder."""

Period = Annotated[str, _text(PERIOD, "2026-11-20")]
"""The name of a period."""

TimeZone = Annotated[str, _text(r"[A-Za-z][A-Za-z0-9_+/-]*", "Europe/Zurich")]
"""The name of a time zone; whether there is one of that name, the run says."""
