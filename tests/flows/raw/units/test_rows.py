"""Labels become an Enum of all names by their codes, whatever codes they had before."""

import polars as pl
import pytest

from flows.raw.units.rows import relabelled


@pytest.mark.parametrize("labels", [["b", "a", "b", "é"], ["z"], []])
@pytest.mark.parametrize("kind", [pl.Categorical(), pl.Enum(["x", "b", "z", "é", "a"])])
def test_labels_keep_their_names(labels: list[str], kind: pl.DataType) -> None:
    given = pl.Series("cluster", labels, dtype=kind)
    found = relabelled(given, pl.Enum(["a", "b", "unused", "z", "é"]))

    assert found.name == "cluster"
    assert found.dtype == pl.Enum(["a", "b", "unused", "z", "é"])
    assert found.to_list() == labels
