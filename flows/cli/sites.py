"""The commands ``site`` and ``aggregate``: what they are asked, and what they answer.

They print nothing: :mod:`flows.cli.main` shows their :class:`~flows.cli.answer.Answer`. As there,
Prefect and the data libraries are imported within them.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.answer import Answer


def site(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The site's TOML file.")],
    period: Annotated[
        str | None,
        typer.Option(help="Period to report on, usually a date; fills {period} in the log's path."),
    ] = None,
    revise: Annotated[
        bool,
        typer.Option(
            "--revise",
            help="Draw a published report anew, as its next revision. Costs everybody in it again.",
        ),
    ] = False,
) -> Answer:
    """Make a site's report: a noised effect, and no row of data.

    Reads CONFIG, its log and its ledger. Writes a report (an effect, its variance and what they
    cost, as JSON) into the folder of reports, and a charge into the ledger.
    """
    from flows.config.load import check_period, load_site  # noqa: PLC0415 - see the top of this file

    check_period(period, load_site(config).source.path)  # before Prefect takes seconds to start
    from flows.orchestration.prefect_settings import settle  # noqa: PLC0415

    settle(config.absolute().parent)
    from flows.orchestration.prefect_server import prefect_server  # noqa: PLC0415

    with prefect_server() as server:
        from flows.cli.show_sites import site_text  # noqa: PLC0415
        from flows.multisite import site as site_flow  # noqa: PLC0415

        server.wait()
        result = site_flow(str(config.absolute()), period, revise)
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
    """Combine the effects of several sites, from their reports alone.

    Reads the reports, costs no privacy. Writes nothing but the plot, if you ask for one.
    """
    from flows.cli.show_sites import aggregate_text  # noqa: PLC0415
    from flows.released.file.site_report import read_reports  # noqa: PLC0415
    from flows.released.site_aggregates import combine  # noqa: PLC0415

    if plot is not None:
        from flows.released.forest import check_format  # noqa: PLC0415 - matplotlib takes a second

        check_format(plot)
    combined = combine(read_reports(reports))
    document = combined.as_json()
    if plot is not None:
        from flows.released.forest import write_forest  # noqa: PLC0415

        document["plot"] = str(write_forest(combined, plot))
    text = partial(aggregate_text, combined, document.get("plot"))
    return Answer(text, document, combined.warnings)
