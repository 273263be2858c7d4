"""What effect models and sites offer the night: the kinds of their configurations and pages."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flows.config.kinds import Kind
from flows.config.load import load_as
from privatizers.accounting.budget import Budget

if TYPE_CHECKING:
    from flows.effects.config.effects import EffectConfig
    from flows.effects.config.site import SiteConfig
    from flows.released.loss.loss import Loss

_LARGEST = 50_000_000  # bytes of a file, as models may have


def _site_rules() -> "tuple[type[SiteConfig], Callable[[SiteConfig], None]]":
    from flows.effects.config.site import SiteConfig
    from flows.effects.config.site_rules import check_site_config

    return SiteConfig, check_site_config


def _effect_rules() -> "tuple[type[EffectConfig], Callable[[EffectConfig], None]]":
    from flows.effects.config.effect_rules import check_effect_config
    from flows.effects.config.effects import EffectConfig

    return EffectConfig, check_effect_config


def _report(path: Path) -> tuple[str, Budget]:
    from flows.effects.released.site_report import read_report

    report = read_report(path)
    return report.report_id, Budget(report.epsilon, report.delta)


def _model(path: Path) -> tuple[str, Budget]:
    from flows.effects.released.model_file import read_model

    file = read_model(path)
    design = file.model.design
    return file.head.model_id, Budget(design.epsilon, design.delta)


def _model_page(path: Path) -> str:
    from flows.effects.released.report_model import model_page

    return model_page(path)


def document_loss(path: Path) -> "Loss":
    """Work out what a model or a report costs, by its file alone; InputError where it is none."""
    from flows.effects.released.drafts import document_text
    from flows.effects.released.loss import report_loss
    from flows.effects.released.model_file import read_with_loss
    from flows.effects.released.site_report import read_report
    from schemas.effects.site import KIND
    from schemas.json_text import parsed

    what = "an effect model or a site report"
    text = document_text(path.absolute(), _LARGEST, f"{what} is a JSON document")
    if parsed(text, str(path), what).get("kind") == KIND:
        return report_loss(read_report(path), path)
    return read_with_loss(path)[1]


SITE = Kind(
    "site",
    _site_rules,
    keys=("site", "design"),
    what="a site's report",
    suffix=".json",
    has_latest=False,
    read=_report,
)
EFFECTS = Kind(
    "cate",
    _effect_rules,
    keys=("features", "propensity"),
    what="an effect model",
    suffix=".json",
    has_latest=False,
    read=_model,
)
KINDS = (SITE, EFFECTS)
PAGES = {".json": _model_page}
"""What makes a page of a file, by how its name ends."""


def load_site(path: Path) -> "SiteConfig":
    """Read and check a site's configuration; raises ConfigError naming the key at fault."""
    return load_as(SITE, path)


def load_effects(path: Path) -> "EffectConfig":
    """Read and check an effect model's configuration; raises ConfigError naming the key."""
    return load_as(EFFECTS, path)
