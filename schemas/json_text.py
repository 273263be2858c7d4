"""JSON documents that were written by others: read strictly, and known again by a checksum."""

import hashlib
import json
from typing import Any, NoReturn

from schemas.errors import InputError, shown


def checksum(document: dict[str, Any]) -> str:
    """Return ``sha256:`` and the digest of the content in one spelling: JSON with sorted keys."""
    spelt = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(spelt.encode()).hexdigest()}"


def parsed(text: str, place: str, what: str) -> dict[str, Any]:
    """Return the object that a JSON text is; ``place`` names it in errors, ``what`` says its kind.

    Raises InputError where it is none, where a field stands in it twice, or where a text in it has
    half a character, which no file can hold.
    """
    try:
        document = json.loads(text, parse_constant=_no_number, object_pairs_hook=_once_each)
        _check_whole(document)
    except _TwiceError as error:
        raise InputError(f"{place}: the field {error} stands in it twice") from None
    except _HalfError as error:
        raise InputError(f"{place}: {error} holds half a character, which is no text") from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InputError(f"{place}: not a JSON document, or cut short; {what} is one")
    return document


class _TwiceError(ValueError):
    """A field stands in a document twice, so that readers may differ in which one they take."""


class _HalfError(ValueError):
    """A text has half a character: JSON can spell it, UTF-8 cannot."""


def _check_whole(document: object) -> None:
    """Raise _HalfError, naming the field of the document, where a text in it is none."""
    fields = document.items() if isinstance(document, dict) else [("", document)]
    for name, value in fields:
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            half = shown(name)
        else:
            continue
        raise _HalfError(half)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(shown(name))
        found[name] = value
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
