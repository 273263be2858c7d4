"""Whole releases: a configuration and a log, released, and everything that is made of them.

Targets are the mechanisms, and what a configuration may have beside them.
"""

from typing import Any, get_args

from flows.config.model.sections import Privacy
from tests.fuzz.bases import PUBLIC, RATIOS, SEVERAL
from tests.fuzz.case import CANARY, DIGITS, Case, Content
from tests.fuzz.values import Draw, spelt, turn

_PLACES = ("one", "two", "three", "four")
_OUTCOMES = ("0", "1", "2.5", DIGITS, f"-{DIGITS}", CANARY, "", "nan")
_HEAD = "customer,variant,region,clicks,bought,spent,country,age,since,home"
MECHANISMS: tuple[str, ...] = get_args(Privacy.model_fields["mechanism"].annotation)
FEATURES = (
    *(
        "planned grid",
        "attributes",
        "households",
        "schedule",
        "joint",
        "hashed",
        "private clusters",
    ),
    *("two outcomes", "little memory", "faults", "ratios", "delta", "budget", "texts"),
)
"""What a release may have beside one outcome."""


def _log(arms: list[str], draw: Draw, *, faults: bool) -> bytes:
    shapes = [draw.choice(_OUTCOMES) for _ in range(4)]
    lines = []
    for unit in range(draw.choice([len(arms), 12, 40, 120])):
        arm, home = arms[unit % len(arms)], f"h{unit // (2 * len(arms))}-{unit % len(arms)}"
        place = _PLACES[unit // len(arms) % 4]
        own = (shapes[unit % 4], draw.choice(("no", "yes", CANARY)), shapes[unit % 3])
        facts = (turn(("ch", "it", ""), unit // 4), str(unit % 7), "2026-11-01", home)
        lines.append(",".join((f"u{unit:04d}", arm, place, *own, *facts)))
    if faults:
        lines += [lines[0], f",none,one,{DIGITS},no,{DIGITS},ch,1,2026-11-01,h0-0", "x,none"]
    return "\n".join((_HEAD, *lines, "")).encode()


def _privacy(mechanism: str, features: set[str], draw: Draw) -> dict[str, Any]:
    found: dict[str, Any] = {
        "mechanism": mechanism,
        "epsilon": draw.choice([0.01, 0.1, 1.0, 2.0, 4.0, 20.0]),
        "min_stratum": draw.choice([1, 3, 10, 50]),
    }
    if draw.one_in(4) and not mechanism.startswith("noisy"):
        found["strata_statistic"] = draw.choice(["counts", "means", "none"])
    if draw.one_in(5):
        found["segment_shares"] = draw.choice([[], [0.05], [0.5, 0.9]])
    if "delta" in features:
        found["delta"] = draw.choice([1e-9, 1e-4])
    if "budget" in features:
        found["budget_epsilon"] = draw.choice([0.5, 1.0, 50.0])
    if "households" in features:
        found["rows_each"] = draw.choice([1, 2, 9])
    if "joint" in features:
        found["joint"] = draw.choice(["yes", "auto"])
    return found


def _outcomes(features: set[str], draw: Draw) -> dict[str, Any]:
    if "ratios" in features:
        return {"outcomes": SEVERAL, "ratios": RATIOS}
    if features & {"two outcomes", "joint"}:
        return {"outcomes": SEVERAL[:2], "decision": {"primary": draw.choice(["all", "any"])}}
    if "texts" in features:
        return {"outcome": {"values": ["no", "yes"]}}
    grids: list[dict[str, Any]] = [
        {"values": [0, 1]},
        {"values": [0, 1, 2, 5]},
        {"low": -10.0, "high": 10.0, "levels": 5},
        {"low": 0.0, "high": 1e6, "levels": 3},
    ]
    grid = draw.choice(grids)
    if "planned grid" in features:
        grid = {"low": 0.0, "high": 100.0, "levels": "auto"}
    return {"outcome": grid | {"rounding": draw.choice(["stochastic", "nearest"])}}


def _config(mechanism: str, features: set[str], arms: list[str], draw: Draw) -> dict[str, Any]:
    outcomes = _outcomes(features, draw)
    columns: dict[str, Any] = {"unit": "customer", "arm": "variant", "cluster": "region"}
    if "outcome" in outcomes:
        columns["outcome"] = "bought" if "texts" in features else "clicks"
    if "attributes" in features:
        columns |= {"attributes": PUBLIC["attributes"], "assigned_by": "home"}
    if "households" in features:
        columns["privacy_unit"] = "home"
    found = {
        "experiment": "trial",
        "source": {"path": "log.{period}.csv" if "schedule" in features else "log.2026-11-01.csv"},
        "columns": columns,
        "arms": {"control": "none", "treatments": arms[1:], "same_shares": draw.randrange(3) > 0},
        "privacy": _privacy(mechanism, features, draw),
        **outcomes,
    }
    if mechanism.startswith("noisy"):
        found["arms"]["same_shares"] = True
    if "little memory" in features:
        found["run"] = {"memory_limit": "20KB"}
    if "hashed" in features:
        found["publish"] = {"unit_id": "keyed-hash", "key_file": "ids.key"}
    if "private clusters" in features:
        found["private_clusters"] = {"epsilon": 0.005, "labels": list(_PLACES[:3])}
    if "schedule" in features:
        found["schedule"] = {"since": "2026-11-01", "until": "2026-11-02"}
    return found


def whole(number: int, draw: Draw) -> Case:
    """A release from its log to its page, and the same once more, or the nights that are due."""
    mechanism = turn(MECHANISMS, number)
    second = number + number // len(FEATURES) + 7
    features = {turn(FEATURES, number), turn(FEATURES, second)}
    if "planned grid" in features:
        mechanism = draw.choice(["auto", "cluster-optimal-dp"])
    arms = ["none", *draw.choice([["mail"], ["mail"], ["mail", "fax"], ["a", "b", "c"]])]
    config = _config(mechanism, features, arms, draw)
    log = _log(arms, draw, faults="faults" in features)
    segments = "".join(f"u{unit:04d},s{unit % 3},{unit % 9}\n" for unit in range(100))
    files: dict[str, Content] = {
        "log.2026-11-01.csv": log,
        "log.2026-11-02.csv": _log(arms, draw, faults=False),
        "c.toml": spelt(config),
        "ids.key": b"key of forty bytes that nobody else has.",
        "table.csv": f"unit_id,segment,age\n{segments}".encode(),
    }
    release, folder = "releases/trial/latest.duckdb", "releases/trial"
    first: tuple[str, ...] = ("release", "c.toml")
    again: tuple[str, ...] = draw.choice([(), ("--revise",)])
    again = (*first, *again)
    if "schedule" in features:
        first, again = ("release", "c.toml", "--due"), ("status", "c.toml")
    read: tuple[tuple[str, ...], ...] = (
        ("inspect", release),
        ("estimate", release, "--json"),
        ("estimate", release, "--segments", "table.csv"),
        ("effects", release, "--covariates", "table.csv"),
        ("report", release, "-o", "page.html"),
        ("estimate", folder),
        ("verify", folder, "--ledger", "c.toml"),
    )
    commands = (first, again, turn(read, number))
    left: tuple[str, ...] = ("page.html", "ledger.sqlite*", "account.key")
    left += tuple(f"{one}{rest}" for one in ("releases", "quarantine") for rest in ("", "/*"))
    private = ("here/case/quarantine", "here/case/releases", "here/case/ledger.sqlite.accounts")
    hits = ((mechanism, "alone"), *((one, mechanism) for one in sorted(features)))
    return Case(files, commands, left, private, hits)
