"""Pandera's model of a site's report, a table of one row that leaves the site.

Apart from :mod:`schemas.effects.site`, since pandera brings pandas: who only reads does without.
"""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from schemas.effects.site import SiteReport
from schemas.frames import Model, hold, not_empty

_KINDS = {"string": pl.String, "integer": pl.Int64, "number": pl.Float64}
_DECLARED: Mapping[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    "minimum": pl.Expr.ge,
    "exclusiveMinimum": pl.Expr.gt,
    "maximum": pl.Expr.le,
    "exclusiveMaximum": pl.Expr.lt,
    "enum": pl.Expr.is_in,
    "pattern": lambda column, pattern: column.str.contains(pattern),
}
"""A column's rule by the word of JSON Schema that declares it; NaN is above every end."""


def judge_report(report: SiteReport) -> None:
    """Hold a site's report, a table of one row, to its model; raises InputError as :func:`judge`.

    Its columns and their ends are those that its fields declare to pydantic, which reads reports.
    """
    facts = TypeAdapter(SiteReport).json_schema()["properties"]
    rules: dict[str, pl.Expr] = {
        "report_id: of its other fields": pl.col("report_id")
        == pl.format("{}@{}.{}.r{}", "experiment", "site", "period", "revision"),
        "treatment: is not control": pl.col("treatment") != pl.col("control"),
        "outcome_bound: outcome_high − outcome_low": pl.col("outcome_bound")
        == pl.col("outcome_high") - pl.col("outcome_low"),
    }
    for name, fact in facts.items():
        rules |= {
            f"{name}: {word} {fact[word]}": rule(pl.col(name), fact[word])
            for word, rule in _DECLARED.items()
            if word in fact
        }
        rules |= not_empty(name) if fact["type"] == "string" else {}
    columns = {name: _KINDS[fact["type"]] for name, fact in facts.items()}
    row = pl.DataFrame([report.as_json()], schema=columns)
    hold("a site report", Model.of(columns, rules), row)
