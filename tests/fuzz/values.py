"""Odd texts, numbers and bytes, which all kinds of cases draw from."""

import json
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeVar

T = TypeVar("T")

ODD_TEXTS = (
    *("", " ", "none", "NULL", "NaN", "-", "0", "007", "a b", "a/b", "a / b", "../up"),
    *("~nosuchuser/x", "$HOME", "{period}", "{other}", "%s%n", "[a-", "**", "*?[!x]", "a'b"),
    *('a"b', "a;b,c", "<b>&amp;</b>", "$\\frac{1}{2}$", "\x1b[31mred\x1b[0m", "line\nline"),
    *("tab\treturn\r", "\x07\x08\x7f\x9b", "\u202eright to left\u2066", "é\u0301\u0327"),
    *("日本語", "\U0001f600", "\ufeffmark", "\ufffd", "\x00", "x" * 300, "x" * 70_000),
    *("total", "all", "__index__", "select 1; drop table units"),
)

ODD_NUMBERS: tuple[int | float, ...] = (
    *(0, 1, -1, 2, 10, 1000, 10**8, 2**31, 2**53 + 1, 2**63, 2**64, 10**400),
    *(0.0, -0.0, 0.1, 0.5, 1.0, 1.5, 1e-9, 1e-60, 1e-300, 5e-324, 1e15, 1e70, 1e150, 1e308),
    *(-1e308, float("inf"), float("-inf"), float("nan")),
)

RUBBISH = (
    *(b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n\n", b'"', b"'", b"[" * 3000),
    *(b"{" * 3000, b"a = " + b"[" * 5000, b"\n[[x]]\n", b"9" * 6000, b",,,,", b"null\n"),
    b"\xef\xbb\xbf",
)


@dataclass(frozen=True)
class Raw:
    """What stands in a file as it is, in whatever language that is."""

    text: str


RAW = tuple(
    map(Raw, ["nothing", "9" * 5000, "0x" + "9" * 5000, "1e999", "[" * 3000, "07", "'", '"""'])
)


def turn(choices: Sequence[T], number: int) -> T:
    """One of them, the next for the next number, and all over again."""
    return choices[number % len(choices)]


def turns_of(number: int, size: int) -> int:
    """A number that is another one for each of ``size`` targets, and one more with every turn."""
    return number % size + number // size


class Draw(random.Random):
    """What one case draws: the same for the same name of the case."""

    def one_in(self, times: int) -> bool:
        """Whether that happens which happens once in so many times."""
        return self.randrange(times) == 0

    def text(self) -> str:
        """A text that is odd, or of odd letters, or a plain word."""
        if self.one_in(2):
            return self.choice(ODD_TEXTS)
        if self.one_in(2):
            letters = self.choices("abcdefghijklmnopqrstuvwxyz-_", k=self.randint(1, 8))
            return "".join(letters)
        codes = (
            self.randrange(turn((128, 0xD800, 0x110000), at)) for at in range(self.randint(0, 12))
        )
        return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)

    def number(self) -> int | float:
        """A number that is odd, or small and whole, or any double."""
        found: float = struct.unpack("d", self.randbytes(8))[0]
        return self.choice((self.choice(ODD_NUMBERS), self.randint(-5, 50), found))

    def anything(self, depth: int = 2) -> Any:
        """A value of any type that a configuration may have."""
        kind = self.randrange(7 if depth else 5)
        if kind == 0:
            return self.text()
        if kind == 1:
            return self.number()
        if kind == 2:
            return self.one_in(2)
        if kind == 3:
            return turn((date(2026, 11, 20), datetime(1, 1, 1), date.max), self.randrange(3))
        if kind == 4:
            return self.choice(RAW)
        inner = [self.anything(depth - 1) for _ in range(self.randrange(4))]
        return inner if kind == 5 else {self.text(): one for one in inner}

    def damaged(self, content: bytes) -> bytes:
        """The bytes of a file to which one thing has happened."""
        at, kind = self.randint(0, len(content)), self.randrange(5)
        if kind == 0:
            return content[:at]
        if kind == 1:
            return content[:at] + self.randbytes(1) + content[at + 1 :]
        if kind == 2:
            rubbish = self.choice((self.choice(RUBBISH), self.randbytes(self.randrange(8))))
            return content[:at] + rubbish + content[at:]
        if kind == 3:
            return content + content[at:]
        encoding = self.choice(["utf-16", "latin-1", "utf-8-sig", "cp1252"])
        return content.decode(errors="replace").encode(encoding, errors="replace")


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


def spelt(config: dict[str, Any]) -> bytes:
    """The configuration's TOML: sections with their names above them, all else on a line each."""
    plain = {key: value for key, value in config.items() if not isinstance(value, dict)}
    lines = [f"{_key(key)} = {in_toml(value)}" for key, value in plain.items()]
    for name, table in config.items():
        if isinstance(table, dict):
            lines.append(f"[{_key(name)}]")
            lines += [f"{_key(key)} = {in_toml(value)}" for key, value in table.items()]
    return ("\n".join(lines) + "\n").encode("utf-8", errors="backslashreplace")


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").isalnum() else in_toml(name)
