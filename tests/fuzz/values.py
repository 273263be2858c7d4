"""Strategies for odd texts, numbers and bytes, which all kinds of cases draw from."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

ODD_TEXTS = (
    "",
    " ",
    "none",
    "NULL",
    "NaN",
    "-",
    "0",
    "007",
    "a b",
    "a/b",
    "a / b",
    "../up",
    "~nosuchuser/x",
    "$HOME",
    "{period}",
    "{other}",
    "%s%n",
    "[a-",
    "**",
    "*?[!x]",
    "a'b",
    'a"b',
    "a;b,c",
    "<b>&amp;</b>",
    "$\\frac{1}{2}$",
    "\x1b[31mred\x1b[0m",
    "line\nline",
    "tab\treturn\r",
    "\x07\x08\x7f\x9b",
    "\u202eright to left\u2066",
    "é\u0301\u0327",
    "日本語",
    "\U0001f600",
    "\ufeffmark",
    "\ufffd",
    "\x00",
    "x" * 300,
    "x" * 70_000,
    "total",
    "all",
    "__index__",
    "select 1; drop table units",
)

ODD_NUMBERS = (
    0,
    1,
    -1,
    2,
    10,
    1000,
    10**8,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**400,
    0.0,
    -0.0,
    0.1,
    0.5,
    1.0,
    1.5,
    1e-9,
    1e-60,
    1e-300,
    5e-324,
    1e15,
    1e70,
    1e150,
    1e308,
    -1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
)

texts: SearchStrategy[str] = st.one_of(
    st.sampled_from(ODD_TEXTS),
    st.text(max_size=12),
    st.text("abcdefghijklmnopqrstuvwxyz-_", min_size=1, max_size=8),
)
integers: SearchStrategy[int] = st.one_of(
    st.sampled_from([one for one in ODD_NUMBERS if isinstance(one, int)]), st.integers(-5, 50)
)
numbers: SearchStrategy[int | float] = st.one_of(
    st.sampled_from(ODD_NUMBERS), st.integers(-5, 50), st.floats()
)
moments: SearchStrategy[date | datetime] = st.one_of(st.dates(), st.datetimes())


@dataclass(frozen=True)
class Raw:
    """What stands in a file as it is, in whatever language that is."""

    text: str


RAW = tuple(
    map(Raw, ["nothing", "9" * 5000, "0x" + "9" * 5000, "1e999", "[" * 3000, "07", "'", '"""'])
)

anything: SearchStrategy[object] = st.recursive(
    st.one_of(texts, numbers, st.booleans(), moments, st.sampled_from(RAW)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


def in_toml(value: object) -> str:
    """How TOML spells a value; what it cannot hold becomes something that does not parse."""
    match value:
        case Raw():
            found = value.text
        case dict():
            pairs = (f"{json.dumps(key)} = {in_toml(one)}" for key, one in value.items())
            found = "{" + ", ".join(pairs) + "}"
        case list() | tuple():
            found = "[" + ", ".join(map(in_toml, value)) + "]"
        case datetime() | date():
            found = value.isoformat()
        case int() | float() if not isinstance(value, bool):
            found = repr(value)  # also inf and nan, which TOML has and JSON lacks
        case _:
            found = json.dumps(value)
    return found


@st.composite
def some_of(
    draw: st.DrawFn, changes: SearchStrategy[Callable[[bytes], bytes]], most: int = 3
) -> Callable[[bytes], bytes]:
    """A few changes, one after another; often none."""
    count = draw(st.sampled_from([0] * 6 + list(range(1, most + 1))))
    chosen = [draw(changes) for _ in range(count)]

    def change(content: bytes) -> bytes:
        for one in chosen:
            content = one(content)
        return content

    return change


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """One thing that can happen to the bytes of a file."""
    kind = draw(st.sampled_from(["cut", "flip", "insert", "repeat", "recode"]))
    share, byte = draw(st.floats(0, 1)), draw(st.integers(0, 255))
    rubbish = draw(st.one_of(st.binary(max_size=8), st.sampled_from(RUBBISH)))
    encoding = draw(st.sampled_from(["utf-16", "latin-1", "utf-8-sig", "cp1252"]))

    def damage(content: bytes) -> bytes:
        at = int(share * len(content))
        match kind:
            case "cut":
                return content[:at]
            case "flip":
                return content[:at] + bytes([byte]) + content[at + 1 :]
            case "insert":
                return content[:at] + rubbish + content[at:]
            case "repeat":
                return content + content[at:]
        return content.decode(errors="replace").encode(encoding, errors="replace")

    return damage


RUBBISH = (
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\r",
    b"\n\n",
    b'"',
    b"'",
    b"[" * 3000,
    b"{" * 3000,
    b"a = " + b"[" * 5000,
    b"\n[[x]]\n",
    b"9" * 6000,
    b",,,,",
    b"null\n",
    b"\xef\xbb\xbf",
)
