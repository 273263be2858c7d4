"""Files that are no configuration, and values that no use needs: one plain line, exit code 2."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import run
from flows.config.load import MOST_BYTES, load, load_any
from flows.effects.house import load_effects, load_site
from flows.ledger.account import Account
from schemas.errors import ConfigError
from tests.conftest import Builder

SOUND = """
experiment = "trial"
[source]
path = "log.parquet"
[columns]
unit = "u"
arm = "a"
outcome = "y"
[arms]
control = "none"
treatments = ["mail"]
[outcome]
values = [0, 1]
[privacy]
epsilon = 2.0
"""

READERS: list[Callable[[Path], object]] = [load, load_site, load_effects, load_any]

every_reader = pytest.mark.parametrize("reader", READERS, ids=lambda one: one.__name__)


def refusal(reader: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        reader(path)
    told = str(caught.value)
    assert "\n" not in told
    assert len(told) < 1_000
    return told.removeprefix(f"{path.absolute()}: ")


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "trial.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# the file


def test_the_sound_one_is_read(tmp_path: Path) -> None:
    """Else the refusals below could have any reason."""
    for content in (SOUND, b"\xef\xbb\xbf" + SOUND.encode(), SOUND.replace("\n", "\r\n")):
        assert load(written(tmp_path, content)).experiment == "trial"


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda _: None, "there is no such file"),
    "a folder": (lambda path: path.mkdir(), "is a folder, not a file"),
    "a pipe": (os.mkfifo, "is a pipe, not a file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
    "a circle": (lambda path: path.symlink_to(path), "(Too many levels of symbolic links)"),
    "a dead link": (lambda path: path.symlink_to("gone"), "there is a link of this name to no"),
    "ten megabytes": (
        lambda path: path.write_bytes(b"#" * 10**7),
        "is far too large: more than 4,000,000 bytes",
    ),
}


@every_reader
@pytest.mark.parametrize(("make", "says"), NO_FILES.values(), ids=NO_FILES.keys())
def test_what_is_no_file_is_not_read(
    tmp_path: Path,
    reader: Callable[[Path], object],
    make: Callable[[Path], object],
    says: str,
) -> None:
    path = tmp_path / "trial.toml"
    make(path)
    assert says in refusal(reader, path)


@every_reader
def test_a_name_that_no_file_can_have_is_told(
    tmp_path: Path, reader: Callable[[Path], object]
) -> None:
    with pytest.raises(ConfigError, match=r"cannot be looked at \(File name too long\)"):
        reader(tmp_path / ("x" * 300))
    with pytest.raises(ConfigError, match="there is no such file"):
        reader(tmp_path / "~nosuchuser" / "trial.toml")
    with pytest.raises(ConfigError, match="no file can have this name"):
        reader(tmp_path / "a\0b")


CONTENTS: dict[str, tuple[str | bytes, str]] = {
    "arrays in arrays": (SOUND + "x = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
    "tables in tables": (SOUND + "x = " + "{a=" * 3000 + "1" + "}" * 3000, "nested too deeply"),
    "an open array": (SOUND + "x = " + "[" * 3000, "nested too deeply"),
    "a header of many": (f"{SOUND}[{'.'.join('a' * 3000)}]", "nested too deeply"),
    "a key of many": (f"{SOUND}x = 1\n  {' . '.join('a' * 100_000)} = 1", "nested too deeply"),
    "a quoted key of many": (f"""{SOUND}{'"a".' * 99}'b' = 1""", "nested too deeply"),
    "digits": (f"{SOUND}x = {'9' * 5000}", "a number has thousands of digits"),
    "UTF-16": (SOUND.encode("utf-16"), "is not text in UTF-8 (byte 1 is not)"),
    "Latin-1": (b"# caf\xe9" + SOUND.encode(), "is not text in UTF-8 (byte 6 is not)"),
    "a null": ("\0" + SOUND, "not valid TOML"),
    "half a pair": (SOUND + 'x = "\\ud800"', "not valid TOML"),
    "no day": (SOUND + "x = 2026-02-30", "not valid TOML"),
    "no binary": (b"\x80\x04\x95", "is not text in UTF-8"),
}


@every_reader
@pytest.mark.parametrize(("content", "says"), CONTENTS.values(), ids=CONTENTS.keys())
def test_what_is_no_toml_is_told(
    tmp_path: Path, reader: Callable[[Path], object], content: str | bytes, says: str
) -> None:
    assert says in refusal(reader, written(tmp_path, content))


def test_as_much_as_can_be_is_read(tmp_path: Path) -> None:
    comment = "#" * (MOST_BYTES - len(SOUND))
    assert load(written(tmp_path, SOUND + comment)).experiment == "trial"
    with pytest.raises(ConfigError, match="far too large"):
        load(written(tmp_path, SOUND + comment + "#"))


# values


def with_epsilon(value: str) -> str:
    return SOUND.replace("epsilon = 2.0", f"epsilon = {value}")


VALUES: dict[str, tuple[str, str]] = {
    "400 digits": (with_epsilon("9" * 400), "privacy.epsilon: "),
    "as hexadecimals": (
        with_epsilon("0x" + "f" * 6000),
        "privacy.epsilon: input should be a valid number, not a number with hundreds of digits",
    ),
    "many values": (with_epsilon(f"[{'1,' * 9999}]"), "not 9,999 values"),
    "such numbers in a list": (with_epsilon(f"[0x{'f' * 6000}]"), "not a list"),
    "a day": (with_epsilon("2026-11-22"), "not datetime.date(2026, 11, 22)"),
    "a long text": (with_epsilon(f'"{"x" * 9999}"'), "not 'xxx"),
    "a long key": (f"{SOUND}{'k' * 99_999} = 1", "unknown key"),
    "a long arm": (
        SOUND.replace('"mail"', f'"{"m" * 9999}", "{"m" * 9999}"'),
        "… is named twice",
    ),
    "memory": (
        SOUND + f'[run]\nmemory_limit = "{"9" * 400}TB"',
        "run.memory_limit: string should match pattern",
    ),
    "a long experiment": (
        SOUND.replace('"trial"', f'"{"t" * 101}"'),
        "experiment: has 101 characters; at most 100 can be",
    ),
    "many levels": (
        SOUND.replace("values = [0, 1]", "low = 0.0\nhigh = 1.0\nlevels = 100_000_000"),
        "outcome.levels: 100000000 points; a grid has at most 10,000",
    ),
    "levels beyond digits": (
        SOUND.replace("values = [0, 1]", f"low = 0.0\nhigh = 1.0\nlevels = 0x{'f' * 6000}"),
        "outcome.levels: ",
    ),
    "many points": (
        SOUND.replace("[0, 1]", f"[{','.join(map(str, range(10_001)))}]"),
        "outcome.values: 10001 points; a grid has at most 10,000",
    ),
    "many weights": (
        SOUND.replace(
            "values = [0, 1]",
            f"""low = 0.0
            high = 1.0
            levels = "auto"
            guess = [{"1.0," * 10_001}]""",
        ),
        "outcome.guess: 10001 points; a grid has at most 10,000",
    ),
    "a range of nothing": (
        SOUND.replace("[0, 1]", "[0.0, 5e-324]"),
        "outcome.values: a range of less than 1e-60 cannot be computed with",
    ),
    "many arms": (
        SOUND.replace('["mail"]', f"[{','.join(map(repr, map(str, range(20_000))))}]"),
        "arms.treatments: 20,001 arms with control; at most 2,000 can be",
    ),
    "many features": (
        SOUND
        + "[private_clusters]\nepsilon = 1.0\nfeatures = ["
        + ",".join(f'"f{n % 9999}"' for n in range(10_000))
        + "]\n[private_clusters.centres]\na = [1.0]\nb = [2.0]",
        "private_clusters.features: 'f0' is named twice",
    ),
    "a share of nobody": (
        SOUND.replace("[outcome]", "shares = { none = 1e308, mail = 5e-324 }\n[outcome]"),
        "arms.shares: 'mail' has less than 1e-09 of all: nobody would be in it",
    ),
    "no share": (
        SOUND.replace("[outcome]", "shares = { none = 1.0, mail = nan }\n[outcome]"),
        "arms.shares.mail: input should be a finite number",
    ),
    "a stratum beyond all": (with_epsilon("2.0\nmin_stratum = " + "9" * 30), "privacy.min_stratum"),
    "many labels": (
        SOUND.replace('arm = "a"', 'arm = "a"\ncluster = "c"')
        + "[private_clusters]\nepsilon = 1.0\nlabels = ["
        + ",".join(f'"l{n}"' for n in range(10_001))
        + "]",
        "private_clusters.labels: 10,001 clusters; at most 10,000 can be private",
    ),
}


@pytest.mark.parametrize(("content", "says"), VALUES.values(), ids=VALUES.keys())
def test_a_value_that_no_use_needs_is_refused_in_few_words(
    tmp_path: Path, content: str, says: str
) -> None:
    assert says in refusal(load, written(tmp_path, content))


@pytest.mark.parametrize("share", [1e308, 1.7e308, 1e-300, 5e-324, 1.0])
def test_shares_of_any_size_are_proportions(experiment: Builder, share: float) -> None:
    built = experiment(arms={"shares": {"none": share, "mail": share}})
    assert built.load().arms.expected_shares == (0.5, 0.5)
    assert built.check().roster.sample_ratio_p == 1.0


@pytest.mark.parametrize("weight", [1e308, 5e-324, 1.0])
def test_so_are_the_weights_of_a_guess(experiment: Builder, weight: float) -> None:
    built = experiment(outcome={"guess": [weight] * 4}, privacy={"mechanism": "auto"})
    assert built.load().outcome.weights == (0.25,) * 4
    assert built.check().chosen.designs[0].epsilon == 2.0


# places

PLACES = [
    ("source", "path"),
    ("publish", "directory"),
    ("quarantine", "directory"),
    ("run", "spill_directory"),
    ("publish", "key_file"),
    ("ledger", "url"),
]


def with_place(experiment: Builder, section: str, key: str, value: str) -> Path:
    more: dict[str, Any] = {"unit_id": "keyed-hash"} if key == "key_file" else {}
    place = f"sqlite:///{value}" if key == "url" else value
    return experiment(**{section: {**more, key: place}}).config


@pytest.mark.parametrize(("section", "key"), PLACES)
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("~nosuchuser/x", "the home folder of a user who has none here"),
        ("a\0b", "holds a null character"),
    ],
)
@pytest.mark.parametrize("command", ["check", "ledger"])
def test_a_place_that_cannot_be_is_named_by_its_key(
    experiment: Builder,
    capsys: pytest.CaptureFixture[str],
    section: str,
    key: str,
    value: str,
    says: str,
    command: str,
) -> None:
    config = with_place(experiment, section, key, value)
    assert run([command, str(config)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"clusterdp: {section}.{key}: ")
    assert says in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(("section", "key"), [one for one in PLACES if one[0] != "source"])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("x" * 5000, "File name too long"),
        ("x" * 300 + "/y", "File name too long"),
        ("trial.toml/x", "Not a directory"),
        ("circle/x", "Too many levels of symbolic links"),
    ],
)
def test_so_is_one_where_nothing_can_lie(
    experiment: Builder, section: str, key: str, value: str, says: str
) -> None:
    config = with_place(experiment, section, key, value)
    (config.parent / "circle").symlink_to("circle")
    with pytest.raises(ConfigError, match=rf"^{section}\.{key}: .*\({says}\)$") as caught:
        Account.of(load(config))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("home", ["", "relative", "."])
def test_a_home_that_is_no_place_is_told(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    config = experiment(publish={"directory": "~/releases"}).config
    if home == "":  # which is the root
        assert load(config).releases == Path("/releases/trial")
        return
    with pytest.raises(ConfigError, match=r"publish\.directory: .*correct HOME"):
        load(config)
