"""The fingerprint of a release, as a run makes it."""

from collections.abc import Sequence

from flows.config.model.experiment import AnyDesign, Config
from flows.config.settings import settings_of
from flows.ledger.rules import Fingerprint
from flows.raw.boundary.sealed import Sealed
from flows.raw.fingerprint import fingerprint
from flows.raw.units.rows import Rows


def fingerprint_of(
    config: Config, rows: Sealed[Rows], design: AnyDesign | Sequence[AnyDesign]
) -> Fingerprint:
    """The digests of rows and settings, each outcome with one of the designs."""
    designs = tuple(design) if isinstance(design, Sequence) else (design,)
    settings = settings_of(config, designs)
    return fingerprint(config.log_facts, rows, settings, config.quarantine_folder)
