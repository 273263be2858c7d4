"""The page about an effect model, from its file and from nothing else."""

from datetime import datetime
from pathlib import Path

from flows.effects.released.model_file import read_model
from flows.effects.released.page.model import ModelFacts, effects_model_page
from schemas.effects.file import guarantee


def model_page(path: Path) -> str:
    """Build the page about the model at ``path``; InputError where that is none, or altered."""
    file = read_model(path)
    head, model = file.head, file.model
    facts = ModelFacts(
        model_id=head.model_id,
        experiment=head.experiment,
        period=head.period,
        created_at=datetime.fromisoformat(head.created_at).replace(tzinfo=None),
        control=head.control,
        treatment=head.treatment,
        guarantee=guarantee(model.design),
    )
    return effects_model_page(model, facts)
