"""Keyed digests of what a release is made from, by which a later run knows the same again.

They depend on outcomes: without the key anybody could try out logs until one fits. It is made on
first use and kept with the rows that were set aside, on the ledger's private side.
"""

import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config.model.experiment import AnyDesign, Config
from flows.config.model.sections import NamedOutcome
from flows.config.unit_id_key import read_key
from flows.ledger.rules import Fingerprint
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.spill.unit_order import text_buffers
from flows.raw.units.rows import Rows, positions
from flows.runtime.progress import Progress
from flows.runtime.reading.key_files import kept_key
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from privatizers.mechanisms.parameters import OptimalParameters
from schemas.raw import ARM, CLUSTER, OUTCOME, PAYER, UNIT, several

KEY_FILE = "digest.key"
_LOST = (
    "without it a period that was published can no longer be told to be unchanged, and counts as "
    "in conflict"
)


@dataclass(frozen=True)
class Stretch:
    """A stretch of what is digested: its length in bytes, and it, in pieces."""

    length: int
    pieces: Iterable[bytes | memoryview]


@values_free
def fingerprint(
    config: Config, rows: Sealed[Rows], design: AnyDesign | Sequence[AnyDesign]
) -> Fingerprint:
    """Digest the kept ``rows``, their unit ids alone, and the settings that can affect a release.

    Of several outcomes each has a ``design``, in the order of ``config.outcomes``.

    Each is ``k-`` and a short name of the key, a colon, and HMAC-SHA-256 in hexadecimals. Rows may
    have come in any order and from any files; text and integer ids are never the same. Raises
    InputError where the key cannot be read or made.
    """
    kept = rows.open()
    ids = unit_parts(kept.unit_type, kept.n_units, lambda: kept.columns(UNIT))
    designs = tuple(design) if isinstance(design, Sequence) else (design,)
    facts = tuple(name for name in config.columns.facts if name != PAYER)
    others, settings = _other_parts(kept, len(designs), facts), _settings(config, designs)
    return digested(config.quarantine_folder, ids, others, settings, n_units=kept.n_units)


def digested(
    folder: Path,
    units: Iterable[Stretch],
    others: Iterable[Stretch],
    settings: bytes,
    *,
    n_units: int,
    of: bytes = b"",
) -> Fingerprint:
    """Digest unit ids, what else the rows hold, and settings, under the key in the quarantine.

    ``of`` tells things of another kind apart, those of a site say.
    """
    key = kept_key(folder / KEY_FILE, "a ledger's digests", _LOST)
    which = f"k-{hmac.digest(key, b'which key', 'sha256').hex()[:8]}:"
    of_rows, of_units, of_settings = (hmac.new(key, digestmod="sha256") for _ in range(3))
    with ThreadPoolExecutor(1) as pool, Progress("recognising the rows", 2 * n_units) as done:
        digest = partial(_digest, pool)
        digest([of_rows], [whole(of + b"rows")])
        digest([of_units], [whole(of + b"units")])
        digest([of_rows, of_units], units)
        done.advance(n_units)
        digest([of_rows], others)
        digest([of_settings], [whole(of + b"settings"), whole(settings)])
    return Fingerprint(*(which + code.hexdigest() for code in (of_rows, of_units, of_settings)))


def _digest(pool: ThreadPoolExecutor, codes: list[hmac.HMAC], parts: Iterable[Stretch]) -> None:
    """Feed all parts to the codes, each behind its length, so that no others give the same."""
    first, *others = codes
    for part in parts:
        for piece in chain([part.length.to_bytes(8, "little")], part.pieces):
            waiting = [pool.submit(code.update, piece) for code in others]  # hashing needs no lock
            first.update(piece)
            for one in waiting:
                one.result()


def whole(piece: bytes) -> Stretch:
    """A stretch in one piece."""
    return Stretch(len(piece), [piece])


def unit_parts(
    kind: pl.DataType, n_units: int, columns: Callable[[], Iterator[pl.Series]]
) -> Iterator[Stretch]:
    """Type, number and values of the unit ids, which ``columns`` yields, some after the other."""
    count = whole(str(n_units).encode())
    if kind == pl.String:
        yield from (whole(b"text"), count)
        yield from _text(columns, n_units)
        return
    yield from (whole(b"uint64" if kind == pl.UInt64 else b"int64"), count)
    yield Stretch(8 * n_units, (bytes_of(units.to_numpy()) for units in columns()))


def _other_parts(rows: Rows, n_outcomes: int, facts: tuple[str, ...]) -> Iterator[Stretch]:
    """What the kept rows hold besides their unit ids; files and row numbers do not matter."""
    used = [arm for arm, size in zip(rows.arms, rows.sizes.sum(axis=0), strict=True) if size]
    yield from _labels(rows, ARM, used)
    yield from _labels(rows, CLUSTER, list(rows.clusters))
    for name in several(OUTCOME, n_outcomes):
        outcomes = (column.to_numpy() + 0.0 for column in rows.columns(name))  # no zero is -0.0
        yield Stretch(8 * rows.n_units, (bytes_of(values) for values in outcomes))
    for name in facts:
        yield from _fact(rows, name)


def _fact(rows: Rows, name: str) -> Iterator[Stretch]:
    """The type of a public fact, which rows have a value, and the values, 0 or "" for none."""
    kind = rows.parts[0].column(name, 0, 0).dtype
    yield whole(str(kind).encode())
    known = (column.is_not_null().to_numpy() for column in rows.columns(name))
    yield Stretch(rows.n_units, (bytes_of(some) for some in known))
    if kind == pl.String:
        yield from _text(lambda: (some.fill_null("") for some in rows.columns(name)), rows.n_units)
        return
    size = {pl.Boolean: 1, pl.Date: 4}.get(type(kind), 8)
    yield Stretch(size * rows.n_units, map(_numbers, rows.columns(name)))


def _numbers(values: pl.Series) -> memoryview:
    physical = values.cast(pl.UInt8) if values.dtype == pl.Boolean else values.to_physical()
    numbers = physical.fill_null(0).to_numpy()
    return bytes_of(numbers + 0.0 if physical.dtype.is_float() else numbers)  # no zero is -0.0


def _labels(rows: Rows, column: str, used: list[str]) -> Iterator[Stretch]:
    """The distinct names, sorted, and the position of each row's among them."""
    names = pl.Series(used, dtype=pl.String).sort()
    yield from _text(lambda: iter([names]), len(names))
    known = pl.Series(rows.arms if column == ARM else rows.clusters, dtype=pl.String)
    place_of = positions(known.cast(pl.Enum(names), strict=False).fill_null(names[0]))
    codes = (place_of[positions(labels)] for labels in rows.columns(column))
    yield Stretch(4 * rows.n_units, (bytes_of(code) for code in codes))


def _text(texts: Callable[[], Iterator[pl.Series]], count: int) -> Iterator[Stretch]:
    """Where each of ``count`` texts begins and ends, and all of them in one piece, in UTF-8."""
    size = sum(int(some.str.len_bytes().cast(pl.Int64).sum()) for some in texts())
    yield Stretch(8 * (count + 1), _ends(texts()))
    yield Stretch(size, map(_content, texts()))


def _ends(texts: Iterator[pl.Series]) -> Iterator[memoryview]:
    begun = 0
    yield bytes_of(np.zeros(1, np.int64))
    for some in texts:
        ends = np.cumsum(some.str.len_bytes().to_numpy(), dtype=np.int64) + begun
        yield bytes_of(ends)
        begun = int(ends[-1]) if len(ends) else begun


def _content(texts: pl.Series) -> memoryview:
    """The bytes of all texts, which are not null and may be part of a larger memory."""
    content, ends = text_buffers(texts)
    return content[ends[0] : ends[-1]].data


def bytes_of(values: NDArray[np.generic]) -> memoryview:
    """The values in little-endian order."""
    ordered = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(ordered).view(np.uint8).data


def _settings(config: Config, designs: Sequence[AnyDesign]) -> bytes:
    """Everything that can affect a release of given rows, spelt in one way."""
    arms, key = config.arms, read_key(config)
    of_outcomes = [*map(_outcome_settings, config.views, designs)]
    document: dict[str, Any] = {
        "experiment": config.experiment,
        "control": arms.control,
        "treatments": arms.treatments,
        "same_shares": arms.same_shares,
        "mechanism": designs[0].mechanism.name,
        "min_stratum": config.privacy.min_stratum,
        "unit_id": config.publish.unit_id,
        "unit_id_key": key.name if key else None,
    }
    if config.named_outcomes:
        document["outcomes"] = of_outcomes
        document["epsilon"], document["delta"] = config.cost.epsilon, config.cost.delta
    else:  # as it was before there could be several
        document |= of_outcomes[0]
    privacy, private, columns = config.privacy, config.private_clusters, config.columns
    leaves_out = privacy.returning != "charge" or privacy.spent != "refuse"
    by_accounts = leaves_out or privacy.rows_each is not None
    optional: dict[str, Any] = {  # what is None leaves all as it was before there was such a thing
        "ratios": [
            {key: value for key, value in one.model_dump().items() if value is not None} | one.goal
            for one in config.ratios
        ]
        or None,
        "decision": config.decision_rule,
        "returning": privacy.returning if leaves_out else None,
        "spent": privacy.spent if leaves_out else None,
        "privacy_unit": columns.privacy_unit if privacy.rows_each is not None else None,
        "rows_each": privacy.rows_each,
        "ids": config.source.ids if config.source.ids != "canonical" and by_accounts else None,
        "attributes": list(columns.named_attributes) or None,
        "assigned": True if columns.assigned_by is not None else None,
        "private_clusters": None
        if private is None
        else {
            "epsilon": private.epsilon,
            "centres_epsilon": private.centres_epsilon,
            "names": sorted(private.names),
            "missing": private.missing_name,
        },
    }
    document |= {key: value for key, value in optional.items() if value is not None}
    return json.dumps(document, sort_keys=True, allow_nan=False).encode()


def _outcome_settings(config: Config, design: AnyDesign) -> dict[str, Any]:
    """The settings of one outcome; ``config`` is its own."""
    outcome, parameters = config.outcome, design.mechanism.parameters
    named = {
        "name": config.outcomes[0].name if isinstance(outcome, NamedOutcome) else None,
        "label": outcome.label,
        "measured_in": outcome.measured_in,
        "texts": outcome.numbers_of_texts or None,
        "decimal": "," if outcome.decimal == "," else None,
    }
    return {
        "grid": outcome.grid,
        "missing": outcome.missing_value,
        "rounding": outcome.rounding,
        "guess": outcome.guess,
        "resampling_probability": parameters.resampling_probability,
        "truncation_threshold": parameters.truncation_threshold,
        "noise_scale": parameters.noise_scale,
        "strata_statistic": parameters.strata_statistic,
        "epsilon": design.epsilon,
        "delta": design.delta,
        **{key: value for key, value in named.items() if value is not None},
        **_table_settings(design),
        **outcome.goal,
    }


def _table_settings(design: AnyDesign) -> dict[str, Any]:
    """What tables of the optimal randomiser are solved for; nothing of other mechanisms."""
    mechanism, parameters = design.mechanism, design.mechanism.parameters
    if not isinstance(parameters, OptimalParameters):
        return {}
    of_pair: dict[str, Any] = {}
    if isinstance(mechanism, PairedOptimalDP):  # else as it was before there were pairs
        of_pair["brings_epsilon"] = mechanism.pair[mechanism.place].epsilon
    return of_pair | {
        "response_grid": parameters.grid,
        "response_guess": parameters.guess,
        "response_epsilon": parameters.response_epsilon,
        "arm_noise_scale": parameters.arm_noise_scale,
        "learns": parameters.learns,
    }
