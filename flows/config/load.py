"""Reads configurations: one TOML file an experiment, a site of one, or an effect model.

Unknown keys, wrong types and impossible values are errors that name the key; those that can be told
without looking at several keys together are told at once. Nothing here reads data.
"""

import re
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from flows.config.findings import plain
from flows.config.model.experiment import Config
from flows.config.rules.checks import check_config, check_length
from flows.config.rules.outcomes import MISSING
from flows.config.rules.schedule import check_schedule
from flows.config.toml_file import read_toml
from flows.effects.config.effect_rules import check_effect_config
from flows.effects.config.effects import EffectConfig
from flows.effects.config.site import SiteConfig
from flows.effects.config.site_rules import check_site_config
from schemas.errors import ConfigError, shown
from schemas.names import PERIOD

C = TypeVar("C", Config, SiteConfig, EffectConfig)

AnyConfig = Config | SiteConfig | EffectConfig

NO_PERIOD = "once"


def load(path: Path) -> Config:
    """Read and check a configuration file; raises ConfigError naming the key at fault."""
    return _checked(Config, path, read_toml(path))


def load_site(path: Path) -> SiteConfig:
    """Read and check a site's configuration; raises ConfigError naming the key at fault."""
    return _checked(SiteConfig, path, read_toml(path))


def load_effects(path: Path) -> EffectConfig:
    """Read and check an effect model's configuration; raises ConfigError naming the key."""
    return _checked(EffectConfig, path, read_toml(path))


def load_any(path: Path) -> AnyConfig:
    """Read and check a configuration; raises ConfigError.

    It is a site's where it has ``[site]``, and an effect model's where it has ``[[features]]``.
    """
    content = read_toml(path)
    if "site" in content:
        return _checked(SiteConfig, path, content)
    if "features" in content:
        return _checked(EffectConfig, path, content)
    return _checked(Config, path, content)


def check_period(period: str | None, path: str, outcomes_path: str | None = None) -> str:
    """Return the period of a run; ``once`` where none is named and neither path needs one."""
    if period is None:
        for key, pattern in (("path", path), ("outcomes_path", outcomes_path or "")):
            if "{period}" in pattern:
                raise ConfigError(
                    "--period", f"missing: source.{key} holds {{period}}, so name the period"
                )
        return NO_PERIOD
    if not re.fullmatch(PERIOD, period):
        raise ConfigError(
            "--period",
            f"{shown(period)} must begin with a letter or digit and hold those, - and _ only",
        )
    check_length("--period", period)
    return period


def _checked(kind: type[C], path: Path, content: dict[str, Any]) -> C:
    if "directory" in content:
        raise ConfigError("directory", "unknown key; remove it or correct its spelling")
    _check_kind(kind, path, content)
    try:
        config = kind.model_validate(content)
    except ValidationError as error:
        left_out = kind is Config and "outcome" not in content and "outcomes" not in content
        raise plain(error, kind, [("outcome", MISSING)] if left_out else []) from None
    config = config.model_copy(update={"directory": path.absolute().parent})
    if isinstance(config, SiteConfig):
        check_site_config(config)
    elif isinstance(config, EffectConfig):
        check_effect_config(config)
    else:
        check_config(config)
        check_schedule(config)
    return config


_KINDS: dict[str, tuple[type[AnyConfig], str, str, str]] = {
    "site": (SiteConfig, "a site's report", "clusterdp site", "design"),
    "features": (EffectConfig, "an effect model", "clusterdp cate", "propensity"),
}
"""What tells a configuration that is not a release's: what it is of, who reads it, and another key
that no such configuration can be without."""


def _check_kind(kind: type[AnyConfig], path: Path, content: dict[str, Any]) -> None:
    """Raise ConfigError where a configuration of another kind was given to a command."""
    for key, (other, what, command, second) in _KINDS.items():
        if key in content and kind is not other:
            raise ConfigError(str(path), f"the configuration of {what}; `{command}` reads it")
        if kind is other and key not in content and second not in content:
            raise ConfigError(
                str(path),
                f"not the configuration of {what}, as it has neither {key} nor {second}; if it is "
                "of a release, `clusterdp release` reads it",
            )
