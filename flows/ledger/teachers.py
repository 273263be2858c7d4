"""Who teaches a night: which published releases its guess at outcomes is made of.

Nothing but files that are public already, and are there as they were published, is read: no draft,
no reservation, no raw file. What a night has learnt stands in its own file, with who taught it.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from estimators.published_guess import (
    Outputs,
    PublishedGuess,
    as_rows,
    even_part,
    latest,
    learnt,
    learnt_within,
)
from flows.config.model.experiment import Config
from flows.config.model.sections import NamedOutcome
from flows.ledger.account import Account
from flows.released.lists import Known
from schemas.arrays import Floats
from schemas.errors import ClusterdpError
from schemas.names import ReleaseName
from schemas.released import ALL

Row = dict[str, Any]

log = logging.getLogger("clusterdp")

_RECORDED = """
    SELECT metric, "cluster", arm, outcome, probability FROM main.guess
    ORDER BY metric, "cluster", arm, outcome"""
_GUESS_FROM = "SELECT guess_from FROM main.release"


def learn_guess(
    config: Config, account: Account, period: str, *, revise: bool = False, writes: bool = True
) -> Config:
    """Return a configuration with what earlier releases tell of its outcomes, where they do.

    A night learns from all earlier periods, of each from the greatest revision that is to be used,
    as long as arms and the range of an outcome are the same. It keeps the declared guess, the even
    one, where there is none; where a later period is published already (a backfill); and where the
    period itself is published, which reads no guess, unless it is to be revised: a revision has the
    guess that stands in what it revises, and the declared one where that file is gone.

    The guess is a function of public files and facts alone, so it costs nothing. Where it
    ``writes``, what other machines have put up in a store is brought here and ``series.duckdb``
    brought up to date first, which a run may have died before.
    What cannot be read teaches nobody.
    """
    try:
        return _learnt(config, account, period, revise=revise, writes=writes)
    except (ClusterdpError, OSError) as error:
        log.warning("%s: has the declared guess: %s", period, error)
    return config.taught({})


def _learnt(config: Config, account: Account, period: str, *, revise: bool, writes: bool) -> Config:
    wanted = [one for one in config.outcomes if one.guess == "published"]
    if wanted and writes:
        account.catch_up()
    if not wanted or not account.shelf.directory.is_dir():
        return config
    known, was_published = account.known(), account.has_published(period)
    if was_published or any(one.period == period for one in known.intact):
        return config.taught(_recorded(config, account, period, known) if revise else {})
    teachers = _teachers(known)
    if not teachers or teachers[-1].period > period:
        return config
    names = [one.release_id for one in teachers]
    rows = account.outputs_of_nights()
    if writes and not {*names} <= {one["release_id"] for one in rows}:
        account.renew_series()
        rows = account.outputs_of_nights()
    rows = [one for one in rows if one["release_id"] in names]
    guesses = ((one.name, _guess(config, one, rows, names, known)) for one in wanted)
    return config.taught({name: guess for name, guess in guesses if guess is not None})


def as_taught(config: Config, period: str) -> Config:
    """The configuration that a night would have, or had: changes nothing."""
    return learn_guess(config, Account.of(config), period, revise=True, writes=False)


def teachers_of(config: Config, account: Account) -> tuple[str, ...]:
    """The releases that the next night would learn from, if it learns."""
    if all(one.guess != "published" for one in config.outcomes):
        return ()
    return tuple(one.release_id for one in _teachers(account.known()))


def _teachers(known: Known) -> list[ReleaseName]:
    """The last revision of each period that is public and to be used, whatever became of its file.

    One may have been removed as too old.
    """
    pruned = [name for one in known.lists.pruned if (name := ReleaseName.parse(one)) is not None]
    usable = (
        one for one in {*known.intact, *pruned} if one.release_id not in known.lists.withdrawn
    )
    return list({one.period: one for one in sorted(usable)}.values())


def _guess(
    config: Config, outcome: NamedOutcome, rows: Sequence[Row], names: Sequence[str], known: Known
) -> PublishedGuess | None:
    """What releases of these ``names``, in order, tell of an outcome; None where none does."""
    values, arms = np.array(outcome.support), config.arms.names
    by_release: dict[str, list[Row]] = {one: [] for one in names}
    metrics: dict[str, set[str]] = {one: set() for one in names}
    for row in rows:
        metrics[row["release_id"]].add(row["metric"])
        if row["metric"] == outcome.name:
            by_release[row["release_id"]].append(row)
    found = [
        (one, outputs, of_one[0]["epsilon"] / len(metrics[one]))
        for one, of_one in by_release.items()
        if of_one and (outputs := _outputs(of_one, arms, values)) is not None
    ]
    if not found:
        return None
    found = found[-latest([outputs for _, outputs, _ in found], len(values)) :]
    nights = [outputs for _, outputs, _ in found]
    told = sum(float(one.counts.sum()) * min(1.0, epsilon**2) for _, one, epsilon in found)
    nearest = outcome.rounding == "nearest"
    shares = learnt(nights, values, len(arms), nearest=nearest)
    within = learnt_within(nights, values, shares, nearest=nearest)
    return PublishedGuess(
        tuple(values.tolist()),
        as_rows(shares),
        arms,
        even_part(told),
        ", ".join(_with_digest(one, known) for one, *_ in found),
        tuple((name, as_rows(of_arms)) for name, of_arms in within.items()),
    )


def _outputs(rows: Sequence[Row], arms: Sequence[str], values: Floats) -> Outputs | None:
    """The outputs of a night; None where its arms, or the range of its outcome, are others."""
    grid = np.array(rows[0]["outcomes"])
    if (grid[0], grid[-1]) != (values[0], values[-1]) or not {r["arm"] for r in rows} <= {*arms}:
        return None
    numbers = sorted({row["table"] for row in rows})
    tables = {row["table"]: row["probabilities"] for row in rows}
    counts = [np.array(row["counts"]) for row in rows]
    within = [
        np.array(row["counts_within"], np.int64).reshape(len(row["clusters"]), len(row["counts"]))
        for row in rows
    ]
    left = [every - own.sum(axis=0) for every, own in zip(counts, within, strict=True)]
    n_clusters = [len(own) for own in within]
    of_rows = np.append(np.repeat(np.arange(len(rows)), n_clusters), np.arange(len(rows)))
    arm = np.array([arms.index(row["arm"]) for row in rows])
    return Outputs(
        grid=grid,
        chances=np.array([tables[one] for one in numbers]).reshape(len(numbers), len(grid), -1),
        arm=arm[of_rows],
        table=np.searchsorted(numbers, [row["table"] for row in rows])[of_rows],
        counts=np.vstack([*(own for own in within if len(own)), *left]).astype(np.int64),
        cluster=tuple(name for row in rows for name in row["clusters"]),
    )


def _with_digest(release_id: str, known: Known) -> str:
    """A release and the digest of its file, which may be gone; without, where none is known."""
    pruned = known.lists.pruned.get(release_id)
    digest = known.digests.get(f"{release_id}.duckdb") or (pruned and pruned.sha256)
    return f"{release_id} {digest}" if digest else release_id


def _recorded(
    config: Config, account: Account, period: str, known: Known
) -> dict[str, PublishedGuess]:
    """The guess of the last revision of a period, as it stands in its file, by outcome.

    Nothing where it was a declared one, where the file is gone, or where the outcome is another.
    """
    last = max((one for one in known.intact if one.period == period), default=None)
    if last is None:
        return {}
    from flows.released.file.opening import open_safely  # noqa: PLC0415 - DuckDB; status reads none

    with open_safely(account.shelf.path_of(last)) as connection:
        ((guess_from,),) = connection.execute(_GUESS_FROM).fetchall()
        rows = connection.execute(_RECORDED).fetchall()
    found = {}
    for outcome in config.outcomes:
        of_clusters: dict[str, dict[str, dict[float, float]]] = {}
        for metric, cluster, arm, value, probability in rows:
            if metric == outcome.name:
                of_arms = of_clusters.setdefault(str(cluster), {})
                of_arms.setdefault(str(arm), {})[value] = probability
        arms = config.arms.names
        values = {tuple(one) for of_arms in of_clusters.values() for one in of_arms.values()}
        are_whole = all({*of_arms} == {*arms} for of_arms in of_clusters.values())
        if outcome.guess != "published" or not are_whole or len(values) != 1:
            continue
        (own,), guesses = values, {}
        for name, of_arms in of_clusters.items():
            guesses[name] = tuple(tuple(of_arms[arm].values()) for arm in arms)
        shares = guesses.pop(ALL, None)
        if shares is not None and (own[0], own[-1]) == outcome.ends:
            kept = tuple(guesses.items())
            found[outcome.name] = PublishedGuess(own, shares, arms, 0.0, guess_from, kept)
    return found
