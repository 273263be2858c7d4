"""What the program leaves out: pandera is without pandas there, and says the same."""

import subprocess
import sys

JUDGED = """
import sys
from flows.runtime.lean_imports import leave_out
{first}
import polars as pl
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT
from schemas.raw_frame import broken, fits
rows = {{UNIT: ["b", "a", ""], ARM: ["one"] * 3, CLUSTER: ["x"] * 3, OUTCOME: [0.0, 9.0, None]}}
kinds = {{ARM: pl.Enum(["one"]), CLUSTER: pl.Categorical}}
frame = pl.DataFrame(rows, schema_overrides=kinds)
print(broken(fits(("one",), ranges=[(0.0, 3.0)]), frame))
print(broken(fits(("one",), ranges=[(0.0, 3.0)]), frame[:1]))
print({{"pandas", "hypothesis"}} & {{*sys.modules}} or "neither")
import hypothesis, pandas
assert pandas.DataFrame({{"a": [1]}}).sum().item() == 1
"""


def ran(first: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", JUDGED.format(first=first)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_pandera_judges_alike_without_pandas_which_others_may_import() -> None:
    *judged, loaded = ran("leave_out()")
    assert loaded == "neither"
    *as_installed, loaded = ran("")
    assert loaded != "neither"
    assert judged == as_installed
    assert len(judged) == 2
    assert judged[0] != judged[1] == "[]"
