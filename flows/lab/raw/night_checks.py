"""What an audit asks of nights of made-up people: losses, charges, what is public, and draws."""

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from flows.lab.raw.draws import DrawnOutcome, draws_of
from flows.lab.raw.follows import problems_of
from flows.lab.raw.nights import AuditNight
from flows.released.loss.check import check_loss
from flows.released.loss.loss import Loss
from privatizers.accounting.budget import Budget, of_group
from privatizers.lab.audit.checks import Events, Magnitudes
from privatizers.lab.audit.noise_laws import pair_events
from privatizers.lab.audit.response_laws import AnyResponses, response_events, response_pairs
from schemas.arrays import Ints

_ROUNDED = 1e-9
"""By how much of itself a sum of losses that was computed in doubles may be off."""


def failures(nights: Sequence[AuditNight]) -> Iterator[str]:
    """Every run that did not end as it should."""
    for night in nights:
        if night.ended.made is None:
            yield f"{night}: {night.ending}"


def differences(alike: Sequence[AuditNight]) -> Iterator[str]:
    """Everything public that differs between first nights of people who have other outcomes."""
    first = alike[0].public
    for night in alike[1:]:
        if night.number > 0:
            continue
        other = night.public
        for name in [*first, *(other.keys() - first.keys())]:
            one, two = first.get(name), other.get(name)
            if (
                one is None
                or two is None
                or not one.equals(two, null_equal=True, check_dtypes=True)
            ):
                yield f"{night}: {name} is another than {alike[0]}"


def loss_of(night: AuditNight) -> Loss:
    """What the file of a night that was published loses, by the file alone."""
    if night.ended.made is None:
        raise AssertionError("a night without a file")
    return check_loss(night.ended.made.path)


def overspent(night: AuditNight, loss: Loss, claimed: Budget) -> Iterator[str]:
    """Where a file loses more than it states, or states something else than is claimed."""
    if not loss.holds:
        yield (
            f"{night}: its file loses epsilon {loss.epsilon:.6g} at delta "
            f"{loss.stated_delta:g}, and states {loss.stated_epsilon:.6g}"
        )
    if (loss.stated_epsilon, loss.stated_delta) != (claimed.epsilon, claimed.delta):
        yield (
            f"{night}: its file states epsilon {loss.stated_epsilon!r} and delta "
            f"{loss.stated_delta!r}, and {claimed.epsilon!r} and {claimed.delta!r} are claimed"
        )


def undercharged(made: Sequence[AuditNight], losses: Sequence[Loss]) -> Iterator[str]:
    """Where the ledger was charged less than files lose, by each night and by all of a person's."""
    paid: dict[tuple[Path, int], float] = {}
    for night, loss in zip(made, losses, strict=True):
        truth, ended = night.truth, night.ended.made
        payers, rows = np.unique(truth.people.payers(truth.numbers), return_counts=True)
        most = int(rows.max())
        lost = of_group(Budget(loss.epsilon, loss.stated_delta), most)
        if not _covers(night.charged, lost):
            yield (
                f"{night}: {most} row(s) of one who pays lose epsilon {lost.epsilon:.6g}, and "
                f"{night.charged.epsilon:.6g} was charged"
            )
        for payer in payers.tolist():
            whose = night.config.directory, payer
            paid[whose] = paid.get(whose, 0.0) + lost.epsilon
        dearest = max(paid[night.config.directory, payer] for payer in payers.tolist())
        told = math.inf if ended is None else ended.statement.spent.epsilon
        if told < dearest * (1 - _ROUNDED):
            yield (
                f"{night}: somebody has lost epsilon {dearest:.6g} by now, and at most {told:.6g} "
                "is said to be paid"
            )


def _covers(charged: Budget, lost: Budget) -> bool:
    enough = lost.epsilon * (1 - _ROUNDED), lost.delta * (1 - _ROUNDED)
    return charged.epsilon >= enough[0] and charged.delta >= enough[1]


def not_following(night: AuditNight) -> Iterator[str]:
    """What does not follow from what its file publishes."""
    release = night.release
    if release is None:
        return
    views = night.config.views
    for view, design in zip(views, night.truth.designs, strict=True):
        name = view.outcomes[0].name
        for problem in problems_of(view, design, release.of_outcome(name)):
            yield f"{night}: {name}: {problem}"


def drawn_in(night: AuditNight) -> list[DrawnOutcome]:
    """What was drawn in it."""
    release = night.release
    return [] if release is None else draws_of(night.truth, release)


def events_of_nights(
    drawn: Sequence[list[DrawnOutcome]], made: Sequence[AuditNight]
) -> list[Events]:
    """Draws of each night by itself, noise of each by size: whatever way it went."""
    events: list[Events] = []
    for outcomes, word in zip(drawn, made, strict=True):
        for one in outcomes:
            if one.responses is not None:
                events += response_events(one.responses, f"{word}: a unit's {one.name}")
            for noise in one.noise:
                what = f"{word}: noise of {one.name}"
                events.append(Magnitudes.of([what], noise.values.reshape(1, -1), noise.scale))
    return events


def repeated(drawn: Sequence[list[DrawnOutcome]], made: Sequence[AuditNight]) -> list[Events]:
    """Pairs of nights: neither noise nor draws of one are those of another."""
    events: list[Events] = []
    for (first, one), (second, other) in itertools.combinations(zip(drawn, made, strict=True), 2):
        for here, there in zip(first, second, strict=False):
            name = f"{here.name} of two nights ({one}; {other})"
            for mine, theirs in zip(here.noise, there.noise, strict=False):
                if mine.values.shape == theirs.values.shape and mine.scale == theirs.scale:
                    values = mine.values.ravel(), theirs.values.ravel()
                    events += pair_events(*values, mine.scale, f"noise of {name}")
            responses = here.responses, there.responses
            if responses[0] is not None and responses[1] is not None:
                events += _pairs_of_units(responses[0], responses[1], here.place, there.place, name)
    return events


def _pairs_of_units(
    first: AnyResponses, second: AnyResponses, here: Ints, there: Ints, name: str
) -> list[Events]:
    """Units that are in the same place both nights, which need not be the same people."""
    _, one, other = np.intersect1d(here, there, return_indices=True)
    return response_pairs(first.part(one), second.part(other), f"{name}: draws of a place")
