"""``clusterdp report``."""

from pathlib import Path
from typing import Annotated

from flows.cli.answer import Answer
from flows.cli.night.estimate import looks_of, refuse_for_one
from flows.cli.options import files


def report(
    releases: Annotated[list[Path], files(".duckdb", ".json")],
    output: Path,
    people: str | None = None,
    looks: int | None = None,
) -> Answer:
    """Write web pages with plots, of releases or an effect model.

    Of several releases of one experiment, or the folder they are in, it writes a page of all of
    them together and one of each; of a folder of experiments' folders, an index too. Reads RELEASE
    alone. A browser shows the pages without a network.

    Options:
        releases (RELEASE… | FOLDER | MODEL.json): A released DuckDB file; or several of one
            experiment, or the folder they are in; or an effect model.
        output (--output -o FILE.html | FOLDER): The page to write or replace; of several releases,
            the folder for their pages.
    """
    from flows.operate.series.nights import are_several

    if are_several(releases):
        from flows.operate.series.estimates import people_of
        from flows.operate.series.report import write_series_report

        told = people_of("--people", people)
        path, warnings = write_series_report(releases, output, told=told, looks=looks_of(looks))
        return Answer(lambda: str(path), {"path": str(path)}, warnings)
    refuse_for_one(people, looks)
    from flows.released.report import write_report

    path = write_report(releases[0], output)
    return Answer(lambda: str(path), {"path": str(path)}).about(releases[0])
