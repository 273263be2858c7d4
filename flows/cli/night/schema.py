"""``clusterdp schema``: what editors need to help with configurations."""

import json
from enum import StrEnum

from flows.cli.answer import Answer


class Kind(StrEnum):
    """The command that reads a configuration."""

    RELEASE = "release"
    SITE = "site"
    CATE = "cate"


def schema(kind: Kind = Kind.RELEASE) -> Answer:
    """Print a JSON Schema of configurations, for editors.

    An editor that knows TOML then offers keys, shows what they mean, and marks what is wrong. Put
    it beside your configurations as clusterdp.schema.json, and begin each of them with the line
    `#:schema ./clusterdp.schema.json`; `clusterdp init` does where the file is there. Reads
    nothing and writes nothing.

    Options:
        kind ([release|site|cate]): The command that reads the file.
    """
    from flows.config.json_schema import json_schema

    document = json_schema(kind.value)
    return Answer(lambda: json.dumps(document, indent=2), document)
