"""The explorer in a browser: a page with its release and DuckDB inside, asked from ``file://``.

The engine is fetched by npm where it is not there yet; where there is no npm, this is skipped.
"""

import io
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser

from deploy.supply.engine import make_engine
from deploy.supply.locked import ROOT
from flows.cli.main import run
from flows.released.estimates.segments import estimate_segments
from flows.released.page.explorer import ENGINE, read_engine
from flows.released.page.results import finding
from flows.released.page.rows import Group, Head, results, unknown
from flows.released.page.scale import PLAIN
from flows.released.report import write_report
from schemas.errors import InputError
from tests.browser import DESKTOP, SCHEMES, Seen, seen
from tests.conftest import a_log, build_experiment
from tests.flows.released.page.test_limits import ARMS, LONG, PHONE, RIGHT_TO_LEFT, made
from tests.flows.released.page.test_rows import places

pytest_plugins = ["tests.browser"]

FETCHED = ROOT / "build" / "engine.gz"
KEYS = ["metric", "arm", "estimator", "segment"]
SURE = ["estimate", "std_error", "privacy_std_error", "n_units", "n_segment", "coverage"]
BOUNDS = ["ci_lower", "ci_upper"]
EVIL = "</script><img src=x onerror=alert(1)>'\"; DROP TABLE mine; --"


@pytest.fixture(scope="module")
def engine() -> Path:
    found = next((one for one in (ENGINE, FETCHED) if one.exists()), None)
    if found is None and shutil.which("npm") is None:
        pytest.skip("there is no npm on this machine, which fetches the explorer's engine")
    return found or make_engine(FETCHED)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explorer") / "made"
    return made(folder, ARMS, ("Visit", "Spend", "Spend per visit"))


@pytest.fixture(scope="module")
def page(release: Path, engine: Path) -> Path:
    return explorer_of(release, engine)


@pytest.fixture(scope="module")
def explorer(browser: Browser, page: Path) -> Iterator[Seen]:
    with seen(browser, page) as found:
        ready(found)
        yield found


def explorer_of(release: Path, engine: Path) -> Path:
    output = release.parent / "explorer.html"
    return write_report(release, output, is_explorer=True, engine=engine)


def ready(found: Seen) -> None:
    found.page.wait_for_selector("html[data-explorer=ready]")


def dropped(found: Seen, file: Path) -> str:
    """What the page says about a table."""
    found.page.set_input_files("#table", file)
    ready(found)
    return found.page.inner_text("#said")


def saved(found: Seen, link: str = "#save-segments") -> pl.DataFrame:
    with found.page.expect_download() as download:
        found.page.click(link)
    return pl.read_csv(download.value.path(), infer_schema_length=None)


def same_as_estimated(found: pl.DataFrame, release: Path, file: Path) -> None:
    """Estimates and errors to 1e-9, bounds to 1e-6, row for row; as estimate has them."""
    wanted = pl.DataFrame(
        [
            {name: getattr(one, name) for name in [*KEYS, *SURE, *BOUNDS]}
            for one in estimate_segments(release, file).estimates
        ]
    ).sort(KEYS)
    found = found.with_columns(pl.col("segment").cast(pl.String)).sort(KEYS)
    assert found.select(KEYS).equals(wanted.select(KEYS))
    for names, close in ((SURE, 1e-9), (BOUNDS, 1e-6)):
        for name in names:
            assert found[name].is_null().equals(wanted[name].is_null()), name
            left, right = (one[name].drop_nulls().to_list() for one in (found, wanted))
            assert left == pytest.approx(right, rel=close, abs=close), name


def some_segments(random: np.random.Generator, n_units: int = 6000) -> pl.DataFrame:
    """A random table: units in none, one or several segments, strange ids, empty cells, copies."""
    n = int(random.integers(50, 9000))
    ids = [f"c{one:05d}" for one in random.integers(0, n_units + 50, n)]
    names = random.choice(["a", "b, c", 'quo"ted', "üñí ✓", "7", " ", RIGHT_TO_LEFT], n)
    return pl.DataFrame({"unit_id": ids, "segment": names}).with_columns(
        pl.when(pl.Series(random.random(n) < 0.97)).then(one).alias(one)
        for one in ("unit_id", "segment")
    )


WRITERS: dict[str, Any] = {
    "comma.csv": lambda table, file: table.write_csv(file),
    "crlf.csv": lambda table, file: table.write_csv(file, line_terminator="\r\n"),
    "quoted.csv": lambda table, file: table.write_csv(file, quote_style="non_numeric"),
    "bom.csv": lambda table, file: table.write_csv(file, include_bom=True),
    "polars.parquet": lambda table, file: table.write_parquet(file),
    "groups.parquet": lambda table, file: table.write_parquet(
        file, row_group_size=700, data_page_size=3000, compression="lz4"
    ),
    "arrow.parquet": lambda table, file: pq.write_table(table.to_arrow(), file),
    "second.parquet": lambda table, file: pq.write_table(
        table.to_arrow(), file, data_page_version="2.0", compression="gzip", use_dictionary=False
    ),
    "plain.parquet": lambda table, file: pq.write_table(
        table.to_arrow(), file, compression="none", use_dictionary=False
    ),
    "delta.parquet": lambda table, file: pq.write_table(
        table.to_arrow(),
        file,
        use_dictionary=False,
        compression="zstd",
        column_encoding={"unit_id": "DELTA_BYTE_ARRAY", "segment": "DELTA_LENGTH_BYTE_ARRAY"},
    ),
}


def test_it_is_ready_without_a_request(explorer: Seen, page: Path, release: Path) -> None:
    assert [one for one in explorer.requests if not one.startswith("blob:")] == []
    assert explorer.errors == []
    assert page.stat().st_size - release.stat().st_size < 11_000_000
    assert explorer.page.inner_text("#state") == "Ready."


@pytest.mark.parametrize("kind", WRITERS)
def test_segments_are_answered_as_by_estimate(
    explorer: Seen, release: Path, tmp_path: Path, kind: str
) -> None:
    table = some_segments(np.random.default_rng(list(WRITERS).index(kind)))
    WRITERS[kind](table, tmp_path / kind)
    told = dropped(explorer, tmp_path / kind)
    assert "units of the table are in the release" in told
    same_as_estimated(saved(explorer), release, tmp_path / kind)
    found = estimate_segments(release, tmp_path / kind)
    assert told.startswith(f"{found.n_matched:,} of {found.n_matched + found.n_unmatched:,} units")
    for count, words in ((found.n_duplicates, "repeat another"), (found.n_missing, "lack an id")):
        assert f"{count:,} rows {words}" in told


@pytest.mark.soak
def test_two_hundred_random_tables_are_answered_as_by_estimate(
    explorer: Seen, release: Path, tmp_path: Path
) -> None:
    for number in range(200):
        file = tmp_path / list(WRITERS)[number % len(WRITERS)]
        WRITERS[file.name](some_segments(np.random.default_rng(1000 + number)), file)
        dropped(explorer, file)
        same_as_estimated(saved(explorer), release, file)


@pytest.mark.soak
def test_a_million_units_are_answered_in_five_seconds(
    browser: Browser, tmp_path: Path, engine: Path
) -> None:
    """On a quiet machine of two cores; 2 to 3 seconds of processor time."""
    log = a_log(1_000_000, clusters=tuple(f"place {one}" for one in range(100)))
    release = build_experiment(tmp_path / "made", log).run().path
    table = log.select(unit_id="customer", segment=pl.int_range(pl.len()) * 7919 % 13)
    with seen(browser, explorer_of(release, engine)) as found:
        ready(found)
        for name in ("mine.csv", "mine.parquet"):
            WRITERS["comma.csv" if name == "mine.csv" else "polars.parquet"](table, tmp_path / name)
            start = time.monotonic()
            dropped(found, tmp_path / name)
            taken = time.monotonic() - start
            same_as_estimated(saved(found), release, tmp_path / name)
            assert taken < 5


DRAWN = """
[...document.querySelectorAll('#answers .r')].map(one => [
  one.querySelector('.a').textContent, one.querySelector('.e b').textContent,
  one.querySelector('.e small').textContent,
  one.querySelector('.o')?.getAttribute('x'), one.querySelector('.o')?.getAttribute('width'),
  one.querySelector('.i')?.getAttribute('x'), one.querySelector('.d')?.getAttribute('cx')])
"""


@pytest.mark.parametrize("number", range(3))
def test_rows_are_drawn_as_the_page_draws_its_own(
    explorer: Seen, release: Path, tmp_path: Path, number: int
) -> None:
    file = tmp_path / "mine.csv"
    some_segments(np.random.default_rng(number)).write_csv(file)
    dropped(explorer, file)
    found = estimate_segments(release, file).estimates
    groups = []
    for metric in dict.fromkeys(one.metric for one in found):
        mine = [one for one in found if one.metric == metric]
        first = "combined" if any(one.estimator == "combined" for one in mine) else "tau_q"
        rows = [one for one in mine if one.estimator == first]
        scale = replace(PLAIN, factor=100.0 if metric == "visit" else 1.0)
        for arm in dict.fromkeys(one.arm for one in rows):
            findings = [
                finding(vars(one), one.segment, unknown(), (0.0, 0.0))
                for one in rows
                if one.arm == arm
            ]
            groups.append(Group(name="", about="", findings=findings, scale=scale, unit=metric))
    wanted = results("a", groups, Head("", "", "", ""), few_rulers=True, most=99)
    bars = [row for group in places(wanted) for row in group]
    told_rows = [(one["group"], row) for one in wanted.groups for row in one["rows"]]
    seen_rows = explorer.page.evaluate(DRAWN)
    assert len(seen_rows) == len(told_rows) > 30
    for (name, effect, between, *bar), (group, row), place in zip(
        seen_rows, told_rows, bars, strict=True
    ):
        told = "–" if row.estimate is None else group.shown(row.estimate, sign=True)
        assert (name, effect) == (row.name if str(row.name).strip() else "(blank)", told)
        assert between == " to ".join(map(group.shown, row.outer or ()))
        drawn = [
            *(place["outer"] or [None, None]),
            place["inner"] and place["inner"][0],
            place["dot"],
        ]
        assert [one and float(one.removesuffix("%")) for one in bar] == pytest.approx(
            [one and float(one) for one in drawn], abs=0.11
        )


@pytest.mark.parametrize("kind", [pl.Int32, pl.UInt64, pl.Int16, pl.Boolean, pl.Categorical])
def test_segments_of_other_types_are_text(
    explorer: Seen, release: Path, tmp_path: Path, kind: Any
) -> None:
    values = pl.Series("segment", [str(one % 2) for one in range(6000)])
    if kind is not pl.Categorical:
        values = values.cast(pl.Int8)
    table = pl.DataFrame(
        {"unit_id": [f"c{one:05d}" for one in range(6000)], "segment": values.cast(kind)}
    )
    table.write_parquet(tmp_path / "kinds.parquet")
    dropped(explorer, tmp_path / "kinds.parquet")
    same_as_estimated(
        saved(explorer).with_columns(pl.col("segment").cast(pl.String)),
        release,
        tmp_path / "kinds.parquet",
    )


def test_another_column_can_be_chosen(explorer: Seen, release: Path, tmp_path: Path) -> None:
    n = 6000
    table = pl.DataFrame(
        {
            "unit_id": [f"c{one:05d}" for one in range(n)],
            "city": [f"city {one % 3}" for one in range(n)],
            'plan\'s "kind"': ["a" if one % 5 else "b" for one in range(n)],
        }
    )
    table.write_csv(tmp_path / "wide.csv")
    dropped(explorer, tmp_path / "wide.csv")
    assert set(saved(explorer)["segment"]) == {"city 0", "city 1", "city 2"}
    explorer.page.select_option("#column", 'plan\'s "kind"')
    ready(explorer)
    table.select("unit_id", segment='plan\'s "kind"').write_csv(tmp_path / "one.csv")
    same_as_estimated(saved(explorer), release, tmp_path / "one.csv")


def parquet_of(table: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    table.write_parquet(file)
    return file.getvalue()


SOUND = pl.DataFrame({"unit_id": ["c00001", "c00002"], "segment": ["a", "b"]})
HEAD = b"unit_id,segment\n"
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty.csv": (b"", "is empty"),
    "binary.csv": (bytes(range(256)) * 9, "neither Parquet nor CSV"),
    "nothing.csv": (b"\n\n", "no column unit_id"),
    "header.csv": (HEAD, "[Nn]one of the .*0 rows"),
    "other.csv": (b"id,group\nc00001,a\n", "no column unit_id.*id, group"),
    "alone.csv": (b"unit_id\nc00001\n", "no column besides"),
    "twice.csv": (b"unit_id,a,a\nc00001,b,c\n", "stands there twice"),
    "strangers.csv": (HEAD + b"x,a\ny,b\n", "none of the 2 ids"),
    "ragged.csv": (HEAD + b"c00001,a\nc00002,b,c,d\n", "line 3 does not have 2 values"),
    "short.csv": (HEAD + b"c00001,a\nc00002\n", "line 3 does not have 2 values"),
    "open.csv": (HEAD + b'c00001,"a\n' + b"c00002,b\n" * 10, "cannot be read as a table"),
    "latin.csv": (HEAD + b"c00001,a\n" * 200_000 + b"c00001,\xe9\n", "not in UTF-8"),
    "latin.head.csv": ("unit_id,größe\nc00001,a\n".encode("latin1"), "neither Parquet nor CSV"),
    "page.csv": (b"<!doctype html><p>unit_id", "no column unit_id"),
    "cut.parquet": (parquet_of(SOUND)[:-40], "not whole|no Parquet"),
    "start.parquet": (parquet_of(SOUND)[:40], "not whole|no Parquet"),
    "text.parquet": (HEAD + b"c00001,a\n", "not whole|no Parquet"),
    "tail.parquet": (b"\0" * 90 + b"\xff\xff\xff\xffPAR1", "not whole|no Parquet"),
    "zero.parquet": (b"\0" * 90 + b"\0\0\0\0PAR1", "not whole|no Parquet|no column"),
    "date.parquet": (
        parquet_of(SOUND.with_columns(segment=pl.date(2026, 1, 1))),
        "neither text nor whole",
    ),
    "float.parquet": (parquet_of(SOUND.with_columns(segment=0.5)), "neither text nor whole"),
    "list.parquet": (
        parquet_of(SOUND.with_columns(pl.concat_list("segment"))),
        "neither text nor whole",
    ),
    "numbers.csv": (HEAD + b"1,a\n2,b\n", "none of the 2 ids"),
    "evil.csv": (f"unit_id,segment\nc00001,{EVIL}\n".encode(), "1 of 1 units"),
    "long.csv": (HEAD + b"c00001," + b"x" * 3_000_000 + b"\n", "longer than any line"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_tables_are_answered_plainly(explorer: Seen, tmp_path: Path, kind: str) -> None:
    content, words = HOSTILE[kind]
    (tmp_path / kind).write_bytes(content)
    told = dropped(explorer, tmp_path / kind)
    assert re.search(words, told), told
    assert not re.search(r"undefined|null|\bat \w+ \(|Error:|\[object", told)
    assert len(told) < 500
    assert explorer.page.locator("#answers img").count() == 0


def test_damaged_parquet_never_hangs_and_never_answers_wrongly(
    explorer: Seen, tmp_path: Path
) -> None:
    """A byte of a sound file is changed: it is said, or answered as what the bytes now say."""
    whole, random = parquet_of(SOUND), np.random.default_rng(11)
    for at in random.integers(0, len(whole), 80):
        broken = bytearray(whole)
        broken[at] ^= int(random.integers(1, 256))
        (tmp_path / "broken.parquet").write_bytes(bytes(broken))
        told = dropped(explorer, tmp_path / "broken.parquet")
        assert told
        assert not re.search(r"undefined|\bat \w+ \(|\[object", told), told


QUESTIONS = [
    ("FROM rel.ate('rel')", "9 rows|6 rows|12 rows|18 rows"),
    ("SELECT 1 AS a; SELECT 2 AS b", "1 row"),
    ("CREATE OR REPLACE TABLE mad AS SELECT 'ü;' AS x; FROM mad -- and; no more", "1 row"),
    ("SHOW ALL TABLES", "rows"),
    ("CREATE OR REPLACE TABLE other AS SELECT 1", "Done"),
    ("", "nothing to run"),
    ("selec 1", "syntax error"),
    ("DELETE FROM rel.strata", "read-only"),
    ("FROM 'https://example.com/a.csv'", "no network"),
    ("FROM read_parquet('a.parquet')", "no network"),
    ("LOAD httpfs", "no network"),
]


@pytest.mark.parametrize(("sql", "words"), QUESTIONS)
def test_sql_is_answered(explorer: Seen, sql: str, words: str) -> None:
    explorer.page.fill("#sql", sql)
    explorer.page.click("#run")
    ready(explorer)
    assert re.search(words, explorer.page.inner_text("#sql-said"))
    assert [one for one in explorer.requests if not one.startswith("blob:")] == []


def test_a_result_is_saved_as_it_is(explorer: Seen) -> None:
    explorer.page.fill("#sql", "SELECT i, i / 7 AS x, 'a\"b,\n' || i AS t FROM range(1000) AS r(i)")
    explorer.page.press("#sql", "Control+Enter")
    ready(explorer)
    assert explorer.page.locator("#result tbody tr").count() == 200
    found = saved(explorer, "#save-sql")
    assert found["x"].to_list() == [one / 7 for one in range(1000)]
    assert found["t"][7] == 'a"b,\n7'


def test_names_do_no_harm(browser: Browser, tmp_path: Path, engine: Path) -> None:
    """Arms and metrics with markup, quotes, sixty letters, from right to left."""
    release = made(tmp_path / "evil", (EVIL, LONG, RIGHT_TO_LEFT), (EVIL, LONG, RIGHT_TO_LEFT))
    page = explorer_of(release, engine)
    ids = [f"c{one:05d}" for one in range(6000)]
    pl.DataFrame({"unit_id": ids, EVIL: [EVIL, LONG, RIGHT_TO_LEFT] * 2000}).write_csv(
        tmp_path / "names.csv"
    )
    with seen(browser, page, (320, 700)) as found:
        ready(found)
        assert "6,000 of 6,000" in dropped(found, tmp_path / "names.csv")
        assert found.page.locator("#answers img, #explorer img").count() == 0
        assert EVIL in found.page.inner_text("#answers")
        assert found.overflow() <= 0
        assert found.errors == []


def test_without_units_there_is_sql_alone(browser: Browser, tmp_path: Path, engine: Path) -> None:
    built = build_experiment(
        tmp_path / "built", a_log(2000), privacy={"mechanism": "noisy-histogram"}
    )
    page = explorer_of(built.run().path, engine)
    with seen(browser, page) as found:
        ready(found)
        assert found.page.locator("#table").count() == 0
        found.page.click("#run")
        ready(found)
        assert "row" in found.page.inner_text("#sql-said")


def test_it_can_be_read(explorer: Seen, tmp_path: Path, axe: str) -> None:
    some_segments(np.random.default_rng(5)).write_csv(tmp_path / "mine.csv")
    dropped(explorer, tmp_path / "mine.csv")
    explorer.page.fill("#sql", "FROM rel.ate('rel')")
    explorer.page.click("#run")
    ready(explorer)
    explorer.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = 1)")
    for width, height in ((320, 700), PHONE, DESKTOP):
        explorer.page.set_viewport_size({"width": width, "height": height})
        for scheme in SCHEMES:
            explorer.page.emulate_media(color_scheme=scheme)
            assert explorer.overflow() <= 0
            assert explorer.hard_to_read(5.5) == []
            assert explorer.unnamed_figures() == 0
    assert explorer.violations(axe) == []


def test_the_slider_says_what_the_table_does(explorer: Seen) -> None:
    table = explorer.page.evaluate(
        "[...document.querySelectorAll('#table-other-epsilon tbody tr')]"
        ".map(row => [...row.children].map(cell => cell.textContent))"
    )
    own = next(row for row in table if "this release" in row[0])
    told = explorer.page.evaluate("document.getElementById('at-epsilon').textContent")
    assert own[0] in told.replace("ε = ", "")
    for text in own[1:]:
        assert text in told
    explorer.page.evaluate("document.querySelector('#epsilon').open = true")
    for key, epsilon in (("Home", "0.1"), ("End", "10"), ("ArrowLeft", "8.91")):
        explorer.page.press("#slider", key)
        assert f"ε = {epsilon}:" in explorer.page.inner_text("#at-epsilon")
        assert explorer.page.get_attribute("#slider", "aria-valuetext") == f"ε = {epsilon}"


def test_without_the_engine_it_is_said_how_to_get_it(
    tmp_path: Path, release: Path, engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.gz").write_bytes(b"\x1f\x8b no")
    for name, words in (("none.gz", "no such file"), ("other.gz", "cannot be read")):
        asked = ["report", str(release), "-o", str(tmp_path / "a.html")]
        assert run([*asked, "--explorer", "--engine", str(tmp_path / name)]) == 2
        told = capsys.readouterr().err
        assert words in told
        assert "make explorer" in told
    assert not (tmp_path / "a.html").exists()
    (tmp_path / "changed.gz").write_bytes(read_engine(engine)[:-40] + bytes(40))
    with pytest.raises(InputError, match=r"cannot be read|is not the engine"):
        read_engine(tmp_path / "changed.gz")
