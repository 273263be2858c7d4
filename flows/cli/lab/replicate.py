"""``clusterdp replicate``: experiments of the literature, run again."""

from pathlib import Path
from typing import Annotated, Any

from flows.cli.answer import Answer
from schemas.errors import ConfigError

_NAMES = ("cate", "efficiency", "multisite", "toolbox-means")


def replicate(
    name: Annotated[str, lambda: list(_NAMES)],
    quick: bool = False,
    output: Path = Path(),
    data: Path | None = None,
) -> Answer:
    """Run an experiment of the literature again.

    "efficiency" compares estimators on made-up people, and "cate" learners of who benefits.
    "multisite" combines the effects of several sites, and "toolbox-means" compares mechanisms for
    one mean, both on real data: see --data. Each takes a few minutes ("cate" half an hour), and
    less than one with --quick. Prints a table, and writes figures into a folder.

    Options:
        name (NAME): Which one: cate, efficiency, multisite, toolbox-means.
        quick: Run less of it: fewer settings and repetitions.
        output (--output -o FOLDER): Where to put the figures.
        data (PATH): toolbox-means: a CSV or Parquet file with a column age. multisite: a folder
            with the four data sets. cate: a folder with hillstrom/hillstrom.parquet, for one of six
            set-ups.
    """
    if name not in _NAMES:
        raise ConfigError("NAME", f"{name!r} is none of the experiments: {', '.join(_NAMES)}")
    if name == "efficiency" and data is not None:
        raise ConfigError("--data", '"efficiency" makes its data up; leave it out')
    found: Any
    if name == "efficiency":
        from flows.lab.replication.efficiency.study import replicate as efficiency

        found = efficiency(output, quick=quick)
    elif name == "cate":
        from flows.lab.replication.cate.study import replicate as cate

        found = cate(output, quick=quick, data=data)
    elif name == "toolbox-means":
        from flows.lab.replication.toolbox_means import replicate as toolbox_means

        found = toolbox_means(output, quick=quick, data=data)
    else:
        from flows.lab.replication.multisite.study import replicate as multisite

        found = multisite(output, quick=quick, data=data)
    return Answer(found.text, found.as_json())
