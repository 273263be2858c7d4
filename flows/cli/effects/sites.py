"""The commands ``site`` and ``aggregate``: what they are asked, and what they answer.

They print nothing: :mod:`flows.cli.main` shows their :class:`~flows.cli.answer.Answer`. As there,
Prefect and the data libraries are imported within them.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.answer import Answer
from flows.cli.options import Period, Prefect
from flows.cli.ways import way


def site(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The site's TOML file.")],
    period: Period = None,
    revise: Annotated[
        bool,
        typer.Option(
            "--revise",
            help="Draw a published report anew, as its next revision. Costs everybody in it again.",
        ),
    ] = False,
    prefect: Prefect = False,
) -> Answer:
    """Make a site's report: a noised effect, and no row of data.

    Reads CONFIG, its log and its ledger. Writes a report (an effect, its variance and what they
    cost, as JSON) into the folder of reports, and a charge into the ledger.
    """
    from flows.config.load import check_period
    from flows.effects.house import load_site

    check_period(period, load_site(config).source.path)  # before a server takes its seconds
    with way("site", config, wanted=prefect) as run:
        from flows.cli.show.sites import site_text

        result = run(str(config.absolute()), period, revise)
    warnings = (*result.warnings, *result.for_the_operator)
    return Answer(partial(site_text, result), result.as_json(), warnings)


def aggregate(
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORT…", help="Reports, one of each site.")
    ],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw sites and aggregates, as .svg or .png."),
    ] = None,
) -> Answer:
    """Combine effects of several sites, from their reports alone.

    Reads the reports, costs no privacy. Writes nothing but the plot, if you ask for one.
    """
    from flows.cli.show.sites import aggregate_text
    from flows.effects.released.aggregate import aggregate_reports

    combined = aggregate_reports(list(map(str, reports)), None if plot is None else str(plot))
    return Answer(partial(aggregate_text, combined), combined.as_json(), combined.warnings)
