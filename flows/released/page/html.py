"""The pages: templates filled in by Jinja2.

Whatever a template is given is text: Jinja2 escapes it, after ``clean`` has taken out what no
page may hold, so that what people named their arms, clusters and experiments can be read and does
nothing. Markup is made in :mod:`flows.released.page.words` alone; the style sheet is put in as it
is, being our own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from flows.released.page import words

Rows = Sequence[tuple[object, Sequence[object]]]
"""Of each row, what it is about, and its cells."""


@dataclass(frozen=True)
class Table:
    """A table of numbers, which scrolls within its own box where it is too wide."""

    anchor: str
    caption: object
    head: Sequence[object]
    groups: Sequence[tuple[object, Rows]]
    """Rows that belong together, each with what stands over them; None for nothing."""


def table(anchor: str, caption: object, head: Sequence[object], rows: Rows) -> Table:
    """Return a table of one group."""
    return Table(anchor, caption, head, [(None, rows)])


def render(page: str = "page.html", /, **sections: Any) -> str:
    """Fill in a template of the folder ``templates``.

    Raises UndefinedError where a template misses a value.
    """
    return _templates().get_template(page).render(style=_style(), **sections)


@cache
def _style() -> str:
    """The style sheet without what is there to be read: comments and spaces."""
    style = files("flows.released.page").joinpath("style.css").read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/\s*|\s*([{};,])\s+|(:)\s+", r"\1\2", style)


@cache
def _templates() -> Environment:
    """The environment of every page: to compile the templates takes as long as to fill them in."""
    return environment()


def environment() -> Environment:
    """Templates that escape what they are given, and fail where a name stands for nothing."""
    templates = Environment(
        loader=PackageLoader("flows.released.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals |= _shared()
    templates.filters["grouped"] = words.grouped
    return templates


def _shared() -> Mapping[str, Any]:
    functions = (words.count, words.name, words.names, words.number, words.percent)
    return {"explorer": None, **{one.__name__: one for one in functions}}


def _cleaned(value: object) -> object:
    """Clean every text that is not a part of the page already."""
    return (
        words.clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
    )
