"""Results for people: a table in plain text, the same in Markdown, and a plot."""

import json
import logging
import os
import platform
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from tests.benchmarks.measure import ROOT
from tests.benchmarks.results import Measured, Result

_PACKAGES = ("polars", "duckdb", "numpy", "pyarrow", "opendp", "prefect")
_HEAD = (
    "",
    "rows",
    "median s",
    "range",
    "ns/row",
    "ratio",
    "range",
    "CPU s",
    "ratio",
    "peak MB",
    "before",
    "file MB",
)
_OURS, _THEIRS, _DARK = "#1f6f8b", "#b8b8b8", "#6f6f6f"


def machine() -> dict[str, Any]:
    """The machine and the versions that were measured, and how busy it was before."""
    return {
        "cpu": _first_line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _first_line(path: str, key: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith(key):
            return " ".join(line.partition(":")[2].split())
    return "unknown"


def _commit() -> str:
    """The commit of the checkout, with ``+`` where files differ from it."""
    git = shutil.which("git")
    if git is None:
        return "unknown"

    def said(*words: str) -> str:
        done = subprocess.run([git, *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = said("rev-parse", "--short=12", "HEAD")
    return (commit + "+" * bool(said("status", "--porcelain"))) if commit else "unknown"


def text_of(result: Result) -> str:
    """A case as lines of plain text."""
    lines = [f"{result.case.name}: {result.case.title}"]
    if result.failure is not None:
        return "\n".join([*lines, f"  could not be measured: {result.failure}"])
    rows = [_HEAD, *(_cells(result, one) for one in result.measured)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join(cells).rstrip())
    lines += [f"  {note}" for note in _notes(result)]
    return "\n".join(lines)


def markdown_of(results: Sequence[Result], setting: dict[str, Any]) -> str:
    """All of it as Markdown: the machine, how it was measured, a table for each case."""
    parts = ["# Benchmark", ", ".join(f"{key} {value}" for key, value in setting.items())]
    parts.append("![ratios and memory](ratios.png)")
    parts.append(HOW)
    for result in results:
        parts.append(f"## {result.case.name}\n\n{result.case.title}")
        if result.failure is not None:
            parts.append(f"Could not be measured: {result.failure}")
            continue
        lines = [_row(_HEAD), "|---|" + "---:|" * (len(_HEAD) - 1)]
        lines += [_row(_cells(result, one)) for one in result.measured]
        parts += ["\n".join(lines), *_notes(result)]
    return "\n\n".join(parts) + "\n"


HOW = """\
Every run is a process of its own; contenders take turns within a round. The input is warm (just
written, or read in an earlier round): nothing is dropped from the page cache. A release is timed
from the start of its first step to the end of the flow; imports and Prefect's start are left out.
Seconds are medians over rounds; a ratio is the median of a contender's time per row over the
baseline's (the first line of a case) in the same round. CPU is processor time, user and system, of
all processes of a run, with the ratio of it: on a busy machine it says more than seconds. Peak
memory is the greatest sum of resident memory over all processes of a run, sampled every 20 ms, in
any round, Prefect's server included; "before" is what was resident when the timed part began."""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(result: Result, one: Measured) -> tuple[str, ...]:
    seconds, ratio, size = one.seconds, one.ratio, one.detail("file_bytes")
    return (
        one.contender.name,
        f"{one.contender.rows:,}",
        _short(seconds.median),
        f"{_short(seconds.least)}–{_short(seconds.greatest)}",
        _short(one.per_row) if result.case.per_row else "",
        _short(ratio.median),
        f"{_short(ratio.least)}–{_short(ratio.greatest)}",
        _short(one.processor.median),
        _short(one.processor_ratio.median),
        f"{one.peak_bytes / 1e6:,.0f}",
        f"{one.bytes_before / 1e6:,.0f}",
        "" if size is None else f"{size / 1e6:,.1f}",
    )


def _short(value: float) -> str:
    """Three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if value >= 10 else 2}f}" if value >= 0.095 else f"{value:.2g}"


def _notes(result: Result) -> list[str]:
    """How quiet the machine was; steps and the share of noise of a release."""
    found: list[str] = []
    if not result.is_quiet:
        found.append(
            "not quiet: the baseline's rounds differ by more than 10 % from their median, so look "
            "at processor seconds"
        )
    for one in result.measured:
        if not one.steps:
            continue
        steps = ", ".join(f"{name} {_short(seconds)}" for name, seconds in one.steps.items())
        share = one.noise_share
        noise = "" if share is None else f"; noise of strata {share:.0%} of the time"
        found.append(f"{one.contender.name}, seconds by step: {steps}{noise}")
    return found


def save(results: Sequence[Result], setting: dict[str, Any], folder: Path) -> None:
    """Write results.json, results.md, ratios.png and growth.png into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {**setting, "how": HOW, "cases": [one.as_json() for one in results]}
    text = json.dumps(document, indent=2, ensure_ascii=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    (folder / "results.md").write_text(markdown_of(results, setting), encoding="utf-8")
    measured = [one for one in results if one.measured]
    _plot([one for one in measured if not one.case.growth_of], setting, folder / "ratios.png")
    _plot_growth([one for one in measured if one.case.growth_of], setting, folder / "growth.png")


def _plot(results: Sequence[Result], setting: dict[str, Any], path: Path) -> None:
    """Bars of ratios, from 1.0 on a logarithmic axis, and of peak memory, a line a contender."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # on its caches, which are no news
    lines = [(result, one) for result in results for one in result.measured]
    if not lines:
        path.unlink(missing_ok=True)
        return
    heights: list[float] = []
    for number, (result, _) in enumerate(lines):
        above = number > 0 and result is not lines[number - 1][0]
        heights.append((heights[-1] + 1 + 1.1 * above) if heights else 0.0)
    with _figure((11.5, 1.8 + 0.34 * (heights[-1] + 1)), setting, path) as figure:
        ratios, memory = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        _ratio_bars(ratios, lines, heights)
        _memory_bars(memory, lines, heights)


@contextmanager
def _figure(size: tuple[float, float], setting: dict[str, Any], path: Path) -> Iterator[Figure]:
    """A figure that says what was measured, stored at the end of the block."""
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # on typefaces
        mpl.rcdefaults()
        figure = Figure(figsize=size, dpi=130, layout="constrained")
        yield figure
        figure.suptitle(
            f"{setting['cpu']}, {setting['cores']} cores; {setting['date'][:10]}, "
            f"commit {setting['commit']}",
            fontsize=9,
        )
        figure.savefig(path, metadata={"Software": None})


def _plot_growth(results: Sequence[Result], setting: dict[str, Any], path: Path) -> None:
    """Processor seconds and peak memory over units or strata, a row of plots a case.

    Of seconds those of processors, as other programs prolong them least.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # on its caches, which are no news
    if not results:
        path.unlink(missing_ok=True)
        return
    with _figure((11.5, 0.6 + 3.6 * len(results)), setting, path) as figure:
        grid = figure.subplots(len(results), 2, squeeze=False)
        for result, (seconds, memory) in zip(results, grid, strict=True):
            series = {True: ("clusterdp: release", _OURS), False: ("DuckDB: ordered CTAS", _DARK)}
            for is_ours, (name, colour) in series.items():
                some = [one for one in result.measured if one.contender.is_ours == is_ours]
                at = [float(one.contender.name.split()[-1].replace(",", "")) for one in some]
                seconds.plot(
                    at, [one.processor.median for one in some], "o-", color=colour, label=name
                )
                memory.plot(at, [one.peak_bytes / 1e9 for one in some], "o-", color=colour)
            seconds.set_title(
                f"processor seconds by number of {result.case.growth_of}", fontsize=10
            )
            memory.set_title(f"peak memory in GB by number of {result.case.growth_of}", fontsize=10)
            for axes in (seconds, memory):
                _plain_axes(axes)
            seconds.legend(frameon=False)


def _plain_axes(axes: Axes) -> None:
    """Logarithmic axes whose ticks are plain numbers: 1, 2 and 5 upwards, powers of ten across."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter(lambda value, _: _many(value))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)


def _many(number: float) -> str:
    """A number of units or strata as an axis spells it."""
    return f"{number / 1e6:g} million" if number >= 1e6 else f"{number:,.0f}"


Lines = Sequence[tuple[Result, Measured]]


def _ratio_bars(axes: Axes, lines: Lines, heights: Sequence[float]) -> None:
    values = [one.ratio.median for _, one in lines]
    axes.barh(heights, [value - 1 for value in values], left=1, color=_colours(lines), height=0.75)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    least, greatest = min(0.4, min(values) / 4), max(2.5, max(values) * 4)
    axes.set_xlim(least, greatest)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if greatest / least < 100 else (1,)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    for height, value, (result, one) in zip(heights, values, lines, strict=True):
        is_base = one is result.measured[0]
        axes.annotate(
            "1 (baseline)" if is_base else f"{_short(value)}×",
            (value, height),
            xytext=(4 if value >= 1 else -4, 0),
            textcoords="offset points",
            ha="left" if value >= 1 else "right",
            va="center",
            fontsize=8,
        )
        if is_base:
            axes.annotate(
                result.case.name,
                (0, height - 0.85),
                xycoords=("axes fraction", "data"),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                fontweight="bold",
            )
    axes.set_yticks(heights, [one.contender.name for _, one in lines], fontsize=8)
    axes.set_ylim(heights[-1] + 0.7, -1.4)
    axes.set_xlabel("time over the baseline's (less is faster)")


def _memory_bars(axes: Axes, lines: Lines, heights: Sequence[float]) -> None:
    values = [one.peak_bytes / 1e9 for _, one in lines]
    axes.barh(heights, values, color=_colours(lines), height=0.75)
    axes.set_xlim(0, max(values) * 1.25)
    for height, value in zip(heights, values, strict=True):
        axes.annotate(
            f"{value:.2f}",
            (value, height),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("peak resident memory, GB")


def _colours(lines: Lines) -> list[str]:
    return [_OURS if one.contender.is_ours else _THEIRS for _, one in lines]
