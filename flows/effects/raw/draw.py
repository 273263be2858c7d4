"""An effect model's last private steps: digest the rows, and draw its noisy sums."""

import json
from collections.abc import Iterator

import polars as pl

from flows.effects.config.effects import EffectConfig
from flows.effects.raw.columns import EffectColumns
from flows.effects.raw.units import EffectUnits
from flows.ledger.rules import Fingerprint
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.fingerprint import Stretch, bytes_of, digested, unit_parts, whole
from privatizers.effects.models import meta
from schemas.effects.model import NoisySums


@values_free
def effect_fingerprint(config: EffectConfig, units: Sealed[EffectUnits]) -> Fingerprint:
    """Digest the mapped rows, their unit ids, and what can affect a model.

    As :func:`flows.raw.fingerprint.fingerprint`, under the same key: rows with an id may have come
    in any order and from any files, as far as the same row of an id came first.
    """
    rows = units.open()
    ids = unit_parts(rows.unit_type, rows.n_named, rows.ids)
    others = _columns(config, rows)
    return digested(
        config.quarantine_folder, ids, others, _settings(config), n_units=rows.n_units, of=b"cate "
    )


def _columns(config: EffectConfig, rows: EffectUnits) -> Iterator[Stretch]:
    yield whole(str(rows.n_units).encode())
    for name, kind in EffectColumns(config).kept.items():
        width = pl.Series([], dtype=kind).to_numpy().itemsize
        yield Stretch(width * rows.n_units, (bytes_of(one.to_numpy()) for one in rows.column(name)))


def _settings(config: EffectConfig) -> bytes:
    sections = {
        name: getattr(config, name).model_dump(mode="json")
        for name in ("arms", "outcome", "propensity")
    }
    document = {
        **sections,
        "experiment": config.experiment,
        "columns": config.columns.model_dump(mode="json"),
        "features": [each.model_dump(mode="json") for each in config.features],
        "subgroups": [each.model_dump(mode="json") for each in config.subgroups],
        "pairs": config.pairs,
        "targeting": config.targeting,
        "epsilon": config.privacy.epsilon,
        "delta": config.privacy.delta,
        "neighbours": config.privacy.neighbours,
        "learner": config.privacy.learner,
    }
    if config.agreed is not None:
        document |= {"site": config.site, "agreed": config.agreed.digest}
    return json.dumps(document, sort_keys=True, allow_nan=False).encode()


@values_free
def draw(config: EffectConfig, units: Sealed[EffectUnits]) -> tuple[NoisySums, ...]:
    """Draw the noisy sums; nothing else of the rows is in a model."""
    rows = units.open()
    return meta.draw_sums(config.privacy.learner, config.design, rows.n_units, rows.batches)


def stand_in(config: EffectConfig, n_units: int) -> tuple[NoisySums, ...]:
    """Return sums of the same shape, of no row and without a draw."""
    return meta.stand_in(config.privacy.learner, config.design, n_units)
