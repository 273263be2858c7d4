"""Documents as a reader may get them, odd or changed: reports of sites, and effect models.

Targets are every field of a sound document, in turn made each class of value. A document is sealed
anew by a checksum, mostly: what is wrong with it is not found by that.
"""

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from schemas.effects.site import NEIGHBOURS
from schemas.json_text import checksum
from tests.fuzz.bases import model
from tests.fuzz.case import ODD, Case, Content
from tests.fuzz.values import RUBBISH, Draw, turn, turns_of
from tests.site_reports import a_report

Document = dict[str, Any]
Place = tuple[str | int, ...]

_SITES = ("north", "south", "east", "west")
_LIKELY = ("trial", "matching", *NEIGHBOURS.values(), "2026-11-20", "9999-99-99T99:99:99Z")
_LIKELY += ("row", "outcome", "learn", "value", "log", "x\n", "x" * 5000, "\ud800", "x\udfff")
_NUMBERS = (0, 1, -1, 0.0, 1e-300, 5e-324, 1e-150, 1e149, 1e150, 1e200, -1e150, 2**53, 2**64)

CLASSES: dict[str, Callable[[Any, Draw], Any]] = {
    "null": lambda _, __: None,
    "likely": lambda value, draw: draw.choice(
        _NUMBERS if isinstance(value, int | float) else _LIKELY
    ),
    "a number": lambda _, draw: draw.number(),
    "a text": lambda _, draw: draw.text(),
    "a bit more": lambda value, _: value * (1 + 1e-9) + 1e-12 if _is_number(value) else [value],
    "far more": lambda value, draw: (
        value * 10.0 ** draw.randint(-9, 9) if _is_number(value) else {}
    ),
    "whole": lambda _, draw: draw.choice((1, 2, 100, 10**400, True)),
    "a list": lambda value, draw: [value] * draw.choice((0, 1, 2, 5000)),
    "an object": lambda value, draw: {draw.text(): value},
    "negative": lambda value, _: -value if _is_number(value) else f"{value} ",
}
"""What a field may be made, of what it was."""


def _is_number(value: Any) -> bool:
    return isinstance(value, float)


def _report() -> Document:
    return asdict(a_report("north"))


@functools.cache
def places(kind: str) -> tuple[Place, ...]:
    """Where each field of a sound document is; of a list of objects, of the first two.

    Other lists are fields as a whole: how long they are may hang on noise.
    """
    return tuple(_places(_report() if kind == "reports" else model()))


def _places(value: Any, before: Place = ()) -> Iterator[Place]:
    inner: Any = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        inner = enumerate(value[:2] if value and isinstance(value[0], dict) else ())
    for name, one in inner:
        if name != "checksum":
            yield (*before, name)
            yield from _places(one, (*before, name))


def name_of(place: Place) -> str:
    """What a field is called in a run's coverage."""
    return ".".join(map(str, place))


def _changed(document: Document, place: Place, how: str, draw: Draw) -> Document:
    """The document with one field changed, absent or beside a new one."""
    found: Document = json.loads(json.dumps(document))
    inner: Any = found
    for name in place[:-1]:
        inner = inner[name]
    if how == "absent":
        del inner[place[-1]]
    elif how == "beside a new one":
        found[draw.text()] = draw.number()
    else:
        inner[place[-1]] = CLASSES[how](inner[place[-1]], draw)
    return found


def _bytes_of(document: Document, draw: Draw) -> bytes:
    document["checksum"] = checksum(document) if draw.randrange(12) else draw.text()
    text = json.dumps(document, ensure_ascii=draw.one_in(2), indent=draw.choice([None, 2]))
    if draw.one_in(30):
        text = text.replace("0.004", draw.choice(["9" * 5000, "1e999", "[" * 5000, "-"]))
    content = text.encode("utf-8", errors="surrogatepass")
    return draw.damaged(content) if draw.one_in(10) else content


def _made(kind: str, number: int, sound: Document, draw: Draw) -> tuple[bytes, tuple[str, str]]:
    ways = (*CLASSES, "absent", "beside a new one")
    place = turn(places(kind), number)
    how = turn(ways, turns_of(number, len(places(kind))))
    document = _changed(sound, place, how, draw)
    if kind == "reports" and draw.randrange(4):
        named = [document.get(name) for name in ("experiment", "site", "period", "revision")]
        document["report_id"] = "{}@{}.{}.r{}".format(*named)
    return _bytes_of(document, draw), (name_of(place), how)


def reports(number: int, draw: Draw) -> Case:
    """One to four reports, one of them changed, and their aggregate, seldom with a plot."""
    content, hit = _made("reports", number, _report(), draw)
    others = _SITES[1 : draw.choice([1, 2, 2, 3, 4])]
    files: dict[str, Content] = {"north.json": content}
    for site in others:
        sound = asdict(a_report(site, estimate=draw.uniform(-10, 10)))
        files[f"{site}.json"] = _bytes_of(sound, draw)
    if draw.one_in(25):
        odd: tuple[Content, ...] = (*ODD, *RUBBISH)
        files["east.json"] = draw.choice(odd)
    names = [*files, *draw.choice([[]] * 9 + [["north.json"], ["nothing.json"]])]
    more: tuple[str, ...] = draw.choice([(), ("--json",)])
    if draw.one_in(20):
        more = ("--plot", draw.choice(["plot.svg", "plot.png", "plot.txt", "no/p.svg"]))
    return Case(files, (("aggregate", *names, *more),), ("plot.*",), hits=(hit,))


TABLE = b"id,age,sex\n" + b"".join(
    b"p%d,%d,%s\n" % (n, 20 + n, b"fm"[n % 2 :][:1]) for n in range(40)
)


def models(number: int, draw: Draw) -> Case:
    """An effect model, one of its fields changed, and what is made of it."""
    content, hit = _made("models", number, model(), draw)
    table = draw.damaged(TABLE) if draw.one_in(8) else TABLE
    predict = ("cate-predict", "model.json", "table.csv", "-o", "out.csv")
    command = draw.choice([predict, predict, ("report", "model.json", "-o", "page.html")])
    files: dict[str, Content] = {"model.json": content, "table.csv": table}
    return Case(files, (command,), ("page.html", "out.csv"), hits=(hit,))
