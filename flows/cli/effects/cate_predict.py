"""``clusterdp cate-predict``."""

from pathlib import Path
from typing import Annotated

from flows.cli.answer import Answer
from flows.cli.options import Table, files
from flows.released.located import located


def cate_predict(
    model: Annotated[Path, files(".json"), located], table: Table, output: Path
) -> Answer:
    """Predict effects for a table of yours, by an effect model.

    Reads MODEL and FILE alone, and costs no privacy. Writes OUT: the columns of FILE, the effect
    predicted for each row, and its standard error by noise and sampling, which does not know how
    far the model's curves miss the truth; empty where the propensity was learnt.

    Options:
        model (MODEL): An effect model's JSON file.
        table (FILE): A CSV or Parquet file of yours with the model's features.
        output (--output -o OUT): The CSV or Parquet file to write, a new one.
    """
    from flows.effects.released.predict import predict_file

    done = predict_file(model, table, output)
    text = f"{done.path} is written: {done.n_rows:,} rows with their predicted effects."
    return Answer(lambda: text, done.as_json())
