"""A site's run and a server's: reports, charges, bad input, deaths, and the two kept apart."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli.effects.aggregate import aggregate
from flows.cli.effects.site import site, site_text
from flows.cli.main import app
from flows.effects.config.site import Covariate
from flows.effects.house import load_site
from flows.effects.multisite import SiteResult, report_period
from flows.effects.raw.site_rows import cell_of, ingest_site
from flows.effects.released.aggregate import aggregate_reports
from flows.effects.released.site_report import read_report
from flows.ledger.account import Account
from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url
from flows.ledger.rules import Fingerprint
from flows.raw.validate import validate
from flows.released.checksums import sha256_of
from schemas.effects.site import SiteReport
from schemas.errors import (
    BudgetError,
    ClusterdpError,
    ConfigError,
    ConflictError,
    InputError,
    StepError,
)
from tests.boundary.canary import Canary, leaks_into
from tests.conftest import PATIENCE, Builder, write_content

EXACT = 1000.0
"""An epsilon at which noise is below what tests look at, but for less than one run in 10⁶.

Laplace noise is beyond t times its scale with probability e⁻ᵗ, and tolerances are 15 scales: of
difference-in-means B/(0.8 ε n) twice, of smooth-dp-matching about 2·3eB/(N ε/3), of
global-dp-matching 2B/ε; B is 4 here.
"""

CONFIG = """
experiment = "stroke"
design = "{design}"
[site]
name = "{name}"
[source]
path = "{file}"
[columns]
unit = "id"
arm = "arm"
outcome = "score"
[arms]
control = "none"
treatments = ["aspirin"]
[outcome]
low = -1.0
high = 3.0
[privacy]
epsilon = {epsilon}
{privacy}
"""

COVARIATES = """
[[covariates]]
column = "sex"
values = ["f", "m"]
[[covariates]]
column = "age"
edges = [20, 40, 60]
"""


@dataclass(frozen=True)
class AtSite:
    """A site's configuration on disk, with its log beside it."""

    config: Path

    @property
    def folder(self) -> Path:
        return self.config.parent

    @property
    def reports(self) -> Path:
        return self.folder / "reports" / f"stroke@{self.folder.name}"

    @property
    def files(self) -> list[str]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.folder)) for path in found)

    @property
    def paid(self) -> float:
        return Account.of(load_site(self.config)).statement().spent.epsilon

    def run(self, period: str | None = None, *, revise: bool = False) -> SiteResult:
        """Run the flow as a plain function, without Prefect."""
        return report_period(str(self.config), period, revise)

    def edit(self, found: str, instead: str) -> None:
        text = self.config.read_text(encoding="utf-8")
        assert found in text
        self.config.write_text(text.replace(found, instead), encoding="utf-8")


def patients(n_units: int = 240, effect: float = 0.5) -> pl.DataFrame:
    """Sicker (m) patients are treated twice as often as others, and score 1 less."""
    units = np.arange(n_units)
    sicker = units % 2 == 1
    treated = np.where(sicker, units // 2 % 3 > 0, units // 2 % 3 == 0)
    noise = units * 7919 % 101 / 101 - 0.5
    return pl.DataFrame(
        {
            "id": [f"p{unit:04}" for unit in units],
            "arm": np.where(treated, "aspirin", "none"),
            "score": 1.0 - sicker + effect * treated + noise,
            "sex": np.where(sicker, "m", "f"),
            "age": 25.0 + units % 4 // 2 * 25,
        }
    )


Content = pl.DataFrame | bytes | str
Hospital = Callable[..., AtSite]


@pytest.fixture
def hospital(tmp_path: Path) -> Hospital:
    def build(
        log: Content | None = None,
        file: str = "log.parquet",
        *,
        name: str = "north",
        design: str = "trial",
        epsilon: float = 1.0,
        privacy: str | None = None,
        covariates: str = COVARIATES,
    ) -> AtSite:
        folder = tmp_path / name
        write_content(folder / file, patients() if log is None else log)
        if privacy is None:
            privacy = "delta = 1e-5" if design == "matching" else ""
        text = CONFIG.format(
            design=design, name=name, file=file, epsilon=epsilon, privacy=privacy
        ) + (covariates if design == "matching" else "")
        config = folder / "site.toml"
        config.write_text(text, encoding="utf-8")
        return AtSite(config)

    return build


# what a site reports


def test_a_site_says_what_it_made(hospital: Hospital) -> None:
    built = hospital(
        pl.concat([patients(100), patients(1).with_columns(id=pl.lit("x"), arm=pl.lit("fax"))])
    )
    result = built.run("2026-11-20")
    path = built.reports / "stroke@north.2026-11-20.r1.json"
    assert (result.path, result.status) == (path, "published")
    assert read_report(path) == result.report
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    document = result.as_json()
    json.dumps(document, allow_nan=False)
    assert set(document) >= {"estimate", "variance", "n_units", "epsilon", "delta", "estimator"}
    assert (document["n_units"], document["epsilon"], document["delta"]) == (100, 1.0, 0.0)
    assert document["quarantined_by_rule"] == {"arm_not_declared": 1}
    assert document["ledger"]["spent_epsilon"] == 1.0
    report = result.report
    assert (report.outcome_low, report.outcome_high, report.outcome_bound) == (-1.0, 3.0, 4.0)
    assert report.variance >= report.noise_variance > 0
    assert "stroke@north.2026-11-20.r1 is written." in site_text(result)
    aside = built.folder / "quarantine" / "stroke@north" / "stroke@north.2026-11-20.r1.parquet"
    kept = pl.read_parquet(aside)  # neither outcome nor covariates
    assert kept.columns == ["rule", "unit", "arm", "source_file", "source_row"]
    assert kept.rows() == [("arm_not_declared", "x", "fax", str(built.folder / "log.parquet"), 101)]
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600


def means(log: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Difference in means within each cell, and its number of units."""
    return (
        log.with_columns(pl.lit(0).alias("one"))
        .group_by("one", *by)
        .agg(
            pl.len(),
            effect=pl.col("score").filter(pl.col("arm") == "aspirin").mean()
            - pl.col("score").filter(pl.col("arm") == "none").mean(),
        )
    )


def stratified(log: pl.DataFrame, *by: str) -> float:
    found = means(log, *by)
    return float(np.average(found["effect"].to_numpy(), weights=found["len"].to_numpy()))


def test_a_trial_reports_the_difference_in_means(hospital: Hospital) -> None:
    log = patients()
    report = hospital(log, epsilon=EXACT).run().report
    assert report.estimator == "difference-in-means"
    assert report.estimate == pytest.approx(stratified(log), abs=2e-3)
    spread = {
        arm: float(np.var(log.filter(arm=arm)["score"].to_numpy(), ddof=1))
        / len(log.filter(arm=arm))
        for arm in ("aspirin", "none")
    }
    assert report.variance == pytest.approx(sum(spread.values()), rel=0.05)


@pytest.mark.parametrize(("privacy", "near"), [("delta = 1e-5", 0.03), ("", 0.12)])
def test_matching_compares_within_cells(hospital: Hospital, privacy: str, near: float) -> None:
    """In every cell one arm is twice the other, so that matching is the stratified difference."""
    log = patients()
    report = hospital(log, design="matching", epsilon=EXACT, privacy=privacy).run().report
    assert report.estimator == ("smooth-dp-matching" if privacy else "global-dp-matching")
    adjusted = stratified(log, "sex", "age")
    assert report.estimate == pytest.approx(adjusted, abs=near)
    assert abs(stratified(log, "age") - adjusted) > 2 * near  # so a cell that is lost would show
    assert report.neighbours.startswith("one unit's outcome, treatment and covariates")


@pytest.mark.parametrize(
    ("file", "design"),
    [("log.csv", "matching"), ("log.jsonl", "matching"), ("log.csv.gz", "trial")],
)
def test_formats_and_the_order_of_rows_do_not_matter(
    hospital: Hospital, design: str, file: str
) -> None:
    first = hospital(design=design, epsilon=EXACT)
    mixed = patients().sample(fraction=1.0, shuffle=True, seed=1)
    other = hospital(mixed, file, name="south", design=design, epsilon=EXACT)
    assert other.run().report.estimate == pytest.approx(first.run().report.estimate, abs=0.05)


def test_outcomes_out_of_range_are_clipped_and_missing_ones_count_as_declared(
    hospital: Hospital,
) -> None:
    lines = ["id,arm,score"]
    for number, (low, high) in enumerate(
        [("-99", "1e300"), ("", "inf"), ("nonsense", "3"), ("-1", "3")]
    ):
        lines += [f"a{number},none,{low}", f"b{number},aspirin,{high}"]
    built = hospital("\n".join(lines), "log.csv", epsilon=EXACT)
    assert built.run().report.estimate == pytest.approx(4.0, abs=0.05)
    built.edit("high = 3.0", "high = 3.0\nmissing = 3.0")
    assert built.run("later").report.estimate == pytest.approx(2.0, abs=0.05)


# cells


def test_every_value_has_a_cell() -> None:
    text = Covariate(column="x", values=("a", "b"))
    assert cell_of(text, pl.Series(["b", "a", "c", None])).to_list() == [1, 0, 2, 2]
    number = Covariate(column="x", values=(1.0, 2.5))
    assert cell_of(number, pl.Series([2.5, 1.0, 1.5, float("nan")])).to_list() == [1, 0, 2, 2]
    bins = Covariate(column="x", edges=(0.0, 1.0, 2.0))
    given = [-5.0, 0.0, 0.9, 1.0, 2.0, 7.0, float("inf"), float("-inf"), float("nan")]
    assert cell_of(bins, pl.Series(given)).to_list() == [0, 0, 0, 1, 1, 1, 1, 0, 2]
    assert (text.n_cells, number.n_cells, bins.n_cells) == (3, 3, 3)


def test_cells_of_several_covariates_are_all_different(hospital: Hospital) -> None:
    log = patients(12).with_columns(
        sex=pl.Series(["f", "m", "x", None] * 3), age=pl.Series([1.0, 50.0, None] * 4)
    )
    built = hospital(log, design="matching")
    config = load_site(built.config)
    rows, _, _ = validate(config.log_facts, ingest_site(config, config.log_source, "once"))
    frame = pl.concat(rows.open().frames())
    expected = [3 * [0, 1, 2, 2][n % 4] + [0, 1, 2][n % 3] for n in range(12)]
    assert frame["cluster"].to_list() == list(map(str, expected))
    assert config.n_cells == 9


def test_a_covariate_that_one_unit_lacks_decides_nothing(hospital: Hospital) -> None:
    """Many programs write whole numbers as floats where one is missing."""
    log = patients(12).with_columns(sex=pl.Series([1.0, 2.0, None] * 4))
    sex = COVARIATES.replace('["f", "m"]', '["1", "2"]')
    config = load_site(hospital(log, design="matching", covariates=sex).config)
    rows, _, _ = validate(config.log_facts, ingest_site(config, config.log_source, "once"))
    cells = [int(cell) // 3 for cell in pl.concat(rows.open().frames())["cluster"]]
    assert cells == [0, 1, 2] * 4


# one draw a report


def test_the_same_again_is_unchanged_and_free(hospital: Hospital) -> None:
    built = hospital(design="matching")
    first = built.run()
    content, before = first.path.read_bytes(), built.files
    write_content(
        built.folder / "log.parquet", patients().sample(fraction=1.0, shuffle=True, seed=1)
    )
    again = built.run()
    assert (first.status, again.status) == ("published", "unchanged")
    assert again.report == first.report
    assert (again.path.read_bytes(), built.files) == (content, before)
    assert built.paid == 1.0
    assert "nothing was drawn or charged" in site_text(again)


def other_outcome(built: AtSite) -> None:
    log = patients().with_columns(
        score=pl.when(pl.col("id") == "p0007").then(2.9).otherwise("score")
    )
    write_content(built.folder / "log.parquet", log)


def other_arm(built: AtSite) -> None:
    arm = pl.when(pl.col("id") == "p0007").then(pl.lit("aspirin")).otherwise("arm")
    log = patients().with_columns(arm=arm)
    assert not log.equals(patients())
    write_content(built.folder / "log.parquet", log)


def other_cell(built: AtSite) -> None:
    log = patients().with_columns(
        sex=pl.when(pl.col("id") == "p0007").then(pl.lit("f")).otherwise("sex")
    )
    assert not log.equals(patients())
    write_content(built.folder / "log.parquet", log)


def other_epsilon(built: AtSite) -> None:
    built.edit("epsilon = 1.0", "epsilon = 1.5")


def other_domain(built: AtSite) -> None:
    built.edit("[20, 40, 60]", "[20, 40, 60, 80]")


def other_split(built: AtSite) -> None:
    built.edit("delta = 1e-5", "delta = 1e-5\nsplit = [2, 1, 1]")


@pytest.mark.parametrize(
    "change", [other_outcome, other_arm, other_cell, other_epsilon, other_domain, other_split]
)
def test_anything_else_for_a_reported_period_is_a_conflict_unless_revised(
    hospital: Hospital, change: Callable[[AtSite], None]
) -> None:
    built = hospital(design="matching")
    content = built.run().path.read_bytes()
    change(built)
    with pytest.raises(ConflictError, match=r"stroke@north\.once\.r1.*--revise") as refused:
        built.run()
    assert refused.value.exit_code == 4
    assert built.paid == 1.0
    revised = built.run(revise=True)
    assert revised.path.name == "stroke@north.once.r2.json"
    assert built.paid == 1.0 + revised.report.epsilon
    assert (built.reports / "stroke@north.once.r1.json").read_bytes() == content
    assert built.run().status == "unchanged"


def test_over_budget_nothing_is_drawn_or_written(hospital: Hospital) -> None:
    built = hospital(privacy="budget_epsilon = 2.5")
    built.run("a")
    built.run("b")
    before = {name: (built.folder / name).read_bytes() for name in built.files}
    with pytest.raises(
        BudgetError, match=r"costs epsilon 1.*of the 2\.5 .*0\.5 is left"
    ) as refused:
        built.run("c")
    assert refused.value.exit_code == 3
    assert {name: (built.folder / name).read_bytes() for name in built.files} == before
    assert built.run("b").status == "unchanged"


def test_the_charge_comes_before_any_draw(
    hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = hospital()
    built.run("first")
    found = []

    def look(*_: object) -> NoReturn:
        found.append(built.paid)
        raise InterruptedError

    monkeypatch.setattr("privatizers.noise.lattice_laplace.discrete_laplace", look)
    with pytest.raises(StepError, match="InterruptedError"):
        built.run("second")
    assert found == [2.0]
    assert built.paid == 1.0  # given back
    assert [path.name for path in built.reports.iterdir()] == ["stroke@north.first.r1.json"]


def test_a_report_that_cannot_be_written_is_told_before_any_draw(
    hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in for it that holds nothing of the rows, which is gone afterwards."""
    built = hospital()
    written: list[str] = []

    def full(report: SiteReport, path: Path) -> None:
        written.append(report.report_id)
        assert (report.estimate, report.variance, report.n_units) == (0.0, 16.0, 1)
        path.write_text("{", encoding="utf-8")
        raise ClusterdpError("cannot write the report: No space left on device")

    def no_draw(*_: object) -> NoReturn:
        pytest.fail("something was drawn")

    monkeypatch.setattr("flows.effects.multisite.write_report", full)
    monkeypatch.setattr("privatizers.noise.lattice_laplace.discrete_laplace", no_draw)
    with pytest.raises(ClusterdpError, match="No space left"):
        built.run("first")
    assert written == ["stroke@north.first.r1"]
    assert built.paid == 0.0
    assert not built.reports.exists() or list(built.reports.iterdir()) == []


def test_rows_set_aside_that_cannot_be_kept_are_told_before_any_draw(
    hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a release: the file, and why."""
    built = hospital(patients().with_columns(id=pl.col("id").replace("p0007", "p0005")))

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("flows.raw.quarantine._write", full)
    monkeypatch.setattr("privatizers.noise.lattice_laplace.discrete_laplace", full)
    says = r"once\.r1\.parquet: cannot keep the rows that were set aside here \(No space left"
    with pytest.raises(ClusterdpError, match=says):
        built.run()
    assert built.paid == 0.0


@pytest.mark.parametrize("design", ["trial", "matching"])
def test_a_column_without_a_readable_value_is_named(hospital: Hospital, design: str) -> None:
    """Which rows have no arm is public in either design."""
    built = hospital(patients().with_columns(arm=pl.lit("")), design=design)
    with pytest.raises(InputError, match=r"^columns\.arm: no row of .* has a readable value"):
        built.run()


def test_a_report_that_is_gone_is_not_drawn_again(hospital: Hospital) -> None:
    built = hospital()
    built.run().path.unlink()
    with pytest.raises(ConflictError, match="file is gone"):
        built.run()


def test_a_report_that_a_lost_ledger_knew_is_not_believed(hospital: Hospital) -> None:
    built = hospital()
    built.run()
    (built.folder / "ledger.sqlite").unlink()
    with pytest.raises(ConflictError, match="the ledger knows nothing of this file"):
        built.run()
    assert built.paid == 0.0  # what it was is charged again by restore, once somebody asks


# bad input


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (patients().filter(arm="none"), "^arms.treatments: .*'aspirin' has no units"),
        (
            patients().filter((pl.col("arm") == "none") | (pl.col("id") == "p0000")),
            "'aspirin' has 1 unit.*2 at least",
        ),
        (
            patients().with_columns(arm=pl.lit("fax")),
            "no row is left: all 240.*arm_not_declared 240",
        ),
        (patients().head(0), "the log is empty"),
        (patients().drop("score"), "no column 'score'"),
        (patients().with_columns(score=pl.lit([1.0])), "'score' .outcome. is List"),
    ],
)
def test_a_trial_that_cannot_be_reported_is_told_and_costs_nothing(
    hospital: Hospital, log: pl.DataFrame, says: str
) -> None:
    built = hospital(log)
    before = built.files
    with pytest.raises(InputError, match=says) as refused:
        built.run()
    assert refused.value.exit_code == 2
    assert built.files == before


def test_covariates_that_hold_no_values_are_told(hospital: Hospital) -> None:
    built = hospital(patients().with_columns(age=pl.lit([1.0])), design="matching")
    with pytest.raises(InputError, match=r"'age' \(covariate\) is List"):
        built.run()
    built = hospital(patients().drop("sex"), design="matching", name="south")
    with pytest.raises(InputError, match="no column 'sex'"):
        built.run()


@pytest.mark.parametrize(
    "log",
    [
        patients().filter(arm="none"),
        patients().filter((pl.col("arm") == "none") == (pl.col("sex") == "f")),
    ],
    ids=["one arm", "no overlap"],
)
def test_private_arms_decide_nothing_that_others_could_see(
    hospital: Hospital, log: pl.DataFrame
) -> None:
    """The report is made, of an effect of 0 and its noise; the operator alone is told why."""
    built = hospital(log, design="matching")
    result = built.run()
    assert result.status == "published"
    assert result.report.variance > 0.1
    (note,) = result.for_the_operator
    assert "nobody has a match" in note
    assert note not in json.dumps(result.as_json())
    assert result.roster.units_by_arm == {}


def test_units_without_a_match_are_told_to_the_operator(hospital: Hospital) -> None:
    lonely = (pl.col("arm") == "none") & (pl.col("sex") == "f")
    assert hospital(design="matching").run().for_the_operator == ()
    built = hospital(patients().filter(~lonely), design="matching", name="south")
    (note,) = built.run().for_the_operator
    assert "drawn towards 0" in note


# killed


DEATHS = """
import os, signal, sys
from pathlib import Path
import flows.ledger.database, flows.effects.multisite, flows.released.file.draft

folder, places = Path(sys.argv[1]), sys.argv[2:]


def run_to(place, config):
    when, owner, name = place.split(" ")
    holder = eval(owner)
    original = getattr(holder, name)

    def act_and_die(*given, **named):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        original(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(holder, name, act_and_die)
    flows.effects.multisite.report_period(str(config), "b")


for number, place in enumerate(places):
    child = os.fork()
    if child == 0:
        run_to(place, folder / str(number) / "north" / "site.toml")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, place
"""
PLACES = {
    "after flows.effects.multisite validate": (None, False),
    "after flows.ledger.database.Ledger reserve": ("reserved", False),
    "after flows.effects.multisite site_report": ("reserved", False),
    "after flows.effects.multisite write_report": ("reserved", False),
    "after flows.ledger.database.Ledger begin_publishing": ("publishing", False),
    "after flows.released.file.draft.os link": ("publishing", True),
    "before flows.ledger.database.Ledger publish": ("publishing", True),
    "after flows.ledger.database.Ledger publish": ("published", True),
}


def states(built: AtSite) -> list[str]:
    entries = Account.of(load_site(built.config)).statement().entries
    return [str(entry.state) for entry in entries if entry.name.period == "b"]


def test_killed_at_any_moment_the_next_run_finishes_the_job(
    hospital: Hospital, tmp_path: Path
) -> None:
    template = hospital(privacy="budget_epsilon = 2")
    template.run("a")  # makes ledger and key
    (template.folder / "ledger.sqlite").unlink()
    shutil.rmtree(template.folder / "reports")
    copies = tmp_path / "copies"
    for number in range(len(PLACES)):
        shutil.copytree(template.folder, copies / str(number) / "north")
    done = subprocess.run(
        [sys.executable, "-c", DEATHS, copies, *PLACES],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    for number, (place, (state, public)) in enumerate(PLACES.items()):
        built = AtSite(copies / str(number) / "north" / "site.toml")
        name = "stroke@north.b.r1.json"
        assert states(built)[-1:] == ([state] if state else []), place
        assert (built.reports / name).exists() == public, place
        assert built.paid == (1.0 if state else 0.0)
        begun = read_report(built.reports / name) if public else None
        result = built.run("b")
        finished = state in ("publishing", "published")
        assert (result.status, result.path.name) == ("unchanged" if finished else "published", name)
        assert begun in (None, result.report), place
        assert built.paid == 1.0, place
        assert [path.name for path in built.reports.iterdir()] == [name], place
        assert states(built)[-1] == "published"
    assert built.run("c").status == "published"  # the budget has room for it
    assert built.paid == 2.0


def test_a_release_with_the_same_ledger_finishes_a_dead_site_s_report(
    hospital: Hospital, experiment: Builder
) -> None:
    built = hospital()
    account = Account.of(load_site(built.config))
    folder = built.reports / ".draft-dead"
    folder.mkdir(parents=True)
    charge = account.reserve("b", Fingerprint("k:r", "k:u", "k:s"), folder, revise=False)
    charge.draft.write_text("whole")
    ledger = f"sqlite:///{built.folder}/ledger.sqlite"
    assert charge.receipt.charge is not None
    Ledger(ledger_url(ledger, built.folder)).begin_publishing(
        charge.receipt.charge, sha256_of(charge.draft)
    )
    assert states(built) == ["publishing"]
    experiment(ledger={"url": ledger}).run()
    assert states(built) == ["published"]
    assert (built.reports / "stroke@north.b.r1.json").read_text() == "whole"


# a server


def test_sites_report_and_a_server_aggregates(hospital: Hospital, tmp_path: Path) -> None:
    reports = []
    for name, n_units, epsilon in (("north", 2400, 1.0), ("south", 1200, 0.5), ("west", 240, 2.0)):
        built = hospital(patients(n_units), name=name, epsilon=epsilon)
        reports.append(built.run().path)
    server = tmp_path / "server"
    server.mkdir()
    sent = [Path(shutil.copy(path, server)) for path in reports]
    for name in ("north", "south", "west"):
        shutil.rmtree(tmp_path / name)  # nothing of a site is needed
    combined = aggregate_reports([str(path) for path in sent], str(server / "plot.svg"))
    found = {one.method: one for one in combined.aggregates}
    by_site = [read_report(path) for path in sent]
    everybody = sum(one.estimate * one.n_units for one in by_site) / 3840
    assert found["all"].estimate == pytest.approx(everybody)
    assert found["largest"].estimate == by_site[0].estimate
    assert found["mvagg"].variance <= min(found["all"].variance, found["largest"].variance)
    assert found["ivw"].variance <= found["mvagg"].variance
    assert (server / "plot.svg").read_bytes().startswith(b"<svg")


SERVER = """
import json, sys
from pathlib import Path
from flows.effects.released.site_report import read_reports
from flows.effects.released.site_aggregates import combine
import flows.effects.released.forest, flows.cli.effects.aggregate

print(combine(read_reports([Path(name) for name in sys.argv[1:]])).aggregates[0].estimate)
inside = ("flows.raw", "schemas.raw", "privatizers.site", "privatizers.noise.randomness", "prefect")
print(json.dumps(sorted(name for name in sys.modules if name.startswith(inside))))
"""


def test_a_server_needs_none_of_the_private_code(hospital: Hospital) -> None:
    path = hospital().run().path
    done = subprocess.run(
        [sys.executable, "-c", SERVER, path], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


# the commands


def test_the_commands_take_what_the_contract_says() -> None:
    for name in ("site", "aggregate"):
        told = CliRunner().invoke(app, [name, "--help"])
        assert told.exit_code == 0
        assert "--json" in told.stdout


def test_aggregate_answers_people_and_programs(hospital: Hospital, tmp_path: Path) -> None:
    paths = [hospital(name=name).run().path for name in ("north", "south")]
    answer = aggregate(paths, tmp_path / "plot.svg", sites="dealt")
    assert "mvagg" in answer.text()
    assert answer.document["plot"] == str(tmp_path / "plot.svg")
    assert answer.document["first"]["method"] == "ivw-pooled"
    with pytest.raises(ConfigError, match="--plot"):
        aggregate(paths, tmp_path / "plot.pdf")


# as a Prefect flow


@pytest.mark.usefixtures("way")
def test_nothing_raw_is_in_prefect_or_beside_the_log(
    hospital: Hospital, prefect_harness: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome, unit, age = Canary.hatch("outcome"), Canary.hatch("unit"), Canary.hatch("covariate")
    log = patients().with_columns(
        score=pl.when(pl.col("id") == "p0003").then(outcome.value).otherwise("score"),
        age=pl.when(pl.col("id") == "p0003").then(age.value).otherwise("age"),
        id=pl.when(pl.col("id") == "p0003").then(pl.lit(unit.word)).otherwise("id"),
    )
    built = hospital(log, design="matching", privacy="delta = 1e-5")
    built.edit("high = 3.0", "high = 1e6")
    answer = site(built.config)
    assert answer.document["report_id"] == "stroke@north.once.r1"
    assert "is written" in answer.text()
    secrets = [outcome.secret("outcome"), unit.secret("unit"), age.secret("covariate")]
    (built.folder / "log.parquet").unlink()
    assert leaks_into(built.folder, *secrets) == []
    assert leaks_into(prefect_harness, *secrets) == []
    heard = "".join(capfd.readouterr()) + json.dumps(answer.document)
    assert not any(secret.is_in(heard) for secret in secrets)
