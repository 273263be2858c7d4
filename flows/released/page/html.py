"""The report's page: templates filled in by Jinja2.

Whatever a template is given is text: Jinja2 escapes it, after ``clean`` has taken out what no
page may hold, so that what people named their arms, clusters and experiments can be read and does
nothing. Two things alone are put in as they are, both our own: the style sheet, and figures as
:mod:`flows.released.page.svg` writes them.
"""

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from flows.released.page.words import clean, grouped, rounded_down, rounded_up, short, shown


def render(page: str = "page", /, **sections: Any) -> str:
    """Fill in a template (``page``, ``series`` or ``experiments``).

    Raises UndefinedError where a template misses a value.
    """
    style = files("flows.released.page").joinpath("style.css").read_text(encoding="utf-8")
    return _templates().get_template(f"{page}.html").render(style=style, **sections)


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
    templates.filters |= {
        "exact": lambda value: repr(float(value)),
        "grouped": grouped,
        "rounded_up": rounded_up,
        "rounded_down": rounded_down,
        "short": short,
        "shown": shown,
    }
    return templates


def _cleaned(value: object) -> object:
    """Clean every text that is not a part of the page already."""
    return clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
