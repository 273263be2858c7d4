"""What the program leaves out: pandera is without pandas there, and says the same."""

import subprocess
import sys

import pytest

JUDGED = """
import sys
import polars as pl
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT
from schemas.raw_frame import broken, fits
rows = {UNIT: ["b", "a", ""], ARM: ["one"] * 3, CLUSTER: ["x"] * 3, OUTCOME: [0.0, 9.0, None]}
kinds = {ARM: pl.Enum(["one"]), CLUSTER: pl.Categorical}
frame = pl.DataFrame(rows, schema_overrides=kinds)
print(broken(fits(("one",), ranges=[(0.0, 3.0)]), frame))
print(broken(fits(("one",), ranges=[(0.0, 3.0)]), frame[:1]))
print({"pandas", "hypothesis"} <= {*sys.modules})
import pandas
assert pandas.DataFrame({"a": [1]}).sum().item() == 1
"""


def test_pandera_judges_alike_without_pandas_which_others_may_import(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = f"from flows.cli.lean_imports import leave_out\nleave_out()\n{JUDGED}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    exec(JUDGED, {})  # noqa: S102 - our own
    *lean, lean_has_pandas = done.stdout.splitlines()
    *full, full_has_pandas = capsys.readouterr().out.splitlines()
    assert (lean_has_pandas, full_has_pandas) == ("False", "True")
    assert lean == full
    assert full[0] != full[1] == "[]"
