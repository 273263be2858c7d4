"""What a release protects, and what its ε means for a person, in words, a figure and a table."""

import math

import numpy as np
from numpy.typing import NDArray

from flows.released.page import figures
from flows.released.page.html import (
    Group,
    Markup,
    Section,
    beside,
    cards,
    clean,
    figure,
    markup,
    number,
    paragraph,
    percent,
    table,
)
from schemas.released import Manifest

Floats = NDArray[np.float64]

PRIORS: Floats = np.array([0.01, 0.1, 0.5, 0.9])
"""Suspicions that the meaning of ε is shown for."""


def odds_after(prior: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Least and greatest probability that a suspicion of ``prior`` can have after the release.

    Its odds p/(1 − p) are divided, or multiplied, by e^ε at most.
    """
    factor = math.exp(min(epsilon, 700.0))
    return prior / (prior + (1 - prior) * factor), prior / (prior + (1 - prior) / factor)


def protection_section(manifest: Manifest) -> Section:
    """What is protected and what is not, and what ε means."""
    protected = cards(
        *_outcomes_and_roster(manifest),
        markup(
            "<strong>Not protected: what is true of people in general.</strong> That a "
            "treatment works can be learnt, as it is meant to be, and may change what one believes "
            "of a person, whether or not that person’s own outcome was used."
        ),
        markup(
            "<strong>Every release counts.</strong> Other releases on the same people add their "
            "own ε to this one’s; the publisher’s ledger keeps the account."
        ),
    )
    return Section(
        "privacy",
        "What is protected, and what is not",
        [protected, markup("<h3>What ε means for a person</h3>"), *_meaning(manifest)],
        "Privacy",
    )


def _outcomes_and_roster(manifest: Manifest) -> tuple[Markup, Markup]:
    """What is drawn at random, and what stands in the file as it is."""
    if manifest.cluster_epsilon is None:
        return (
            markup(
                "<strong>Protected: every unit’s outcome.</strong> What the file says of outcomes "
                "was drawn at random, so that nobody can tell a unit’s own outcome from it, beyond "
                "the limit that ε sets below. This holds for everything in the file together, and "
                "whatever else somebody knows."
            ),
            markup(
                "<strong>Not protected: who took part.</strong> Unit ids, clusters, arms and "
                "numbers of units stand in the file as they are. Whoever knows a unit’s id learns "
                "that it is there, in which cluster and in which arm. (This page lists no ids.)"
            ),
        )
    return (
        markup(
            "<strong>Protected: every unit’s outcome and cluster.</strong> Each unit’s cluster "
            "was drawn at random first (ε₁ = {part} of the whole ε); sizes of clusters and all "
            "else in the file are made of the drawn ones, and what it says of outcomes was drawn "
            "at random within them. Nobody can tell a unit’s own outcome and cluster from it, "
            "beyond the limit that ε sets below, whatever else they know.",
            part=number(manifest.cluster_epsilon, 6),
        ),
        markup(
            "<strong>Not protected: who took part.</strong> Unit ids, arms and the numbers of "
            "units in each arm stand in the file as they are. Whoever knows a unit’s id learns "
            "that it is there, and in which arm. (This page lists no ids.)"
        ),
    )


def _meaning(manifest: Manifest) -> list[Markup]:
    epsilon, delta = manifest.epsilon, manifest.delta
    least, most = odds_after(PRIORS, epsilon)
    promise = paragraph(
        "This release is (ε, δ)-differentially private for {neighbours}, with ε = {epsilon} and "
        "δ = {delta}. Suppose that somebody suspects a person of a certain outcome, with all that "
        "they know of others, be it everybody else’s outcomes. Reading everything in the file then "
        "<strong>multiplies the odds</strong> of that suspicion <strong>by "
        "e<sup>ε</sup> = {factor}</strong> at most, or divides them by it.{weak}",
        neighbours=clean(manifest.neighbours),
        epsilon=number(epsilon, 6),
        delta=number(delta),
        factor=number(math.exp(epsilon), 3) if epsilon < 700 else "more than 10³⁰⁰",
        weak=" So large a factor is next to no protection of a single outcome."
        if epsilon > 7
        else "",
    )
    parts = [promise]
    if delta > 0:
        parts.append(
            paragraph(
                "As δ is not zero, the probability of any event may differ by a further {delta}: "
                "roughly, there is a chance of that size that more is learnt. The figure and "
                "the table leave it out.",
                delta=number(delta),
            )
        )
    drawing = figures.Drawing(
        "figure-epsilon",
        "How far a suspicion can move",
        f"For suspicions of 1, 10, 50 and 90 %: where they can move to at ε = {epsilon:g}. "
        "The table beside has the same numbers.",
    )
    svg = figures.suspicion(drawing, PRIORS, least, most)
    caption = "Dot: the suspicion before. Bar: where it can be after reading the release."
    rows = [
        [markup("{before}", before=percent(before)), _at_least(low), _at_most(high)]
        for before, low, high in zip(PRIORS.tolist(), least.tolist(), most.tolist(), strict=True)
    ]
    listed = table(
        "table-epsilon",
        "How sure somebody can be of one person’s outcome",
        ["Before", "After, at the least", "After, at the most"],
        [Group(rows)],
    )
    return [*parts, beside(figure(svg, caption), listed)]


def _at_most(value: float) -> Markup:
    """Rounded up, as it is a bound."""
    text = "over 99.9\u00a0%" if value > 0.999 else f"{math.ceil(1000 * value) / 10:g}\u00a0%"
    return markup('<data value="{exact}">{text}</data>', exact=repr(value), text=text)


def _at_least(value: float) -> Markup:
    """Rounded down, as it is a bound."""
    text = "under 0.1\u00a0%" if value < 0.001 else f"{math.floor(1000 * value) / 10:g}\u00a0%"
    return markup('<data value="{exact}">{text}</data>', exact=repr(value), text=text)
