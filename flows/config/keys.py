"""The keys of a configuration, read off the models that check it: places and meanings."""

import ast
import inspect
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel


def bare(annotation: object) -> Any:
    """The type itself, without what is annotated."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def section(annotation: object) -> type[BaseModel] | None:
    """The model of a section's keys, however it is wrapped; None for a key."""
    kind = bare(annotation)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for part in get_args(kind) if (found := section(part))), None)


def section_at(model: type[BaseModel], steps: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The model of the section that the steps lead to, numbers among them; None for no section."""
    found: type[BaseModel] | None = model
    for step in steps:
        if isinstance(step, int) or found is None:
            continue
        field = found.model_fields.get(step)
        found = None if field is None else section(field.annotation)
    return found


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field, read from the source."""
    (tree,) = ast.parse(inspect.getsource(model)).body
    if not isinstance(tree, ast.ClassDef):
        raise TypeError(model)
    found: dict[str, str] = {}
    for statement, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[statement.target.id] = inspect.cleandoc(text.value)
    return found


def in_markdown(docstring: str) -> str:
    """A docstring on one line, in Markdown: it is written with double backticks and roles."""
    return " ".join(docstring.replace(":data:", "").replace(":func:", "").split()).replace(
        "``", "`"
    )
