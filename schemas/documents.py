"""Dataclasses as JSON documents: written field by field, and read back strictly.

A field's name is its key; a tuple or an array is a list, a path a text. What a document holds must
be all of the fields and nothing else, each of its own type: ``1`` is no truth, and NaN no number.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from schemas.errors import InputError, in_short, shown
from schemas.json_text import checksum, parsed

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_CHECKSUM: Final = "checksum"
_NO_FIELD: Final = "unexpected_keyword_argument"


class Document:
    """A dataclass with a JSON document, which has all of its fields unless it says otherwise."""

    __pydantic_config__: ClassVar[dict[str, object]] = {
        "strict": True,
        "extra": "forbid",
        "allow_inf_nan": False,
        "str_min_length": 1,
    }

    def as_json(self) -> dict[str, Any]:
        """The document, as ``--json`` or a file has it."""
        return fields_of(self)


class OpenDocument(Document):
    """A document that later versions may add to: what is not known of it is passed over."""

    __pydantic_config__: ClassVar[dict[str, object]] = {
        "strict": True,
        "extra": "ignore",
        "allow_inf_nan": False,
    }


@dataclass(frozen=True)
class Sort:
    """What documents of one sort, which are files by themselves, say of themselves."""

    kind: str
    version: int
    what: str
    """Such as "a site report"."""
    command: str
    """What makes one."""


def fields_of(value: object, kind: type | None = None) -> dict[str, Any]:
    """Return every field of a dataclass, or of its base ``kind``, by its name, as JSON has it."""
    return {name: plain(getattr(value, name)) for name in _names(kind or type(value))}


def plain(value: Any) -> Any:
    """Return a value as JSON has it; whatever has a document of its own (``as_json``) is that."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if is_dataclass(value):
        return fields_of(value)
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, PurePath):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value


def taken(kind: type[T], /, *sources: object, **given: Any) -> T:
    """Make a dataclass of what is ``given``, and the first attribute of each other field's name."""
    found = {
        name: getattr(one, name)
        for name in _names(kind)
        for one in reversed(sources)
        if hasattr(one, name)
    }
    return kind(**found | given)


def _names(kind: type) -> Iterable[str]:
    return [one.name for one in fields(kind)]


def sealed(content: dict[str, Any], *, indent: int) -> str:
    """Return the text of a document that is a file, with the checksum of its content."""
    whole = content | {_CHECKSUM: checksum(content)}
    return json.dumps(whole, indent=indent, allow_nan=False, ensure_ascii=False) + "\n"


def opened(text: str, place: str, sort: Sort) -> dict[str, Any]:
    """Return the content of a text that :func:`sealed` made; ``place`` names it in errors.

    Raises InputError where it is of another sort or schema version, or was changed since.
    """
    content = parsed(text, place, sort.what)
    if content.get("kind") != sort.kind:
        raise InputError(f"{place}: not {sort.what} (one is made by clusterdp {sort.command})")
    version = content.get("schema_version")
    if version != sort.version:
        raise InputError(
            f"{place}: {sort.what} of schema version {shown(version)}, and this program reads "
            f"version {sort.version}; versions cannot be mixed, so use the clusterdp that made it"
        )
    given = content.pop(_CHECKSUM, None)
    if given != checksum(content):
        raise InputError(
            f"{place}: altered by hand, or cut short (its checksum does not fit its content); get "
            "it again from where it was published"
        )
    return content


def parsed_as(kind: type[T], content: object, place: str) -> T:
    """Return the dataclass that a document is.

    Raises InputError, with the key at fault and without its value, where it is none.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - most commands read no document

    try:
        adapter = _adapter(kind)  # type: ignore[arg-type] # classes are hashable
        found: T = adapter.validate_json(json.dumps(content))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        key = in_short(".".join(map(str, first["loc"])))
        rule = "no such field" if first["type"] == _NO_FIELD else first["msg"]
    else:
        key, rule = _left_out(plain(found), content), "field required"
        if not key:
            return found
    raise InputError(f"{place}: {key or 'the document'}: {rule[0].lower()}{rule[1:]}")


@functools.cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter  # noqa: PLC0415 - as in parsed_as

    return TypeAdapter(kind)


def _left_out(whole: Any, given: Any) -> str:
    """The first key that a document left to the dataclass's default; empty where there is none."""
    if whole == given:
        return ""
    inner = whole.items() if isinstance(whole, dict) else enumerate(whole)
    for name, one in inner:
        if isinstance(given, dict) and name not in given:
            return str(name)
        if isinstance(one, dict | list) and (below := _left_out(one, given[name])):
            return f"{name}.{below}"
    return ""
