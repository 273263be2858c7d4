"""Whole releases: a configuration and a log, released, and everything that is made of them."""

from typing import Any

from hypothesis import strategies as st

from tests.fuzz.case import CANARY, DIGITS, Case, Content
from tests.fuzz.configurations import sound, spelt

_PLACES = ("one", "two", "three", "four")


@st.composite
def _logs(draw: st.DrawFn, arms: list[str], *, hashed: bool) -> tuple[str, bytes]:
    count = draw(st.sampled_from([len(arms), 12, 40, 120, 300]))
    places = draw(st.integers(1, 4))
    shapes = draw(st.lists(st.integers(0, 7), min_size=4, max_size=4))
    outcomes = ["0", "1", "2.5", DIGITS, f"-{DIGITS}", CANARY, "", "nan"]
    lines = []
    for unit in range(count):
        arm = arms[unit % len(arms)] if unit < 2 * len(arms) else draw(st.sampled_from(arms))
        place = _PLACES[unit // len(arms) % places]
        own = outcomes[shapes[unit % len(shapes)]]
        lines.append((f"{'id' if hashed else 'u'}{unit:04d}", arm, place, own, str(unit % 7)))
    faults = draw(st.integers(0, 3))
    lines += [lines[0]] * (faults == 1) + [("", "none", "one", DIGITS, "1")] * (faults == 2)
    text = "".join(",".join(line) + "\n" for line in lines)
    return "log.csv", f"customer,variant,region,clicks,age\n{text}".encode()


@st.composite
def _privacy(draw: st.DrawFn, mechanism: str) -> dict[str, Any]:
    privacy: dict[str, Any] = {
        "mechanism": mechanism,
        "epsilon": draw(st.sampled_from([0.01, 0.1, 1.0, 2.0, 4.0, 20.0])),
        "min_stratum": draw(st.sampled_from([1, 3, 10, 50])),
    }
    if draw(st.integers(0, 3)) == 0:
        privacy["strata_statistic"] = draw(st.sampled_from(["counts", "means", "none"]))
    if draw(st.integers(0, 4)) == 0:
        privacy["delta"] = draw(st.sampled_from([1e-9, 1e-4]))
    if draw(st.integers(0, 4)) == 0:
        privacy["budget_epsilon"] = draw(st.sampled_from([0.5, 1.0, 50.0]))
    if draw(st.integers(0, 4)) == 0:
        privacy["segment_shares"] = draw(st.sampled_from([[], [0.05], [1.0]]))
        privacy["overall_effect"] = bool(privacy["segment_shares"] == []) or draw(st.booleans())
    return privacy


@st.composite
def _configs(draw: st.DrawFn, arms: list[str], *, hashed: bool) -> dict[str, Any]:
    mechanism = draw(
        st.sampled_from(
            [
                *("auto", "auto", "cluster-dp", "cluster-free-dp", "uniform-prior-dp"),
                *("noisy-histogram", "noisy-horvitz-thompson"),
            ]
        )
    )
    shared = draw(st.booleans()) or mechanism.startswith("noisy")
    grids: list[dict[str, Any]] = [
        {"values": [0, 1]},
        {"values": [0, 1, 2, 5]},
        {"low": -10.0, "high": 10.0, "levels": 5},
        {"low": 0.0, "high": 1e6, "levels": 3},
    ]
    if mechanism == "auto":
        grids.append({"low": 0.0, "high": 100.0, "levels": "auto"})
    if mechanism == "noisy-horvitz-thompson":
        grids = [{"values": [0, 1, 2]}]
    privacy = draw(_privacy(mechanism))
    columns: dict[str, Any] = {"unit": "customer", "arm": "variant", "outcome": "clicks"}
    if draw(st.integers(0, 3)):
        columns["cluster"] = draw(st.sampled_from(["region", ["region", "age"]]))
    found = sound(
        {
            "columns": columns,
            "arms": {"control": "none", "treatments": arms[1:], "same_shares": shared},
            "outcome": draw(st.sampled_from(grids))
            | {"rounding": draw(st.sampled_from(["stochastic", "nearest"]))},
            "privacy": privacy,
        }
    )
    if draw(st.integers(0, 5)) == 0:
        found["run"] = {"memory_limit": "20KB"}
    if hashed:
        found["publish"] = {"unit_id": "keyed-hash", "key_file": "ids.key"}
    if draw(st.integers(0, 7)) == 0:
        columns["cluster"] = "region"
        found["private_clusters"] = {"epsilon": 0.5, "labels": list(_PLACES[:3])}
    return found


@st.composite
def whole(draw: st.DrawFn) -> Case:
    """A release from its log to its page, and the same once more."""
    arms = ["none", *draw(st.sampled_from([["mail"], ["mail"], ["mail", "fax"], ["a", "b", "c"]]))]
    hashed = draw(st.integers(0, 5)) == 0
    name, log = draw(_logs(arms, hashed=hashed))
    files: dict[str, Content] = {
        name: log,
        "c.toml": spelt(draw(_configs(arms, hashed=hashed))),
        "ids.key": b"key of forty bytes that nobody else has.",
        "table.csv": ("unit_id,segment\n" + "".join(
            f"u{unit:04d},s{unit % 3}\n" for unit in range(100)
        )).encode(),
    }  # fmt: skip
    release = "releases/trial/latest.duckdb"
    again = draw(st.sampled_from([("release", "c.toml"), ("release", "c.toml", "--revise")]))
    read = st.sampled_from(
        [
            ("inspect", release),
            ("estimate", release, "--json"),
            ("estimate", release, "--segments", "table.csv"),
            ("estimate", release, "--covariates", "table.csv"),
            ("report", release, "-o", "page.html"),
        ]
    )
    commands = (("check", "c.toml"), ("release", "c.toml"), again, draw(read), draw(read))
    left: tuple[str, ...] = ("releases", "releases/*", "quarantine", "quarantine/*", "page.html")
    left += ("ledger.sqlite", "ledger.sqlite.accounts", "ledger.sqlite.accounts/*", "account.key")
    private = ("here/case/quarantine", "here/case/releases", "here/case/ledger.sqlite.accounts")
    return Case(files, commands, left, private)
