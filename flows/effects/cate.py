"""Who benefits: an effect model under differential privacy, from the log to its file.

Ingest → arrange → charge → draw → fit → publish. The rows are read into one unit each, and
everything after the draw is made of noisy sums alone. Everybody in the population pays for a
model: there are no accounts by unit, as n is public and rows are not looked at again.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from estimators.effects.models.fit import fit_learner
from flows.config.load import period_of
from flows.effects.house import load_effects
from flows.effects.raw.draw import draw, effect_fingerprint, stand_in
from flows.effects.raw.units import arrange, ingest_effects
from flows.effects.released.drafts import try_draft
from flows.effects.released.model_file import ModelFile, read_model, write_model
from flows.ledger.account import Account
from flows.ledger.statement import Statement
from flows.orchestration.step import step
from flows.raw.land import in_versions
from flows.raw.quarantine import write_quarantine
from flows.raw.spill.workspace import open_workspace
from flows.released.file.draft import workplace
from schemas.documents import taken
from schemas.effects.file import ModelHead


@dataclass(frozen=True)
class CateResult:
    """What a run says of the model it made; it follows from ids and noisy sums alone."""

    path: Path
    status: Literal["published", "unchanged"]
    file: ModelFile
    statement: Statement
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp cate --json``."""
        return {
            **self.file.as_json(),
            "model_path": str(self.path),
            "status": self.status,
            "warnings": list(self.warnings),
            "ledger": self.statement.as_json(),
        }


def fit_period(config_path: str, period: str | None = None, revise: bool = False) -> CateResult:
    """Make the effect model of one period of an experiment.

    Args:
        config_path: The model's configuration file, absolute or relative to the current folder.
        period: The period to make it of; where the log's path needs none it may be left out.
        revise: Draw a published model anew, as its next revision.
    """
    config = load_effects(Path(config_path))
    period = period_of(config.source, period)
    account = Account.of(config)
    account.refuse_early(period, revise=revise)
    with workplace(config.releases) as folder, open_workspace(config.spill) as workspace:
        source = in_versions(config.log_source, {} if revise else account.versions_of(period))
        log = step(ingest_effects)(config, source, period, workspace)
        units, aside, roster = step(arrange)(config, log, workspace)
        made_from = step(effect_fingerprint)(config, units)
        charge = account.reserve(  # before any draw
            period, made_from, folder, revise=revise, versions=source.versions
        )
        known = (*roster.warnings, *charge.warnings)
        if not charge.is_new:
            file = read_model(charge.path)
            warnings = (*known, *file.model.warnings)
            return CateResult(charge.path, "unchanged", file, charge.statement, warnings)
        # Leaving this block makes the draft public; leaving it by an error gives the charge back.
        with account.publishing(charge) as late:
            step(write_quarantine)(
                config.quarantined, aside, charge.name.release_id, says_how_much=False
            )
            head = taken(
                ModelHead,
                config,
                charge.name,
                created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                control=config.arms.control,
                learner=config.privacy.learner,
                package_version=version("clusterdp"),
            )
            how = config.privacy.learner, config.design, roster.n_units
            nothing = fit_learner(*how, stand_in(config, roster.n_units))
            step(try_draft)(write_model, ModelFile(head, nothing), charge.draft)  # before any draw
            sums = step(draw)(config, units)
            model = step(fit_learner)(*how, sums)
            file = ModelFile(head, model)
            step(write_model)(file, charge.draft)
    warnings = (*known, *model.warnings, *late)
    return CateResult(charge.path, "published", file, charge.statement, warnings)
