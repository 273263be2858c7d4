"""Configurations of releases, sites and effect models, from sound to rubbish.

Targets are every key of the three models that check them, in turn made each class of value: what
its type allows, what lies at its bounds, what is of another type, nothing, and a neighbour that
nobody knows.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flows.config.keys import bare, fields, meanings, section
from flows.config.model.experiment import Config
from flows.effects.config.effects import EffectConfig
from flows.effects.config.site import SiteConfig
from tests.fuzz.bases import RATIOS, SECTIONS, SEVERAL
from tests.fuzz.case import DIGITS, Case
from tests.fuzz.values import ODD_NUMBERS, ODD_TEXTS, Draw, spelt, turn, turns_of

Table = dict[str, Any]
Place = tuple[str, ...]

_HEAD = "customer,variant,region,clicks,bought,spent,country,age,since,home,ts\n"
LOG = (
    _HEAD
    + "".join(
        f"c{unit:02d},{('none', 'mail')[unit % 2]},{('east', 'west')[unit // 2 % 2]},"
        f"{DIGITS}.{unit},{('no', 'yes')[unit % 2]},{unit % 9},{('ch', 'it')[unit // 4 % 2]},"
        f"{20 + unit // 4},2026-11-{unit // 4 + 1:02d},h{unit // 4 * 2 + unit % 2},"
        f"2026-11-{unit % 20 + 1:02d}\n"
        for unit in range(24)
    )
).encode()
LOGS = dict.fromkeys(("log.csv", "end.csv", "log.2026-11-20.csv"), LOG)
"""What configurations read, by name."""

_COLUMNS = {"unit": "customer", "arm": "variant", "cluster": "region"}
_ARMS = {"control": "none", "treatments": ["mail"], "same_shares": True}
_START: Table = {
    "experiment": "trial",
    "source": {"path": "log.csv"},
    "columns": _COLUMNS | {"outcome": "clicks"},
    "arms": _ARMS,
    "privacy": {"epsilon": 4.0},
    "publish": {"directory": "releases", "unit_id": "plain"},
    "quarantine": {"directory": "quarantine", "at_most": 0.9},
    "ledger": {"url": "sqlite:///ledger.sqlite"},
    "run": {"memory_limit": "1GB"},
}
_RELEASES: tuple[Table, ...] = (
    _START
    | {
        "columns": _COLUMNS | {"attributes": ["country", "age"], "privacy_unit": "home"},
        "outcomes": SEVERAL,
        "ratios": RATIOS,
        "decision": {"primary": "all"},
        "privacy": {
            "epsilon": 6.0,
            "rows_each": 3,
            "min_stratum": 3,
            "budget_epsilon": 90.0,
            "margins": ["country", ["age", "country"]],
        },
        "source": {"path": "log.{period}.csv"},
        "schedule": {"since": "2026-11-20", "until": "2026-11-22", "timezone": "Europe/Zurich"},
        "retention": {"quarantine": "30d", "spill": "2d", "releases": "400d", "prefect": "9d"},
        "notify": {
            "on": ["failed", "late"],
            "email": {"smtp": "127.0.0.1:1", "from": "a@localhost", "to": ["b@localhost"]},
        },
    },
    _START
    | {
        "columns": _COLUMNS | {"assigned_by": "home"},
        "outcomes": SEVERAL[:2],
        "privacy": SECTIONS["tables"]["privacy"] | {"joint": "auto"},
    },
    _START
    | {
        "outcome": {"values": [0, 1]},
        "privacy": {"mechanism": "uniform-prior-dp", "epsilon": 3.0},
        "private_clusters": {"epsilon": 1.0, "labels": ["east", "west"]},
    },
    _START
    | {
        "source": {"path": "log.csv", "grain": "event", "outcomes_path": "end.csv", "window": "7d"},
        "columns": _COLUMNS | {"outcome": "clicks", "time": "ts"},
        "outcome": {"values": [0, 1, 2], "aggregate": "sum", "cap": 9.0},
        "privacy": {"mechanism": "noisy-histogram", "epsilon": 2.0},
    },
    _START
    | {
        "outcome": {"low": 0.0, "high": 10.0, "levels": 5, "guess": [5.0, 4.0, 3.0, 2.0, 1.0]},
        "privacy": {
            "mechanism": "cluster-dp",
            "resampling_probability": 0.5,
            "truncation_threshold": 0.1,
            "noise_scale": 2.0,
            "segment_shares": [0.2],
        },
    },
)
_SITE: Table = {
    "experiment": "trial",
    "design": "matching",
    "site": {"name": "north"},
    "source": {"path": "log.csv"},
    "columns": {"unit": "customer", "arm": "variant", "outcome": "clicks"},
    "arms": {"control": "none", "treatments": ["mail"]},
    "outcome": {"low": 0.0, "high": 1.0},
    "covariates": [
        {"column": "region", "values": ["east", "west"]},
        {"column": "age", "edges": [0, 22, 30]},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-6},
    "publish": {"directory": "releases"},
}
_TRIAL = _SITE | {"design": "trial", "covariates": [], "privacy": {"epsilon": 1.0}}
_SITES = (_SITE, _TRIAL, _SITE | {"privacy": {"epsilon": 1.0}})
_MODELS: tuple[Table, ...] = (
    {name: _SITE[name] for name in ("experiment", "source", "columns", "arms", "outcome")}
    | {
        "pairs": [["age", "region"]],
        "features": [
            {"name": "age", "low": 20, "high": 60, "scale": "log"},
            {"name": "region", "levels": ["east", "west"], "other": "east"},
        ],
        "subgroups": [{"name": "age group", "feature": "age", "edges": [23]}],
        "propensity": {"value": 0.5},
        "privacy": {"epsilon": 4.0, "delta": 1e-6},
    },
)
BASES: dict[type[BaseModel], tuple[Table, ...]] = {
    Config: _RELEASES,
    SiteConfig: _SITES,
    EffectConfig: _MODELS,
}

PLACES: dict[str, tuple[Any, ...]] = {
    "path": ("*.csv", "**/*", "log.{period}", "./log.csv", "/dev/zero", "fifo.csv", "no"),
    "url": (
        *("sqlite://", "sqlite:///:memory:", "sqlite:///log.csv", "sqlite:///no/such.sqlite"),
        *("postgresql+psycopg://127.0.0.1:1/none", "postgresql://127.0.0.1/none", "mysql://x"),
        *("nonsense", "sqlite:///a?mode=ro&uri=true"),
    ),
    "key_file": ("ids.key", "nothing.key", ".", "log.csv", "/dev/null"),
    "workers": (0, -1, 10**6, 1.5, "tcp://127.0.0.1:1", "tls://x", "x"),
    "levels": ("auto", 2, 1001, 10**8),
}
"""Of keys that lead elsewhere, or cost much: values that a test can afford."""


def keys(model: type[BaseModel], before: Place = ()) -> Iterator[tuple[Place, FieldInfo, str]]:
    """Every key of a configuration: the names that lead to it, its field, and its meaning."""
    words = meanings(model)
    for name, field in fields(model).items():
        inner = section(field.annotation)
        if field.exclude:
            continue
        yield (*before, name), field, words.get(name, "")
        if inner is not None:
            yield from keys(inner, (*before, name))


def name_of(model: type[BaseModel], place: Place) -> str:
    """What a key is called in a run's coverage."""
    return f"{model.__name__}: {'.'.join(place)}"


TARGETS = [
    (model, place, field, meaning) for model in BASES for place, field, meaning in keys(model)
]


def _fitting(field: FieldInfo, meaning: str, name: str) -> list[Any]:
    """Values of the key's type: all of its words, bounds, and what its meaning names in quotes."""
    kinds = list(_parts(field.annotation))
    bounds = [one for each in field.metadata for one in vars_of(each)]
    words = [one for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)]
    found: list[Any] = [*PLACES.get(name, ()), *words]
    if bool in kinds:
        found += [True, False]
    if name in PLACES:
        return found
    if float in kinds or int in kinds:
        found += [one + by for one in bounds for by in (0, 1e-9, -1e-9)] + [0.1, 1, 3, *ODD_NUMBERS]
    if str in kinds:
        quoted = [one for one in re.findall(r'"([^"`]+)"', meaning) if "://" not in one]
        found += [*quoted, "customer", "region", "age", "clicks", "nothing", *ODD_TEXTS]
    if tuple in kinds:
        found = found or [{}]
        found = [
            [],
            *([one] for one in found[:20]),
            [found[-1]] * 2000,
            sorted(map(str, found[:5])),
        ]
        found += [[0.1, 0.5], [1, 0.5, 2], ["age", "region"], ["mail", "none"], [0, 22, 30]]
    if dict in kinds:
        found += [{}, {"none": 1.0, "mail": 2}, {"east": [0.0], "west": [1e100]}, {"": -1}]
    return found or [{}]


def vars_of(bound: Any) -> list[float]:
    """The numbers that a bound of a field names."""
    found = (getattr(bound, name, None) for name in ("gt", "ge", "lt", "le"))
    return [one for one in found if isinstance(one, int | float)]


def _parts(annotation: Any) -> Iterator[Any]:
    kind = bare(annotation)
    yield get_origin(kind) or kind if get_origin(kind) is not Literal else kind
    if get_origin(kind) is not Literal:
        for inner in get_args(kind):
            yield from _parts(inner)


_CLASSES = ("fits", "of another type", "fits", "absent", "fits", "beside an unknown key", "fits")


def _changed(config: Table, place: Place, how: str, fitting: list[Any], draw: Draw) -> Table:
    """The configuration with one key changed, in a section that is there or made for it."""
    found = {key: _copy(value) for key, value in config.items()}
    table: Any = found
    for name in place[:-1]:
        table = table.setdefault(name, {})
        if isinstance(table, list):
            table = draw.choice(table or [{}])
        if not isinstance(table, dict):
            return found
    match how:
        case "fits":
            table[place[-1]] = draw.choice(fitting)
        case "of another type":
            table[place[-1]] = draw.anything()
        case "absent":
            table.pop(place[-1], None)
        case _:
            table[draw.text()] = draw.anything()
    return found


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items()}
    return [_copy(one) for one in value] if isinstance(value, list) else value


@functools.cache
def _suited(model: type[BaseModel], section_name: str) -> list[Table]:
    """The bases that have this section; all of the model's where none has."""
    return [one for one in BASES[model] if section_name in one] or list(BASES[model])


def configurations(number: int, draw: Draw) -> Case:
    """A configuration, one or two of its keys changed, with a sound log, and a dry command."""
    model, place, field, meaning = turn(TARGETS, number)
    turns = turns_of(number, len(TARGETS))
    base = turn(_suited(model, place[0]), number // len(TARGETS) + len(place))
    how = turn(_CLASSES, turns)
    config = _changed(base, place, how, _fitting(field, meaning, place[-1]), draw)
    hits = [(name_of(model, place), how)]
    if draw.one_in(3):
        _, other, more, words = draw.choice([one for one in TARGETS if one[0] is model])
        if other[0] != place[0]:
            config = _changed(config, other, "fits", _fitting(more, words, other[-1]), draw)
            hits.append((name_of(model, other), "fits"))
    content = spelt(config)
    if draw.one_in(12):
        content = draw.damaged(content)
        hits.append(("bytes of a configuration", "damaged"))
    files = {"c.toml": content, "ids.key": b"k" * 40, **LOGS}
    command = _command(model, config, base, draw)
    left = ("reports", "releases", "quarantine") * (command[0] in ("site", "cate"))
    made = (
        *left,
        *(f"{one}/*" for one in left),
        "ledger.sqlite*",
        "account.key",
        "log.csv-journal",
    )
    return Case(files, (command,), made, ("here/case/quarantine",), tuple(hits))


def _command(model: type[BaseModel], config: Table, base: Table, draw: Draw) -> tuple[str, ...]:
    """What is asked; what writes, only where all is written to where tests look for it."""
    more = draw.choice([(), ("--json",)])
    if model is Config:
        name = draw.choice(["check", "check", "check", "plan", "ledger", "status", "prune"])
        if name in ("status", "ledger"):
            return (name, "c.toml", *more)
        if name == "prune":
            return (name, "c.toml", "--dry-run", *more)
        period = draw.choice([(), ("--period", "2026-11-20"), ("--period", "2026-11-20")])
        return (name, "c.toml", *period, *more)
    places = ("experiment", "site", "publish", "quarantine", "ledger", "run")
    is_safe = all(config.get(name) == base.get(name) for name in places)
    name = "site" if model is SiteConfig else "cate"
    return (draw.choice([name, name, name, "ledger"]) if is_safe else "ledger", "c.toml", *more)
