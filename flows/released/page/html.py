"""The pages: templates filled in by Jinja2.

Whatever a template is given is text: Jinja2 escapes it, after ``clean`` has taken out what no
page may hold, so that what people named their arms, clusters and experiments can be read and does
nothing. Markup is made in :mod:`flows.released.page.words` alone; the style sheet is put in as it
is, being our own.
"""

import os
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket

from flows.released.page import words
from flows.runtime.files import replace_file
from schemas.errors import InputError


def render(page: str = "page.html", /, **sections: Any) -> str:
    """Fill in a template of the folder ``templates``.

    Raises UndefinedError where a template misses a value.
    """
    template, program = _templates().get_template(page), version("clusterdp")
    return template.render(style=_style(), program=program, **sections)


def write_page(output: Path, page: str) -> Path:
    """Write a page to ``output``, whole or not at all; returns the absolute path.

    Raises InputError where it cannot be written.
    """
    try:
        with replace_file(output, mode=0o644) as file:
            file.write(page.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        reason = error.strerror
    else:
        return output.absolute()
    raise InputError(f"{output.absolute()}: cannot be written ({reason})")


@cache
def _style() -> str:
    """The style sheet without what is there to be read: comments and spaces."""
    style = files("flows.released.page").joinpath("style.css").read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/\s*|\s*([{};,])\s+|(:)\s+", r"\1\2", style)


@cache
def _templates() -> Environment:
    """The environment of every page: to compile the templates takes as long as to fill them in.

    What is compiled is kept where Python keeps its own, for the next time.
    """
    templates = environment()
    folder = files("flows.released.page").joinpath("__pycache__")
    templates.bytecode_cache = _Compiled(str(folder), f"%s.{version('clusterdp')}.jinja")
    return templates


class _Compiled(FileSystemBytecodeCache):
    """Templates as they are compiled, by their text; written where Python may write its own."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write what was compiled, if that can be done."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)


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
    functions = dict(getmembers(words, isfunction))
    templates.globals |= {"explorer": None, **functions}
    templates.filters |= functions
    return templates


def _cleaned(value: object) -> object:
    """Clean every text that is not a part of the page already."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return words.clean(str(value)) if is_text else value
