"""Everything that is wrong with a configuration is told at once, in lines that name the keys."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli.main import run
from flows.config.load import load
from flows.effects.house import load_effects, load_site
from schemas.errors import ConfigError, SeveralConfigError

MANY_FAULTS = """
experiment = "trial"
[source]
path = 3
[columns]
unit = "u"
clusters = "c"
outcome = 7
[arms]
control = "none"
treatments = ["mail", 1]
[outcome]
values = [0, 1]
[privacy]
epsilom = 2.0
"""


def refusal(folder: Path, content: str) -> ConfigError:
    path = folder / "trial.toml"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load(path)
    return caught.value


def test_all_faults_are_told_missing_keys_first(tmp_path: Path) -> None:
    error = refusal(tmp_path, MANY_FAULTS)
    assert str(error).splitlines() == [
        "columns.arm: missing; it has to be given",
        "columns.clusters: unknown key; remove it or correct its spelling; did you mean `cluster`?",
        "privacy.epsilom: unknown key; remove it or correct its spelling; did you mean `epsilon`?",
        "source.path: input should be a valid string, not 3",
        "columns.outcome: input should be a valid string, not 7",
        "arms.treatments[1]: input should be a valid string, not 1",
    ]
    assert (error.key, error.problem) == ("columns.arm", "missing; it has to be given")
    assert isinstance(error, SeveralConfigError)
    assert [key for key, _ in error.others][-1] == "arms.treatments[1]"


def test_several_faults_survive_pickling(tmp_path: Path) -> None:
    error = refusal(tmp_path, MANY_FAULTS)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert str(copy) == str(error)
    assert type(copy) is type(error)


def test_one_fault_is_a_plain_error(tmp_path: Path) -> None:
    sound = MANY_FAULTS.replace("path = 3", 'path = "p"').replace("outcome = 7", 'outcome = "y"')
    sound = sound.replace('clusters = "c"', 'arm = "a"').replace(", 1]", "]")
    error = refusal(tmp_path, sound)
    assert type(error) is ConfigError
    assert error.key == "privacy.epsilom"


@pytest.mark.parametrize(
    ("section", "key", "meant"),
    [
        ("", "privat_clusters", "private_clusters"),
        ("[run]\n", "memory_limits", "memory_limit"),
        ("[run]\n", "WORKERS", "workers"),
        ("[ledger]\n", "password", None),
        ("", "directori", None),
    ],
)
def test_a_known_key_near_an_unknown_one_is_offered(
    tmp_path: Path, section: str, key: str, meant: str | None
) -> None:
    line = f"{section}{key} = 1\n"
    told = str(refusal(tmp_path, MANY_FAULTS + line if section else line + MANY_FAULTS))
    (found,) = [one for one in told.splitlines() if key in one]
    assert found.endswith(f"did you mean `{meant}`?" if meant else "correct its spelling")


def test_a_value_of_no_allowed_type_is_told_once(tmp_path: Path) -> None:
    content = MANY_FAULTS.replace('clusters = "c"', "cluster = 7\narm = 3") + "[run]\nworkers = 0.5"
    lines = str(refusal(tmp_path, content)).splitlines()
    assert sum("columns.cluster" in line for line in lines) == 1
    assert sum(line.startswith("run.workers: ") for line in lines) == 1


def test_hundreds_of_faults_are_counted(tmp_path: Path) -> None:
    arms = ", ".join(["1"] * 500)
    lines = str(refusal(tmp_path, MANY_FAULTS.replace('["mail", 1]', f"[{arms}]"))).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 485 more"


def test_a_line_is_a_fault_whatever_a_key_is_called(tmp_path: Path) -> None:
    told = str(refusal(tmp_path, MANY_FAULTS + '"a\\nb: fine" = 1\n'))
    assert r"privacy.a\nb: fine: unknown key" in told


@pytest.mark.parametrize(
    ("reader", "of_its_kind"), [(load_site, 'design = "trial"'), (load_effects, "features = []")]
)
def test_so_are_those_of_other_configurations(
    tmp_path: Path, reader: Callable[[Path], object], of_its_kind: str
) -> None:
    path = tmp_path / "trial.toml"
    path.write_text(f'experiment = "trial"\n{of_its_kind}\n[sources]\npath = "log.csv"\n')
    with pytest.raises(ConfigError) as caught:
        reader(path)
    lines = str(caught.value).splitlines()
    assert "source: missing; it has to be given" in lines
    assert any(line.endswith("did you mean `source`?") for line in lines)


def test_the_program_prints_them_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trial.toml"
    path.write_text(MANY_FAULTS)
    assert run(["check", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("clusterdp: columns.arm: missing")
    assert len(told.splitlines()) == 6


@pytest.mark.parametrize(
    ("read", "what"),
    [(load_effects, "an effect model"), (load_site, "a site's report")],
)
def test_a_releases_configuration_is_told_from_others(
    tmp_path: Path, read: Callable[[Path], object], what: str
) -> None:
    path = tmp_path / "a.toml"
    path.write_text('experiment = "a"\n[privacy]\nepsilon = 2.0\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=f"not the configuration of {what}, as it has neither"):
        read(path)


@pytest.mark.parametrize(("key", "command"), [("site", "site"), ("features", "cate")])
def test_other_configurations_are_told_from_a_releases(
    tmp_path: Path, key: str, command: str
) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f'experiment = "a"\n[{key}]\nname = "x"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=f"`clusterdp {command}` reads it"):
        load(path)


def test_tables_by_name_are_answered_by_what_to_write_instead(tmp_path: Path) -> None:
    tables = '[outcomes.visit]\ncolumn = "visit"\nvalues = [0, 1]\n[outcomes.spend]\nlow = 0'
    content = MANY_FAULTS.replace("[outcome]\nvalues = [0, 1]", tables)
    assert str(refusal(tmp_path, content)).splitlines()[-1] == (
        'outcomes: tables by name; write [[outcomes]] and name = "visit" in place of '
        "[outcomes.visit]"
    )


def test_tables_by_column_are_answered_by_what_to_write_instead(tmp_path: Path) -> None:
    path = tmp_path / "north.toml"
    path.write_text('[site]\nname = "north"\n[covariates.age]\nedges = [30, 60]\n')
    with pytest.raises(ConfigError, match=r'write \[\[covariates\]\] and column = "age" in place'):
        load_site(path)


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ('"country"', "columns.attributes: input should be a valid tuple, not 'country'"),
        ('["country", 1]', "columns.attributes[1]: input should be a valid string, not 1"),
        ("{ back = 3 }", "columns.attributes.back: input should be a valid string, not 3"),
    ],
)
def test_of_a_list_or_a_table_what_was_given_is_judged(
    tmp_path: Path, attributes: str, told: str
) -> None:
    content = MANY_FAULTS.replace("outcome = 7", f"attributes = {attributes}")
    assert told in str(refusal(tmp_path, content)).splitlines()
