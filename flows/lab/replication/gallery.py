"""Experiments run and judged, and what `replicate --all` writes: figures, claims, and a page."""

import csv
import io
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flows.lab.replication import local_sensitivity
from flows.lab.replication.cate import measured as cate
from flows.lab.replication.claims import (
    VARIABLE,
    Measure,
    Replication,
    Row,
    Run,
    claims_of,
    judged,
    tally,
)
from flows.lab.replication.cluster_dp import experiments, theorems
from flows.lab.replication.efficiency import measured as efficiency
from flows.lab.replication.multisite import measured as multisite
from flows.lab.replication.panels import Panel
from flows.runtime.files import replace_file
from schemas.documents import plain

MEASURES: Final[dict[str, dict[str, Measure]]] = {
    "cluster-dp": theorems.MEASURES | experiments.MEASURES,
    "multisite": multisite.MEASURES,
    "local-sensitivity": local_sensitivity.MEASURES,
    "cate": cate.MEASURES,
    "efficiency": efficiency.MEASURES,
}
"""What measures the parts of every experiment, by the name that asks for it."""
_TITLES: Final = {
    "cluster-dp": "Cluster-DP (Javanmard, Mirrokni and Pouget-Abadie 2025)",
    "multisite": "Several sites (Koga, Chaudhuri and Page 2024)",
    "local-sensitivity": "Local sensitivity (Near and Abuah)",
    "cate": "Who benefits (Niu, Nori, Quistorff, Caruana, Ngwe and Kannan 2022)",
    "efficiency": "What we say ourselves of efficiency",
}
_HEAD: Final = ("source", "claim", "printed", "ours", "ε", "verdict", "why")

log = logging.getLogger("clusterdp")


def replicate(
    name: str, folder: Path, *, quick: bool, data: Path | None, full: bool = False
) -> Replication:
    """Measure every claim of an experiment, and draw its figure into ``folder``.

    ``full`` is as in `Run`. Raises InputError where the folder cannot be written to, before
    anything is run.
    """
    from flows.lab.replication.plots import draw_panels, folder_for_figures  # noqa: PLC0415 - matplotlib

    target = folder_for_figures(folder)
    named = os.environ.get(VARIABLE)
    run = Run(quick, Path(named) if data is None and named else data, full)
    rows: list[Row] = []
    panels: list[Panel] = []
    for part, claims in claims_of(name).items():
        log.info("%s: %s …", name, part)
        found, drawn = judged(claims, MEASURES[name][part], run)
        rows += found
        panels += drawn
    figures = (draw_panels(name, panels, target),) if panels else ()
    return Replication(name, quick, tuple(rows), tuple(panels), figures)


def replicate_all(
    folder: Path, *, quick: bool, data: Path | None, full: bool = False
) -> Replication:
    """Run all of them, and write claims.md, claims.csv and claims.json beside the figures."""
    each = [replicate(name, folder, quick=quick, data=data, full=full) for name in MEASURES]
    rows = tuple(row for one in each for row in one.claims)
    panels = tuple(panel for one in each for panel in one.panels)
    figures = tuple(path for one in each for path in one.figures)
    every = Replication("all", quick, rows, panels, figures)
    document = json.dumps(plain(every.claims), ensure_ascii=False, indent=1) + "\n"
    texts = {"claims.md": page(each), "claims.csv": as_csv(rows), "claims.json": document}
    for name, text in texts.items():
        with replace_file(folder.absolute() / name, 0o644) as file:
            file.write(text.encode())
    return every


def page(each: Sequence[Replication]) -> str:
    """The page "What we found when we checked": a table for each experiment."""
    rows = [row for one in each for row in one.claims]
    text = [_INTRODUCTION, tally(rows) + " A quick run." * each[0].quick, ""]
    for one in each:
        text += [f"## {_TITLES[one.name]}", "", f"`clusterdp replicate {one.name}`"]
        text += ["", *(f"![{_TITLES[one.name]}]({path.name})" for path in one.figures), ""]
        text += [_line(_HEAD), _line(["---"] * len(_HEAD)), *map(_line, map(_cells, one.claims))]
        text += [""]
    return "\n".join(text)


_INTRODUCTION = """# What we found when we checked

This project stands on the work of others, who printed enough for it to be run again. Here is what
we found, claim by claim: what is printed, what we get with its Monte Carlo standard error (none
where it is exact), whose accounting the epsilon is (*printed*: the paper's own, *sound*: what the
product charges, *none*: no matter whose), and a verdict. Where a claim does not hold the idea often
stands, and it is the price or the comparison that changes; and we may have read otherwise than was
meant. `clusterdp replicate --all -o DIR` makes this page again.
"""


def _cells(row: Row) -> tuple[str, ...]:
    verdict = f"**{row.verdict}**"
    return row.source, row.claim, row.printed, row.number, row.guarantee, verdict, row.why


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(one.replace('|', '∣') for one in cells)} |"


def as_csv(rows: Sequence[Row]) -> str:
    """The claims as a table with a head."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(plain(rows[0])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain(one) for one in rows)
    return text.getvalue()
