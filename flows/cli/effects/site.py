"""``clusterdp site``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.effects.aggregate import HEAD, site_cells
from flows.cli.effects.cate import cate
from flows.cli.options import ConfigFile
from flows.cli.show.words import made_lines, meaning, paid_text, roster_pairs
from flows.cli.ways import way
from flows.runtime.terminal import pairs, table

if TYPE_CHECKING:
    from flows.effects.multisite import SiteResult


def site(
    config: ConfigFile, period: str | None = None, revise: bool = False, prefect: bool = False
) -> Answer:
    """Make a site's report: a noised effect, and no row of data.

    Reads CONFIG, its log and its ledger. Writes a report (an effect, its variance and what they
    cost, as JSON) into the folder of reports, and a charge into the ledger. With [moments] the
    report is the site's part of an effect model of many sites, and lies among the releases.

    Options:
        config (CONFIG): The site's TOML file.
        revise: Draw a published report anew, as its next revision. Costs everybody in it again.
    """
    from flows.config.load import kind_at, period_of
    from flows.effects.house import EFFECTS, load_effects, load_site

    if kind_at(config) is EFFECTS and load_effects(config).moments is not None:
        return cate(config, period, revise, prefect)
    period_of(load_site(config).source, period)  # before a server takes its seconds
    with way("site", config, wanted=prefect) as run:
        result = run(str(config.absolute()), period, revise)
    warnings = (*result.warnings, *result.for_the_operator)
    return Answer(partial(site_text, result), result.as_json(), warnings)


def site_text(result: SiteResult) -> str:
    """One screen on a report that was just made, or was there already."""
    report = result.report
    said = meaning(report.epsilon, report.delta)
    if report.design != "trial":
        said = said.replace("another outcome of one unit", "another record of one unit")
    facts = {
        "file": str(result.path),
        "protected": f"{report.neighbours.split(' (')[0]}; the file holds no row",
        "epsilon": f"{report.epsilon:g}: {said}",
        "paid so far": paid_text(result.statement),
        "estimator": f"{report.estimator} ({report.design})",
        "units": f"{report.n_units:,}",
        "rows set aside": roster_pairs(result.roster)["rows set aside"],
    }
    return "\n".join(
        [
            *made_lines(report.report_id, result.status, "written"),
            "",
            *pairs(facts),
            "",
            f"effect of {report.treatment!r} against {report.control!r}",
            "",
            *table(HEAD[1:], [site_cells(report, report.variance)[1:]]),
            "",
            "Send the file to whoever aggregates: clusterdp aggregate REPORT…",
        ]
    )
