"""What is wrong with a configuration, all of it at once, in plain lines that name the keys."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from flows.config.keys import fields, section_at
from schemas.errors import ConfigError, SeveralConfigError, in_short, shown

_KINDS = ("str", "int", "float")
_ORDER = {"missing": 0, "extra_forbidden": 1}
"""What is told first: keys that are missing, then unknown ones, one of which may be meant."""
_BRANCHES = {"tuple", *(f"{more}{kind}" for more in ("", "constrained-") for kind in _KINDS)}
"""Branches of a union in pydantic's path."""


def plain(
    error: ValidationError, model: type[BaseModel], first: Sequence[tuple[str, str]] = ()
) -> ConfigError:
    """Say all of pydantic's findings, a line each; the error's key is that of the first.

    What was found ``first``, keys with their problems, stands before them.
    """
    found = sorted(_without_branches(error.errors()), key=lambda one: _ORDER.get(one["type"], 2))
    return SeveralConfigError.of([*first, *((_key(one), _problem(one, model)) for one in found)])


def _without_branches(findings: Iterable[Any]) -> Iterable[Any]:
    """One finding for a value that may be of several types and is of none."""
    seen: set[tuple[int | str, ...]] = set()
    for one in findings:
        steps = one["loc"]
        branch = next((place for place, step in enumerate(steps) if _is_branch(step)), None)
        if branch is not None:
            if steps[:branch] in seen:
                continue
            seen.add(steps[:branch])
        yield one


def _key(finding: Any) -> str:
    steps = (step for step in finding["loc"] if not _is_branch(step))
    spelt = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return in_short(spelt.removeprefix(".")) or "configuration"


def _problem(finding: Any, model: type[BaseModel]) -> str:
    if finding["type"] == "extra_forbidden":
        return "unknown key; remove it or correct its spelling" + _meant(finding["loc"], model)
    if finding["type"] == "missing":
        return "missing; it has to be given"
    if finding["type"] == "tuple_type" and (told := _by_name(finding, model)):
        return told
    message: str = finding["msg"][0].lower() + finding["msg"][1:]
    given = finding["input"]
    return message if isinstance(given, dict) else f"{message}, not {shown(given)}"


def _by_name(finding: Any, model: type[BaseModel]) -> str | None:
    """What to write in place of tables by name, ``[outcomes.visit]``; None where these are none."""
    given, key, place = finding["input"], _key(finding), section_at(model, finding["loc"])
    by_name = isinstance(given, dict) and all(isinstance(one, dict) for one in given.values())
    if not given or not by_name or place is None:
        return None
    name, called = in_short(next(iter(given))), "name" if "name" in fields(place) else "column"
    return f'tables by name; write [[{key}]] and {called} = "{name}" in place of [{key}.{name}]'


def _meant(steps: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """The known key of the same section that is spelt most alike, if one is."""
    place = section_at(model, steps[:-1])
    known = () if place is None else fields(place)
    near = get_close_matches(in_short(str(steps[-1])).lower(), known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _is_branch(step: int | str) -> bool:
    """Whether a step of pydantic's path names a branch of a union, not a key."""
    return isinstance(step, str) and ("[" in step or step in _BRANCHES)
