"""The number of the schema rises with what it stands for: macros' bodies, and facts of columns."""

from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from flows.released.file import macros
from flows.released.file.evidence import Drawn
from flows.released.file.macros import Macros
from flows.released.file.units import fact_kinds, view_of_units
from schemas.released import NEIGHBOURS, SCHEMA_VERSION, Manifest, Ratio
from schemas.tables import DIGEST, MACROS, SCHEMA, drawn_columns, unit_table
from tests.flows.released.page.test_scale import metric

WRITTEN_DOWN = (10, "61323cbe7fce3afaffb956b47cfb6ec0f7fff7741e7bcc74c8f469badc033c50")
"""The number, and the digest of all that it stands for."""

ONE = replace(metric(), n_outcomes=3)
TABLES = replace(ONE, resampling_probability=None, truncation_threshold=None, response_epsilon=1.0)
NOTHING: dict[str, Any] = dict.fromkeys(
    (
        *("n_set_aside", "sample_ratio_p", "n_returning", "n_arm_changed", "account", "returning"),
        *("rows_each", "budget_epsilon", "cluster_epsilon"),
        *("unit_id_key_fingerprint", "account_key_fingerprint"),
    )
)
PLAIN = Manifest(
    **NOTHING,
    release_id="trial.once.r1",
    experiment="trial",
    period="once",
    revision=1,
    created_at=datetime(2026, 11, 1),
    mechanism="uniform-prior-dp",
    epsilon=1.0,
    delta=0.0,
    neighbours=NEIGHBOURS,
    control="none",
    same_shares=False,
    n_units=10,
    n_clusters=2,
    schema_version=0,
    package_version="0",
    metrics=(ONE,),
)
SEVERAL = replace(
    PLAIN,
    metrics=(
        replace(ONE, metric="visits"),
        replace(ONE, metric="spend"),
        Ratio(metric="each", numerator="spend", denominator="visits"),
    ),
    attributes=("country", "plan"),
    assigned=True,
    same_shares=True,
)
MANIFESTS = [
    PLAIN,
    SEVERAL,
    replace(PLAIN, metrics=(TABLES,)),
    replace(SEVERAL, metrics=(TABLES, replace(TABLES, metric="other"))),
    replace(PLAIN, metrics=(replace(ONE, resampling_probability=None),)),
]


def digest() -> str:
    """Of the macros of a few releases of every kind, and of all facts of columns."""
    grid = np.array([0.0, 0.1, 0.3])
    made = []
    for manifest in MANIFESTS:
        for kind in ("VARCHAR", "BIGINT"):
            own = Macros([Drawn(manifest, one, grid) for one in manifest.outcomes], kind)
            made += [own.creation("main"), repr(own.own_tables)]
    units = unit_table(("a", "b"), attributes={"c": "DATE"}, assigned=True, texts={"a": "0 = no"})
    drawn = unit_table(("a",), by_tables=True)
    for by_tables in (False, True):
        made.append(view_of_units("own", ("a", "b"), ("c",), by_tables=by_tables))
        made.append(repr(fact_kinds(2, "VARCHAR", "VARCHAR", by_tables=by_tables)))
    made.append(repr(drawn_columns(("a", "b"), "BIGINT", {"c": "DATE"}, assigned=True)))
    facts = (*made, DIGEST, *map(repr, (MACROS, SCHEMA, units, drawn)))
    return sha256("\n".join(facts).encode()).hexdigest()


def test_the_number_rises_with_what_it_stands_for() -> None:
    found = (SCHEMA_VERSION, digest())
    assert found == WRITTEN_DOWN, (
        "a macro's body or a fact of a column is another than the one that is written down. Where "
        "files of this number have been published, raise SCHEMA_VERSION in schemas/released.py, "
        f"unless words alone changed. Then in {__file__}:\nWRITTEN_DOWN = {found!r}"
    )


@pytest.mark.parametrize(("name", "other"), [("LEVEL", 0.9), ("MIN_UNITS", 3)])
def test_any_change_of_a_body_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, other: float
) -> None:
    before = digest()
    assert digest() == before
    monkeypatch.setattr(macros, name, other)
    assert digest() != before
