"""One effect model of many sites: reports, their sum, its price, and what is refused."""

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators.effects.models.fit import fit
from estimators.effects.models.moments import added
from flows.cli.main import run
from flows.effects.cate import fit_period
from flows.effects.house import document_loss, load_effects
from flows.effects.released.model_file import ModelFile, model_text, read_model
from flows.effects.released.report_model import model_page
from flows.effects.released.sites_model import aggregate_models
from flows.ledger.account import Account
from privatizers.accounting.accountant import epsilon_at
from privatizers.effects.models import meta
from privatizers.effects.models.moments import draw_sums
from schemas.effects.model import EffectDesign, NoisySums
from schemas.errors import ConfigError, InputError
from schemas.json_text import checksum
from tests.conftest import write_content
from tests.effect_logs import people
from tests.flows.effects.released.test_model_file import HEAD
from tests.support.effect_rows import DESIGN, batches
from tests.support.effect_rows import people as rows_of

AGREED = """
experiment = "mail"
arms = { control = "none", treatments = ["mail"] }
outcome = { low = -1.0, high = 3.0 }
propensity = { PROPENSITY }
degree = 1
[[features]]
name = "age"
low = 20
high = 60
[[features]]
name = "sex"
levels = ["f", "m"]
[[subgroups]]
name = "age group"
feature = "age"
edges = [40]
[[usual]]
feature = "age"
low = 28
high = 52
"""

SITE = """
moments = {{ site = "{site}", agreed = "../agreed.toml" }}
source = {{ path = "log.parquet" }}
columns = {{ unit = "id", arm = "arm", outcome = "spend" }}
privacy = {{ epsilon = {epsilon}, delta = 1e-6, budget_epsilon = 9{more} }}
"""

EPSILONS = {"east": 2.0, "north": 1.0, "south": 4.0}
N_ROWS = 1_500


@dataclass(frozen=True)
class Sites:
    """A folder with the public document, and a folder for each site."""

    folder: Path

    @property
    def all(self) -> Path:
        return self.folder / "all.json"

    def config(self, site: str) -> Path:
        return self.folder / site / "site.toml"

    def report(self, site: str) -> Path:
        return fit_period(str(self.config(site))).path

    def reports(self) -> list[Path]:
        return [self.report(site) for site in EPSILONS]


Made = Callable[..., Sites]


def build(folder: Path, propensity: str = "value = 0.5", more: str = "") -> Sites:
    log = people(N_ROWS * len(EPSILONS)).with_columns(p=pl.lit(0.5))
    agreed = AGREED.replace("PROPENSITY", propensity)
    (folder / "agreed.toml").write_text(agreed, encoding="utf-8")
    for number, (site, epsilon) in enumerate(EPSILONS.items()):
        write_content(folder / site / "log.parquet", log[number * N_ROWS :][:N_ROWS])
        text = SITE.format(site=site, epsilon=epsilon, more=more)
        (folder / site / "site.toml").write_text(text, encoding="utf-8")
    return Sites(folder)


@pytest.fixture
def sites(tmp_path: Path) -> Made:
    return partial(build, tmp_path)


@pytest.fixture(scope="module")
def reports_once(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(tmp_path_factory.mktemp("sites")).reports()


@pytest.fixture
def reports(reports_once: list[Path], tmp_path: Path) -> list[Path]:
    """The reports of all sites, to be changed."""
    copies = [tmp_path / path.name for path in reports_once]
    for path, copy in zip(reports_once, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    return copies


# a model of all


def test_sites_add_up_to_one_model(sites: Made) -> None:
    """From the sites' logs to a file that is read, priced and shown as any model's."""
    built = sites()
    reports = built.reports()
    assert [path.name for path in reports] == [
        f"mail@{site}+cate.once.r1.json" for site in EPSILONS
    ]
    made = aggregate_models(reports[::-1], built.all)
    found = read_model(built.all)
    assert found.head == made.head
    assert (found.head.model_id, found.model.n_rows) == ("mail+cate.once.r1", 3 * N_ROWS)
    assert found.model.ate == made.model.ate
    document = found.as_json()
    assert document["sites"] == [
        {"site": site, "revision": 1, "n_rows": N_ROWS, "epsilon": epsilon, "delta": 1e-6}
        for site, epsilon in EPSILONS.items()
    ]
    assert len(document["agreed"]) == 64
    by_site = [one.level for one in found.model.subgroups if one.name == "site"]
    assert by_site == [*EPSILONS]
    page = model_page(built.all)
    assert "east (2, 1e-06), north (1, 1e-06), south (4, 1e-06)" in page


@pytest.mark.parametrize("propensity", ['column = "p", bound = 0.1', "learn = true"])
@pytest.mark.parametrize("neighbours", ["row", "outcome"])
def test_every_kind_of_model_adds_up(sites: Made, propensity: str, neighbours: str) -> None:
    built = sites(propensity, f', neighbours = "{neighbours}"')
    made = aggregate_models(built.reports(), built.all)
    assert (made.model.ate is None) == ("learn" in propensity)
    assert read_model(built.all).model.subgroups == made.model.subgroups


def test_each_site_pays_by_itself_and_the_dearest_counts(sites: Made) -> None:
    """In ledgers, by the accountant, and by the file alone."""
    built = sites()
    made = aggregate_models(built.reports(), built.all)
    for site, epsilon in EPSILONS.items():
        account = Account.of(load_effects(built.config(site)))
        assert account.statement().spent.epsilon == epsilon
        own = [each for each in made.model.sums if each.name.startswith(f"{site}.")]
        assert epsilon_at(meta.event(own), 1e-6) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_at(meta.event(made.model.sums), 1e-6) == pytest.approx(4.0, rel=1e-6)
    loss = document_loss(built.all)
    assert loss.holds
    assert loss.epsilon == pytest.approx(4.0, rel=1e-6)
    assert loss.stated_epsilon == 4.0


def test_the_commands(sites: Made, capsys: pytest.CaptureFixture[str]) -> None:
    built = sites()
    for site in EPSILONS:
        run(["site", str(built.config(site))])
        assert f"mail@{site}+cate.once.r1 is published" in capsys.readouterr().out
    reports, output = [str(path) for path in built.reports()], str(built.all)
    run(["aggregate", "--cate", *reports, "-o", output])
    told = capsys.readouterr().out
    assert "mail+cate.once.r1 is written" in told
    assert "as sites agreed" in told
    for refused in (["--cate", *reports, "-o", output], ["--cate", *reports], ["-o", "x.json"]):
        assert run(["aggregate", *refused]) == 2


# what is added


def a_sum(steps: list[int], step: float, scale: float) -> NoisySums:
    return NoisySums("gram", 0.1, 1.0, step, scale, np.array(steps, dtype=np.int64))


def test_sums_add_up_exactly_and_so_do_variances() -> None:
    total = added([a_sum([3, -5], 0.5, 6.0), a_sum([1, 8], 0.125, 32.0), a_sum([0, 1], 2.0, 0.0)])
    assert total.values.tolist() == [1.5 + 0.125, -2.5 + 1.0 + 2.0]
    assert total.noise_std == pytest.approx(5.0)
    with pytest.raises(ValueError, match="too great"):
        added([a_sum([1], 2.0**300, 1.0), a_sum([1], 1.0, 1.0)])
    with pytest.raises(ValueError, match="do not go together"):
        added([a_sum([1], 1.0, 1.0), a_sum([1, 2], 1.0, 1.0)])


def test_at_next_to_no_noise_many_sites_are_one(tmp_path: Path) -> None:
    """ε = 10⁴: sites of any sizes give the curve that one place with all people gives.

    What outcomes are compared with is a site's own, so curves differ by 1.5 % of the effect's range
    where that is fitted to 2,000 people; a sum that is left out, or counted twice, by far more.
    """
    rows = rows_of(8_000, np.random.default_rng(4)).rows
    design = replace(an_agreed_design(tmp_path), epsilon=1e4)
    own, files = [], []
    for site, part in (("a", slice(2_000)), ("b", slice(2_000, 8_000))):
        some = rows.at(np.arange(8_000)[part])
        own.append(draw_sums(design, len(some.treated), batches(some)))
        files.append(a_report(tmp_path, site, design, len(some.treated), own[-1]))
    made = aggregate_models(files, tmp_path / "all.json").model
    one = fit(design, 8_000, draw_sums(design, 8_000, batches(rows)))
    (age, _, _), (same, _, _) = made.curves, one.curves
    assert np.abs(age.effects - same.effects).max() < 0.05
    assert made.ate is not None
    assert one.ate is not None
    assert made.ate.estimate == pytest.approx(one.ate.estimate, abs=0.02)
    assert made.ate.std_error == pytest.approx(one.ate.std_error, rel=0.05)


# what is refused


def an_agreed_design(folder: Path) -> EffectDesign:
    """The made-up people's design, as if sites had agreed on it."""
    (folder / "agreed.toml").write_text(AGREED.replace("PROPENSITY", "value = 0.5"))
    (folder / "one").mkdir()
    config = folder / "one" / "site.toml"
    config.write_text(SITE.format(site="one", epsilon=1.0, more=""), encoding="utf-8")
    agreed = load_effects(config).agreed
    assert agreed is not None
    return replace(DESIGN, targeting=False, agreed=replace(agreed, usual=(None, None, None)))


def a_report(
    folder: Path, site: str, design: EffectDesign, n_rows: int, sums: Iterable[NoisySums]
) -> Path:
    path = folder / f"{site}.json"
    file = ModelFile(replace(HEAD, site=site), fit(design, n_rows, tuple(sums)))
    path.write_text(model_text(file), encoding="utf-8")
    return path


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """The report after a change, with a checksum that fits it."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("checksum")
    change(content)
    path.write_text(json.dumps(content | {"checksum": checksum(content)}), encoding="utf-8")


def agreed(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["agreed"].update(fields)


def a_step(value: object) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        content["sums"][0]["steps"][0] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (a_step(math.nan), "not a JSON document"),
        (a_step(10**30), "less than or equal"),
        (lambda one: one["sums"].pop(), "its sums are not those of a model"),
        (lambda one: one["sums"][1]["steps"].pop(), "its sums are not those of a model"),
        (lambda one: one.update(n_rows=-5), "n_rows: "),
        (agreed(degree=3), "agreed.degree: "),
        (agreed(digest="x"), "agreed.digest: "),
        (agreed(usual=[]), "usual: not one for each feature"),
        (agreed(usual=[None, [1.0, 2.0]]), "usual: 'sex' has levels"),
        (lambda one: one.update(site=None), "either one site's or of several"),
        (lambda one: one.update(site="../x"), "site: "),
        (lambda one: one.pop("agreed"), "site: no such field"),
    ],
)
def test_a_report_that_is_unsound_is_refused(
    reports: list[Path], tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    changed(reports[1], change)
    refused = f"^{re.escape(str(reports[1]))}: .*({message})"
    with pytest.raises(InputError, match=refused):
        aggregate_models(reports, tmp_path / "all.json")
    assert not (tmp_path / "all.json").exists()


def again(file: ModelFile, **fields: Any) -> ModelFile:
    """The model of a report with other sums, as a site that lies would fit it."""
    model = file.model
    given: dict[str, Any] = {"design": model.design, "n_rows": model.n_rows, "sums": model.sums}
    return replace(file, model=fit(**(given | fields)))


def with_steps(file: ModelFile, name: str, steps: int) -> ModelFile:
    """Other steps of one sum; residuals, whose clip follows, with noise that is enough for any."""
    sums = [
        replace(each, steps=np.full_like(each.steps, steps))
        if each.name == name
        else replace(each, scale=each.scale * (64.0 if each.name == "effects" else 1.0))
        for each in file.model.sums
    ]
    return again(file, sums=tuple(sums))


def with_design(**fields: Any) -> Callable[[ModelFile], ModelFile]:
    return lambda file: again(file, design=replace(file.model.design, **fields))


def with_digest(file: ModelFile) -> ModelFile:
    agreed = file.model.design.agreed
    assert agreed is not None
    return with_design(agreed=replace(agreed, digest="0" * 64))(file)


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (
            lambda file: with_steps(file, "histograms", 2_000_000),
            "greater than those of 1,500 rows",
        ),
        (lambda file: with_steps(file, "histograms", -20_000), "greater than|counts below 0"),
        (lambda file: with_steps(file, "histograms", -500), "counts below 0, by more than noise"),
        (lambda file: with_steps(file, "table", 2**50), "greater than those of 1,500 rows can be"),
        (with_digest, "made by another agreement"),
        (with_design(high=4.0), "declares other things than mail@east"),
        (
            lambda file: replace(file, head=replace(file.head, period="2026")),
            "its period is '2026'",
        ),
        (lambda file: replace(file, head=replace(file.head, experiment="x")), "its experiment is"),
        (lambda file: replace(file, head=replace(file.head, control="x")), "its control is 'x'"),
        (lambda file: replace(file, head=replace(file.head, site="east")), "stands in two reports"),
    ],
)
def test_a_sound_file_that_does_not_go_with_the_first_is_refused(
    reports: list[Path], tmp_path: Path, lie: Callable[[ModelFile], ModelFile], message: str
) -> None:
    reports[1].write_text(model_text(lie(read_model(reports[1]))), encoding="utf-8")
    refused = f"^{re.escape(str(reports[1]))}: .*({message})"
    with pytest.raises(InputError, match=refused):
        aggregate_models(reports, tmp_path / "all.json")


def test_sums_that_do_not_add_up_are_told(reports: list[Path], tmp_path: Path) -> None:
    """Of a site that takes steps, and makes noise, of another size by far."""
    file = read_model(reports[1])
    sums = [
        replace(each, step=2.0**60, scale=1e9) if each.name == "table" else each
        for each in file.model.sums
    ]
    reports[1].write_text(model_text(again(file, sums=tuple(sums))), encoding="utf-8")
    with pytest.raises(InputError, match="the sums of these sites give no model together"):
        aggregate_models(reports, tmp_path / "all.json")


def test_models_of_all_and_of_no_site_are_no_reports(reports: list[Path], tmp_path: Path) -> None:
    aggregate_models(reports[:1], tmp_path / "all.json")
    with pytest.raises(InputError, match=r"mail\+cate.once.r1 is no report of a site"):
        aggregate_models([tmp_path / "all.json"], tmp_path / "more.json")
    with pytest.raises(ConfigError, match="REPORT: 0 are given"):
        aggregate_models([], tmp_path / "more.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one["sites"].reverse(), "sites by their names, each once"),
        (lambda one: one["sites"][0].update(epsilon=9.0), "greatest of a site"),
        (lambda one: one["sites"][1].update(epsilon=0.5), "guarantee is not what"),
        (lambda one: one["sites"][0].update(n_rows=7), "its sums are not those of a model"),
    ],
)
def test_a_model_of_sites_that_says_other_things_is_refused(
    reports: list[Path],
    tmp_path: Path,
    change: Callable[[dict[str, Any]], object],
    message: str,
) -> None:
    path = tmp_path / "all.json"
    aggregate_models(reports, path)
    changed(path, lambda one: change(one["agreed"]))
    with pytest.raises(InputError, match=message):
        read_model(path)


def test_a_site_that_paid_more_than_it_says_is_told(reports: list[Path], tmp_path: Path) -> None:
    """All sites together keep to the greatest ε, and one of them not to its own."""
    made = aggregate_models(reports, tmp_path / "all.json")
    agreed = made.model.design.agreed
    assert agreed is not None
    cheaper = tuple(replace(one, epsilon=min(one.epsilon, 1.0)) for one in agreed.sites[:2])
    design = replace(made.model.design, agreed=replace(agreed, sites=(*cheaper, agreed.sites[2])))
    path = tmp_path / "lies.json"
    path.write_text(model_text(again(made, design=design)), encoding="utf-8")
    loss = document_loss(path)
    assert loss.broken == ("agreed: epsilon of east is less than what the scales of its sums give",)
    with pytest.raises(InputError, match="costs more than it says: agreed: epsilon of east"):
        read_model(path)


# the document that all point to


@pytest.mark.parametrize(
    ("agreed", "site", "message"),
    [
        ("source = 1", "", r"agreed.toml: 'source': no key of what sites agree on"),
        ("", "degree = 2", r"^degree: belongs to what all sites share, .*agreed.toml; remove it"),
        ("degree = 4", "", "degree"),
        ('[[usual]]\nfeature = "sex"\nlow = 0\nhigh = 1', "", "usual: 'sex' has levels"),
        ('[[usual]]\nfeature = "x"\nlow = 0\nhigh = 1', "", r"usual\[1\].feature: 'x' is none"),
        ('[[subgroups]]\nname = "site"\nfeature = "sex"', "", "subgroups: 'site' is what sites"),
        (None, "", r"agreed.toml: "),
    ],
)
def test_what_is_agreed_is_read_strictly(
    sites: Made, agreed: str | None, site: str, message: str
) -> None:
    built = sites()
    document = built.folder / "agreed.toml"
    if agreed is None:
        document.unlink()
    else:
        text = document.read_text(encoding="utf-8")
        first = agreed if not agreed.startswith("[") else ""
        text = text.replace("degree = 1", first) if first.startswith("degree") else first + text
        document.write_text(text + agreed.removeprefix(first), encoding="utf-8")
    config = built.config("east")
    config.write_text(site + config.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_effects(config)


def test_where_it_is_not_named(sites: Made) -> None:
    config = sites().config("east")
    text = config.read_text(encoding="utf-8").replace(', agreed = "../agreed.toml"', "")
    config.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"moments\.agreed: missing"):
        load_effects(config)


def test_the_digest_is_of_what_it_says_not_of_how_it_is_written(sites: Made) -> None:
    built = sites()
    document = built.folder / "agreed.toml"
    before = load_effects(built.config("east")).agreed
    document.write_text("# a note\n" + document.read_text(encoding="utf-8"), encoding="utf-8")
    assert load_effects(built.config("north")).agreed == before
    text = document.read_text(encoding="utf-8").replace("high = 60", "high = 61")
    document.write_text(text, encoding="utf-8")
    after = load_effects(built.config("north")).agreed
    assert before is not None
    assert after is not None
    assert after.digest != before.digest


# what it warns of


def test_a_site_that_makes_noise_for_all_is_named(tmp_path: Path) -> None:
    design = an_agreed_design(tmp_path)
    rows = rows_of(3_000, np.random.default_rng(5)).rows
    files = []
    for site, epsilon in (("a", 4.0), ("b", 4.0), ("c", 0.05)):
        own = replace(design, epsilon=epsilon)
        files.append(a_report(tmp_path, site, own, 3_000, draw_sums(own, 3_000, batches(rows))))
    warnings = aggregate_models(files, tmp_path / "all.json").model.warnings
    assert [one for one in warnings if one.startswith("site 'c' has so much noise")]
    assert not any("site 'a'" in one or "site 'b'" in one for one in warnings)


def test_another_degree_is_advised(tmp_path: Path) -> None:
    design = replace(an_agreed_design(tmp_path), epsilon=400.0)
    sums = draw_sums(design, 3_000, batches(rows_of(3_000, np.random.default_rng(6)).rows))
    files = [a_report(tmp_path, site, design, 3_000, sums) for site in ("a", "b")]
    warnings = aggregate_models(files, tmp_path / "all.json").model.warnings
    assert any("agree on degree = 2 next time" in one for one in warnings)
