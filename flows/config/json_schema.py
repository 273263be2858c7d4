"""A JSON Schema of configurations, for editors: keys, types, defaults and meanings.

It holds what can be said of each key by itself. What keys have to be like together is told by
``clusterdp check`` alone.
"""

from typing import Any

from pydantic import BaseModel

from flows.config.keys import fields, in_markdown, meanings, section
from flows.config.kinds import RELEASE, kinds

SCHEMA_FILE = "clusterdp.schema.json"
"""What a schema beside configurations is called by convention."""


def json_schema(command: str) -> dict[str, Any]:
    """The schema of the configurations that a command reads, in JSON Schema's draft 2020-12."""
    model, _ = next(kind.rules() for kind in kinds() if kind.command == command)
    schema = model.model_json_schema()
    del schema["properties"]["directory"]  # where the file lies
    _explain(schema, model)
    models = _sections(model)
    if command == RELEASE.command:  # there is [outcome], without a default, or [[outcomes]]
        del schema["properties"]["outcome"]["default"]
    for name, part in schema["$defs"].items():
        _explain(part, models[name])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"A configuration for clusterdp {command}",
    }


def _sections(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    for field in fields(model).values():
        part = section(field.annotation)
        if part is not None:
            found |= {part.__name__: part, **_sections(part)}
    return found


def _explain(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Say what each key means; leave out the titles that repeat it, and defaults of nothing."""
    schema.pop("title", None)
    schema["description"] = in_markdown(schema.get("description", ""))
    told = meanings(model)
    for name, key in schema["properties"].items():
        key.pop("title", None)
        if key.get("default", "") is None:
            del key["default"]
        if name in told:
            key["description"] = in_markdown(told[name])
