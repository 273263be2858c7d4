"""Who benefits, from a released file alone: ``effects``.

It prints nothing, as :mod:`flows.cli.analysis`; the data libraries are imported within it.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.answer import Answer
from flows.cli.options import TABLES, ReleaseFile
from flows.cli.withdrawn import of_withdrawn
from schemas.errors import ConfigError


def effects(
    release: ReleaseFile,
    covariates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What effects may differ by: a CSV or Parquet file of yours with unit_id and "
            "other columns (numbers, text or booleans) known before the experiment.",
            autocompletion=TABLES,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Which columns of FILE, or which published attributes where there is no FILE, to "
            "use; all, unless you say.",
        ),
    ] = None,
    arm: Annotated[
        str | None,
        typer.Option(metavar="ARM", help="Which treatment arm; the first one, unless you say."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which outcome; has to be said where the release has several.",
        ),
    ] = None,
    level: Annotated[
        float,
        typer.Option(metavar="NUMBER", help="Confidence level of the intervals, between 0 and 1."),
    ] = 0.95,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE.html", help="A web page to write or replace as well."
        ),
    ] = None,
) -> Answer:
    """Show who benefits from a treatment, by a released file.

    By the attributes that the release publishes, or by columns of FILE: the effect on average,
    in groups by each of them with intervals, and along each of them as a
    curve. It needs no log and costs no privacy. Writes nothing but the page that you ask for.
    """
    from flows.effects.released.from_release import effects_from_release

    if output is not None:
        from flows.released.report import check_output

        check_output(output, release)
    named = None if features is None else [one.strip() for one in features.split(",")]
    try:
        found = effects_from_release(
            release, covariates, features=named, arm=arm, metric=metric, level=level
        )
    except ConfigError as error:
        raise ConfigError(f"--{error.key}", error.problem) from None
    if output is not None:
        from flows.effects.released.report_model import write_effects_report

        write_effects_report(found, output)
    from flows.cli.show.benefits import effects_text

    answer = Answer(partial(effects_text, found, output), found.as_json(), found.warnings)
    return of_withdrawn(answer, release)
