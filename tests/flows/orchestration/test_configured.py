"""Which Prefect server is configured: what we find without Prefect is what Prefect finds."""

import os
from pathlib import Path

import pytest
from prefect.settings import Settings

from flows.orchestration.configured import configured_url

NAMED = """\
active = "one"
[profiles.one]
PREFECT_API_URL = "http://one/api"
[profiles.two]
PREFECT_API_URL = "http://two/api"
[profiles.none]
PREFECT_LOGGING_LEVEL = "INFO"
"""
DOTENV = 'PREFECT_API_URL="http://dotenv/api"\n'
OURS = '[api]\nurl = "http://toml/api"\n'
PROJECT = '[tool.prefect.api]\nurl = "http://project/api"\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of Prefect's and a current folder, both empty."""
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("files", "variables", "expected"),
    [
        ({}, {}, None),
        ({}, {"PREFECT_API_URL": "http://env/api"}, "http://env/api"),
        ({"home/profiles.toml": NAMED}, {"PREFECT_API_URL": "http://env/api"}, "http://env/api"),
        ({"home/profiles.toml": NAMED}, {}, "http://one/api"),
        ({"home/profiles.toml": NAMED}, {"PREFECT_PROFILE": "two"}, "http://two/api"),
        ({"home/profiles.toml": NAMED}, {"PREFECT_PROFILE": "none"}, None),
        ({"home/profiles.toml": NAMED}, {"PREFECT_PROFILE": "nobody"}, None),
        ({"home/profiles.toml": NAMED.partition("\n")[2]}, {}, None),
        ({"other.toml": NAMED}, {"PREFECT_PROFILES_PATH": "other.toml"}, "http://one/api"),
        (
            {".env": DOTENV, "prefect.toml": OURS, "pyproject.toml": PROJECT},
            {},
            "http://dotenv/api",
        ),
        ({"prefect.toml": OURS, "pyproject.toml": PROJECT}, {}, "http://toml/api"),
        ({"pyproject.toml": PROJECT, "home/profiles.toml": NAMED}, {}, "http://project/api"),
        ({"pyproject.toml": "[tool.ruff]\n", "prefect.toml": 'name = "x"\n'}, {}, None),
    ],
)
def test_we_find_the_server_that_prefect_finds(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    variables: dict[str, str],
    expected: str | None,
) -> None:
    for name, content in files.items():
        (home.parent / name).write_text(content, encoding="utf-8")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Settings().api.url == expected
    assert configured_url() == expected


@pytest.mark.parametrize(
    "content", [b"active = ", b"\xff", b"profiles = 1", b"[profiles]\none = 1"]
)
def test_a_file_that_makes_no_sense_configures_nothing(home: Path, content: bytes) -> None:
    (home / "profiles.toml").write_bytes(content)
    assert configured_url() is None


def test_a_profile_of_the_user_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Prefect's home is the usual one, in the user's own."""
    monkeypatch.delenv("PREFECT_HOME")
    monkeypatch.setenv("HOME", str(home))
    (home / ".prefect").mkdir()
    (home / ".prefect" / "profiles.toml").write_text(NAMED, encoding="utf-8")
    assert configured_url() == "http://one/api"


def test_a_user_without_a_home_has_no_profiles(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under any user id."""

    def fail(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PREFECT_HOME")
    monkeypatch.setattr(Path, "expanduser", fail)
    assert configured_url() is None


def test_a_pipe_in_place_of_settings_is_not_waited_for(home: Path) -> None:
    os.mkfifo("prefect.toml")
    os.mkfifo(home / "profiles.toml")
    assert configured_url() is None
