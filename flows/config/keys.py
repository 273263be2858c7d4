"""The keys of a configuration, read off the models that check it: places and meanings."""

import ast
import inspect
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


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


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the keys of a file, which a field may have an alias for.

    Where the file lies is a field, and no key.
    """
    named = model.model_fields.items()
    return {field.alias or name: field for name, field in named if not field.exclude}


def section_at(model: type[BaseModel], steps: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The model of the section that the steps lead to, numbers among them; None for no section."""
    found: type[BaseModel] | None = model
    for step in steps:
        if isinstance(step, int) or found is None:
            continue
        field = fields(found).get(step)
        found = None if field is None else section(field.annotation)
    return found


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field by its key, read from the source; inherited ones first."""
    (tree,) = ast.parse(inspect.getsource(model)).body
    if not isinstance(tree, ast.ClassDef):
        raise TypeError(model)
    found: dict[str, str] = {}
    for base in model.__bases__:
        if issubclass(base, BaseModel) and base.model_fields:
            found |= meanings(base)
    for statement, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                name = statement.target.id
                field = model.model_fields.get(name)
                found[(field.alias if field else None) or name] = inspect.cleandoc(text.value)
    return found


def in_markdown(docstring: str) -> str:
    """A docstring on one line, in Markdown: it is written with double backticks and roles."""
    return " ".join(docstring.replace(":data:", "").replace(":func:", "").split()).replace(
        "``", "`"
    )
