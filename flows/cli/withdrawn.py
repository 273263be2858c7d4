"""What commands on a single release say of one that was withdrawn."""

from dataclasses import replace
from pathlib import Path

from flows.cli.answer import Answer


def of_withdrawn(answer: Answer, release: Path) -> Answer:
    """The answer about a release, with a warning where a list beside it says it was withdrawn.

    The document gains ``withdrawn``: the reason, or null.
    """
    if release.suffix.lower() == ".json":  # an effect model
        return answer
    from flows.released.withdrawal import withdrawal_of

    found = withdrawal_of(release)
    document = {**answer.document, "withdrawn": None if found is None else found.reason}
    if found is None:
        return replace(answer, document=document)
    if "warnings" in document:
        document["warnings"] = [found.warning, *document["warnings"]]
    return replace(answer, document=document, warnings=(found.warning, *answer.warnings))
