"""`clusterdp report`: one page about a release, from the released file and from nothing else.

It reads what is published of strata, pools, counts and effects, and sums over units; never a
unit's id. The same release and version of the program give the same bytes.
"""

import math
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.released.page import figures
from flows.released.page.contents import Contents, read_contents
from flows.released.page.details import (
    MOST_ARMS,
    MOST_ROWS,
    debias_section,
    estimator_name,
    first_of,
    manifest_section,
    outcomes_section,
    queries_section,
    sizes_section,
)
from flows.released.page.html import (
    Content,
    Group,
    Markup,
    Section,
    beside,
    clean,
    count,
    document,
    figure,
    joined,
    markup,
    name,
    note,
    number,
    paragraph,
    percent,
    shown,
    swatch,
    table,
)
from flows.released.page.privacy import protection_section
from flows.runtime.files import replace_file
from schemas.errors import InputError

Floats = NDArray[np.float64]

MOST_LEADS = 3
"""Effects that are told in words at the top."""


def write_report(release: Path, output: Path) -> Path:
    """Write the report on the release at ``release`` to ``output``, whole or not at all.

    Returns the absolute path. Replaces a report that is there already. Raises InputError where
    ``release`` is none, or ``output`` is no HTML file that can be written.
    """
    _check_output(output, release)
    page = report(read_contents(release))
    try:
        with replace_file(output, mode=0o644) as file:
            file.write(page.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        reason = error.strerror
    else:
        return output.absolute()
    raise InputError(f"{output.absolute()}: cannot be written ({reason})")


def _check_output(output: Path, release: Path) -> None:
    """Say what is wrong with the name of the output before anything is read."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: the report is a web page; give it a name ending in .html")
    if output.is_dir():
        raise InputError(f"{output.absolute()}: is a folder; name a file in it")
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output.absolute().parent}: there is no such folder; make it first")
    if output.exists() and release.exists() and output.samefile(release):
        raise InputError(f"{output.absolute()}: is the release itself; name another file")


# the page


def report(contents: Contents) -> str:
    """Build the page."""
    manifest = contents.manifest
    sections = [
        _effects(contents),
        protection_section(manifest),
        outcomes_section(contents),
        sizes_section(contents),
        debias_section(contents),
        queries_section(contents),
        manifest_section(manifest),
    ]
    foot = paragraph(
        "Made by clusterdp {version} from the released file alone: this page tells no more of "
        "anybody than that file does.",
        version=version("clusterdp"),
    )
    title = f"{clean(manifest.experiment)}, {clean(manifest.period)}: effects and privacy"
    return document(title, _head(contents), sections, foot)


def _head(contents: Contents) -> Markup:
    manifest = contents.manifest
    facts: dict[str, Content] = {
        "Units": count(manifest.n_units),
        "Clusters": count(manifest.n_clusters),
        "Arms": count(len(contents.arms)),
        "Outcome values": count(len(contents.outcomes)),
        "Epsilon (ε)": number(manifest.epsilon),
        "Delta (δ)": number(manifest.delta),
    }
    return markup(
        '<p class="eyebrow">Differentially private release {release} · made {made} UTC</p>'
        "<h1>Effects in {experiment}, {period}</h1>{lead}<dl class=facts>{facts}</dl>",
        release=name(manifest.release_id),
        made=f"{manifest.created_at:%Y-%m-%d %H:%M}",
        experiment=name(manifest.experiment),
        period=name(manifest.period),
        lead=_lead(contents),
        facts=[
            markup("<div><dt>{term}</dt><dd>{fact}</dd></div>", term=term, fact=fact)
            for term, fact in facts.items()
        ],
    )


def _lead(contents: Contents) -> Sequence[Markup]:
    """The sharpest effect of every arm, in a sentence each."""
    best: dict[str, dict[str, Any]] = {}
    for one in contents.estimates:
        best.setdefault(one["arm"], one)
    return [_lead_sentence(one) for one in list(best.values())[:MOST_LEADS]]


def _lead_sentence(one: dict[str, Any]) -> Markup:
    interval = Markup("")
    if one["ci_lower"] is not None:
        holds_none = one["ci_lower"] <= 0 <= one["ci_upper"]
        interval = markup(
            " ({level} confidence interval {interval}{remark})",
            level=_level(one),
            interval=_interval(one),
            remark="; zero is within it" if holds_none else "",
        )
    return markup(
        '<p class="lead"><strong>{arm}</strong>: the mean outcome is {size} {direction} than '
        "under {control}{interval}.</p>",
        arm=name(one["arm"]),
        size=number(abs(one["estimate"]), 3),
        direction="lower" if one["estimate"] < 0 else "higher",
        control=name(one["control"]),
        interval=interval,
    )


def _level(one: dict[str, Any]) -> str:
    return f"{100 * one['confidence_level']:g}\u00a0%"


def _interval(one: dict[str, Any]) -> Markup:
    if one["ci_lower"] is None:
        return Markup("–")
    return markup(
        "{lower} to {upper}",
        lower=number(one["ci_lower"], 3),
        upper=number(one["ci_upper"], 3),
    )


# effects


def unprotected(std_error: float, privacy_std_error: float) -> float:
    """√(se² − privacy se²)/se, the share of an interval's width that is not due to privacy."""
    if not std_error > 0:
        return 1.0
    return math.sqrt(max(1 - (privacy_std_error / std_error) ** 2, 0.0))


def _effects(contents: Contents) -> Section:
    estimates = contents.estimates
    missing = [arm for arm in contents.arms[1:] if arm not in {one["arm"] for one in estimates}]
    told = [
        paragraph(
            "There is no estimate for {arm}: too few of its units can be compared with control.",
            arm=name(arm),
        )
        for arm in missing[:MOST_ROWS]
    ]
    if not estimates:
        nothing = paragraph("This release holds no estimate of an effect.")
        return Section("effects", "Effects", [nothing, *told], "Effects")
    first = estimates[0]
    intro = paragraph(
        "Each line compares an arm with the control {control}: by how much the mean outcome is "
        "higher. An interval is a {level} confidence interval: of a hundred experiments and "
        "releases like this one, about {hundred} would give intervals that hold the true effect. "
        "It allows for chance in the experiment and for the noise that protects people. Where an "
        "arm has several lines, the first uses all that is published.",
        control=name(first["control"]),
        level=_level(first),
        hundred=f"{100 * first['confidence_level']:g}",
    )
    both = beside(_forest(contents), _effects_table(contents))
    return Section("effects", "Effects", [intro, both, *told], "Effects")


def _forest(contents: Contents) -> Markup:
    estimates = contents.estimates
    arms = list(dict.fromkeys(one["arm"] for one in estimates))
    drawn = [
        figures.Effect(
            arm=clean(one["arm"]),
            label=estimator_name(one["estimator"], contents.manifest.metric.strata_statistic),
            numbers=shown(one["estimate"], 3),
            estimate=one["estimate"],
            lower=one["ci_lower"],
            upper=one["ci_upper"],
            unprotected=unprotected(one["std_error"], one["privacy_std_error"]),
        )
        for one in estimates
        if one["arm"] in arms[:MOST_ARMS]
    ]
    drawing = figures.Drawing(
        "figure-effects",
        "Effects with their confidence intervals",
        f"Forest plot of {len(drawn)} estimates against {clean(estimates[0]['control'])}, and how "
        "much of each interval is due to privacy. The table of effects has the same numbers.",
    )
    svg = figures.forest(
        drawing, drawn, f"effect against {figures.short(clean(estimates[0]['control']))}"
    )
    caption = markup(
        "Dot: the estimate. {soft}The whole bar: its confidence interval. {accent}The dark part: "
        "about what would remain of it without the noise of privacy. Dashed: no effect.{some}",
        soft=swatch("soft"),
        accent=swatch("accent"),
        some=first_of(MOST_ARMS, len(arms), "arms"),
    )
    return figure(svg, caption)


def _effects_table(contents: Contents) -> Markup:
    estimates = contents.estimates
    head = [
        "Estimated from", "Effect", f"{_level(estimates[0])} confidence interval", "Std. error",
        "of it privacy", "Width from privacy", "p", "p (Holm)", "Units",
    ]  # fmt: skip
    statistic = contents.manifest.metric.strata_statistic
    by_arm: dict[str, list[Sequence[Content]]] = {}
    for one in estimates:
        by_arm.setdefault(one["arm"], []).append(_effect_row(one, statistic))
    groups = [
        Group(
            rows,
            markup("{arm} against {control}", arm=name(arm), control=name(estimates[0]["control"])),
        )
        for arm, rows in by_arm.items()
    ]
    notes = note(
        "Width from privacy: by how much the interval would be narrower without the noise, "
        "1 − √(se² − privacy se²)/se. p is for the hypothesis of no effect; p (Holm) allows for "
        "the number of arms, intervals do not. Units: everybody, in every arm, of the clusters "
        "that the estimate covers.{compared}",
        compared=" In brackets: their share of all units. In the other clusters an arm has too few "
        "units to be compared, so the effect does not speak for those."
        if is_partial(estimates)
        else "",
    )
    return joined(
        [
            table("table-effects", "Effects of each arm, as the release states them", head, groups),
            notes,
        ]
    )


def is_partial(estimates: Sequence[dict[str, Any]]) -> bool:
    """Whether any of the estimates leaves people out."""
    return any(one["coverage"] is not None and one["coverage"] < 1 for one in estimates)


def _effect_row(one: dict[str, Any], statistic: str) -> Sequence[Content]:
    kept = unprotected(one["std_error"], one["privacy_std_error"])
    return [
        estimator_name(one["estimator"], statistic),
        number(one["estimate"], 3),
        _interval(one),
        number(one["std_error"], 3),
        number(one["privacy_std_error"], 3),
        percent(1 - kept),
        number(one["p_value"], 2),
        number(one["p_value_holm"], 2),
        _compared(one),
    ]


def _compared(one: dict[str, Any]) -> Markup:
    """How many the estimate covers, and their share where that is not everybody."""
    if one["coverage"] is None or one["coverage"] >= 1:
        return count(one["n_units"])
    return markup("{n} ({share})", n=count(one["n_units"]), share=percent(one["coverage"]))
