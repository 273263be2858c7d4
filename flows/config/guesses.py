"""Which column of an unknown log is which, by its name and type alone; no value is looked at."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

Kind = Literal["text", "integer", "boolean", "number", "other"]
"""What is known of a column's type. In CSV every column is text."""

Meaning = Literal["unit", "arm", "outcome", "cluster"]

_NAMES: dict[Meaning, tuple[str, ...]] = {
    "unit": (
        *("unitid", "unit", "userid", "customerid", "visitorid", "patientid", "personid"),
        *("subjectid", "participantid", "memberid", "clientid", "accountid", "voterid"),
        *("studentid", "respondentid", "householdid", "deviceid", "cookieid", "uid", "id"),
        *("user", "customer", "visitor", "patient", "person", "subject", "participant"),
    ),
    "arm": (
        *("arm", "variant", "treatmentarm", "experimentarm", "treatmentgroup"),
        *("experimentgroup", "testgroup", "treatment", "variation", "group", "bucket"),
        *("treated", "treat", "assignment", "condition", "segment"),
    ),
    "outcome": (
        *("outcome", "y", "response", "converted", "conversion", "conversions", "clicked"),
        *("clicks", "purchased", "purchases", "revenue", "spend"),
    ),
    "cluster": (
        *("cluster", "clusterid", "region", "country", "market", "dma", "city", "state"),
        *("store", "storeid", "shop", "shopid", "site", "siteid", "hospital", "hospitalid"),
        *("school", "schoolid", "village", "villageid", "clinic", "clinicid"),
    ),
}
"""What columns are often called, without case and marks; the first that a log has is meant."""

_FIT: dict[Meaning, tuple[Kind, ...]] = {
    "unit": ("text", "integer"),
    "arm": ("text", "integer", "boolean"),
    "outcome": ("text", "integer", "boolean", "number"),
    "cluster": ("text", "integer", "boolean"),
}

_CONTROL = re.compile(
    r"control|controls|ctrl|ctl|baseline|placebo|none|no|off|reference|standard|regular"
    r"|(control|ctrl|no)[ _-].*|.*[ _-]control"
)


def recognised(
    columns: Mapping[str, Kind], taken: Iterable[str], known: Iterable[Meaning]
) -> dict[Meaning, str]:
    """The columns that their names give away, each for one meaning that is not ``known``.

    None of those ``taken`` is among them.
    """
    left = {name: kind for name, kind in columns.items() if name not in set(taken)}
    found: dict[Meaning, str] = {}
    for meaning, words in _NAMES.items():
        if meaning in known:
            continue
        fitting = {
            _bare(name): name for name, kind in reversed(left.items()) if kind in _FIT[meaning]
        }
        word = next((word for word in words if word in fitting), None)
        if word is not None:
            found[meaning] = fitting[word]
            del left[fitting[word]]
    return found


def control_of(labels: Iterable[str]) -> str | None:
    """The label that says it is the control's; None where none does, or several do."""
    found = [label for label in labels if _CONTROL.fullmatch(label.strip().lower())]
    return found[0] if len(found) == 1 else None


def _bare(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()
