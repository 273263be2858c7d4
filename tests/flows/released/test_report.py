"""The page about a release: its numbers are the file's, and a browser finds it sound."""

import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from jinja2 import DictLoader, UndefinedError
from markupsafe import escape
from playwright.sync_api import Browser

from estimators.ends import over_pools, response_shares
from estimators.response.pool_statistics import Cumulants, PoolCountsNoise
from flows.cli.main import run
from flows.released.page.contents import Contents
from flows.released.page.cost import odds_after
from flows.released.page.html import environment
from flows.released.page.rows import unprotected
from flows.released.page.words import (
    clean,
    grouped,
    name,
    names,
    number,
    rounded_down,
    rounded_up,
    said,
    shown,
)
from flows.released.report import report, write_report
from schemas.arrays import Floats
from schemas.errors import InputError
from tests.browser import DESKTOP, PAPER, PHONE, Scheme, seen
from tests.conftest import EXACT, Builder, Program, a_log, build_experiment, released, rows
from tests.support.contents import read_contents, text_of
from tests.support.distances import assert_between, assert_near

pytest_plugins = ["tests.browser"]

EVIL_CONTROL = "control <b>$x_1$</b>"
EVIL = "<script>console.error('arm')</script>"
EVIL_CLUSTER = "<img src=http://127.0.0.1:9/x onerror=console.error(1)>"
MANY = 3000

Pages = Mapping[str, tuple[Path, Path]]
"""Releases by what is special about them, and the pages about them."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("pages")
    long = "a name that is much too long for a figure, " * 3 + '漢字 & "$\\frac{1}{2}$"'
    arms = (EVIL_CONTROL, EVIL, long)
    eleven = tuple(f"arm{one}" for one in range(11))
    built = {
        "plain": build_experiment(folder / "plain", a_log(2000)),
        "evil": build_experiment(
            folder / "evil",
            a_log(600, arms=arms, clusters=(EVIL_CLUSTER, "west")),
            arms={"control": arms[0], "treatments": list(arms[1:])},
        ),
        "no counts": build_experiment(
            folder / "no counts",
            a_log(400),
            privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "none", "delta": 1e-6},
        ),
        "many clusters": build_experiment(
            folder / "many clusters",
            a_log(20 * MANY, clusters=tuple(f"place {one}" for one in range(MANY))),
            privacy={"epsilon": 0.5},
        ),
        "many arms": build_experiment(
            folder / "many arms",
            a_log(2200, arms=eleven),
            arms={"control": "arm0", "treatments": list(eleven[1:])},
            outcome={"values": [one - 10 for one in range(62)]},
        ),
    }
    found = {}
    for kind, one in built.items():
        release = one.run().path
        found[kind] = (release, write_report(release, folder / f"{kind}.html"))
    return found


KINDS = ["plain", "evil", "no counts", "many clusters", "many arms"]


def tampered(release: Path, folder: Path, *statements: str) -> Path:
    """A copy of a release that says something else."""
    copy = folder / "tampered.duckdb"
    shutil.copy(release, copy)
    copy.chmod(0o600)
    with duckdb.connect(str(copy)) as connection:
        for statement in statements:
            connection.execute(statement)
    return copy


# the command


def test_the_command_prints_the_absolute_path(
    pages: Pages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    release = str(pages["plain"][0])
    assert run(["report", release, "-o", "a.html"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.html'}\n"
    assert run(["report", release, "-o", "a.html", "--json"]) == 0  # a second time, too
    found = json.loads(capsys.readouterr().out)
    assert found == {"path": str(tmp_path / "a.html"), "withdrawn": None}
    assert (tmp_path / "a.html").read_bytes() == pages["plain"][1].read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == ["a.html"]


def no_release(folder: Path) -> Path:
    (folder / "text.duckdb").write_text("nothing")
    return folder / "text.duckdb"


def empty_database(folder: Path) -> Path:
    with duckdb.connect(str(folder / "empty.duckdb")) as connection:
        connection.execute("CREATE TABLE release (a INTEGER)")
    return folder / "empty.duckdb"


@pytest.mark.parametrize(
    ("release", "output", "words"),
    [
        (None, "missing/a.html", "there is no such folder"),
        (None, "file/a.html", "there is no such folder"),
        (None, "folder.html", "is a folder"),
        (None, "a.txt", "ending in .html"),
        (None, "release.html", "is the release itself"),
        (lambda folder: folder / "none.duckdb", "a.html", "there is no such file"),
        (lambda folder: folder / "folder.html", "a.html", "several releases make several pages"),
        (no_release, "a.html", "not a DuckDB file"),
        (empty_database, "a.html", "not a clusterdp release"),
    ],
)
def test_what_cannot_be_done_is_said_plainly(
    pages: Pages,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    release: Callable[[Path], Path] | None,
    output: str,
    words: str,
) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("")
    shutil.copy(pages["plain"][0], tmp_path / "release.html")
    asked = tmp_path / "release.html" if release is None else release(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert run(["report", str(asked), "-o", str(tmp_path / output)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("clusterdp: ")
    assert words in told.err
    assert len(told.err.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_page_that_is_there_stays_whole_until_another_is(tmp_path: Path, pages: Pages) -> None:
    output = tmp_path / "a.html"
    output.write_text("before")
    with pytest.raises(InputError):
        write_report(no_release(tmp_path), output)
    assert output.read_text() == "before"
    held = output.open("rb")
    with held:
        write_report(pages["plain"][0], output)
        assert held.read() == b"before"  # replaced by name, never written over
    assert output.read_bytes() == pages["plain"][1].read_bytes()
    assert output.stat().st_mode & 0o777 == 0o644


def test_a_full_disk_is_told_plainly(pages: Pages, tmp_path: Path) -> None:
    """A name too long for the file system stands for all that may fail in writing."""
    with pytest.raises(InputError, match="cannot be written"):
        write_report(pages["plain"][0], tmp_path / f"{'a' * 250}.html")
    assert list(tmp_path.iterdir()) == []


def test_the_same_release_gives_the_same_bytes(
    pages: Pages, tmp_path: Path, clusterdp: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the file is called, in another process."""
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    release, page = pages["evil"]
    shutil.copy(release, tmp_path / "other name.duckdb")
    ended = clusterdp("report", tmp_path / "other name.duckdb", "-o", tmp_path / "b.html")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert (tmp_path / "b.html").read_bytes() == page.read_bytes()


def test_another_release_gives_other_bytes(pages: Pages, tmp_path: Path) -> None:
    other = tampered(pages["plain"][0], tmp_path, "UPDATE metrics SET label = 'Clicks'")
    assert report(read_contents(other)) != pages["plain"][1].read_text(encoding="utf-8")


# what is in the page


@pytest.mark.parametrize("kind", ["plain", "evil", "many arms"])
def test_the_table_of_effects_has_the_files_numbers(
    browser: Browser, pages: Pages, kind: str
) -> None:
    release, page = pages[kind]
    stated = released(
        release,
        "SELECT estimate, ci_lower, ci_upper, std_error, privacy_std_error, p_value, p_value_holm, "
        "n_units FROM main.estimates ORDER BY arm, CASE estimator WHEN 'combined' THEN 0 "
        "WHEN 'tau_q' THEN 1 ELSE 2 END",
    ).rows()
    with seen(browser, page) as found:
        told = found.page.evaluate(
            "[...document.querySelectorAll('#table-estimates tbody tr:not(.heading)')].map(row =>"
            " [...row.querySelectorAll('data')].map(one => [one.value, one.textContent]))"
        )
    assert len(told) == len(stated) > 0
    for row, cells in zip(stated, told, strict=True):
        assert [float(exact) for exact, _ in cells] == list(row)
        for exact, text in cells:
            assert reads_as(text, float(exact))


@pytest.mark.parametrize("kind", ["plain", "evil", "many arms"])
def test_the_rows_have_the_files_numbers(browser: Browser, pages: Pages, kind: str) -> None:
    """Exactly, and as they are shown; the bar has the interval, and the dot the estimate."""
    release, page = pages[kind]
    stated = released(
        release,
        "SELECT estimate, ci_lower, ci_upper, std_error, privacy_std_error FROM main.estimates "
        "WHERE estimator = 'combined' ORDER BY arm",
    ).rows()
    with seen(browser, page) as found:
        found.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = 1)")
        told = found.page.evaluate(
            "[...document.querySelectorAll('#rows .r, #rows-rest .r')].map(row => ["
            "[...row.querySelectorAll('.e data')].map(one => [one.value, one.textContent]),"
            "['.o', '.i', '.d'].map(part => row.querySelector(part)?.getBoundingClientRect())"
            ".map(box => box ? [box.left, box.right] : [0, 0])])"
        )
    assert len(told) == len(stated) > 0
    scales = []
    for row, (cells, (outer, inner, dot)) in zip(stated, told, strict=True):
        assert [float(exact) for exact, _ in cells] == list(row[:3])
        for exact, text in cells:
            assert reads_as(text, float(exact))
        scales.append((outer[1] - outer[0] - 1.5) / (row[2] - row[1]))
        part = (inner[1] - inner[0]) / (outer[1] - outer[0] - 1.5)
        assert part == pytest.approx(unprotected(row[3], row[4]), abs=0.02)
        assert sum(dot) == pytest.approx(sum(outer), abs=2.0)
    assert scales == pytest.approx([scales[0]] * len(scales), rel=0.03)


def reads_as(text: str, exact: float) -> bool:
    """Whether a shown number is the exact one, rounded to the digits that are shown."""
    plain = text.replace("−", "-").replace(",", "")
    mantissa, _, exponent = plain.partition("e")
    step = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    if "." not in mantissa:  # zeros at the end may stand for digits that are not shown
        step *= 10 ** (len(mantissa) - len(mantissa.rstrip("0")))
    return abs(float(plain) - exact) <= 0.5000001 * step


def test_a_wrong_digit_is_noticed() -> None:
    assert reads_as("−0.359", -0.3588)
    assert reads_as("2.4e−18", 2.41e-18)
    assert reads_as("2,830", 2830)
    assert not reads_as("0.358", 0.3588)
    assert not reads_as("0.359", -0.3588)
    assert not reads_as("2.3e−18", 2.41e-18)


def test_counts_are_the_published_ones(pages: Pages) -> None:
    release, page = pages["plain"]
    counts = released(
        release, "SELECT arm, outcome, sum(noisy_count)::BIGINT AS n FROM main.counts GROUP BY ALL"
    )
    (one_metric,) = read_contents(release).metrics
    found = one_metric.distribution
    assert found is not None
    assert found.totals is not None
    for arm, totals, share in zip(("none", "mail"), found.totals, found.share, strict=True):
        expected = counts.filter(pl.col("arm") == arm).sort("outcome")["n"].to_list()
        assert totals.tolist() == expected
        assert share == pytest.approx(np.array(expected) / 1000)
    assert "published noisy counts" in text_of(page)


def test_without_counts_the_randomised_outcomes_are_debiased(experiment: Builder) -> None:
    log = a_log(600)
    release = experiment(log, privacy=EXACT).run().path
    contents = read_contents(release)
    (metric,) = contents.metrics
    assert metric.distribution is not None
    assert metric.distribution.totals is None
    found = metric.distribution
    for arm, share, error in zip(contents.arms, found.share, found.error, strict=True):
        raw = log.filter(pl.col("variant") == arm)["clicks"]
        expected = [int((raw == value).sum()) / len(raw) for value in range(4)]
        assert share == pytest.approx(expected, abs=1e-9)
        assert error == pytest.approx(np.zeros(4), abs=1e-5)
    assert "publishes no counts" in text_of(report(contents))


POOLS = [(300, np.array([0.4, 0.3, 0.2, 0.1])), (700, np.array([0.1, 0.1, 0.1, 0.7]))]
"""Sizes and priors of two pools."""


def debiased_draws(n_draws: int) -> tuple[Floats, Floats]:
    """Debiased shares of the same 1000 outcomes, randomised many times, and their errors."""
    rate, chance = 0.6, np.random.default_rng(20250)
    n_units, priors = np.array([float(n) for n, _ in POOLS]), np.array([one for _, one in POOLS])
    counts = np.zeros((n_draws, len(POOLS), 4))
    for pool, (n, prior) in enumerate(POOLS):
        true = np.repeat(np.arange(4), [n // 2, n // 4, n // 4, n - n // 2 - 2 * (n // 4)])
        for draw in range(n_draws):
            drawn = np.where(chance.random(n) < rate, chance.choice(4, n, p=prior), true)
            counts[draw, pool] = np.bincount(drawn, minlength=4)
    draws = []
    for count in counts:
        pools = [response_shares(n_units, count[:, k], priors[:, k], rate) for k in range(4)]
        share, variance = (
            np.stack([getattr(one, name) for one in pools], axis=1)
            for name in ("share", "variance")
        )
        draws.append(over_pools(n_units, share, variance))
    shares, errors = map(np.array, zip(*draws, strict=True))
    return shares, errors


def test_debiased_shares_are_unbiased_and_their_errors_are_right() -> None:
    """400 draws from a fixed generator: deterministic. 30 % off the error is eight of its own
    standard errors (3.5 %), a bias of one standard error twenty.
    """
    shares, errors = debiased_draws(400)
    claimed = np.sqrt(np.mean(errors**2, axis=0))
    truth = np.array([500, 250, 250, 0]) / 1000
    error = claimed / math.sqrt(len(shares))
    assert_near(shares.mean(axis=0), truth, error, 5.0)
    ratio = shares.std(axis=0, ddof=1) / claimed
    assert_between(ratio, (0.83, 1.17), 1.0, math.sqrt(0.5 / len(shares)))
    assert not np.any(np.abs(1.3 * ratio - 1) < 0.1)  # a wrong error would be seen
    assert np.all(shares.sum(axis=1) == pytest.approx(1))


def test_errors_of_counts_are_those_of_the_noise() -> None:
    """√(pools · Var Z)/n, Var Z summed up by hand from P(k) ∝ e^(−|k|/σ)."""
    steps = np.arange(-4000, 4001)
    chance = np.exp(-np.abs(steps) / 3.0)
    variance = float(chance @ steps**2 / chance.sum())
    n_units = np.array([30.0, 30.0, 20.0, 10.0, 10.0])
    noisy = np.array([[9.0, -1.0], [2.0, 0.0], [0.0, 0.0], [-1.0, -5.0], [0.0, 2.0]])
    noise = PoolCountsNoise(Cumulants.of_discrete_laplace(3.0), complement=False)
    n = n_units[:, np.newaxis]
    share, error = over_pools(n_units, noisy / n, noise.noise.second / n**2)
    assert share == pytest.approx([0.1, -0.04])
    assert error == pytest.approx(np.full(1, math.sqrt(5 * variance) / 100))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 2.0, 12.0])
def test_odds_move_by_the_factor_and_no_more(epsilon: float) -> None:
    prior = np.array([0.01, 0.5, 0.9])
    least, most = odds_after(prior, epsilon)
    odds = prior / (1 - prior)
    assert most / (1 - most) == pytest.approx(odds * math.exp(epsilon))
    assert least / (1 - least) == pytest.approx(odds / math.exp(epsilon))


def test_any_epsilon_can_be_told(pages: Pages) -> None:
    """Bounds are rounded outwards: no number in the table promises too much."""
    contents = read_contents(pages["plain"][0])
    for epsilon in (1e-9, 2.0, 30.0, 5000.0):
        page = report(replace(contents, manifest=replace(contents.manifest, epsilon=epsilon)))
        table = page[page.index('<table id="table-epsilon"') :].partition("</table>")[0]
        cells = re.findall(r'<td><data value="([^"]*)">([^<]*)</data>', table)
        assert len(cells) == 8
        for position, (exact, text) in enumerate(cells):
            bound = float(re.sub(r"[^\d.]", "", text)) / 100
            if position % 2:
                assert bound >= float(exact) or text.startswith("over")
            else:
                assert bound <= float(exact) or text.startswith("under")
        assert ("next to no protection" in page) == (epsilon > 7)


def test_delta_is_told_where_there_is_one(pages: Pages) -> None:
    assert "by a further 1e−06" in text_of(pages["no counts"][1])
    assert "by a further" not in text_of(pages["plain"][1])


@pytest.mark.parametrize(
    ("error", "privacy", "expected"), [(5.0, 3.0, 0.8), (1.0, 0.0, 1.0), (1.0, 1.1, 0.0), (0, 0, 1)]
)
def test_what_is_not_due_to_privacy(error: float, privacy: float, expected: float) -> None:
    assert unprotected(error, privacy) == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_is_named(pages: Pages, kind: str) -> None:
    release, page = pages[kind]
    ids = released(release, "SELECT unit_id FROM main.units")["unit_id"].to_list()
    assert len(ids) >= 400
    assert ids[0] == "c00000"
    words = set(re.findall(r"\w+", page.read_text(encoding="utf-8")))
    assert words.isdisjoint(ids)


def test_with_many_clusters_the_page_stays_small(pages: Pages) -> None:
    page = pages["many clusters"][1]
    assert page.stat().st_size < 250_000
    text = text_of(page)
    assert "The 10 largest of 3,000 clusters" in text
    assert f"1 of {2 * MANY:,} vectors" in text
    assert text.count("place ") < 60


def test_the_largest_clusters_are_named(experiment: Builder) -> None:
    log = a_log(2000, clusters=tuple(f"place {one}" for one in range(40)))
    large = log.filter(pl.col("region") != "place 33").vstack(
        a_log(3000, clusters=("place 33",)).with_columns(pl.col("customer") + "x")
    )
    text = text_of(report(read_contents(experiment(large).run().path)))
    assert re.search(r"(?s)The 10 largest of 40 clusters.*?Together place 331,5001,5003,000", text)


def test_tables_say_what_they_leave_out(pages: Pages) -> None:
    text = text_of(pages["many arms"][1])
    assert "2 more rows" in text
    assert "The first 8 of 10 treatment arms are compared." in text
    assert "The first 60 of 62 outcomes." in text
    assert "Of the largest pools: 1 of 22 vectors." in text


# releases of other kinds


def test_every_arms_own_mean_is_shown(experiment: Builder) -> None:
    built = experiment(
        a_log(800), privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "means"}
    )
    release = built.run().path
    page = report(read_contents(release))
    table = page[page.index('<table id="table-means"') :].partition("</table>")[0]
    told = {
        arm: re.findall('<data value="([^"]+)">', row)
        for arm, row in re.findall("<bdi>([a-z]+)</bdi></th>(.*?)</tr>", table)
    }
    stated = released(
        release,
        "SELECT arm, list([mean, std_error] ORDER BY CASE estimator WHEN 'combined' THEN 0 "
        "WHEN 'tau_q' THEN 1 ELSE 2 END) FROM main.means GROUP BY arm",
    ).rows()
    assert len(stated) == 2
    assert told == {arm: [repr(x) for pair in pairs for x in pair] for arm, pairs in stated}
    assert "publishes no counts" in page
    assert "Noisy means" in page


@pytest.mark.parametrize(("kind", "some"), [("partial", True), ("whole", False)])
def test_the_share_that_is_compared_is_shown_where_some_are_not(
    experiment: Builder, kind: str, some: bool
) -> None:
    lonely = rows(("x", "mail", "an island", 1.0))
    log = a_log(99) if kind == "whole" else pl.concat([a_log(99), lonely])
    page = report(read_contents(experiment(log).run().path))
    assert (">99</data> (<data" in page) == some
    assert ("does not speak for those" in page) == some
    assert ("Nearly everybody is compared" in page) == some


def test_a_release_without_units_says_so(experiment: Builder) -> None:
    release = experiment(privacy={"mechanism": "noisy-histogram"}).run().path
    text = text_of(report(read_contents(release)))
    assert "publishes no units, so there is nothing to be undone" in text
    assert "effects in segments cannot be had" in text
    assert "ate_by_segment" not in text
    assert "published noisy counts" in text
    assert "--segments" not in text


def test_a_release_without_units_and_counts_says_so(experiment: Builder) -> None:
    release = experiment(privacy={"mechanism": "noisy-horvitz-thompson"}).run().path
    text = text_of(report(read_contents(release)))
    assert "publishes neither units nor counts" in text
    assert "noisy-horvitz-thompson" in text


def with_estimates(contents: Contents, change: Callable[[Any], list[Any]]) -> Contents:
    """A release of one metric, whose estimates were changed."""
    (metric,) = contents.metrics
    return replace(contents, metrics=(replace(metric, estimates=change(metric.estimates)),))


def test_an_arm_without_an_estimate_is_told(pages: Pages) -> None:
    contents = with_estimates(read_contents(pages["plain"][0]), lambda _: [])
    text = text_of(report(contents))
    assert "holds no estimate of an effect" in text
    assert "cannot be told mail" in text


def test_an_estimate_without_an_interval_is_told(pages: Pages) -> None:
    nothing = dict.fromkeys(("ci_lower", "ci_upper", "p_value", "p_value_holm"))
    nothing |= dict.fromkeys(("std_error", "privacy_std_error"), 0.0)
    contents = read_contents(pages["plain"][0])
    page = report(with_estimates(contents, lambda every: [one | nothing for one in every]))
    table = page[page.index('<table id="table-estimates"') :].partition("</table>")[0]
    assert table.count("<td>–</td>") == 9
    assert "cannot be told" in page


def test_what_the_page_tells_to_type_works(
    pages: Pages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    release, page = pages["plain"]
    shutil.copy(release, tmp_path)
    monkeypatch.chdir(tmp_path)
    segments = [f"c{one:05d},{one // 4 % 2}" for one in range(2000)]
    (tmp_path / "segments.csv").write_text("\n".join(["unit_id,segment", *segments]))
    source = page.read_text(encoding="utf-8")
    found = [html.unescape(one) for one in re.findall(r"<code>([^<]*)</code></pre>", source)]
    sql, python, commands = found
    whole, by_segment, weighted = sql.split("\n\n")
    with duckdb.connect() as connection:  # one after the other, and once more
        for _ in range(2):
            effects = connection.execute(whole).fetchall()
            assert len(effects) == 3
            assert len(connection.execute(by_segment).fetchall()) == 4
            means = dict(connection.execute(weighted).fetchall())
        _, arm, effect, _, _, control = effects[0][:6]
        assert means[arm] - means[control] == pytest.approx(effect, abs=1e-9)
    given: dict[str, Any] = {}
    exec(python, given)  # noqa: S102 - what the page says
    assert len(given["release"].ate(segments=given["mine"])) == 4
    for command in commands.splitlines():
        program, *arguments = command.split()
        assert program == "clusterdp"
        assert run(arguments) == 0
    assert capsys.readouterr().err == ""


# names


def test_names_are_text_and_nothing_else(browser: Browser, pages: Pages) -> None:
    with seen(browser, pages["evil"][1]) as found:
        assert found.errors == found.requests == []
        assert found.number("document.querySelectorAll('script, img, bdi *').length") == 0
        found.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = 1)")
        text = found.page.inner_text("body")
    assert EVIL in text
    assert EVIL_CLUSTER in text
    assert "$\\frac{1}{2}$" in text
    assert "<b>$x_1$</b>" in text


def test_unescaped_names_would_be_noticed(browser: Browser, pages: Pages, tmp_path: Path) -> None:
    source = pages["evil"][1].read_text(encoding="utf-8")
    planted = without_policy(source.replace(str(escape(EVIL)), EVIL))
    with seen(browser, write(tmp_path, planted)) as found:
        assert found.errors
        assert found.number("document.querySelectorAll('script').length") > 0


def filled(template: str, **parts: object) -> str:
    """A template filled in as those of the page are."""
    made = environment()
    made.loader = DictLoader({"parts.html": source_of("parts.html"), "a.html": template})
    return made.get_template("a.html").render(**parts)


def source_of(template: str) -> str:
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), template)[0]


def test_templates_escape_and_clean_whatever_they_are_given() -> None:
    evil = "<&\"'\x00\u202e\uffff{{ 1 }}"
    safe = "&lt;&amp;&#34;&#39;\ufffd\ufffd\ufffd{{ 1 }}"
    assert filled("{{ a }}", a=evil) == safe
    assert filled('<p title="{{ a }}">', a=evil) == f'<p title="{safe}">'
    assert filled("{{ name(a) }}", a=evil) == name(evil) == f"<bdi>{safe}</bdi>"
    assert filled("{{ a }}", a=said(evil, name(evil))) == f"{safe}<bdi>{safe}</bdi>"
    assert names([name(evil)] * 9) == ", ".join([f"<bdi>{safe}</bdi>"] * 5) + " and 4 more"
    whole = (
        '{% from "parts.html" import group, line, table %}{% call table("x", a, [a]) %}'
        "{{ group(a, 2) }}{{ line(a, [a]) }}{% endcall %}"
    )
    found = filled(whole, a=evil)
    assert found.count(safe) == 5
    assert "\x00" not in found
    assert not re.findall("<&|\x00", found)


def test_a_value_that_a_template_misses_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        filled("{{ a }}", b=1)
    with pytest.raises(UndefinedError):
        filled("{{ a.c }}", a={"b": 1})


def test_only_the_style_is_put_in_as_it_is() -> None:
    """And no template switches escaping off."""
    found = {
        name: re.findall(r"{{[^}]*\bsafe\b[^}]*}}|autoescape|Markup", source_of(name))
        for name in environment().list_templates()
    }
    assert {name: one for name, one in found.items() if one} == {
        "head.html": ["{{ style | safe }}"],
    }


def test_numbers_and_names_are_shown_as_people_read_them() -> None:
    assert clean("a\x00b\x1b[1m\u202f") == "a\ufffdb\ufffd[1m\u202f"
    assert clean("\u202ea\u2066\u2069\ud800\ufffe") == "\ufffda" + 4 * "\ufffd"
    assert clean("نام\u200cها \u200f👩\u200d🚀 漢字") == "نام\u200cها \u200f👩\u200d🚀 漢字"
    assert shown(-0.0) == "0"
    assert shown(-12.345) == "−12.35"
    assert grouped(-1234567) == "−1,234,567"
    assert (rounded_up(0.1231), rounded_down(0.1239)) == ("12.4\u00a0%", "12.3\u00a0%")
    assert number(None) == number(math.nan) == "–"
    assert filled("{{ number(a) }}", a=0.1 + 0.2) == '<data value="0.30000000000000004">0.3</data>'


# in the browser


def write(folder: Path, source: str) -> Path:
    path = folder / "planted.html"
    path.write_text(source, encoding="utf-8")
    return path


def without_policy(source: str) -> str:
    planted = re.sub(r"<meta http-equiv=[^>]*>", "", source)
    assert planted != source
    return planted


def with_planted(page: Path, folder: Path, planted: str, *, policy: bool = False) -> Path:
    """A copy of a page with something more in it."""
    source = page.read_text(encoding="utf-8")
    if not policy:
        source = without_policy(source)
    return write(folder, source.replace("</main>", f"{planted}</main>"))


@pytest.mark.parametrize(
    ("kind", "size", "scheme"),
    [
        *[(kind, size, "light") for kind in KINDS for size in (PHONE, DESKTOP)],
        ("plain", PHONE, "dark"),
        ("evil", DESKTOP, "dark"),
    ],
)
def test_the_page_is_sound(
    browser: Browser, pages: Pages, kind: str, size: tuple[int, int], scheme: Scheme
) -> None:
    """No error, no request, no sideways scrolling, every figure named, every text readable."""
    with seen(browser, pages[kind][1], size, scheme) as found:
        assert found.faults() == {}


@pytest.mark.parametrize("kind", ["plain", "evil", "many arms"])
def test_the_page_prints(browser: Browser, pages: Pages, kind: str) -> None:
    with seen(browser, pages[kind][1], PAPER, "dark") as found:
        found.page.emulate_media(media="print")
        assert found.hard_to_read() == []
        assert found.page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)"
        )
        assert found.overflow() <= 0
        pdf = found.page.pdf(format="A4", prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF-")
    assert len(pdf) > 20_000


@pytest.mark.parametrize("kind", ["plain", "evil", "many arms"])
def test_the_page_can_be_heard_and_steered_by_keys(
    browser: Browser, pages: Pages, kind: str
) -> None:
    with seen(browser, pages[kind][1], PHONE) as found:
        assert found.page.evaluate("document.documentElement.lang") == "en"
        assert found.disorder() == {}
        for unwanted in (
            "table:not(:has(> caption))",
            "th:not([scope])",
            ".scroll:not([tabindex='0'])",
            ".scroll:not([aria-label]):not([aria-labelledby])",
            "table.rows :is(tr, td, th):not([role]):not(.ruler, .ruler *)",
        ):
            assert found.number(f"document.querySelectorAll(`{unwanted}`).length") == 0
        wide = (
            "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
        )
        assert found.number(f"{wide}.length") > 0
        found.page.keyboard.press("Tab")
        assert found.page.evaluate("document.activeElement.className") == "skip"
        found.page.focus("#estimates summary")
        found.page.keyboard.press("Enter")
        found.page.focus("#table-estimates >> xpath=..")
        found.page.keyboard.press("ArrowRight")
        scrolled = "document.querySelector('#table-estimates').parentElement.scrollLeft > 0"
        for _ in range(3_000):  # it scrolls softly; the page forbids what Playwright waits by
            if found.page.evaluate(scrolled):
                break
            found.page.wait_for_timeout(20)
        assert found.page.evaluate(scrolled)
        assert (
            found.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_names_no_other_place(pages: Pages, kind: str) -> None:
    """In its source: it has no script, and no address but those in its own names."""
    source = pages[kind][1].read_text(encoding="utf-8")
    assert "<script" not in source
    assert re.findall(r"<(?:img|iframe|object|embed|base|form)\b", source) == []
    tags = re.sub(r">[^<]*<", "><", source)  # without what people named
    links = re.findall(r"""(?:\b(?:href|src)=|url\(|@import)\s*["']?([^"')>\s]*)""", tags)
    assert len(links) >= 3
    assert {one for one in links if not one.startswith("#")} == {"data:,"}


PLANTED_IMAGE = '<img alt="x" src="http://127.0.0.1:9/x.png">'


def test_a_planted_image_is_noticed(browser: Browser, pages: Pages, tmp_path: Path) -> None:
    with seen(browser, with_planted(pages["plain"][1], tmp_path, PLANTED_IMAGE)) as found:
        assert found.requests == ["http://127.0.0.1:9/x.png"]


def test_the_pages_policy_stops_a_planted_image(
    browser: Browser, pages: Pages, tmp_path: Path
) -> None:
    path = with_planted(pages["plain"][1], tmp_path, PLANTED_IMAGE, policy=True)
    with seen(browser, path) as found:
        assert [one for one in found.errors if "Content Security Policy" in one]


def test_a_planted_error_is_noticed(browser: Browser, pages: Pages, tmp_path: Path) -> None:
    planted = "<script>console.error('planted')</script>"
    with seen(browser, with_planted(pages["plain"][1], tmp_path, planted)) as found:
        assert found.errors == ["planted"]
    with seen(browser, with_planted(pages["plain"][1], tmp_path, planted, policy=True)) as found:
        assert [one for one in found.errors if "Content Security Policy" in one]


@pytest.mark.parametrize(
    "planted",
    [
        '<p style="color: #999">planted</p>',
        '<p style="color: rgb(0 0 0 / 40%)">planted</p>',
        '<div style="background: #345"><p>planted</p></div>',
        '<svg role="img" aria-label="x"><text y="9" fill="#bbb">planted</text></svg>',
    ],
)
def test_a_text_that_is_hard_to_read_is_noticed(
    browser: Browser, pages: Pages, tmp_path: Path, planted: str
) -> None:
    with seen(browser, with_planted(pages["plain"][1], tmp_path, planted)) as found:
        assert [one.text for one in found.hard_to_read()] == ["planted"]


@pytest.mark.parametrize(
    "planted",
    [
        "<svg></svg>",
        '<svg aria-hidden="false"></svg>',
        '<svg role="img" aria-labelledby="nobody"></svg>',
        '<img src="data:,">',
    ],
)
def test_a_figure_without_a_name_is_noticed(
    browser: Browser, pages: Pages, tmp_path: Path, planted: str
) -> None:
    with seen(browser, with_planted(pages["plain"][1], tmp_path, planted)) as found:
        assert found.unnamed_figures() == 1


def test_a_page_that_is_too_wide_is_noticed(browser: Browser, pages: Pages, tmp_path: Path) -> None:
    planted = '<div style="width: 400px">x</div>'
    with seen(browser, with_planted(pages["plain"][1], tmp_path, planted), PHONE) as found:
        assert found.overflow() > 0


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        (
            "flows.cli.main, flows.released.file.read, flows.released.estimates.release, "
            "flows.released.publish, flows.effects.released.site_aggregates",
            "matplotlib jinja2",
        ),
        # The page, and the plot of sites, need no matplotlib at all.
        (
            "flows.released.report, flows.operate.series.report, flows.effects.released.forest, "
            "flows.effects.released.report_model",
            "matplotlib",
        ),
    ],
)
def test_nothing_but_a_report_waits_for_what_makes_pages(modules: str, unwanted: str) -> None:
    code = f"import sys, {modules}; print(*sorted({{*sys.modules}} & {{*{unwanted.split()}}}))"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ), check=True, capture_output=True
    )
    assert ended.stdout.split() == []
