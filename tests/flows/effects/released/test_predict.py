"""Effects predicted for a table: its columns and two more, or nothing at all."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from flows.effects.released import predict
from flows.effects.released.predict import predict_file, predict_frame
from schemas.effects.model import LevelFeature, Propensity
from schemas.errors import InputError
from tests.flows.effects.released.test_model_file import a_design, a_model, written


def a_table(n_rows: int = 300) -> pl.DataFrame:
    place = pl.int_range(n_rows)
    return pl.select(
        name=pl.format("n{}", place),
        sex=pl.Series(["f", "m", "x"] * n_rows)[:n_rows],
        income=1000.0 + place * 991 % 90_000,
        age=18 + place % 70,
    )


def expected(table: pl.DataFrame) -> np.ndarray:
    """The effects of rows one by one, by the model itself."""
    model = a_model().model
    levels = {"f": 0, "m": 1, "x": 2}
    age, income = model.design.features[:2]
    assert not isinstance(age, LevelFeature)
    assert not isinstance(income, LevelFeature)
    features = np.column_stack(
        [
            age.positions(table["age"].to_numpy().astype(float)),
            income.positions(table["income"].to_numpy()),
            [levels[sex] for sex in table["sex"]],
        ]
    )
    return model.predict(features)[0]


def read(path: Path) -> pl.DataFrame:
    return pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)


def put(table: pl.DataFrame, path: Path) -> Path:
    (table.write_csv if path.suffix == ".csv" else table.write_parquet)(path)
    return path


@pytest.mark.parametrize("given", ["table.csv", "table.parquet"])
@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_a_table_is_written_with_two_columns_more(tmp_path: Path, given: str, out: str) -> None:
    table = a_table()
    with patch.object(predict, "_BATCH", 100):  # three batches
        done = predict_file(written(tmp_path), put(table, tmp_path / given), tmp_path / out)
    assert (done.path, done.n_rows) == (tmp_path / out, 300)
    found = read(tmp_path / out)
    assert found.columns == [*table.columns, "effect", "noise_std_error"]
    assert found["name"].to_list() == table["name"].to_list()
    assert found["effect"].to_numpy() == pytest.approx(expected(table))
    assert found["noise_std_error"].null_count() == 0
    assert (tmp_path / out).stat().st_mode & 0o777 == 0o644


def test_without_errors_where_the_propensity_was_learnt(tmp_path: Path) -> None:
    model = written(tmp_path, a_model(a_design(Propensity("learn"))))
    predict_file(model, put(a_table(), tmp_path / "in.csv"), tmp_path / "out.parquet")
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert found.schema["noise_std_error"] == pl.Float64
    assert found["noise_std_error"].null_count() == 300


def test_values_outside_and_missing_ones_count_as_declared() -> None:
    model = a_model().model
    odd = pl.DataFrame({"sex": ["z", None, ""], "age": ["-7", None, "x"], "income": [1e9, 0, -1]})
    same = pl.DataFrame({"sex": ["x", "f", "f"], "age": [18, 40, 40], "income": [1e6, 1e3, 1e3]})
    found, plain = (predict_frame(model, each, "here")["effect"] for each in (odd, same))
    assert found.to_list() == plain.to_list()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"income": [1e4, None, float("nan")]}, "column 'income' has no readable number, .* 2 row"),
        ({"income": ["1e4", "much", "2"]}, "column 'income' has no readable number, .* in 1 row"),
        ({"effect": [1, 2, 3]}, "has a column 'effect' already"),
        ({"noise_std_error": [1, 2, 3]}, "has a column 'noise_std_error' already"),
        ({"age": [[1], [2], [3]]}, "column 'age' is List; it has to be number or text"),
        ({"sex": [[1], [2], [3]]}, "column 'sex' is List; it has to be number or text"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    tmp_path: Path, columns: dict[str, list[Any]], message: str
) -> None:
    table = a_table(3).with_columns(pl.Series(name, values) for name, values in columns.items())
    path = put(table, tmp_path / "table.parquet")
    with pytest.raises(InputError, match=f"table.parquet: {message}"):
        predict_file(written(tmp_path), path, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_a_level_that_nobody_declared_is_counted_over_all_batches(tmp_path: Path) -> None:
    design = a_design()
    strict = LevelFeature("sex", ("f", "m"))
    fields = {name: getattr(design, name) for name in design.__dataclass_fields__}
    model = a_model(type(design)(**fields | {"features": (*design.features[:2], strict)}))
    path = put(a_table(), tmp_path / "table.csv")
    message = r"column 'sex' has a value that is none of 'f', 'm' in 100 row\(s\); nothing was"
    with patch.object(predict, "_BATCH", 64), pytest.raises(InputError, match=message):
        predict_file(written(tmp_path, model), path, tmp_path / "out.csv")
    empty = put(a_table(3).with_columns(sex=pl.lit(None, pl.String)), tmp_path / "empty.parquet")
    with pytest.raises(InputError, match=r"'sex' is empty, and .* in 3 row\(s\)"):
        predict_file(written(tmp_path, model), empty, tmp_path / "out.csv")
    assert not list(tmp_path.glob("*out*"))


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    model, table = written(tmp_path), put(a_table(), tmp_path / "table.csv")
    other = put(a_table().drop("age"), tmp_path / "other.csv")
    with pytest.raises(InputError, match="there is no column 'age', a feature of the model"):
        predict_file(model, other, tmp_path / "out.csv")
    with pytest.raises(InputError, match=r"table.csv: exists already"):
        predict_file(model, table, table)
    with pytest.raises(InputError, match="not a format for this command"):
        predict_file(model, table, tmp_path / "out.xlsx")
    with pytest.raises(InputError, match="cannot be written"):
        predict_file(model, table, tmp_path / "no folder" / "out.csv")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 nothing")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        predict_file(model, broken, tmp_path / "out.csv")
    noted = a_table(2).to_arrow().replace_schema_metadata({b"k": b"\xff"})
    pq.write_table(noted, broken)
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        predict_file(model, broken, tmp_path / "out.csv")
    nested = put(a_table(2).with_columns(more=pl.Series([[1], [2]])), tmp_path / "nested.parquet")
    with pytest.raises(InputError, match="column 'more' is List, which CSV has no spelling for"):
        predict_file(model, nested, tmp_path / "out.csv")
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("given", ["table.csv", "table.parquet"])
def test_a_table_without_rows_stays_one(tmp_path: Path, given: str) -> None:
    table = put(a_table(1).clear(), tmp_path / given)
    for out in ("out.csv", "out.parquet"):
        assert predict_file(written(tmp_path), table, tmp_path / out).n_rows == 0
        assert read(tmp_path / out).columns == [*a_table(1).columns, "effect", "noise_std_error"]
