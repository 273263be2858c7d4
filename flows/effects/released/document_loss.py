"""What an effect model or a site's report costs, from its file alone."""

from pathlib import Path

from flows.effects.released.loss.site_report import report_loss
from flows.effects.released.model_file import read_with_loss
from flows.effects.released.site_report import read_report
from flows.released.loss.loss import Loss
from flows.runtime.reading.small_files import UnreadableError, read_small_text
from schemas.effects.site import KIND
from schemas.errors import InputError
from schemas.json_text import parsed

_LARGEST = 50_000_000  # bytes, as models may have


def document_loss(path: Path) -> Loss:
    """Work out the loss of a model or a report; InputError where a file is neither."""
    try:
        text = read_small_text(path, _LARGEST)
    except UnreadableError as error:
        raise InputError(f"{path.absolute()}: {error}") from None
    if parsed(text, str(path), "an effect model or a site report").get("kind") == KIND:
        return report_loss(read_report(path), path)
    return read_with_loss(path)[1]
