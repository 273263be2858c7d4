"""Every example in the papers is run: shell, SQL, Python and configurations."""

import itertools
import math
import os
import re
import shutil
import stat
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import chdir
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp
from flows.config.load import load
from flows.config.model.notify import NotifySection
from flows.effects.house import load_effects, load_site
from flows.hash_ids import hash_ids
from flows.operate.watch.metrics import metrics_path
from privatizers.effects.toolbox import (
    bounded_mean,
    lattice_gaussian,
    propose_test_release,
    sample_aggregate,
    smooth_sensitivity,
)
from privatizers.noise import lattice_laplace
from tests.conftest import a_log, build_experiment, toml, write_content
from tests.docs.blocks import (
    ROOT,
    WALK,
    blocks,
    in_shell,
    papers,
    run_page,
    run_python,
    run_shell,
    run_sql,
    without_numbers,
)

pytestmark = pytest.mark.release  # most of them ask a release that is made for them

OPERATOR, ANALYST, METHOD, README = (
    ROOT / name for name in ("docs/operator.md", "docs/analyst.md", "docs/method.md", "README.md")
)
LOGS, LEDGER = ROOT / "docs" / "logs.md", ROOT / "docs" / "ledger.md"
SITES = ROOT / "docs" / "sites.md"
OUTCOMES = ROOT / "docs" / "outcomes.md"
SERIES = ROOT / "docs" / "series.md"
BENEFITS = ROOT / "docs" / "effects-from-a-release.md"
EFFECTS = ROOT / "docs" / "effects.md"
TOOLBOX = ROOT / "privatizers" / "effects" / "toolbox" / "toolbox.md"
N_UNITS = 1_200


@pytest.fixture(scope="module")
def autumn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The README's experiment: its configuration, a log that fits, and its shell lines run."""
    folder = tmp_path_factory.mktemp("autumn")
    (block,) = blocks(README, "toml")
    (folder / "autumn.toml").write_text(block.text, encoding="utf-8")
    columns = {"customer": "customer_id", "variant": "variant"}
    log = a_log(N_UNITS, arms=("none", "mens", "womens"), n_outcomes=6).rename(columns)
    write_content(folder / "logs" / "2026-11-01" / "log.parquet", log)
    segments = log.select(unit_id="customer_id", segment="region")
    segments.write_csv(folder / "segments.csv")
    with chdir(folder):
        run_shell(blocks(README, "sh")[1].text)
        yield folder


def released(folder: Path) -> clusterdp.Release:
    """What the shell lines of the README have made."""
    return clusterdp.open(folder / "releases" / "autumn-campaign" / "latest.duckdb")


# nothing is shown that is not run

RUN: dict[str, list[str]] = {
    "README.md": ["sh", "toml", "sh", "sh", "python"],
    "CONTRIBUTING.md": ["sh", "sh"],  # the second for root, who runs all tests by it
    "docs/analyst.md": ["sql", "sql", "sh", "python", "sql"],
    "docs/debian.md": ["sh"] * 6,  # for root on Debian: tests/deploy runs what it can of them
    "docs/runbooks.md": ["sh"] * 3,  # likewise, and test_recovery.py its commands
    # Secrets of the compose file: as for the page above; and a block of Prefect's: tests/deploy.
    "deploy/README.md": ["sh", "sh"],
    "docs/r.md": ["r", "sh", "r"],  # no R is run: its formula is computed anew below
    "docs/excel.md": ["sh"],
    "docs/series.md": ["sh", "python", "sql"],
    "docs/effects-from-a-release.md": ["sh", "python"],
    "docs/operator.md": ["sh", "toml"],
    "docs/logs.md": ["toml", "toml", "toml"],
    "docs/ledger.md": ["sh", "python"],
    "docs/watching.md": ["toml", "toml"],
    "docs/outcomes.md": ["toml", "toml", "toml"],
    "docs/optimal.md": ["toml"],
    "docs/segments.md": ["toml"],
    "docs/sites.md": ["toml", "toml", "toml"],
    "docs/effects.md": ["toml", "sh", "python"],
    "docs/method.md": ["toml", "toml", "python", "python"],
    "privatizers/effects/toolbox/toolbox.md": ["python"] * 5,
}
"""What the tests below run, by page; the walk-through is run whatever it has."""


def test_every_example_is_run_by_a_test() -> None:
    for paper in papers():
        name = str(paper.relative_to(ROOT))
        if paper != WALK and not name.startswith("docs/reference"):
            assert [each.language for each in blocks(paper)] == RUN.get(name, []), name


# the README


@pytest.fixture
def duckdb_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program ``duckdb`` that asks what stands on its standard input, one query after another."""
    program = tmp_path / "bin" / "duckdb"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport duckdb, sys\nconnection = duckdb.connect()\n"
        "for each in connection.extract_statements(sys.stdin.read()):\n"
        "    print(connection.execute(each.query).fetchall())\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


def test_make_knows_what_the_papers_have_it_make() -> None:
    shown = blocks(README, "sh")[0].text + blocks(ROOT / "CONTRIBUTING.md", "sh")[0].text
    targets = re.findall(r"^make ([a-z]+)", shown, re.MULTILINE)
    known = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert targets
    assert set(targets) <= set(known)


@pytest.mark.usefixtures("duckdb_program")
def test_the_questions_of_the_readme_are_answered(autumn: Path) -> None:
    with chdir(autumn):
        told = run_shell(blocks(README, "sh")[2].text)
    assert all(word in told for word in ("mens", "womens", "east", "west", "tau_q"))


def test_the_python_of_the_readme_gives_the_same(autumn: Path) -> None:
    (block,) = blocks(README, "python")
    with chdir(autumn):
        found = run_python(block.text, {})
    assert isinstance(found, pl.DataFrame)
    assert found.equals(released(autumn).ate())


# R and Excel


@pytest.mark.parametrize("name", ["r.md", "excel.md"])
def test_exports_give_the_effect_by_hand(
    autumn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (block,) = blocks(ROOT / "docs" / name, "sh")
    (tmp_path / "releases").symlink_to(autumn / "releases")
    monkeypatch.chdir(tmp_path)
    run_shell(block.text)
    units = pl.read_csv("units.csv", schema_overrides={"unit_id": pl.String})
    stated = pl.read_csv("estimates.csv").filter(pl.col("estimator") == "tau_q")
    assert set(units["cluster"]) == {"all"}
    in_sheet = ["arm", "outcome", "outcome_randomised", "outcome_debiased", "weight"]  # C to G
    assert units.columns[2:] == in_sheet
    by_arm = {
        arm: units.filter(arm=arm)["outcome_debiased"].to_numpy()
        for arm in ("none", "mens", "womens")
    }
    for arm in ("mens", "womens"):
        one, control = by_arm[arm], by_arm["none"]
        (row,) = stated.filter(arm=arm).to_dicts()
        assert row["estimate"] == pytest.approx(one.mean() - control.mean(), abs=1e-9)
        variance = one.var(ddof=1) / len(one) + control.var(ddof=1) / len(control)
        assert row["std_error"] == pytest.approx(math.sqrt(variance), rel=0.02)


# analysts


def test_the_questions_of_analysts_are_answered(autumn: Path) -> None:
    (block,) = blocks(ANALYST, "sh")
    assert block.text == blocks(README, "sh")[2].text


def test_the_python_of_analysts_gives_effects(autumn: Path) -> None:
    (block,) = blocks(ANALYST, "python")
    with chdir(autumn):
        found = run_python(block.text, {})
    assert isinstance(found, pl.DataFrame)
    assert set(found["confidence_level"]) == {0.9}


def test_averages_of_analysts_are_the_arms_means(autumn: Path) -> None:
    """In one cluster, which the README's experiment has, weights change nothing."""
    plain, weighted, _ = (block.text for block in blocks(ANALYST, "sql"))
    file = released(autumn).path
    with duckdb.connect(str(file), read_only=True) as connection:
        averages, again = (dict(connection.execute(one).fetchall()) for one in (plain, weighted))
        means = "SELECT arm, mean FROM means WHERE estimator = 'combined'"
        stated = dict(connection.execute(means).fetchall())
    assert averages == pytest.approx(stated, rel=1e-9)
    assert again == pytest.approx(stated, rel=1e-9)


def test_nights_together_are_as_they_are_shown(autumn: Path) -> None:
    (shell,), (python,), (sql,) = (blocks(SERIES, name) for name in ("sh", "python", "sql"))
    with chdir(autumn), duckdb.connect() as connection:
        run_shell(shell.text)
        found = run_python(python.text, {})
        (rows,) = (each.pl() for each in run_sql(sql.text, connection))
    assert (autumn / "pages" / "index.html").is_file()
    assert isinstance(found, pl.DataFrame)
    assert set(found["arm"]) == set(rows["arm"]) == {"mens", "womens"}


def test_who_benefits_is_asked_of_a_release_as_shown(autumn: Path) -> None:
    people = pl.select(
        unit_id=pl.format("c{}", pl.int_range(N_UNITS).cast(pl.String).str.zfill(5)),
        age=18 + pl.int_range(N_UNITS) * 31 % 61,
        plan=pl.Series(["basic", "gold", "silver"] * N_UNITS)[:N_UNITS],
    )
    people.write_csv(autumn / "people.csv")
    (shell,), (python,) = (blocks(BENEFITS, name) for name in ("sh", "python"))
    names: dict[str, Any] = {"people": people}
    with chdir(autumn):
        run_shell(shell.text)
        page = (autumn / "who.html").read_bytes()
        assert run_python(python.text, names) == autumn / "who.html"
    assert (autumn / "who.html").read_bytes() == page
    assert set(names["who"].subgroups()["name"]) == {"age", "plan"}


def test_a_release_of_somebody_else_is_opened_with_care(autumn: Path) -> None:
    with duckdb.connect() as connection, chdir(autumn / "releases" / "autumn-campaign"):
        Path("segments.csv").write_bytes((autumn / "segments.csv").read_bytes())
        (published, whole, in_segments) = (
            each.fetchall() for each in run_sql(careful(NIGHT), connection)
        )
        with pytest.raises(duckdb.PermissionException):
            connection.execute("FROM 'segments.csv'")
    assert published == [("as published",)]
    assert whole
    assert in_segments


NIGHT = "autumn-campaign.2026-11-01.r1.duckdb"
KEY, EFFECT = "k3y-that-nobody-may-read", "42.00042"
HOSTILE = [
    "CREATE OR REPLACE MACRO {name} AS TABLE SELECT content, {effect} FROM read_text('{key}')",
    "CREATE OR REPLACE MACRO {name} AS TABLE SELECT 'mens' AS arm, {effect} AS estimate",
    "CREATE OR REPLACE MACRO {name} AS TABLE FROM query('FROM read_blob(''{key}'')')",
    "CREATE OR REPLACE MACRO {name} AS TABLE SELECT {effect} FROM glob('{key}*')",
    "DROP TABLE estimates; CREATE VIEW estimates AS SELECT content FROM read_text('{key}')",
    "DROP VIEW units; CREATE VIEW units AS SELECT content, {effect} FROM read_text('{key}')",
]
"""What may stand in a file in place of what is ours; ``name`` is that of a macro of ours."""
OF_OURS = [
    "ate(release_name := NULL)",
    "ate_by_segment(segments_table, release_name := NULL)",
]


def careful(night: str, digest: str | None = None) -> str:
    """The lines for who has no clusterdp, with a digest: by default that of the file there."""
    *_, block = blocks(ANALYST, "sql")
    found = digest or sha256(Path(night).read_bytes()).hexdigest()
    return block.text.replace("THE SHA-256 IN HEX", found)


def pasted(text: str) -> str:
    """What a terminal shows of statements that are pasted into it: the next follows an error."""
    shown = []
    with duckdb.connect() as connection:
        for each in connection.extract_statements(text):
            try:
                shown.append(str(connection.execute(each.query).fetchall()))
            except duckdb.Error as error:
                shown.append(str(error))
    return "\n".join(shown)


@pytest.fixture(params=[*((one, OF_OURS[0]) for one in HOSTILE), (HOSTILE[0], OF_OURS[1])])
def hostile(request: pytest.FixtureRequest, autumn: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder as the examples expect it, with a file that somebody else has made."""
    (change, name), key = request.param, tmp_path / "ids.key"
    key.write_text(KEY)
    folder = tmp_path / "releases" / "autumn-campaign"
    folder.mkdir(parents=True)
    shutil.copy(autumn / "segments.csv", tmp_path)
    shutil.copy(autumn / "segments.csv", folder)
    shutil.copy(autumn / "releases" / "autumn-campaign" / NIGHT, folder / NIGHT)
    (folder / NIGHT).chmod(0o600)
    with duckdb.connect(str(folder / NIGHT)) as connection:
        for each in change.format(name=name, key=key, effect=EFFECT).split("; "):
            connection.execute(each)
    (folder / "latest.duckdb").symlink_to(NIGHT)
    with chdir(tmp_path):
        yield folder


@pytest.mark.usefixtures("duckdb_program")
def test_what_is_pasted_shows_nothing_of_a_hostile_file(hostile: Path, autumn: Path) -> None:
    done = in_shell(blocks(README, "sh")[2].text)
    assert done.returncode == 2
    sound = autumn / "releases" / "autumn-campaign" / NIGHT
    published = sha256(sound.read_bytes()).hexdigest()
    with chdir(hostile):
        of_another, of_its_own = pasted(careful(NIGHT, published)), pasted(careful(NIGHT))
    for shown in (done.stdout, done.stderr, of_another):
        assert KEY not in shown
        assert EFFECT not in shown
    assert "another file" in of_another
    assert KEY not in of_its_own  # whoever publishes it: numbers may be any, but nothing is read


def test_a_hostile_file_does_its_harm_to_who_does_not_look(hostile: Path) -> None:
    """The negative control of the test above."""
    shown = pasted(
        f"ATTACH '{hostile / NIGHT}' AS rel (READ_ONLY); CREATE TABLE s AS FROM 'segments.csv'; "
        "FROM rel.ate('rel'); FROM rel.ate_by_segment('s', 'rel'); "
        "FROM rel.units; FROM rel.estimates"
    )
    assert KEY in shown or EFFECT in shown


def test_the_walk_through_is_as_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer has the rows, columns and words that the page shows; numbers are others."""
    pytest.importorskip("causaldata", reason="the demo's data are an extra: clusterdp[demo]")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(clusterdp.ClusterdpWarning, match="lack a value in column 'age'"):
        answers = list(run_page(WALK))
    assert len(answers) >= 8
    for block, answer in answers:
        assert without_numbers(answer) == without_numbers(block.text)
    assert {"effects.svg", "report.html"} <= {path.name for path in tmp_path.iterdir()}


def test_answers_differ_where_more_than_numbers_do() -> None:
    shown = "│ cash ┆ combined  ┆ 0.425337 ┆ -3e-05 │"
    assert without_numbers(shown) == without_numbers("│ cash ┆ combined ┆ -12 ┆ 0.5 │")
    for other in ("│ none ┆ combined ┆ 1 ┆ 2 │", "│ cash ┆ combined ┆ 1 │", f"{shown}\n{shown}"):
        assert without_numbers(shown) != without_numbers(other)


# operators


def test_the_whole_configuration_of_the_operator_is_one(tmp_path: Path) -> None:
    (whole,) = blocks(OPERATOR, "toml")
    (tmp_path / "whole.toml").write_text(whole.text, encoding="utf-8")
    assert load(tmp_path / "whole.toml").experiment == "autumn-campaign"


def test_the_first_configuration_of_operators_is_sound(tmp_path: Path) -> None:
    (make,) = blocks(OPERATOR, "sh")
    log = a_log(300, arms=("none", "mens", "womens"), n_outcomes=6).rename(
        {"customer": "customer_id"}
    )
    write_content(tmp_path / "logs" / "2026-11-01" / "a.parquet", log)
    with chdir(tmp_path):
        run_shell(make.text)
    checked = clusterdp.check(tmp_path / "autumn.toml", "2026-11-01").as_json()
    assert (checked["n_units"], checked["warnings"]) == (300, [])


def merged(*parts: Mapping[str, Any]) -> str:
    """The README's configuration with other keys in its sections."""
    (base,) = blocks(README, "toml")
    found = tomllib.loads(base.text)
    for part in parts:
        for name, section in part.items():
            found[name] = {**found.get(name, {}), **section}
    experiment = found.pop("experiment")
    return toml(found, experiment)


def test_runs_are_watched_as_shown(tmp_path: Path) -> None:
    notify, metrics = (
        tomllib.loads(one.text) for one in blocks(ROOT / "docs" / "watching.md", "toml")
    )
    (tmp_path / "autumn.toml").write_text(merged(notify, metrics), encoding="utf-8")
    config = load(tmp_path / "autumn.toml")
    assert config.notify is not None
    assert config.notify.on == NotifySection(webhook_file="some").on
    assert config.notify.email is not None
    assert (config.notify.email.security, config.notify.email.user) == ("starttls", "clusterdp")
    assert metrics_path(config) == Path("/var/lib/node_exporter/textfile") / (
        "clusterdp_autumn-campaign.prom"
    )


def test_several_outcomes_are_released_as_shown(tmp_path: Path) -> None:
    block, _, _ = blocks(OUTCOMES, "toml")
    (tmp_path / "autumn.toml").write_text(block.text, encoding="utf-8")
    names = {"customer": "customer_id", "clicks": "visited"}
    log = a_log(1_200, arms=("none", "mens", "womens"), n_outcomes=2).rename(names)
    spent = log.with_columns(spent=pl.col("visited") * 120.0)
    write_content(tmp_path / "logs" / "2026-11-01" / "a.parquet", spent)
    planned = clusterdp.plan(tmp_path / "autumn.toml", "2026-11-01").as_json()
    parts = {one["metric"]: one["epsilon"] for one in planned["metrics"]}
    assert parts == {"visit": 0.8, "spend": 1.2}
    made = clusterdp.release(tmp_path / "autumn.toml", "2026-11-01")
    assert made.manifest.epsilon == 2.0
    with duckdb.connect(str(made.path), read_only=True) as connection:
        columns = connection.sql("FROM main.units").columns
    of_visit, of_spend = (
        [name, f"{name}_randomised", f"{name}_debiased"] for name in ("visit", "spend")
    )
    assert columns[3:] == [*of_visit, *of_spend, "weight"]
    assert {one.metric for one in made.estimates} == {"visit", "spend"}


def test_two_outcomes_are_drawn_together_as_shown(tmp_path: Path) -> None:
    whole, together, _ = (tomllib.loads(one.text) for one in blocks(OUTCOMES, "toml"))
    experiment = whole.pop("experiment")
    shown = toml(whole | together, experiment)
    (tmp_path / "autumn.toml").write_text(shown, encoding="utf-8")
    names = {"customer": "customer_id", "clicks": "visited"}
    log = a_log(1_200, arms=("none", "mens", "womens"), n_outcomes=2).rename(names)
    spent = log.with_columns(spent=pl.col("visited") * 120.0)
    write_content(tmp_path / "logs" / "2026-11-01" / "a.parquet", spent)
    planned = clusterdp.plan(tmp_path / "autumn.toml", "2026-11-01").as_json()
    assert [one["drawn_together"] for one in planned["metrics"]] == [True, True]


def test_what_decides_is_declared_and_told_as_shown(tmp_path: Path) -> None:
    whole, _, deciding = (tomllib.loads(one.text) for one in blocks(OUTCOMES, "toml"))
    experiment = whole.pop("experiment")
    (tmp_path / "autumn.toml").write_text(toml(whole | deciding, experiment), encoding="utf-8")
    names = {"customer": "customer_id", "clicks": "complained"}
    log = a_log(1_200, arms=("none", "mens", "womens"), n_outcomes=2).rename(names)
    spent = log.with_columns(spent=pl.col("complained") * 120.0)
    write_content(tmp_path / "logs" / "2026-11-01" / "a.parquet", spent)
    made = clusterdp.release(tmp_path / "autumn.toml", "2026-11-01")
    found = clusterdp.open(made.path).decisions()
    assert found.select("metric", "arm", "role", "margin").rows() == [
        ("spend", "mens", "primary", None),
        ("spend", "womens", "primary", None),
        ("complaint", "mens", "guardrail", 0.02),
        ("complaint", "womens", "guardrail", 0.02),
    ]
    assert made.manifest.decision == "all"


def test_the_least_noisy_randomiser_is_asked_for_as_shown(tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "optimal.md", "toml")
    shown = tomllib.loads(block.text)
    log = a_log(300).with_columns(clicks=pl.col("clicks") * 80.0)
    shown["outcome"]["values"] = None
    made = build_experiment(tmp_path / "autumn", log, **shown)
    planned = clusterdp.plan(made.config).as_json()
    assert planned["mechanism"] == shown["privacy"]["mechanism"]
    assert planned["epsilon"] == shown["privacy"]["epsilon"]
    assert 2 <= planned["levels"] <= 20


def test_segments_that_everybody_asks_for_are_declared_as_shown(tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "segments.md", "toml")
    log = a_log(4_000).with_columns(
        country=np.repeat(["de", "fr", "it", "us"], 1_000),
        device=np.tile(np.repeat(["a", "b"], 500), 4),
    )
    made = build_experiment(tmp_path / "autumn", log, **tomllib.loads(block.text)).run()
    found = clusterdp.open(made.path)
    assert made.manifest.margins == ("country", "country, device")
    assert sorted(found.ate(by="country")["segment"].unique()) == ["de", "fr", "it", "us"]


def test_tables_are_named_as_shown(tmp_path: Path) -> None:
    tables, *_ = blocks(LOGS, "toml")
    lines = merged(tomllib.loads(tables.text)).splitlines()
    whole = "\n".join(line for line in lines if not line.startswith("path ="))
    (tmp_path / "tables.toml").write_text(whole, encoding="utf-8")
    source = load(tmp_path / "tables.toml").source
    assert (source.kind, source.table, source.period) == ("postgresql", "web.clicks", "day")


def test_outcomes_that_are_text_are_declared_as_shown(tmp_path: Path) -> None:
    _, texts, _ = blocks(LOGS, "toml")
    (tmp_path / "texts.toml").write_text(merged(tomllib.loads(texts.text)), encoding="utf-8")
    outcome = load(tmp_path / "texts.toml").outcome
    assert outcome.numbers_of_texts == {"never": 0.0, "rarely": 1.0, "often": 5.0}
    assert outcome.missing_value == 0.0


def test_logs_of_events_are_read_as_shown(tmp_path: Path) -> None:
    *_, events = blocks(LOGS, "toml")
    (tmp_path / "events.toml").write_text(merged(tomllib.loads(events.text)), encoding="utf-8")
    log = a_log(300, arms=("none", "mens", "womens")).rename(
        {"customer": "customer_id", "clicks": "amount"}
    )
    exposures = log.select("customer_id", "variant", ts=pl.lit("2026-11-01T08:00:00"))
    happened = log.select(
        "customer_id", "amount", ts=pl.lit("2026-11-02T08:00:00"), event_id="customer_id"
    )
    write_content(tmp_path / "exposures" / "2026-11-01" / "a.parquet", exposures)
    write_content(tmp_path / "clicks" / "2026-11-01" / "a.parquet", happened)
    assert clusterdp.check(tmp_path / "events.toml", "2026-11-01").as_json()["n_units"] == 300


def test_hashed_ids_are_those_that_the_page_works_out(tmp_path: Path) -> None:
    """The key is made by the page's shell line, and an id is found by its Python."""
    (make_key,) = blocks(LEDGER, "sh")
    (find,) = blocks(LEDGER, "python")
    names: dict[str, Any] = {}
    with chdir(tmp_path):
        run_shell(make_key.text)
        run_python(find.text, names)
        mode = stat.S_IMODE(Path("ids.key").stat().st_mode)
    assert mode & 0o077 == 0
    hashed = {"publish": {"unit_id": "keyed-hash", "key_file": "ids.key"}}
    (tmp_path / "hashed.toml").write_text(merged(hashed), encoding="utf-8")
    mine, out = tmp_path / "mine.csv", tmp_path / "out.csv"
    mine.write_text("unit_id\nc00007\n", encoding="utf-8")
    hash_ids(tmp_path / "hashed.toml", mine, out, "unit_id")
    assert out.read_text(encoding="utf-8").split() == ["unit_id", names["released_id"]]


def test_a_site_is_configured_as_shown(tmp_path: Path) -> None:
    block, agreed, own = blocks(SITES, "toml")
    (tmp_path / "site.toml").write_text(block.text, encoding="utf-8")
    assert load_site(tmp_path / "site.toml").estimator == "smooth-dp-matching"
    trial = re.sub(r"\n\[\[.*", "", block.text.replace('"matching"', '"trial"'), flags=re.DOTALL)
    without_delta = trial.replace(", delta = 1e-6", "")
    (tmp_path / "trial.toml").write_text(without_delta, encoding="utf-8")
    assert load_site(tmp_path / "trial.toml").estimator == "difference-in-means"
    (tmp_path / "agreed.toml").write_text(agreed.text, encoding="utf-8")
    (tmp_path / "north.toml").write_text(own.text, encoding="utf-8")
    assert load_effects(tmp_path / "north.toml").series == "reading-aid@north+cate"


def test_an_effect_model_is_made_and_asked_as_shown(tmp_path: Path) -> None:
    place = pl.int_range(N_UNITS)
    people = pl.select(
        customer_id=pl.format("c{}", place),
        variant=pl.when(place % 2 == 0).then(pl.lit("none")).otherwise(pl.lit("mail")),
        spend=(place * 7919 % 199).cast(pl.Float64),
        age=18 + place // 2 % 72,
        history=30.0 + place % 900,
        channel=pl.Series(["web", "phone", "shop"] * N_UNITS)[:N_UNITS],
    )
    write_content(tmp_path / "people.parquet", people)
    write_content(tmp_path / "people.csv", people.head(5))
    (settings,), (shell,), (python,) = (blocks(EFFECTS, kind) for kind in ("toml", "sh", "python"))
    (tmp_path / "benefits.toml").write_text(settings.text, encoding="utf-8")
    names: dict[str, Any] = {"people": people.head(7)}
    with chdir(tmp_path):
        run_shell(shell.text)
        run_python(python.text, names)
    assert pl.read_csv(tmp_path / "effects.csv").height == 5
    assert names["model"].predict(people.head(7)).columns[-2:] == ["effect", "noise_std_error"]
    assert names["model"].n_rows == N_UNITS


# statisticians


def test_private_clusters_are_configured_as_shown(tmp_path: Path) -> None:
    labels, centres = (tomllib.loads(each.text) for each in blocks(METHOD, "toml"))
    with_labels = merged(labels, {"columns": {"cluster": "income"}})
    both = {name: section for name, section in labels.items() if name != "private_clusters"}
    for place, text in enumerate((with_labels, merged(both, centres))):
        path = tmp_path / f"{place}.toml"
        path.write_text(text, encoding="utf-8")
        assert load(path).private_clusters is not None


@pytest.mark.statistical
def test_a_simulation_is_run_as_shown() -> None:
    names: dict[str, Any] = {}
    simulated, _ = blocks(METHOD, "python")
    found = run_python(simulated.text, names)
    assert isinstance(found, tuple)
    spread, coverage, power = found
    assert spread > 0
    assert 0.9 < coverage <= 1
    assert 0 <= power <= 1


def test_theory_is_asked_as_shown() -> None:
    _, theory = blocks(METHOD, "python")
    levels = np.stack([np.arange(1_000) % 3, np.arange(1_000) % 4])
    names: dict[str, Any] = {
        "grid": np.arange(4.0),
        "levels": levels,
        "cluster": np.arange(1_000) // 100,
        "sizes": np.full((10, 2), 50),
    }
    found = run_python(theory.text, names)
    assert isinstance(found, float)
    assert found > 0


def _public(*modules: Any) -> dict[str, Any]:
    names = itertools.chain.from_iterable(vars(module).items() for module in modules)
    return {name: value for name, value in names if not name.startswith("_")}


@pytest.mark.parametrize("place", range(5))
def test_the_toolbox_is_used_as_shown(place: int) -> None:
    names: dict[str, Any] = _public(
        bounded_mean,
        lattice_gaussian,
        lattice_laplace,
        propose_test_release,
        sample_aggregate,
        smooth_sensitivity,
    )
    ages = np.arange(20_000) % 80.0
    names |= {"np": np, "ages": ages, "ids": np.arange(len(ages)), "bounds": None}
    names["bounds"] = names["Bounds"](0.0, 125.0)
    assert run_python(blocks(TOOLBOX, "python")[place].text, names) is not None
