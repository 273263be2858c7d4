"""The page about an effect model, from its file and from nothing else."""

from datetime import datetime
from pathlib import Path

from flows.effects.released.from_release import ReleaseEffects
from flows.effects.released.model_file import read_model
from flows.effects.released.page.model import ModelFacts, effects_model_page
from flows.released.page.html import write_page
from schemas.documents import taken
from schemas.effects.file import guarantee


def model_page(path: Path) -> str:
    """Build the page about the model at ``path``; InputError where that is none, or altered."""
    file = read_model(path)
    head, model = file.head, file.model
    created_at = datetime.fromisoformat(head.created_at).replace(tzinfo=None)
    facts = taken(ModelFacts, head, created_at=created_at, guarantee=guarantee(model.design))
    return effects_model_page(model, facts)


def write_effects_report(found: ReleaseEffects, output: Path) -> Path:
    """Write a page about who benefits, by a release and a table of the analyst's, to ``output``.

    Returns the absolute path. Raises InputError where it cannot be written.
    """
    manifest = found.manifest
    facts = taken(
        ModelFacts,
        manifest,
        found,
        model_id=manifest.release_id,
        treatment=found.arm,
        guarantee=f"The release is ({manifest.epsilon:g}, {manifest.delta:g})-differentially "
        f"private for {manifest.neighbours}.",
    )
    return write_page(output, effects_model_page(found, facts))
