"""A site's configuration: what it says, and every way it can be wrong, named by its key."""

from pathlib import Path

import pytest

from flows.config.load import load_any
from flows.config.model.experiment import Config
from flows.effects.config.site import SiteConfig
from flows.effects.house import load_site
from flows.ledger.account import account_of
from privatizers.accounting.budget import Budget
from schemas.errors import ConfigError
from tests.conftest import Builder

TRIAL = """
experiment = "stroke"
design = "trial"
[site]
name = "north"
[source]
path = "log.parquet"
[columns]
unit = "id"
arm = "arm"
outcome = "y"
[arms]
control = "none"
treatments = ["aspirin"]
[outcome]
low = -1
high = 4
[privacy]
epsilon = 1.5
"""

MATCHING = TRIAL.replace('"trial"', '"matching"').replace(
    "epsilon = 1.5",
    """epsilon = 1.5
delta = 1e-5
[[covariates]]
column = "age"
edges = [18, 40, 60, 90]
[[covariates]]
column = "sex"
values = ["f", "m"]
[[covariates]]
column = "grade"
values = [1, 2]""",
)


def written(folder: Path, text: str) -> Path:
    path = folder / "site.toml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str) -> SiteConfig:
    return load_site(written(folder, text))


def test_a_trial_by_its_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, TRIAL)
    assert config.estimator == "difference-in-means"
    assert config.series == "stroke@north"
    assert config.releases == tmp_path / "reports" / "stroke@north"
    assert config.population == "stroke"
    assert config.cost == Budget(1.5, 0.0)
    assert config.outcome.bound == 5.0
    assert config.split == {"effect": 4.0, "variance": 1.0}
    assert config.outcome.missing_value == -1.0
    assert config.releases.is_absolute()


def test_matching_by_its_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, MATCHING)
    assert config.estimator == "smooth-dp-matching"
    assert config.split == {"effect": 1.0, "variance": 1.0, "bound": 1.0}
    assert [one.n_cells for one in config.covariates] == [4, 3, 3]
    assert [one.is_number for one in config.covariates] == [True, False, True]
    assert config.n_cells == 36
    pure = loaded(tmp_path, MATCHING.replace("delta = 1e-5", "split = [3, 1]"))
    assert pure.estimator == "global-dp-matching"
    assert pure.split == {"effect": 3.0, "variance": 1.0}


@pytest.mark.parametrize(
    ("text", "found", "instead", "key", "says"),
    [
        (TRIAL, "low = -1", "low = -1\nlevels = 5", "outcome.levels", "unknown key"),
        (TRIAL, 'name = "north"', 'name = "north"\ncity = "x"', "site.city", "unknown key"),
        (TRIAL, '[site]\nname = "north"', "", "site", "missing"),
        (TRIAL, '"north"', '"no/rth"', "site.name", "pattern"),
        (TRIAL, '"stroke"', '"a@b"', "experiment", "pattern"),
        (TRIAL, 'experiment = "stroke"', 'directory = "/"', "directory", "unknown key"),
        (TRIAL, '"trial"', '"guess"', "design", "'trial' or 'matching'"),
        (TRIAL, 'design = "trial"', "", "design", "missing"),
        (TRIAL, '"aspirin"]', '"aspirin", "other"]', "arms.treatments", "2 are named"),
        (TRIAL, '["aspirin"]', '["none"]', "arms.treatments", "named twice"),
        (TRIAL, "high = 4", "high = -1", "outcome.high", "not above"),
        (TRIAL, "high = 4", "high = 1e80", "outcome.high", "beyond"),
        (TRIAL, "low = -1\nhigh = 4", "low = 0\nhigh = 1e-80", "outcome.high", "less than"),
        (TRIAL, "high = 4", "high = 4\nmissing = 9", "outcome.missing", "outside"),
        (TRIAL, "epsilon = 1.5", "epsilon = 0", "privacy.epsilon", "greater than 0"),
        (TRIAL, "epsilon = 1.5", "epsilon = inf", "privacy.epsilon", "finite"),
        (TRIAL, "epsilon = 1.5", "epsilon = 1\ndelta = 1e-5", "privacy.delta", "needs none"),
        (TRIAL, "epsilon = 1.5", "epsilon = 1\nsplit = [1]", "privacy.split", "2 weights"),
        (TRIAL, "epsilon = 1.5", "epsilon = 1\nsplit = [1, 0]", "privacy.split", "above 0"),
        (TRIAL, "epsilon = 1.5", "epsilon = 1e9", "privacy.epsilon", "must be from"),
        (
            TRIAL,
            "epsilon = 1.5",
            "epsilon = 1\nsplit = [1e-300, 1e300]",
            "privacy.split",
            "not inf",
        ),
        (TRIAL, "epsilon = 1.5", "epsilon = 1\nsplit = [1, 1e30]", "privacy.split", "gives effect"),
        (MATCHING, "delta = 1e-5", "delta = 0.4", "privacy.delta", "at most 0.01"),
        (MATCHING, "delta = 1e-5", "split = [1e300, 1e-300]", "privacy.split", "between 0 and 1"),
        (TRIAL, "epsilon = 1.5", "epsilon = 1\nbudget_epsilon = -1", "budget_epsilon", "greater"),
        (TRIAL, "epsilon = 1.5", 'epsilon = 1\npopulation = " "', "privacy.population", "pattern"),
        (
            TRIAL,
            'path = "log.parquet"',
            'path = "l"\ngrain = "event"',
            "source.grain",
            "unknown key",
        ),
        (
            TRIAL,
            'path = "log.parquet"',
            'path = "l"\nwindow = "1d"',
            "source.window",
            "unknown key",
        ),
        (TRIAL, 'unit = "id"', 'unit = "id"\ncluster = "c"', "columns.cluster", "unknown key"),
        (TRIAL, "[arms]", '[arms]\nsample_ratio = "refuse"', "arms.sample_ratio", "of a release"),
        (TRIAL, "[site]", "[quarantine]\nat_most = 0.1\n[site]", "quarantine.at_most", "release"),
        (TRIAL, 'unit = "id"', 'unit = "y"', "columns.outcome", "is columns.unit already"),
        (MATCHING, '"matching"', '"trial"', "covariates", "belong to"),
        (MATCHING, "delta = 1e-5", "delta = 0.5", "privacy.delta", "less than 0.5"),
        (MATCHING, "delta = 1e-5", "delta = 1e-5\nsplit = [1, 1]", "privacy.split", "3 weights"),
        (MATCHING, '"age"', '"y"', "covariates[0].column", "columns.outcome already"),
        (MATCHING, '"age"', '"y.age"', "columns", "'y' is protected and 'y.age' is not"),
        (MATCHING, '"sex"', '"id.sex"', "columns", "'id.sex' is protected and 'id' is not"),
        (MATCHING, '"sex"', '"age"', "covariates[1].column", "covariates[0].column already"),
        (MATCHING, '["f", "m"]', '["f", 1]', "covariates[1].values", "valid string"),
        (MATCHING, '["f", "m"]', '["f", "f"]', "covariates[1].values", "named twice"),
        (MATCHING, '["f", "m"]', "[]", "covariates[1].values", "empty"),
        (MATCHING, "[18, 40, 60, 90]", "[18]", "covariates[0].edges", "at least 2"),
        (MATCHING, "[18, 40, 60, 90]", "[18, 18]", "covariates[0].edges", "increase"),
        (MATCHING, "[18, 40, 60, 90]", "[18, 40]\nvalues = [1]", "covariates[0]", "either"),
        (MATCHING, '"age"\n', '"age"\nbins = 3\n', "covariates[0].bins", "unknown key"),
        (MATCHING, "[1, 2]", str(list(range(100_000))), "covariates", "at most 1,000,000"),
    ],
)
def test_a_fault_names_its_key(
    tmp_path: Path, text: str, found: str, instead: str, key: str, says: str
) -> None:
    assert found in text
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, text.replace(found, instead, 1))
    assert key in error.value.key
    assert says in error.value.problem


def test_matching_without_covariates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one to match on"):
        loaded(tmp_path, TRIAL.replace('"trial"', '"matching"'))


@pytest.mark.parametrize("content", [b"[site", b"\xff"])
def test_what_is_no_configuration_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"site\.toml: (not valid TOML|is not text in UTF-8)"):
        load_site(path)
    with pytest.raises(ConfigError, match="there is no such file"):
        load_site(tmp_path / "none.toml")


def test_a_ledger_finds_the_account_of_either_configuration(
    tmp_path: Path, experiment: Builder
) -> None:
    site, release = written(tmp_path, TRIAL), experiment().config
    assert isinstance(load_any(site), SiteConfig)
    assert isinstance(load_any(release), Config)
    for path, name in ((site, "stroke@north"), (release, "trial")):
        found, account = account_of(path)
        assert found == name
        assert account.statement().spent == Budget()


def test_a_domain_beyond_counting_is_refused_in_few_words(tmp_path: Path) -> None:
    many = "".join(f'\n[[covariates]]\ncolumn = "c{n}"\nvalues = [1, 2]' for n in range(9_000))
    says = "covariates: a number with hundreds of digits cells together; at most 1,000,000 can be"
    with pytest.raises(ConfigError, match=f"^{says}$"):
        loaded(tmp_path, MATCHING + many)


@pytest.mark.parametrize(
    ("section", "key", "value", "says"),
    [
        ("source", "path", "~nosuchuser/x", "the home folder of a user who has none here"),
        ("publish", "directory", "~nosuchuser/x", "the home folder of a user who has none here"),
        ("quarantine", "directory", "a\\u0000b", "holds a null character"),
        ("publish", "directory", "site.toml/x", "is no place for a file here .Not a directory."),
    ],
)
def test_a_place_that_cannot_be_is_named_by_its_key(
    tmp_path: Path, section: str, key: str, value: str, says: str
) -> None:
    text = TRIAL.replace('path = "log.parquet"', "" if section == "source" else 'path = "x"')
    text = text.replace("[source]", f'[source]\npath = "{value}"') if section == "source" else text
    text += "" if section == "source" else f'[{section}]\n{key} = "{value}"\n'
    with pytest.raises(ConfigError, match=rf"^{section}\.{key}: .*{says}"):
        loaded(tmp_path, text)


def test_names_that_fit_into_no_file_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^experiment and site\.name together: has 106 char"):
        loaded(tmp_path, TRIAL.replace('"north"', f'"{"n" * 99}"'))
