"""`clusterdp report FOLDER`: pages of an experiment's releases, together and one by one.

Where the folder holds several experiments' folders, each has its pages, and an index leads to them.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from estimators.arm_effects import Estimate
from flows.operate.series.estimates import SeriesEstimates, estimate_series
from flows.operate.series.nights import experiment_folders, release_files
from flows.operate.series.page import series_facts
from flows.operate.series.people import Kind
from flows.released.estimates.release import estimate_open
from flows.released.file.read import check_sound
from flows.released.night import Night
from flows.released.page.html import render, write_page
from flows.released.page.scale import Scale, scale_of
from flows.released.report import WITHDRAWN_MARK, page_of, write_report
from flows.runtime.files import public_directory
from schemas.errors import InputError
from schemas.released import Metric

_INDEX = "index.html"


def write_series_report(
    paths: Sequence[Path], output: Path, *, told: Kind | None = None, looks: int | None = None
) -> tuple[Path, tuple[str, ...]]:
    """Write the pages about the releases at ``paths`` (files, or folders) into ``output``.

    Returns the absolute path of the page to begin with, and warnings. Pages of releases that are
    there already are left as they are. Raises InputError where there is no release, or the pages
    cannot be written.
    """
    if output.suffix.lower() in (".html", ".htm") or (output.exists() and not output.is_dir()):
        raise InputError(f"{output}: several releases make several pages; name a folder for them")
    folders = [] if len(paths) != 1 or release_files(paths) else experiment_folders(paths[0])
    if not folders:
        series, pages = _read(paths, output, told, looks)
        _write_experiment(series, pages, output, up=False)
        _renew_withdrawn(series, paths, output)
        return (output / _INDEX).absolute(), series.warnings
    written: list[dict[str, Any]] = []
    warnings: list[str] = []
    for folder in folders:
        series, pages = _read([folder], output, told, looks, up=True)
        experiment = series.nights.first.manifest.experiment
        if any(experiment == one["experiment"] for one in written):
            raise InputError(
                f"{folder.absolute()}: holds releases of the experiment {experiment!r}, as another "
                "of the folders does; keep an experiment's releases in one folder"
            )
        warnings += [f"{experiment}: {text}" for text in series.warnings]
        written.append(_write_experiment(series, pages, output / experiment, up=True))
        _renew_withdrawn(series, [folder], output / experiment)
    page = render("experiments.html", experiments=written)
    return _write(output, _INDEX, page), tuple(warnings)


def _read(
    paths: Sequence[Path], output: Path, told: Kind | None, looks: int | None, *, up: bool = False
) -> tuple[SeriesEstimates, dict[str, str]]:
    """Estimate a series and build its releases' pages that are not there; opens each once."""
    pages = dict[str, str]()

    def read(connection: duckdb.DuckDBPyConnection, night: Night) -> Sequence[Estimate]:
        check_sound(connection, night.path)
        name = f"{night.manifest.release_id}.html"
        folder = output / night.name.experiment if up else output
        if _is_there(folder / name, night):
            return estimate_open(connection).estimates
        pages[name], made = page_of(connection, night.path)
        return made.estimates

    return estimate_series(paths, told=told, looks=looks, read=read), pages


def _write_experiment(
    series: SeriesEstimates, pages: Mapping[str, str], folder: Path, *, up: bool
) -> dict[str, Any]:
    first, scales = series.nights.first, dict[str, Scale]()
    for one in first.manifest.metrics:
        # A grid of two values is told by its ends; of others no value between matters here.
        is_of_two = isinstance(one, Metric) and one.n_outcomes == 2
        ends = np.array(first.ranges[one.metric] if is_of_two else (), dtype=np.float64)
        scales[one.metric] = scale_of(one, ends)
    facts = series_facts(
        [one.night.manifest for one in series.periods],
        [one.estimates for one in series.periods],
        series.cumulative,
        [*series.warnings, *series.nights.notes],
        scales,
        (series.nights.closing, series.nights.withdrawn),
    )
    public_directory(folder)
    for period in series.periods:
        name = f"{period.night.manifest.release_id}.html"
        if name in pages:
            write_page(folder / name, pages[name])
    page = render("series.html", series=facts, up=up)
    _write(folder, _INDEX, page)
    return facts


def _is_there(page: Path, night: Night) -> bool:
    """Whether a release's page is there, by this version, and says nothing of a withdrawal."""
    if not page.is_file() or page.is_symlink():
        return False
    marks = (f"<bdi>{night.manifest.release_id}</bdi>", f"clusterdp {version('clusterdp')} from")
    text = page.read_text(encoding="utf-8", errors="replace")
    return all(mark in text for mark in marks) and WITHDRAWN_MARK not in text


def _renew_withdrawn(series: SeriesEstimates, paths: Sequence[Path], folder: Path) -> None:
    """Let pages of releases that were withdrawn since they were written say so."""
    files = {path.stem: path for path in release_files(paths)}
    for one in series.nights.withdrawn:
        page = folder / f"{one.release_id}.html"
        if page.is_file() and one.release_id in files:
            write_report(files[one.release_id], page)


def _write(folder: Path, name: str, page: str) -> Path:
    path = (folder / name).absolute()
    public_directory(folder)
    return write_page(path, page)
