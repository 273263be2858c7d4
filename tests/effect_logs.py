"""An effect model's log and configuration on disk, for the tests of its parts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.effects.cate import CateResult, fit_period
from flows.effects.config.effects import EffectConfig
from flows.effects.house import load_effects
from flows.ledger.account import Account
from tests.conftest import write_content

CONFIG = """
experiment = "mail"
[source]
path = "{file}"
[columns]
unit = "id"
arm = "arm"
outcome = "spend"
[arms]
control = "none"
treatments = ["mail"]
[outcome]
low = -1.0
high = 3.0
[propensity]
{propensity}
[privacy]
epsilon = {epsilon}
delta = 1e-6
{privacy}
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
{more}
"""

Content = pl.DataFrame | bytes | str


@dataclass(frozen=True)
class AtHome:
    """An effect model's configuration on disk, with its log beside it."""

    config: Path

    @property
    def folder(self) -> Path:
        return self.config.parent

    @property
    def models(self) -> Path:
        return self.folder / "releases" / "mail"

    @property
    def files(self) -> list[str]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.folder)) for path in found)

    @property
    def paid(self) -> float:
        return Account.of(self.load()).statement().spent.epsilon

    def load(self) -> EffectConfig:
        return load_effects(self.config)

    def run(self, period: str | None = None, *, revise: bool = False) -> CateResult:
        """Run the flow as a plain function, without Prefect."""
        return fit_period(str(self.config), period, revise)

    def edit(self, found: str, instead: str) -> None:
        text = self.config.read_text(encoding="utf-8")
        assert found in text
        self.config.write_text(text.replace(found, instead), encoding="utf-8")


Campaign = Callable[..., AtHome]


def people(n_units: int = 2_000) -> pl.DataFrame:
    """A trial: the effect is 1 at 60 years, 0 at 20, for both sexes; outcomes lie in [−1, 3]."""
    units = np.arange(n_units)
    treated = units % 2 == 1
    age = 20.0 + units // 2 % 41
    noise = units * 7919 % 101 / 101 - 0.5
    return pl.DataFrame(
        {
            "id": [f"p{unit:06}" for unit in units],
            "arm": np.where(treated, "mail", "none"),
            "spend": 0.5 + noise + treated * (age - 20.0) / 40.0,
            "age": age,
            "sex": np.where(units // 4 % 2 == 0, "f", "m"),
        }
    )


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    def build(
        log: Content | None = None,
        file: str = "log.parquet",
        *,
        name: str = "home",
        epsilon: float = 4.0,
        privacy: str = "",
        propensity: str = "value = 0.5",
        more: str = "",
    ) -> AtHome:
        folder = tmp_path / name
        write_content(folder / file, people() if log is None else log)
        config = folder / "cate.toml"
        text = CONFIG.format(
            file=file, epsilon=epsilon, privacy=privacy, propensity=propensity, more=more
        )
        config.write_text(text, encoding="utf-8")
        return AtHome(config)

    return build
