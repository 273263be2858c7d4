"""What an effect model or a site's report costs, from its file alone."""

from pathlib import Path

from flows.effects.released.drafts import document_text
from flows.effects.released.loss import report_loss
from flows.effects.released.model_file import read_with_loss
from flows.effects.released.site_report import read_report
from flows.released.loss.loss import Loss
from schemas.effects.site import KIND
from schemas.json_text import parsed

_WHAT = "an effect model or a site report"
_LARGEST = 50_000_000  # bytes, as models may have


def document_loss(path: Path) -> Loss:
    """Work out the loss of a model or a report; InputError where a file is neither."""
    text = document_text(path.absolute(), _LARGEST, f"{_WHAT} is a JSON document")
    if parsed(text, str(path), _WHAT).get("kind") == KIND:
        return report_loss(read_report(path), path)
    return read_with_loss(path)[1]
