"""The text of a new configuration: every line explained, and blanks for what is not known."""

import json
import re
import textwrap
import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from flows.config.guesses import Meaning
from flows.config.json_schema import SCHEMA_FILE
from flows.config.kinds import RELEASE
from flows.config.load import checked
from schemas.visible import visible

Value = str | float | tuple[str, ...] | tuple[float, ...]

_TEMPLATE = """%(schema)s\
# An experiment for clusterdp. Lines that begin with # are comments. Of the log, nothing was read
# but the names and types of its columns%(read)s. Look through all lines
# before the first release: ids, arms and clusters are published as they are. Then try it, which
# writes nothing:
#     clusterdp check %(file)s

# The experiment's name (letters, digits, - and _). Releases are named so.
# experiment = "autumn-campaign"

[source]
# The log, a row a unit with its outcome, relative to this file. Patterns (*, ?, **) and {period},
# such as 2026-11-20, may stand in it.
# path = "logs/{period}/*.parquet"
# What stands between the fields of CSV files, where it is no comma.
# delimiter = ";"

%(columns)s[columns]
# TO BE GIVEN: The column of the units' ids. They are published.
# unit = "customer_id"
# TO BE GIVEN: The column of the arm that a unit was given. It is published.
# arm = "variant"
# TO BE GIVEN: The column of the outcome, which is protected.
# outcome = "clicks"
# The column of a group that a unit is known to belong to, such as its region, or a list of
# columns. It makes effects more exact. It is published, so none is taken unasked.
# cluster = %(cluster)s
# Columns of public facts of a unit, to look at effects by. They are published with every unit as
# they are, so name none that follows from the outcome, and none that is nobody's business.
# attributes = ["country"]
# The column of what was given its arm as one, such as a household, where that is not the unit.
# Standard errors follow it, and a digest of it is published.
# assigned_by = "household_id"

%(labels)s[arms]
# TO BE GIVEN: The label of the arm that every other is compared with.
# control = "none"
# TO BE GIVEN: The labels of all other arms. Rows with any other label are set aside.
# treatments = ["mail"]
# Whether every cluster was randomised with the same arm shares. True lets small clusters be
# compared together.
# same_shares = true
# Intended sizes of the arms, such as { none = 1, mail = 2 }; equal if left out, and "undeclared"
# for no check of them.
# shares = "undeclared"

[outcome]
# TO BE GIVEN: The values that an outcome can have, the least first. A number between them is
# rounded; any text besides is a missing outcome. Choose them, or the range in place of them, by
# what you know beforehand, not by looking at outcomes.
# values = [0, 1]
# TO BE GIVEN: The numbers that texts in values stand for, increasing; effects are effects on
# these numbers. If left out, two texts are 0 and 1.
# scores = %(scores)s
# Of a wide range, in place of values: the least outcome; one below it counts as it.
# low = 0
# The greatest outcome; one above it counts as it.
# high = 500
# How many values of the range are kept apart; "auto" lets the plan choose.
# levels = "auto"
# What a missing or unreadable outcome counts as; if left out, the least value.
# missing = %(missing)s

[privacy]
# TO BE GIVEN: What one release costs everybody in it: less is more private, and less exact.
# `clusterdp plan` shows how exact.
# epsilon = 2
# The most that one person may pay over all releases. Without it nothing limits that.
# budget_epsilon = 20

[publish]
# The folder of releases, relative to this file.
directory = "releases"
"""
"""Every key with an example in a comment, above which stands whether it has to be given."""
_KEY = re.compile(r"^((?:# .*\n)+?)# (\w+) = (.+)", re.MULTILINE)
"""A key's comment, its name and its example."""
_SECTION = re.compile(r"^\[(\w+)\]\n((?:.+\n)+)", re.MULTILINE)
BLANK = "TO BE GIVEN: "
"""What the comment above a blank begins with."""
_QUOTED = re.compile(r'"[^"]*"')
_BY_NAME = "# It was recognised by its name: is it the one?\n"
_WIDTH = 96


@dataclass(frozen=True)
class Given:
    """What was said of the log; None and empty for what was not."""

    experiment: str | None = None
    unit: str | None = None
    arm: str | None = None
    outcome: str | None = None
    cluster: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    assigned_by: str | None = None
    control: str | None = None
    treatments: tuple[str, ...] = ()
    values: tuple[float, ...] | tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    levels: int | Literal["auto"] | None = None
    epsilon: float | None = None
    budget_epsilon: float | None = None
    delimiter: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The columns that were named, and the option that named each."""
        named = [
            (self.unit, "--unit"),
            (self.arm, "--arm"),
            (self.outcome, "--outcome"),
            *((name, "--cluster") for name in self.cluster),
            *((name, "--attributes") for name in self.attributes),
            (self.assigned_by, "--assigned-by"),
        ]
        return {name: option for name, option in reversed(named) if name is not None}

    @property
    def meanings(self) -> tuple[Meaning, ...]:
        """What columns were named for."""
        return tuple(meaning for meaning in get_args(Meaning) if getattr(self, meaning))


@dataclass(frozen=True)
class Draft:
    """The text of a configuration, and what is still to be given in it."""

    text: str
    blanks: Mapping[str, str]
    """The keys that are still to be given, each with a line that stands in for it in a trial."""

    def check(self, file: Path) -> None:
        """Raise ConfigError for a value that the loader would refuse; blanks are filled in."""
        content = tomllib.loads(self.text)
        for key, line in self.blanks.items():
            content[key.partition(".")[0]] |= tomllib.loads(line)
        checked(RELEASE, file, content)


def draft_of(
    file: Path,
    known: Mapping[str, Value | None],
    found: Mapping[Meaning, str],
    columns: str,
    labels: Sequence[str],
) -> Draft:
    """The template with the values that are ``known``, for the text of ``file``.

    It says which columns were ``found`` by their names, which ``columns`` the log has, and which
    ``labels`` were read; and it names the schema for editors where that lies beside the file.
    """
    values = known.get("values")
    texts = [one for one in values if isinstance(one, str)] if isinstance(values, tuple) else []
    choose = f"Labels in the log: {', '.join(map(repr, labels))}."
    slots = {
        "schema": f"#:schema ./{SCHEMA_FILE}\n" if (file.parent / SCHEMA_FILE).is_file() else "",
        "read": " and the labels of the arms" if labels else "",
        "file": visible(file.name),
        "columns": _comment(columns),
        "labels": _comment(choose) if labels and known.get("control") is None else "",
        "cluster": spelt(found.get("cluster", "region")),
        "scores": spelt(tuple(range(len(texts) or 2))),
        "missing": spelt(texts[0] if texts else 0),
    }
    may_lack = {"scores"} if len(texts) < 3 else set()
    ranged = any(known.get(key) is not None for key in ("low", "high", "levels"))
    may_lack |= {"values"} if ranged else set()
    text = _KEY.sub(partial(_filled, known, set(found), may_lack), _TEMPLATE) % slots
    blanks = {
        f"{section}.{key}": _QUOTED.sub(f'"\N{HORIZONTAL ELLIPSIS} {key}"', f"{key} = {example}")
        for section, keys in _SECTION.findall(text)
        for comment, key, example in _KEY.findall(keys)
        if BLANK in comment
    }
    return Draft(text, blanks)


def _filled(
    known: Mapping[str, Value | None], by_name: Set[str], may_lack: Set[str], line: re.Match[str]
) -> str:
    """A key with its value; where there is none, as it stands in the template."""
    comment, key, _ = line.groups()
    explained, value = comment.replace(BLANK, ""), known.get(key)
    if value is not None and value != ():
        told = _BY_NAME if key in by_name else ""
        return f"{explained}{told}{key} = {spelt(value).replace('%', '%%')}"
    return line[0].replace(BLANK, "") if key in may_lack else line[0]


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, _WIDTH, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in lines)


def spelt(value: Value) -> str:
    """A value as TOML spells it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(spelt, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
