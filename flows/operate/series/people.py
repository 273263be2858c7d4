"""Whether releases are of different people, and what those who come back contribute.

The files may say it (what the publisher's account by unit counted), their ids may show it, or
nobody but the publisher knows. Files are read here whose values were checked already, when
effects were estimated from them.

Ids are matched in the canonical form by which accounts know a person again. Two people whom that
brings together cancel: products of what strangers contribute have mean 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import duckdb
import numpy as np
import polars as pl

from estimators.operate.parties import families, party_contributions
from estimators.operate.people import (
    CrossTerms,
    Returners,
    contributions,
    cross_terms,
    of_ratio,
    together,
)
from flows.operate.series.nights import Nights
from flows.released.file.evidence import read_frame
from flows.released.file.opening import Opening, open_safely
from flows.released.file.sql import quote_name
from flows.released.night import Night
from flows.runtime.threads import by_pieces, rising
from schemas.arrays import Bools, Floats, Ints, Words
from schemas.canonical_ids import spelt
from schemas.documents import taken
from schemas.tables import debiased

Kind = Literal["disjoint", "returning", "unknown"]
"""Whether nobody is in two releases, some are, or it cannot be told."""

_IDS = "SELECT {who} AS unit FROM main.units AS u"
_LOOK_HASHED = """
SELECT coalesce(bool_and(regexp_full_match(unit_id::VARCHAR, '[0-9a-f]{64}')), false)
FROM (SELECT unit_id FROM main.units LIMIT 1000)
"""
_ROWS = """
SELECT {who} AS unit, u.cluster::VARCHAR AS cluster, u.arm::VARCHAR AS arm,
       u.{outcome} AS debiased, {group} AS "group"{own}
FROM main.units AS u {join}
"""
_OWN = ", s.own_sizes"
_BY_OWN = "JOIN main.strata AS s ON s.arm = u.arm AND s.cluster IS NOT DISTINCT FROM u.cluster"
_HAS_OWN = "SELECT coalesce(max(own_sizes), 0) > 0 FROM main.strata"
_PIECE = 1 << 16  # ids that are read at once
_JOIN = "JOIN temp.main.series_members AS m ON m.unit_id = u.unit_id::VARCHAR"


@dataclass(frozen=True)
class People:
    """Who is in several of the releases, as far as it is known."""

    kind: Kind
    are_new: Bools
    """Whether nobody in a period is in an earlier one, as far as it is known; shape [T]."""
    shared: Words
    """Those who are in several releases, in order, where their ids can be matched.

    Where units were assigned together, what was assigned: a household comes back in any member.
    """
    because: str
    n_unmatched: int = 0
    """Of one release, the most whom its account had seen and no earlier release has, by hashes."""

    def until(self, period: int) -> Kind:
        """Whether the people are known to differ up to a period, of this position."""
        return "disjoint" if bool(self.are_new[1 : period + 1].all()) else self.kind


@dataclass(frozen=True)
class Accounted:
    """What a release says of its account, and when it was made."""

    created_at: datetime
    """UTC."""
    n_returning: int | None
    """Units that were released before; None where nobody looked for them."""
    returning: str | None
    """What became of those: ``charge``, or ``set_aside``."""
    account_key_fingerprint: str | None
    """Of the key under which the account tells units apart."""
    assigned: bool = False
    """Whether units were assigned together: then that units are new says too little."""


def _differ(one: Accounted, other: Accounted) -> bool:
    """Whether no person is in both releases, by what their files say.

    The one that was made later knows: it looked for units released before, under the same account's
    key as the other, and found none or set them aside.
    """
    key = one.account_key_fingerprint
    if key is None or key != other.account_key_fingerprint or one.assigned or other.assigned:
        return False
    latest = max(one.created_at, other.created_at)  # both, where they are of one second
    return all(
        release.n_returning == 0 or release.returning == "set_aside"
        for release in (one, other)
        if release.created_at == latest
    )


def people_by_files(releases: Sequence[Accounted]) -> People:
    """Who is in several releases, by what they say of themselves alone; in order of periods."""
    are_new: Bools = np.array(
        [all(_differ(one, earlier) for earlier in releases[:at]) for at, one in enumerate(releases)]
    )
    nobody = np.zeros(0, dtype=np.uint64)
    if are_new.all():
        return People("disjoint", are_new, nobody, "the files say that all people are new")
    if any((release.n_returning or 0) > 0 for release in releases):
        return People("returning", are_new, nobody, "the files say that people come back")
    return People("unknown", are_new, nobody, "the files do not say whether people come back")


def find_people(nights: Nights, told: Kind | None = None, opening: Opening = open_safely) -> People:
    """Find out who is in several releases: as ``told``, by the files, else by their ids.

    Where ``told`` says that people come back, ids are matched although nothing shows that they were
    hashed under one key.
    """
    every = nights.nights
    by_files = people_by_files([taken(Accounted, night.manifest) for night in every])
    nobody = by_files.shared
    if told == "disjoint":
        are_new = np.ones(len(every), dtype=bool)
        return People("disjoint", are_new, nobody, "as you say, nobody is in two of them")
    if by_files.kind == "disjoint" and told is None:
        return by_files
    why_not = _why_ids_differ(every, opening)
    have_ids = all(night.manifest.has_units for night in every)
    if why_not is not None and (told is None or not have_ids):
        kind: Kind = "returning" if told or by_files.kind == "returning" else "unknown"
        return People(kind, by_files.are_new, nobody, why_not)
    shared, n_back = _shared(every, opening)
    one = "group" if every[0].manifest.assigned else "id"  # of what was assigned together
    if len(shared):
        because = f"{len(shared):,} {one}s are in more than one release"
        return People("returning", n_back == 0, shared, because, _unmatched(every, n_back))
    if told == "returning" or by_files.kind == "returning":
        because = f"people come back, but no {one} is in two releases, so they cannot be matched"
        return People("returning", by_files.are_new, nobody, because)
    return People("disjoint", n_back == 0, nobody, f"no {one} is in more than one release")


def _why_ids_differ(nights: Sequence[Night], opening: Opening) -> str | None:
    """Say why equal ids need not be one person, or different ones two; None where they are."""
    if not all(night.manifest.has_units for night in nights):
        return "releases without units have no ids to be matched"
    if any(night.manifest.assigned for night in nights):
        return _why_parties_differ(nights)
    keys = {night.manifest.unit_id_key_fingerprint for night in nights}
    if len(keys) > 1:
        return "ids were hashed under several keys, or not all of them, so they cannot be matched"
    if keys != {None}:
        return None
    with opening(nights[0].path) as connection:
        (looks_hashed,) = connection.execute(_LOOK_HASHED).fetchall()[0]
    return "ids look hashed, and nothing shows that it was under one key" if looks_hashed else None


def _why_parties_differ(nights: Sequence[Night]) -> str | None:
    if not all(night.manifest.assigned for night in nights):
        return "units were assigned together in some releases only"
    keys = {night.manifest.account_key_fingerprint for night in nights}
    if len(keys) == 1 and keys != {None}:
        return None
    return "nothing shows that assigned_to was made under one key in all releases"


def _who(night: Night) -> str:
    """SQL for who comes back: units or, where they were assigned together, all of these as one."""
    return "u.assigned_to" if night.manifest.assigned else "u.unit_id"


def _unmatched(nights: Sequence[Night], n_back: Ints) -> int:
    """How many hashes may hide: they are of ids as written, accounts know all spellings of one."""
    every = [night.manifest for night in nights]
    if any(one.assigned or one.unit_id_key_fingerprint is None for one in every):
        return 0
    known = [one.n_returning or 0 for one in every]
    return max(0, int(np.max(np.array(known) - n_back)))


def _shared(nights: Sequence[Night], opening: Opening) -> tuple[Words, Ints]:
    """Who is in several nights, in order, and how many of each are in earlier ones, shape [T]."""
    by_night = []
    for night in nights:
        with opening(night.path) as connection:
            ids = _words(read_frame(connection, _IDS.format(who=_who(night)))["unit"])
            by_night.append(_distinct(rising(ids)))
    every = rising(np.concatenate(by_night))
    shared = _distinct(every[1:][every[1:] == every[:-1]])
    seen = np.zeros(len(shared), dtype=bool)
    n_back = np.zeros(len(nights), dtype=np.int64)
    for place, ids in enumerate(by_night):
        here = np.isin(shared, ids)
        n_back[place] = np.count_nonzero(seen & here)
        seen |= here
    return shared, n_back


def _distinct(ordered: Words) -> Words:
    found: Words = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found


def _words(ids: pl.Series) -> Words:
    """A word for each id, the same for all its spellings; shape [n]."""

    def read(piece: slice) -> Words:
        form = spelt(ids[piece], "canonical")
        words: Words = np.where(form.negative, ~form.values, form.values)
        if len(form.texts):
            words[form.is_text] = form.texts.hash().to_numpy()
        return words

    return np.concatenate(by_pieces(read, len(ids), _PIECE))


def crossed(
    nights: Nights,
    people: People,
    metric: str,
    segments: Callable[[Night], pl.DataFrame] | None = None,
    n_segments: int = 1,
    opening: Opening = open_safely,
) -> CrossTerms:
    """Return what ties the periods together, by treatment arm, then segment; shape [T, 2 A · G].

    First for all estimators but ``combined``, then for that, whose strata may count otherwise.
    ``metric`` is the outcome or ratio that the effects are on. ``segments`` gives a row for each
    unit in a segment of a night: ``unit_id``, and ``group``, its position; None stands for
    everybody in one.
    """
    shape = (len(nights.nights), n_segments)
    n_arms = len(nights.arms) - 1
    parts: list[list[_EstimateRows]] = [[] for _ in range(2 * n_arms)]
    for place, night in enumerate(nights.nights):
        with opening(night.path) as connection:
            grouped = None if segments is None else segments(night)
            members, below, unit = _members(connection, night, metric, grouped)
        is_shared = np.isin(unit, people.shared)
        same_shares = night.manifest.same_shares
        if night.manifest.assigned:
            members = replace(members, party=np.unique(unit, return_inverse=True)[1])
        for number, rows in enumerate(parts):
            arm, of_combined = number % n_arms + 1, number >= n_arms
            if of_combined and members.own_sizes is None:
                rows.append(parts[number - n_arms][-1])
                continue
            given = members if of_combined else replace(members, own_sizes=None)
            if below is not None:
                given = of_ratio(members, below, arm, 0, same_shares=same_shares)
            if given.party is None:
                own = contributions(given, arm, 0, same_shares=same_shares)
                collapsed = np.full(len(own), -1)
            else:
                found = party_contributions(given, arm, 0, same_shares=same_shares)
                own, collapsed = found.value, found.collapsed
            at = np.flatnonzero(is_shared | (collapsed >= 0))
            period: Ints = np.full(len(at), place, dtype=np.int64)
            rows.append(_EstimateRows(given.group[at], unit[at], period, own[at], collapsed[at]))
    return side_by_side([_crossed(rows, shape) for rows in parts])


@dataclass(frozen=True)
class _EstimateRows:
    """Units that may be in several releases, in one of them; shape [M] each."""

    effect: Ints
    unit: Words
    period: Ints
    contribution: Floats
    collapsed: Ints
    """The stratum that the unit's parties make one family of; −1 for none."""


def _crossed(nights: Sequence[_EstimateRows], shape: tuple[int, int]) -> CrossTerms:
    effect, unit, period, own, collapsed = (
        np.concatenate([getattr(one, name) for one in nights])
        for name in _EstimateRows.__dataclass_fields__
    )
    if (collapsed >= 0).any():
        stratum = np.where(collapsed >= 0, collapsed * shape[0] + period, -1)
        unit = families(effect, unit, stratum)
    by_night = [
        together(*(part[period == t] for part in (effect, unit, period, own)))
        for t in range(shape[0])
    ]
    rows = [np.concatenate(parts) for parts in zip(*by_night, strict=True)]
    return cross_terms(rows[0], rows[1], rows[2], rows[3], shape)


def side_by_side(found: Sequence[CrossTerms]) -> CrossTerms:
    """Put the terms of one set of effects after those of the other."""
    return CrossTerms(
        np.concatenate([one.total for one in found], axis=1),
        np.concatenate([one.scatter for one in found], axis=1),
    )


def _members(
    connection: duckdb.DuckDBPyConnection,
    night: Night,
    metric: str,
    segments: pl.DataFrame | None,
) -> tuple[Returners, Floats | None, Words]:
    """The units of a release, in segments where there are some, and who they are.

    Of a ratio they have the numerator's outcomes; the denominator's stand beside them, else None.
    """
    ratio = next((one for one in night.manifest.ratios if one.metric == metric), None)
    outcome = quote_name(debiased(metric if ratio is None else ratio.numerator))
    if ratio is not None:
        outcome = f"{quote_name(debiased(ratio.denominator))} AS below, u.{outcome}"
    who = _who(night)
    has_own = bool(connection.execute(_HAS_OWN).fetchall()[0][0])
    own, join = (_OWN, _BY_OWN) if has_own else ("", "")
    group = "0::BIGINT"
    if segments is not None:
        connection.register("members_to_insert", segments.to_arrow())
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE series_members AS "
            'SELECT unit_id, "group"::BIGINT AS "group" FROM members_to_insert'
        )
        group, join = 'm."group"', f"{_JOIN} {join}"
    query = _ROWS.format(who=who, outcome=outcome, group=group, join=join, own=own)
    rows = read_frame(connection, query)
    cluster = rows["cluster"].cast(pl.Categorical).to_physical()
    arm = rows["arm"].cast(pl.Enum(night.arms)).to_physical()
    members = Returners(
        group=rows["group"].to_numpy().astype(np.int64),
        cluster=cluster.to_numpy().astype(np.int64),
        arm=arm.to_numpy().astype(np.int64),
        debiased=rows["debiased"].to_numpy().astype(np.float64),
        own_sizes=rows["own_sizes"].to_numpy() if has_own else None,
    )
    below = None if ratio is None else rows["below"].to_numpy().astype(np.float64)
    return members, below, _words(rows["unit"])
