"""The command ``replicate``: experiments of the literature, run again.

It prints nothing: :mod:`flows.cli.main` shows its :class:`~flows.cli.answer.Answer`.
"""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.answer import Answer
from schemas.errors import ConfigError

NAMES = ("cate", "efficiency", "multisite", "toolbox-means")


def replicate(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"Which one: {', '.join(NAMES)}.",
            autocompletion=lambda: list(NAMES),
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Run less of it: fewer settings and repetitions.")
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to put the figures.")
    ] = Path(),
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="toolbox-means: a CSV or Parquet file with a column age. multisite: a folder with "
            "the four data sets. cate: a folder with hillstrom/hillstrom.parquet, for one of six "
            "set-ups.",
        ),
    ] = None,
) -> Answer:
    """Run an experiment of the literature again.

    "efficiency" compares estimators on made-up people, and "cate" learners of who benefits.
    "multisite" combines the effects of several sites, and "toolbox-means" compares mechanisms for
    one mean, both on real data: see --data. Each takes a few minutes ("cate" half an hour), and
    less than one with --quick. Prints a table, and writes figures into a folder.
    """
    if name not in NAMES:
        raise ConfigError("NAME", f"{name!r} is none of the experiments: {', '.join(NAMES)}")
    if name == "efficiency":
        if data is not None:
            raise ConfigError("--data", '"efficiency" makes its data up; leave it out')
        from flows.lab.replication.efficiency.study import replicate as efficiency

        found = efficiency(output, quick=quick)
        return Answer(found.text, found.as_json())
    if name == "cate":
        from flows.lab.replication.cate.study import replicate as cate

        effects = cate(output, quick=quick, data=data)
        return Answer(effects.text, effects.as_json())
    if name == "toolbox-means":
        from flows.lab.replication.toolbox_means import replicate as toolbox_means

        means = toolbox_means(output, quick=quick, data=data)
        return Answer(means.text, means.as_json())
    from flows.lab.replication.multisite.study import replicate as multisite

    sites = multisite(output, quick=quick, data=data)
    return Answer(sites.text, sites.as_json())
