"""Which Prefect server is configured, found as Prefect finds it, without importing Prefect."""

import os
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any


def configured_url() -> str | None:
    """The address of the server that Prefect is configured for; None where there is none.

    In Prefect's order: the environment, the current folder's ``.env``, ``prefect.toml`` and
    ``pyproject.toml``, and the profile in use.
    """
    given = (
        os.environ.get("PREFECT_API_URL")
        or _of_dotenv()
        or _value(_table(Path("prefect.toml")), "api", "url")
        or _value(_table(Path("pyproject.toml")), "tool", "prefect", "api", "url")
        or _of_profile()
    )
    return str(given) if given else None


def _of_dotenv() -> str | None:
    if not Path(".env").is_file():
        return None
    from dotenv import dotenv_values

    return dotenv_values(".env").get("PREFECT_API_URL")


def _of_profile() -> Any:
    """What the profile in use says: the one named by PREFECT_PROFILE, else the active one."""
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect")
    with suppress(RuntimeError):  # a user without a home has no profiles there
        home = home.expanduser()
    profiles = _table(Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml"))
    name = os.environ.get("PREFECT_PROFILE") or profiles.get("active")
    return _value(profiles, "profiles", str(name), "PREFECT_API_URL")


def _table(path: Path) -> dict[str, Any]:
    """A TOML file; empty where it cannot be read, of which Prefect itself will speak."""
    with suppress(OSError, ValueError):
        if path.is_file():  # a pipe would never end
            return tomllib.loads(path.read_text(encoding="utf-8"))
    return {}


def _value(table: Any, *keys: str) -> Any:
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table
