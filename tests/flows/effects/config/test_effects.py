"""An effect model's configuration: what it says, and every way it can be wrong, by its key."""

import math
from pathlib import Path

import pytest

from estimators.effects.models.table import PREDICTED
from flows.config.load import load_any
from flows.effects.config.effects import EffectConfig
from flows.effects.house import load_effects
from flows.ledger.account import account_of
from privatizers.accounting.budget import Budget
from schemas.effects.design import TAKEN
from schemas.effects.model import LevelFeature, NumberFeature, Propensity, Subgroups
from schemas.errors import ConfigError

WHOLE = """
experiment = "mail"
pairs = [["age", "income"]]
[source]
path = "log.parquet"
[columns]
unit = "id"
arm = "arm"
outcome = "spend"
[arms]
control = "none"
treatments = ["mail"]
[outcome]
low = 0
high = 500
[propensity]
value = 0.5
[privacy]
epsilon = 1.5
delta = 1e-6
[[features]]
name = "age"
low = 18
high = 90
missing = 40
[[features]]
name = "income"
low = 1000
high = 1e6
scale = "log"
[[features]]
name = "sex"
levels = ["f", "m", "x"]
other = "x"
missing = "f"
[[features]]
name = "grade"
levels = [1, 2, 3]
missing = 2
[[subgroups]]
name = "age group"
feature = "age"
edges = [30, 60]
[[subgroups]]
name = "sex"
feature = "sex"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "cate.toml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str) -> EffectConfig:
    return load_effects(written(folder, text))


def test_a_model_by_its_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, WHOLE)
    assert config.series == "mail+cate"
    assert config.releases == tmp_path / "releases" / "mail"
    assert (config.population, config.cost) == ("mail", Budget(1.5, 1e-6))
    assert config.budget == Budget(math.inf, math.inf)
    assert config.treatment == "mail"
    assert (config.privacy.neighbours, config.privacy.learner) == ("row", "moments")
    assert config.outcome.missing_value == 0.0
    assert config.spill.directory == tmp_path / "quarantine"


def test_it_becomes_the_design_of_a_model(tmp_path: Path) -> None:
    design = loaded(tmp_path, WHOLE).design
    assert design.features == (
        NumberFeature("age", 18.0, 90.0, missing=40.0),
        NumberFeature("income", 1000.0, 1e6, scale="log"),
        LevelFeature("sex", ("f", "m", "x"), other="x", missing="f"),
        LevelFeature("grade", ("1", "2", "3"), missing="2"),
    )
    assert design.subgroups == (
        Subgroups("age group", "age", (30.0, 60.0)),
        Subgroups("sex", "sex", None),
    )
    assert (design.low, design.high, design.epsilon, design.delta) == (0.0, 500.0, 1.5, 1e-6)
    assert design.propensity == Propensity("value", 0.5)
    assert design.pairs == (("age", "income"),)
    assert design.neighbours == "row"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('column = "p"\nbound = 0.05', Propensity("column", None, 0.05)),
        ("learn = true", Propensity("learn", None, 0.1)),
        ("learn = true\nbound = 0.2", Propensity("learn", None, 0.2)),
    ],
)
def test_propensities(tmp_path: Path, given: str, expected: Propensity) -> None:
    assert loaded(tmp_path, WHOLE.replace("value = 0.5", given)).design.propensity == expected


@pytest.mark.parametrize(
    ("found", "instead", "message"),
    [
        ("delta = 1e-6", "delta = 0", "privacy.delta: 0, or left out: .*Gaussian noise"),
        ("delta = 1e-6", "", "privacy.delta: 0, or left out: .*no promise for epsilon alone"),
        ("delta = 1e-6", "delta = 0.6", "privacy.delta: .*less than 0.5, not 0.6"),
        ("epsilon = 1.5", "epsilon = 0", "privacy.epsilon: .*greater than 0, not 0"),
        ("epsilon = 1.5", "", "privacy.epsilon: missing"),
        ("[privacy]", "[quarantine]\nat_most = 0.1\n[privacy]", "quarantine.at_most: belongs to"),
        ('["mail"]', '["mail", "call"]', "arms.treatments: 2 are named: .*a model of each"),
        ('["mail"]', "[]", "arms.treatments: 0 are named"),
        ('["mail"]', '["none"]', "arms.treatments: 'none' is arms.control already"),
        ('["mail"]', '[""]', "arms.treatments: an arm's name is empty"),
        ("value = 0.5", 'column = "p"', "propensity.bound: missing: beside a column say how near"),
        ("value = 0.5", 'column = "p"\nbound = 0', "propensity.bound: 0.0 is not between"),
        ("value = 0.5", 'column = "p"\nbound = 0.5', "propensity.bound: 0.5 is not between"),
        ("value = 0.5", "value = 1", "propensity.value: 1.0 is not between 0.001 and 0.999"),
        ("value = 0.5", "value = 0.5\nlearn = true", "propensity: .*not value and learn"),
        ("value = 0.5", "", "propensity: give one of value, column and learn = true, not none"),
        ("value = 0.5", "value = 0.5\nbound = 0.1", "propensity.bound: belongs to column or learn"),
        ("low = 1000", "low = 0", r'features\[1\].scale: "log" needs features\[1\].low above 0'),
        ("low = 18", "low = 90", r"features\[0\].high: 90.0 is not above features\[0\].low 90.0"),
        ("low = 18\n", "", r"features\[0\].low: missing; a number needs low and high"),
        ("low = 18\nhigh = 90\n", "", r"features\[0\]: give either low and high"),
        ("high = 90", "high = 1e300", r"features\[0\].high: beyond"),
        ("missing = 40", "missing = 17", r"features\[0\].missing: 17.0 lies outside"),
        ("missing = 40", f"missing = {10**400}", r"features\[0\].missing: "),
        ("low = 18", f"low = {10**400}", r"features\[0\]\.low: "),
        ("levels = [1, 2, 3]", f"levels = [1, {10**400}]", r"features\[3\].levels"),
        ("levels = [1, 2, 3]", f"levels = [1]\nother = 0x{'9' * 5000}", r"features\[3\].other"),
        (
            "delta = 1e-6",
            'delta = 1e-6\nlearner = "dr"',
            'subgroups: privacy.learner = "dr" has none',
        ),
        ("missing = 40", 'missing = "a"', r"features\[0\].missing: 'a' is not a number"),
        ("missing = 40", 'other = "a"', r"features\[0\].other: belongs to levels"),
        ('other = "x"', 'other = "y"', r"features\[2\].other: 'y' is none of features\[2\].levels"),
        ('missing = "f"', 'missing = "y"', r"features\[2\].missing: 'y' is none of"),
        ('missing = "f"', "missing = 1.5", r"features\[2\].missing: 1.5 is none of"),
        ('missing = "f"', "low = 1", r"features\[2\].low: belongs to a number"),
        ('["f", "m", "x"]', '["f", "m", "m"]', r"features\[2\].levels: 'm' is named twice"),
        ('["f", "m", "x"]', '["x"]', r"features\[2\].levels: fewer than 2"),
        ('["f", "m", "x"]', '["x", ""]', r"features\[2\].levels: one is empty"),
        ("levels = [1, 2, 3]", "levels = [1, 2.5]", r"features\[3\].levels"),
        ('name = "income"', 'name = "age"', r"features\[1\].name: 'age' is features\[0\].name"),
        ('name = "income"', 'name = "arm"', r"features\[1\].name: 'arm' is columns.arm already"),
        ('name = "income"', 'name = "spend"', r"features\[1\].name: 'spend' is columns.outcome"),
        ('name = "income"', 'name = "id"', r"features\[1\].name: 'id' is columns.unit already"),
        ('name = "grade"', 'name = "id.grade"', "columns: 'id' and 'id.grade': one is an object"),
        ("value = 0.5", 'column = "age"\nbound = 0.1', r"features\[0\].name: 'age' is propensity"),
        ('outcome = "spend"', 'outcome = "arm"', "columns.outcome: 'arm' is columns.arm already"),
        ('feature = "age"', 'feature = "town"', r"subgroups\[0\].feature: 'town' is none"),
        ("edges = [30, 60]", "", r"subgroups\[0\].edges: missing: 'age' is a number"),
        ("edges = [30, 60]", "edges = []", r"subgroups\[0\].edges: missing"),
        ("edges = [30, 60]", "edges = [60, 30]", r"subgroups\[0\].edges: the edges must increase"),
        ("edges = [30, 60]", "edges = [18, 60]", r"subgroups\[0\].edges: .*nobody is beyond it"),
        ('feature = "sex"', 'feature = "sex"\nedges = [1]', r"subgroups\[1\].edges: 'sex' has lev"),
        ('name = "age group"', 'name = "sex"', r"subgroups\[1\].name: 'sex' is subgroups\[0\]"),
        ('name = "age group"', 'name = "all"', r"subgroups\[0\].name: 'all' is in every model"),
        ('["age", "income"]', '["age", "age"]', r"pairs\[0\]: 'age' is paired with itself"),
        ('["age", "income"]', '["age", "town"]', r"pairs\[0\]: 'town' is none of the features"),
        ('["age", "income"]', '["age"]', r"pairs\[0\]: .*at least 2"),
        ('[["age", "income"]]', '[["age", "sex"], ["sex", "age"]]', r"pairs\[1\]: the same pair"),
        ("high = 500", "high = 0", "outcome.high: 0.0 is not above outcome.low 0.0"),
        ("high = 500", "high = 500\nmissing = 501", "outcome.missing: 501.0 lies outside"),
        ("delta = 1e-6", 'delta = 1e-6\nneighbours = "unit"', "privacy.neighbours: "),
        ("delta = 1e-6", 'delta = 1e-6\nlearner = "x"', "privacy.learner: "),
        ("delta = 1e-6", "delta = 1e-6\nsplit = [1]", "privacy.split: unknown key"),
        ('experiment = "mail"', 'experiment = "mail+cate"', "experiment: "),
        ('experiment = "mail"', f'experiment = "{"x" * 101}"', "experiment: has 101 characters"),
        ('experiment = "mail"', 'experiment = "mail"\ndirectory = "x"', "directory: unknown key"),
        ('path = "log.parquet"', 'path = "~nobody-here/x"', "source.path: "),
    ],
)
def test_what_cannot_be_is_named_by_its_key(
    tmp_path: Path, found: str, instead: str, message: str
) -> None:
    assert found in WHOLE
    with pytest.raises(ConfigError, match=f"^{message}"):
        loaded(tmp_path, WHOLE.replace(found, instead, 1))


def test_features_are_needed_and_few_enough(tmp_path: Path) -> None:
    without = WHOLE[: WHOLE.index("[[features]]")].replace('pairs = [["age", "income"]]', "")
    with pytest.raises(ConfigError, match=r"^features: missing"):
        loaded(tmp_path, without)
    many = "".join(
        f'[[features]]\nname = "f{number}"\nlow = 0\nhigh = 1\n' for number in range(200)
    )
    with pytest.raises(ConfigError, match=r"^features: 401 terms together"):
        loaded(tmp_path, without + many)
    with pytest.raises(ConfigError, match=r"^features: none is declared"):
        loaded(tmp_path, without.replace('"mail"\n', '"mail"\nfeatures = []\n', 1))


def test_names_that_every_model_has_are_taken() -> None:
    assert set(TAKEN) == {"all", PREDICTED}


def test_any_configuration_is_known_by_its_sections(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    assert isinstance(load_any(path), EffectConfig)
    name, account = account_of(path)
    assert (name, account.terms.population) == ("mail+cate", "mail")
    assert not account.terms.by_unit
