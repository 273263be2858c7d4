"""A site's last private steps: digest the rows, draw the report, and tell the operator of gaps."""

import json
from datetime import UTC, datetime
from importlib.metadata import version

import polars as pl

from flows.effects.config.site import Estimator, SiteConfig
from flows.ledger.rules import Fingerprint
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.fingerprint import digested, whole
from flows.raw.units.rows import Rows
from privatizers.effects.sites.matching import SitePeople
from privatizers.effects.sites.randomised_trial import RandomisedTrial, SiteEffect
from schemas.documents import taken
from schemas.effects.site import NEIGHBOURS, SiteReport, report_id
from schemas.names import ReleaseName
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT

_MUCH = 0.1
"""Share of units without a match from which an operator is told."""


@values_free
def site_fingerprint(config: SiteConfig, rows: Sealed[Rows]) -> Fingerprint:
    """Digest the kept ``rows`` with their cells, their unit ids, and what can affect a report.

    As :func:`flows.raw.fingerprint.fingerprint`, under the same key: rows may have come in any
    order and from any files.
    """
    frame = _frame(rows)
    units = [str(frame[UNIT].dtype).encode(), *_text(frame[UNIT].cast(pl.String))]
    others = [
        *_text(frame[ARM]),
        frame[CLUSTER].to_numpy().astype("<i8").tobytes(),
        (frame[OUTCOME].to_numpy() + 0.0).astype("<f8").tobytes(),  # makes a zero of -0.0
    ]
    parts = map(whole, units), map(whole, others)
    return digested(
        config.quarantine_folder, *parts, _settings(config), n_units=frame.height, of=b"site "
    )


def _frame(rows: Sealed[Rows]) -> pl.DataFrame:
    """All rows, by unit, arms as text and ``cluster`` as the number of the cell."""
    return pl.concat(rows.open().frames()).with_columns(
        pl.col(ARM).cast(pl.String), pl.col(CLUSTER).cast(pl.String).cast(pl.Int64)
    )


def _text(text: pl.Series) -> list[bytes]:
    """The length of each text in bytes, and all of them in one piece, in UTF-8."""
    lengths = text.str.len_bytes().to_numpy().astype("<u8").tobytes()
    return [lengths, "".join(text.to_list()).encode()]


def _settings(config: SiteConfig) -> bytes:
    document = {
        "experiment": config.experiment,
        "site": config.site.name,
        "design": config.design,
        "control": config.arms.control,
        "treatment": config.arms.treatments[0],
        "low": config.outcome.low,
        "high": config.outcome.high,
        "missing": config.outcome.missing_value,
        "covariates": [one.model_dump(mode="json") for one in config.covariates],
        "epsilon": config.privacy.epsilon,
        "delta": config.privacy.delta,
        "split": config.split,
    }
    return json.dumps(document, sort_keys=True, allow_nan=False).encode()


@values_free
def site_report(config: SiteConfig, rows: Sealed[Rows], name: ReleaseName) -> SiteReport:
    """Draw the effect and its variance, and put them into the report ``name``.

    Rows come in the order of their unit ids, which is public; outcomes are shifted to [0, B].
    """
    frame, mechanism = _frame(rows), config.mechanism
    treated = (frame[ARM] == config.arms.treatments[0]).to_numpy()
    outcome = frame[OUTCOME].to_numpy() - config.outcome.low
    if isinstance(mechanism, RandomisedTrial):
        return _report(config, name, mechanism.report(treated, outcome))
    people = SitePeople(frame[CLUSTER].to_numpy(), treated, outcome, config.n_cells)
    return _report(config, name, mechanism.report(people))


def stand_in(config: SiteConfig, name: ReleaseName) -> SiteReport:
    """Return the report ``name`` as far as the configuration makes it, with nothing of the rows.

    Its numbers are 0 and the variance that every report can have: noise of one unit's range.
    """
    privacy, most = config.privacy, config.outcome.bound**2
    nothing = SiteEffect(config.estimator, 0.0, most, 0.0, most, 1, privacy.epsilon, privacy.delta)
    return _report(config, name, nothing)


def _report(config: SiteConfig, name: ReleaseName, drawn: SiteEffect) -> SiteReport:
    outcome = config.outcome
    return taken(
        SiteReport,
        drawn,
        config,
        report_id=report_id(config.experiment, config.site.name, name.period, name.revision),
        site=config.site.name,
        period=name.period,
        revision=name.revision,
        created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        control=config.arms.control,
        treatment=config.arms.treatments[0],
        neighbours=NEIGHBOURS[config.design],
        outcome_low=outcome.low,
        outcome_high=outcome.high,
        outcome_bound=outcome.bound,
        privatised=_PRIVATISED[config.estimator],
        package_version=version("clusterdp"),
    )


_PRIVATISED: dict[Estimator, str] = {
    "difference-in-means": "the sum of the outcomes of each arm, and the sum of their squares "
    "around the middle of the range",
    "smooth-dp-matching": "upper bounds of two sensitivities, the matched effect, and its variance",
    "global-dp-matching": "the matched effect, and its variance",
}


@values_free
def unmatched(config: SiteConfig, rows: Sealed[Rows]) -> tuple[str, ...]:
    """Say to the operator, and nobody else, where matching leaves units out; from private facts.

    Units of a cell that lacks one arm have no match. They count as if the treatment had done
    nothing to them (Algorithm 1), which draws the estimate towards 0.
    """
    if not config.protects_arms:
        return ()
    sizes = rows.open().sizes
    share = float(sizes[(sizes == 0).any(axis=1)].sum() / sizes.sum())
    if share == 1:
        return (
            "no cell of the covariates has units of both arms, so nobody has a match: the report "
            "is noise around 0. Declare coarser covariates, and see that both arms are in the log",
        )
    if share >= _MUCH:
        return (
            "many units have no match, and count as if the treatment did nothing to them: the "
            "estimate is drawn towards 0. Declare coarser covariates",
        )
    return ()
