"""Reading what the estimators of ratios need: how two outcomes go together in each slice."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from estimators.ratios import RatioEvidence
from flows.released.file.cells import read_columns
from flows.released.file.evidence import Drawn, Released, deviations, units_of
from schemas.arrays import Floats
from schemas.released import Metric, Ratio

_WHOLE = """
SELECT {names}
FROM (
    SELECT cluster, arm, {covariances}
    FROM (SELECT cluster, arm, {deviations} FROM {units})
    GROUP BY cluster, arm
) AS w
JOIN temp.main.numbered_strata AS s ON s.cluster = w.cluster::VARCHAR AND s.arm = w.arm::VARCHAR
ORDER BY s.code
"""


@dataclass(frozen=True)
class PlacedRatio:
    """A ratio of a release, and which outcomes it is of."""

    ratio: Ratio
    numerator: int
    """Its position among the outcomes that were read."""
    denominator: int

    def scale(self, every: Sequence[Drawn]) -> float:
        """1/((1 − λ_N)(1 − λ_D)): what debiasing makes of a covariance within a slice."""
        both = (every[at].metric for at in (self.numerator, self.denominator))
        above, below = (1.0 - (one.resampling_probability or 0.0) for one in both)
        return 1.0 / (above * below)


def ratios_among(
    every: Sequence[Drawn], metrics: Sequence[Metric | Ratio]
) -> tuple[PlacedRatio, ...]:
    """Find which outcomes the ratios among ``metrics`` are of; all of them are among ``every``."""
    places = {one.metric.metric: at for at, one in enumerate(every)}
    return tuple(
        PlacedRatio(one, places[one.numerator], places[one.denominator])
        for one in metrics
        if isinstance(one, Ratio)
    )


def covariances_of(ratios: Sequence[PlacedRatio]) -> list[str]:
    """SQL for ``covariance0``, ``covariance1`` and so on, of the outcomes that ratios are of.

    They are made of :func:`~flows.released.file.evidence.deviations`; 0 in a slice of one unit.
    """
    return [
        f"coalesce(covar_samp(d{one.numerator}, d{one.denominator}), 0.0) AS covariance{at}"
        for at, one in enumerate(ratios)
    ]


def read_whole(
    connection: duckdb.DuckDBPyConnection,
    every: Sequence[Released],
    ratios: Sequence[PlacedRatio],
) -> tuple[RatioEvidence, ...]:
    """Read the evidence of all ratios on whole strata, in one pass over the units.

    ``every`` has the outcomes that were read, of which the ratios are.
    """
    if not ratios:
        return ()
    names = [f"covariance{at}" for at in range(len(ratios))]
    covariances = read_columns(
        connection,
        _WHOLE.format(
            names=", ".join(names),
            covariances=", ".join(covariances_of(ratios)),
            deviations=deviations(every),
            units=units_of(every),
        ),
    )

    def evidence(ratio: PlacedRatio, covariance: Floats) -> RatioEvidence:
        above, below = every[ratio.numerator], every[ratio.denominator]
        products = above.read_products(connection, below, (above.everyone, below.everyone))
        scaled = ratio.scale(every) * covariance
        return RatioEvidence(ratio.ratio.metric, above.whole, below.whole, scaled, products)

    return tuple(map(evidence, ratios, covariances))
