"""The commands ``cate`` and ``cate-predict``: what they are asked, and what they answer.

They print nothing: :mod:`flows.cli.main` shows their :class:`~flows.cli.answer.Answer`. As there,
Prefect and the data libraries are imported within them.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.answer import Answer
from flows.cli.options import TABLES, Period, Prefect, files
from flows.cli.ways import way


def cate(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG", help="The effect model's TOML file.", autocompletion=files(".toml")
        ),
    ],
    period: Period = None,
    revise: Annotated[
        bool,
        typer.Option(
            "--revise",
            help="Draw a published model anew, as its next revision. Costs everybody again.",
        ),
    ] = False,
    prefect: Prefect = False,
) -> Answer:
    """Make an effect model: who benefits, by declared features.

    Reads CONFIG, its log and its ledger. Writes a model (noisy sums and what follows from them, as
    JSON) into the folder of releases, and a charge for everybody of the population into the ledger.
    The same rows and settings again change and cost nothing.
    """
    from flows.config.load import check_period
    from flows.effects.house import load_effects

    check_period(period, load_effects(config).source.path)  # before a server takes its seconds
    with way("cate", config, wanted=prefect) as run:
        from flows.cli.show.cate import cate_text

        result = run(str(config.absolute()), period, revise)
    return Answer(partial(cate_text, result), result.as_json(), result.warnings)


def cate_predict(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="An effect model's JSON file.",
            autocompletion=files(".json"),
        ),
    ],
    table: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A CSV or Parquet file of yours with the model's features.",
            autocompletion=TABLES,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="OUT", help="The CSV or Parquet file to write, a new one."
        ),
    ],
) -> Answer:
    """Predict effects for a table of yours, by an effect model.

    Reads MODEL and FILE alone, and costs no privacy. Writes OUT: the columns of FILE, the effect
    predicted for each row, and its standard error by noise and sampling, which does not know how
    far the model's curves miss the truth; empty where the propensity was learnt.
    """
    from flows.effects.released.predict import predict_file

    done = predict_file(model, table, output)

    def text() -> str:
        return f"{done.path} is written: {done.n_rows:,} rows with their predicted effects."

    return Answer(text, done.as_json())
