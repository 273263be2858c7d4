"""Commands on a released file alone: ``estimate``, ``inspect``, ``report``.

They print nothing: :mod:`flows.cli.main` shows their :class:`~flows.cli.answer.Answer`. As there,
the data libraries are imported within them.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.answer import Answer
from flows.cli.options import TABLES, ReleaseFile
from schemas.errors import ConfigError


def estimate(
    release: ReleaseFile,
    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Estimate by segment: a CSV or Parquet file of yours with the columns unit_id and "
            "segment.",
            autocompletion=TABLES,
        ),
    ] = None,
    covariates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Adjust for covariates: a CSV or Parquet file of yours with unit_id and other "
            "columns (numbers, text or booleans) known before the experiment.",
            autocompletion=TABLES,
        ),
    ] = None,
    level: Annotated[
        float,
        typer.Option(metavar="NUMBER", help="Confidence level of the intervals, between 0 and 1."),
    ] = 0.95,
) -> Answer:
    """Estimate the effect of each arm, from a released file alone.

    Effects are against control, with intervals. Reads RELEASE, and a table of yours if you give
    one. It needs no log and costs no privacy. Writes nothing.
    """
    if not 0 < level < 1:
        raise ConfigError("--level", f"{level!r} is not strictly between 0 and 1")
    if segments is not None and covariates is not None:
        raise ConfigError("--covariates", "cannot go with --segments; ask for one of them")
    from flows.cli.show_estimates import estimates_text

    about: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    if covariates is not None:
        from flows.released.covariates import estimate_covariates  # statsmodels takes seconds

        adjusted = estimate_covariates(release, covariates, level)
        found, warnings = adjusted.estimates, adjusted.warnings
        about = {"covariates": adjusted.as_json()}
    elif segments is not None:
        from flows.released.segments import estimate_segments

        by_segment = estimate_segments(release, segments, level)
        found, warnings = by_segment.estimates, by_segment.warnings
        about = {"segments": by_segment.as_json()}
    else:
        from flows.released.estimate import estimate_file

        found = estimate_file(release, level)
    # not asdict: it copies, for minutes where there are many
    document = about | {"estimates": [vars(one) for one in found]}
    return Answer(partial(estimates_text, found), document, warnings)


def inspect(release: ReleaseFile) -> Answer:
    """Show what is in a release, and what it promises.

    A release that states other estimates than its units give is an error. Reads RELEASE alone,
    writes nothing.
    """
    from flows.cli.show import inspect_text
    from flows.released.file.read import read_release
    from flows.released.stated_estimates import check_stated_estimates

    file = read_release(release)
    check_stated_estimates(release)
    return Answer(partial(inspect_text, file), file.as_json())


def report(
    release: ReleaseFile,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE.html", help="The page to write or replace."),
    ],
) -> Answer:
    """Write a web page about a release, with plots.

    Reads RELEASE alone. Writes one file, which a browser shows without a network.
    """
    from flows.released.report import write_report

    path = write_report(release, output)
    return Answer(lambda: str(path), {"path": str(path)})
