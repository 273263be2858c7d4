"""Configurations, from sound to rubbish, of releases and of sites."""

from typing import Any, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel

from flows.config.keys import fields
from flows.config.model.experiment import Config
from flows.config.model.sections import Privacy
from flows.config.model.site import SiteConfig
from tests.fuzz.case import DIGITS, Case
from tests.fuzz.values import (
    anything,
    damages,
    in_toml,
    integers,
    numbers,
    some_of,
    texts,
)

Table = dict[str, Any]

LOG = (
    "customer,variant,region,clicks,ts,age\n"
    + "".join(
        f"c{unit:02d},{('none', 'mail')[unit % 2]},{('east', 'west')[unit // 2 % 2]},"
        f"{DIGITS}.{unit},2026-11-{unit % 20 + 1:02d},{unit}\n"
        for unit in range(24)
    )
).encode()

SOUND: tuple[Table, ...] = (
    {
        "columns": {"unit": "customer", "arm": "variant", "cluster": "region", "outcome": "clicks"},
        "outcome": {"values": [0, 1, 2]},
        "privacy": {"epsilon": 2.0},
    },
    {
        "columns": {"unit": "customer", "arm": "variant", "outcome": "clicks"},
        "arms": {"control": "none", "treatments": ["mail"], "same_shares": True},
        "outcome": {"low": 0.0, "high": 10.0, "levels": 5},
        "privacy": {"mechanism": "cluster-dp", "epsilon": 1.0, "min_stratum": 3},
    },
    {
        "columns": {"unit": "customer", "arm": "variant", "outcome": "clicks"},
        "outcome": {"low": 0.0, "high": 10.0, "levels": 4},
        "arms": {"control": "none", "treatments": ["mail"], "same_shares": True},
        "privacy": {"mechanism": "noisy-histogram", "epsilon": 1.0},
    },
    {
        "columns": {"unit": "customer", "arm": "variant", "cluster": "region", "outcome": "clicks"},
        "outcome": {"values": [0, 1]},
        "arms": {"control": "none", "treatments": ["mail"], "same_shares": True},
        "privacy": {"mechanism": "uniform-prior-dp", "epsilon": 3.0},
        "private_clusters": {"epsilon": 1.0, "labels": ["east", "west"]},
    },
    {
        "source": {"path": "log.csv", "grain": "event", "outcomes_path": "log.csv", "window": "7d"},
        "columns": {"unit": "customer", "arm": "variant", "outcome": "clicks", "time": "ts"},
        "outcome": {"values": [0, 1, 2], "aggregate": "sum"},
        "privacy": {"epsilon": 2.0},
    },
)

SITES: tuple[Table, ...] = (
    {"design": "trial", "privacy": {"epsilon": 1.0}},
    {
        "design": "matching",
        "covariates": [{"column": "region", "values": ["east", "west"]}],
        "privacy": {"epsilon": 1.0, "delta": 1e-6},
    },
    {
        "design": "matching",
        "covariates": [{"column": "age", "edges": [0, 10, 30]}],
        "privacy": {"epsilon": 1.0},
    },
)

_ARMS = {"control": "none", "treatments": ["mail"]}
_names = st.sampled_from(["customer", "variant", "region", "clicks", "ts", "age", "nothing", ""])
_words = st.lists(st.one_of(st.sampled_from(["none", "mail", "east", "west"]), texts), max_size=4)
_figures = st.lists(numbers, max_size=6)

FITTING: dict[str, SearchStrategy[Any]] = {
    "experiment": st.sampled_from(["trial", "x-1", "-", "_", "a.b", "é", "x" * 300]),
    "path": st.sampled_from(
        ["log.csv", "*.csv", "**/*", "log.{period}", "./log.csv", "/dev/zero", "fifo.csv", "no"]
    ),
    "outcomes_path": st.sampled_from(["log.csv", "nothing.csv", "*.{period}.csv"]),
    "grain": st.sampled_from(["unit", "event"]),
    "window": st.sampled_from(["7d", "0d", "99999d", "1 s", "1h", "9999999999s", "-1d"]),
    "cluster": st.one_of(_names, st.lists(_names, max_size=3)),
    "control": st.one_of(st.sampled_from(["none", "mail"]), texts),
    "treatments": st.one_of(_words, st.sampled_from([[f"a{one}" for one in range(2000)]])),
    "shares": st.one_of(
        st.just("undeclared"), st.fixed_dictionaries({"none": numbers, "mail": numbers})
    ),
    "same_shares": st.booleans(),
    "values": _figures.map(sorted),
    "levels": st.one_of(st.just("auto"), integers),
    "rounding": st.sampled_from(["stochastic", "nearest"]),
    "guess": st.one_of(st.just("uniform"), _figures),
    "aggregate": st.sampled_from(["count", "sum", "max", "any"]),
    "mechanism": st.sampled_from(get_args(Privacy.model_fields["mechanism"].annotation)),
    "strata_statistic": st.sampled_from(["auto", "counts", "means", "none"]),
    "segment_shares": _figures,
    "split": _figures,
    "edges": _figures.map(sorted),
    "features": _words,
    "labels": _words,
    "centres": st.dictionaries(texts, _figures, max_size=3),
    "unit_id": st.sampled_from(["plain", "keyed-hash"]),
    "key_file": st.sampled_from(["ids.key", "nothing.key", ".", "log.csv", "/dev/null"]),
    "url": st.sampled_from(
        [
            "sqlite:///ledger.sqlite",
            "sqlite://",
            "sqlite:///:memory:",
            "sqlite:///log.csv",
            "sqlite:///no/such/folder.sqlite",
            "postgresql+psycopg://127.0.0.1:1/none",
            "postgresql://127.0.0.1/none",
            "mysql://x",
            "nonsense",
            "sqlite:///a?mode=ro&uri=true",
        ]
    ),
    "memory_limit": st.sampled_from(["8GB", "1KB", "0GB", "9999999999TB", "1.5 GiB", "-1GB"]),
    "workers": st.one_of(integers, st.sampled_from(["tcp://127.0.0.1:1", "tls://x", "x"])),
    "design": st.sampled_from(["trial", "matching"]),
    "covariates": st.lists(
        st.fixed_dictionaries(
            {"column": _names}, optional={"values": st.one_of(_words, _figures), "edges": _figures}
        ),
        max_size=4,
    ),
}
"""By the name of a key: values of the right type, likely or not."""
FITTING |= dict.fromkeys(("unit", "arm", "outcome", "time", "event", "column"), _names)
FITTING |= dict.fromkeys(("outcome_time", "outcome_unit"), _names)


def keys_of(model: type[BaseModel]) -> list[tuple[str, str]]:
    """Every (section, key) of a configuration; ("", key) of those in no section."""
    found = []
    for name, field in fields(model).items():
        inner = [one for one in _parts(field.annotation) if issubclass(one, BaseModel)]
        found += [(name, key) for one in inner for key in one.model_fields] or [("", name)]
    return [one for one in found if one != ("", "directory")]


def _parts(annotation: Any) -> list[type]:
    inner = getattr(annotation, "__args__", ())
    return [one for one in (annotation, *inner) if isinstance(one, type)]


RELEASE_KEYS, SITE_KEYS = keys_of(Config), keys_of(SiteConfig)


@st.composite
def changed(draw: st.DrawFn, config: Table, keys: list[tuple[str, str]]) -> Table:
    """A configuration with a few keys changed, added or taken out."""
    found = {name: dict(one) if isinstance(one, dict) else one for name, one in config.items()}
    for _ in range(draw(st.integers(0, 4))):
        section, key = draw(st.sampled_from(keys))
        table = found.setdefault(section, {}) if section else found
        if not isinstance(table, dict):
            continue
        match draw(st.sampled_from(["fit", "fit", "fit", "number", "odd", "drop", "new", "flat"])):
            case "fit":
                table[key] = draw(FITTING.get(key, numbers))
            case "number":
                table[key] = draw(numbers)
            case "odd":
                table[key] = draw(anything)
            case "drop":
                table.pop(key, None)
            case "new":
                table[draw(texts)] = draw(anything)
            case "flat" if section:
                found[section] = draw(anything)
    return found


def spelt(config: Table) -> bytes:
    """The configuration's TOML."""
    plain = {key: value for key, value in config.items() if not isinstance(value, dict)}
    lines = [f"{_key(key)} = {in_toml(value)}" for key, value in plain.items()]
    for name, table in config.items():
        if isinstance(table, dict):
            lines.append(f"[{_key(name)}]")
            lines += [f"{_key(key)} = {in_toml(value)}" for key, value in table.items()]
    return ("\n".join(lines) + "\n").encode("utf-8", errors="backslashreplace")


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").isalnum() else in_toml(name)


def sound(config: Table) -> Table:
    """The same with what all of them have."""
    return {
        "experiment": "trial",
        "source": {"path": "log.csv"},
        "arms": _ARMS,
        **config,
    }


def sound_site(config: Table) -> Table:
    """The same of a site."""
    return {
        "experiment": "trial",
        "site": {"name": "north"},
        "source": {"path": "log.csv"},
        "columns": {"unit": "customer", "arm": "variant", "outcome": "clicks"},
        "arms": _ARMS,
        "outcome": {"low": 0.0, "high": 1.0},
        **config,
    }


@st.composite
def configurations(draw: st.DrawFn) -> Case:
    """A release's or a site's configuration with a sound log, and a dry command."""
    is_site = draw(st.integers(0, 3)) == 0
    if is_site:
        base = sound_site(draw(st.sampled_from(SITES)))
        config = draw(changed(base, SITE_KEYS))
    else:
        base = sound(draw(st.sampled_from(SOUND)))
        config = draw(changed(base, RELEASE_KEYS))
    damage = draw(some_of(damages(), most=2))
    files = {"c.toml": damage(spelt(config)), "log.csv": LOG, "ids.key": b"k" * 40}
    command = draw(_commands(_is_safe(config, base)) if is_site else _dry_commands())
    if command[0] == "site":
        left = ("reports", "reports/*", "quarantine", "quarantine/*", "ledger.sqlite")
        return Case(files, (command,), left, ("here/case/quarantine",))
    return Case(files, (command,))


def _is_safe(config: Table, base: Table) -> bool:
    """Whether nothing can be written elsewhere than where tests look for it."""
    places = ("experiment", "site", "publish", "quarantine", "ledger", "directory")
    return all(config.get(name) == base.get(name) for name in places)


@st.composite
def _dry_commands(draw: st.DrawFn) -> tuple[str, ...]:
    name = draw(st.sampled_from(["check", "check", "plan", "ledger"]))
    period = draw(st.sampled_from([(), (), (), ("--period", "2026-11-20"), ("--period", "../x")]))
    more = draw(st.sampled_from([(), ("--json",)]))
    return (name, "c.toml", *(period if name != "ledger" else ()), *more)


@st.composite
def _commands(draw: st.DrawFn, is_safe: bool) -> tuple[str, ...]:
    name = draw(st.sampled_from(["site", "site", "ledger"])) if is_safe else "ledger"
    return (name, "c.toml", *draw(st.sampled_from([(), ("--json",)])))
