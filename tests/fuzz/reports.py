"""Reports of sites as a server may get them: odd, changed, or something else altogether."""

import json
from dataclasses import asdict, fields
from typing import Any

from hypothesis import strategies as st

from schemas.json_text import checksum
from schemas.site import NEIGHBOURS, SiteReport
from tests.fuzz.case import ODD, Case, Content
from tests.fuzz.values import ODD_TEXTS, RUBBISH, damages, some_of
from tests.site_reports import a_report

_FIELDS = [one.name for one in fields(SiteReport)]
_SITES = ("north", "south", "east", "west")

_texts = st.one_of(
    st.sampled_from(ODD_TEXTS), st.sampled_from(["\ud800", "x\udfff"]), st.text(max_size=8)
)
_numbers = st.one_of(
    st.sampled_from(
        [
            *(0, 1, -1, 0.0, 1e-300, 5e-324, 1e-150, 1e149, 1e150, 1e200, -1e150),
            *(2**53, 2**64, 10**400, float("nan"), float("inf"), True, None),
        ]
    ),
    st.floats(),
    st.integers(-3, 10**6),
)
_anything = st.one_of(
    _texts, _numbers, st.lists(_numbers, max_size=3), st.dictionaries(_texts, _numbers, max_size=2)
)
_likely = st.floats(-1e6, 1e6)
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "estimate": st.one_of(_likely, st.sampled_from([1e150, -1e150, 1e-300])),
    "variance": st.one_of(_likely, st.sampled_from([0.0, -1.0, 1e150, 1e-300, 5e-324])),
    "noise_variance": st.one_of(st.floats(0, 1e6), st.sampled_from([0.0, 1e150, 5e-324])),
    "n_units": st.sampled_from([1, 2, 100, 2**53]),
    "epsilon": st.sampled_from([1e-300, 0.1, 1.0, 1e150]),
    "delta": st.sampled_from([0.0, 1e-300, 0.999999]),
    "design": st.sampled_from(["trial", "matching"]),
    "control": _texts,
    "treatment": _texts,
    "estimator": _texts,
    "created_at": st.sampled_from(
        ["2026-11-20T03:15:00Z", "9999-99-99T99:99:99Z", "0000-00-00T00:00:00Z", "x\n"]
    ),
    "neighbours": st.sampled_from([*NEIGHBOURS.values(), "nobody"]),
    "experiment": st.sampled_from(["stroke", "x" * 5000, "a\n"]),
    "period": st.sampled_from(["once", "2026-11-20", "x\n"]),
    "revision": st.sampled_from([1, 2, 2**53]),
}


@st.composite
def _documents(draw: st.DrawFn, site: str) -> dict[str, Any]:
    """A report's document, a few of its fields changed."""
    document: dict[str, Any] = asdict(a_report(site, estimate=draw(st.floats(-10, 10))))
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(_FIELDS))
        match draw(st.sampled_from(["fit", "fit", "fit", "odd", "drop", "new", "wide"])):
            case "fit":
                document[name] = draw(FITTING.get(name, _anything))
            case "odd":
                document[name] = draw(_anything)
            case "drop":
                document.pop(name, None)
            case "new":
                document[draw(_texts)] = draw(_anything)
            case "wide":
                low, high = sorted(draw(st.tuples(_likely, _likely)))
                document |= {"outcome_low": low, "outcome_high": high, "outcome_bound": high - low}
    if draw(st.integers(0, 3)):
        named = [document.get(name) for name in ("experiment", "site", "period", "revision")]
        document["report_id"] = "{}@{}.{}.r{}".format(*named)
    return document


@st.composite
def _texts_of(draw: st.DrawFn, site: str) -> bytes:
    """The bytes of a report, sealed by a checksum or not."""
    document = draw(_documents(site))
    document["checksum"] = checksum(document)
    if draw(st.integers(0, 9)) == 0:
        document["checksum"] = draw(_anything)
    as_ascii, indent = draw(st.booleans()), draw(st.sampled_from([None, 2]))
    text = json.dumps(document, ensure_ascii=as_ascii, indent=indent)
    if draw(st.integers(0, 30)) == 0:
        text = text.replace("0.004", draw(st.sampled_from(["9" * 5000, "1e999", "[" * 5000, "-"])))
    return draw(some_of(damages(), most=2))(text.encode("utf-8", errors="surrogatepass"))


@st.composite
def _files(draw: st.DrawFn, site: str) -> Content:
    if draw(st.integers(0, 50)) == 0:
        return draw(st.one_of(st.sampled_from(ODD), st.sampled_from(RUBBISH)))
    return draw(_texts_of(site))


@st.composite
def reports(draw: st.DrawFn) -> Case:
    """One to four reports, and their aggregate, seldom with a plot."""
    sites = _SITES[: draw(st.sampled_from([1, 2, 2, 3, 4]))]
    files = {f"{site}.json": draw(_files(site)) for site in sites}
    names = [*files, *draw(st.sampled_from([[]] * 9 + [["north.json"], ["nothing.json"]]))]
    more: tuple[str, ...] = draw(st.sampled_from([(), ("--json",)]))
    if draw(st.integers(0, 19)) == 0:
        more = ("--plot", draw(st.sampled_from(["plot.svg", "plot.png", "plot.txt", "no/p.svg"])))
    return Case(files, (("aggregate", *names, *more),), ("plot.*",))
