"""What an audit asks of nights of made-up people: losses, charges, what is public, and draws."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from flows.lab.raw.draws import DrawnOutcome
from flows.lab.raw.nights import AuditNight
from flows.lab.raw.published import FileTables
from flows.released.loss.loss import Loss
from privatizers.accounting.budget import Budget, of_group
from privatizers.lab.audit.checks import Events
from privatizers.lab.audit.laws import noise_pairs, response_events, sizes
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from schemas.arrays import Floats

_ROUNDED = 1e-9
"""By how much of itself a sum of losses that was computed in doubles may be off."""


def differences(alike: Sequence[AuditNight]) -> Iterator[str]:
    """Everything public that differs between first nights of people who have other outcomes."""
    first = alike[0].public
    for night in (night for night in alike[1:] if night.number == 0):
        for name in first | night.public:
            one, two = first.get(name), night.public.get(name)
            if (
                one is None
                or two is None
                or not one.equals(two, null_equal=True, check_dtypes=True)
            ):
                yield f"{night}: {name} is another than {alike[0]}"


def overspent(night: AuditNight, loss: Loss, claimed: Budget) -> Iterator[str]:
    """Where a file loses more than it states, or states something else than is claimed."""
    if not loss.holds:
        yield (
            f"{night}: its file loses epsilon {loss.epsilon:.6g} at delta "
            f"{loss.stated_delta:g}, and states {loss.stated_epsilon:.6g}: {loss.broken[0]}"
        )
    if (loss.stated_epsilon, loss.stated_delta) != (claimed.epsilon, claimed.delta):
        yield (
            f"{night}: its file states epsilon {loss.stated_epsilon!r} and delta "
            f"{loss.stated_delta!r}, and {claimed.epsilon!r} and {claimed.delta!r} are claimed"
        )


def undercharged(made: Sequence[AuditNight], losses: Sequence[Loss]) -> Iterator[str]:
    """Where the ledger was charged less than files lose, by each night and by all of a person's."""
    paid: dict[Path, Floats] = {}
    for night, loss in zip(made, losses, strict=True):
        truth, charged = night.truth, night.charged
        payers, rows = np.unique(truth.people.payers(truth.numbers), return_counts=True)
        most, enough = int(rows.max()), 1.0 - _ROUNDED
        lost = of_group(Budget(loss.epsilon, loss.stated_delta), most)
        if charged.epsilon < lost.epsilon * enough or charged.delta < lost.delta * enough:
            yield (
                f"{night}: {most} row(s) of one who pays lose epsilon {lost.epsilon:.6g}, and "
                f"{charged.epsilon:.6g} was charged"
            )
        before = paid.get(night.config.directory, np.zeros(0))
        by_now = np.bincount(payers, minlength=len(before)).astype(np.float64)
        by_now *= lost.epsilon
        by_now[: len(before)] += before
        paid[night.config.directory] = by_now
        dearest, told = by_now[payers].max(), night.made.statement.spent.epsilon
        if told < dearest * enough:
            yield (
                f"{night}: somebody has lost epsilon {dearest:.6g} by now, and at most {told:.6g} "
                "is said to be paid"
            )


def not_following(made: Sequence[AuditNight], losses: Sequence[Loss]) -> Iterator[str]:
    """What does not follow from what files publish.

    Priors are looked at where the loss is worked out, weights and what units count as when a file
    is opened. Tables are made again by the functions of the mechanism: what they keep of ε is
    known there, not what they were learnt from.
    """
    for night, loss in zip(made, losses, strict=True):
        for rule in loss.broken:
            if "debias: " in rule or "estimates and ends: " in rule:
                yield f"{night}: {rule}"
        for one, design in zip(night.config.outcomes, night.truth.designs, strict=True):
            mechanism, own = design.mechanism, night.release.of_outcome(one.name)
            arms = night.config.arms.names
            if isinstance(mechanism, ClusterOptimalDP) and not _are_learnt(mechanism, own, arms):
                yield f"{night}: {one.name}: tables are not those of the published counts"


def _are_learnt(mechanism: ClusterOptimalDP, own: FileTables, arms: Sequence[str]) -> bool:
    """Whether response tables are those that the mechanism makes of the published counts."""
    arm = own.cells["arm"].cast(pl.Enum(arms)).to_physical().to_numpy()
    noisy = own.of_each(own.cells, "counts", "noisy_count")
    of_arms = own.of_each(pl.DataFrame({"arm": arms}), "arm_counts", "noisy_count")
    made = mechanism.response(
        None if noisy is None else noisy.astype(np.int64),
        own.frames["pools"]["n_units"].to_numpy().astype(np.int64),
        arm.astype(np.int64),
        None if of_arms is None else of_arms.astype(np.int64),
    )
    stated = made.probabilities
    if isinstance(mechanism, PairedOptimalDP) and mechanism.place == 1:  # its own outcome first
        first, second = (len(one.values) for one in mechanism.pair)
        stated = stated.reshape(-1, first, second, made.n_outputs).swapaxes(1, 2)
    tables, table_of = own.response_tables()
    stated = stated.reshape(-1, *tables.shape[1:])
    return np.array_equal(tables[table_of], stated[made.table_of])


def laws_of(drawn: Sequence[DrawnOutcome], night: AuditNight) -> Iterator[Events]:
    """Draws of a night by itself, noise by size: whatever way it went."""
    for one in drawn:
        if one.responses is not None:
            yield from response_events([one.responses], f"{night}: a unit's {one.name}")
        for noise in one.noise:
            yield sizes(noise.values.reshape(1, -1), noise.scale, [f"{night}: noise of {one.name}"])


def repeated(
    drawn: Sequence[Sequence[DrawnOutcome]], made: Sequence[AuditNight]
) -> Iterator[Events]:
    """Pairs of nights: neither noise nor draws of one are those of another.

    Units are paired that are in the same place both nights; they need not be the same people.
    """
    for (first, one), (second, other) in itertools.combinations(zip(drawn, made, strict=True), 2):
        for here, there in zip(first, second, strict=True):
            name = f"{here.name} of two nights ({one}; {other})"
            for mine, theirs in zip(here.noise, there.noise, strict=False):
                if mine.values.shape == theirs.values.shape:
                    values = mine.values.ravel(), mine.scale, theirs.values.ravel(), theirs.scale
                    yield noise_pairs(*values).counted(f"each noise of {name}")
            if here.responses is not None and there.responses is not None:
                _, mine_at, theirs_at = np.intersect1d(here.place, there.place, return_indices=True)
                mine_drawn = here.responses.trials.at(mine_at)
                both = mine_drawn.both(there.responses.trials.at(theirs_at))
                yield both.counted(f"each draw of a place's {name}")
