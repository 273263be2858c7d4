"""Pages of reference that are made of the code: keys of the configuration, and commands."""

import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, Union, get_args, get_origin

import typer.main
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flows.cli.main import app
from flows.config.keys import bare, fields, in_markdown, meanings, section
from flows.config.model.experiment import Config
from flows.config.model.sections import Privacy
from flows.config.rules.checks import check_config
from flows.effects.config.effects import EffectConfig
from flows.effects.config.site import SiteConfig
from schemas.errors import ConfigError

_KINDS: dict[object, str] = {
    str: "text",
    float: "number",
    int: "whole number",
    bool: "true or false",
    type(None): "",
}
_STATISTICS = ("counts", "means", "none")
_PARAMETERS = (
    ("noise_scale",),
    ("resampling_probability", "noise_scale"),
    ("resampling_probability", "truncation_threshold", "noise_scale"),
)
_EXPERIMENT: dict[str, object] = {
    "experiment": "any",
    "source": {"path": "log.parquet"},
    "columns": {"unit": "unit", "arm": "arm", "outcome": "outcome"},
    "arms": {"control": "none", "treatments": ["some"]},
    "outcome": {"values": [0.0, 1.0, 2.0]},
}
_NEEDED = {"outcome": " Needed, unless there is `[[outcomes]]`."}  # of an experiment
_NOT_KEYS = ("directory",)  # of the whole file: where it lies


def configuration() -> str:
    """Every key of an experiment's configuration, then of a site's and of an effect model's."""
    parts = [
        "## An experiment\n",
        *_tables(Config),
        "### Which mechanism takes what\n",
        _mechanisms(),
        "## A site\n",
        "For `clusterdp site`: see [sites](../sites.md).\n",
        *_tables(SiteConfig),
        "## An effect model\n",
        "For `clusterdp cate`: see [who benefits](../effects.md).\n",
        *_tables(EffectConfig),
    ]
    return "\n".join(parts)


def commands() -> str:
    """Every command with its arguments and options."""
    program: Any = typer.main.get_command(app)  # a kind of typer's own without a public name
    return "\n".join(_command(name, command) for name, command in program.commands.items())


PAGES: Final[dict[str, Callable[[], str]]] = {
    "configuration": configuration,
    "commands": commands,
}


# keys


def _tables(model: type[BaseModel]) -> Iterator[str]:
    """A table for the keys at the root, and one for each section."""
    yield _table(model, _keys(model))
    yield from _sections(model)


def _keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a section that are no sections themselves."""
    found = fields(model).items()
    return {
        name: field
        for name, field in found
        if section(field.annotation) is None and name not in _NOT_KEYS
    }


def _sections(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """A table for each section within one, and for those within it."""
    for name, field in fields(model).items():
        table = section(field.annotation)
        if table is None:
            continue
        several = get_origin(bare(field.annotation)) is tuple
        heading = f"[[{above}{name}]]" if several else f"[{above}{name}]"
        needed = _NEEDED.get(name, "") if model is Config else ""
        if not field.is_required():
            needed = needed or " May be left out."
        yield f"### `{heading}`\n\n{in_markdown(inspect.getdoc(table) or '')}{needed}\n"
        yield _table(table, _keys(table))
        yield from _sections(table, f"{above}{name}.")


def _mechanisms() -> str:
    """What goes with each mechanism, found by asking the program's own checks."""
    lines = [
        "| mechanism | `strata_statistic`, with `epsilon` | in place of `epsilon` |",
        "|---|---|---|",
    ]
    for name in get_args(Privacy.model_fields["mechanism"].annotation):
        statistics = [f"`{one}`" for one in _STATISTICS if _goes(name, strata_statistic=one)]
        parameters = [names for names in _PARAMETERS if _goes(name, **dict.fromkeys(names, 0.1))]
        cells = (
            f"`{name}`",
            _any_of(statistics) or "leave it out",
            _any_of(map(_code, parameters)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _goes(mechanism: str, **keys: object) -> bool:
    """Whether a configuration with these keys of ``[privacy]`` is one."""
    given = {} if keys.keys() & {"noise_scale"} else {"epsilon": 1.0}
    content = _EXPERIMENT | {"privacy": {"mechanism": mechanism, **given, **keys}}
    try:
        check_config(Config.model_validate(content))
    except ConfigError:
        return False
    return True


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _any_of(words: Iterable[str]) -> str:
    return " or ".join(words)


def _table(model: type[BaseModel], fields: dict[str, FieldInfo]) -> str:
    found = meanings(model)
    lines = ["| key | is | default | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        cells = (f"`{name}`", _kind(field), _default(field), in_markdown(found[name]))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**needed**"
    value = field.default
    if value is None or value in ("", ()):
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def _kind(field: FieldInfo) -> str:
    """What a value may be, in words, with the limits that are declared beside it."""
    limits = [_limit(one) for one in field.metadata]
    return ", ".join([_in_words(field.annotation), *filter(None, limits)])


def _limit(limit: object) -> str:
    for name, words in {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}.items():
        bound = getattr(limit, name, None)
        if bound is not None:
            return f"{words} {bound:,}"
    return ""


def _in_words(annotation: object) -> str:
    kind = bare(annotation)
    if isinstance(kind, type) and get_origin(kind) is None:
        return _KINDS[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(f'`"{part}"`' for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(filter(None, map(_in_words, parts)))
    if origin is dict:
        return f"table of {_several(parts[1])}"
    if origin is tuple:
        return f"list of {_several(parts[0])}"
    raise TypeError(f"a kind of key that this page has no word for: {kind}")


def _several(annotation: object) -> str:
    """The same in the plural."""
    word = _in_words(annotation)
    return word if word == "text" else re.sub(r"^\w+", r"\g<0>s", word)


# commands


def _command(name: str, command: Any) -> str:
    with command.context_class(command, info_name=f"clusterdp {name}") as context:
        usage = command.get_usage(context).removeprefix("Usage: ")
        lines = [f"## clusterdp {name}", "", inspect.cleandoc(command.help or ""), ""]
        lines += ["```text", " ".join(usage.split()), "```", ""]
        lines += ["| argument or option | meaning |", "|---|---|"]
        for parameter in command.params:
            record = _parameter(parameter, context)
            if record is not None:
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in record) + " |")
    return "\n".join([*lines, ""])


def _parameter(parameter: Any, context: Any) -> tuple[str, str] | None:
    """How it is spelt and what it means; None for what every command has."""
    if parameter.param_type_name == "option":
        record = parameter.get_help_record(context)
        if record is None:
            return None
        return f"`{record[0]}`", str(record[1])
    return f"`{parameter.metavar or parameter.name.upper()}`", str(parameter.help or "")
