"""Reading what the estimators of ratios need: how two outcomes go together in each slice."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from estimators.ratios import RatioEvidence
from flows.released.file.evidence import Drawn, Released, deviations, read_frame, units_of
from schemas.arrays import Floats
from schemas.released import Ratio

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


@dataclass(frozen=True)
class ReleasedRatio(PlacedRatio):
    """A ratio of a release, with the outcomes that it is of."""

    above: Released
    below: Released

    @property
    def scale(self) -> float:
        """1/((1 − λ_N)(1 − λ_D)): what debiasing makes of a covariance within a slice."""
        rates = (one.metric.resampling_probability or 0.0 for one in (self.above, self.below))
        first, second = (1.0 - rate for rate in rates)
        return 1.0 / (first * second)

    def whole(self, covariance: Floats, products: Floats | None) -> RatioEvidence:
        """The evidence on whole strata, given the sample ``covariance`` of the outcomes there.

        ``products`` are those of units that were assigned together.
        """
        above, below = self.above.whole, self.below.whole
        covariance = self.scale * covariance
        return RatioEvidence(self.ratio.metric, above, below, covariance, products)


def ratios_among(every: Sequence[Released], ratios: Sequence[Ratio]) -> tuple[ReleasedRatio, ...]:
    """Find the outcomes that ``ratios`` are of; all of them are among ``every``."""
    return tuple(
        ReleasedRatio(
            one.ratio,
            one.numerator,
            one.denominator,
            every[one.numerator],
            every[one.denominator],
        )
        for one in placed(every, ratios)
    )


def placed(every: Sequence[Drawn], ratios: Sequence[Ratio]) -> tuple[PlacedRatio, ...]:
    """Find which outcomes ``ratios`` are of; all of them are among ``every``."""
    places = {one.metric.metric: at for at, one in enumerate(every)}
    return tuple(PlacedRatio(one, places[one.numerator], places[one.denominator]) for one in ratios)


def covariances_of(ratios: Sequence[PlacedRatio]) -> str:
    """SQL for ``covariance0``, ``covariance1`` and so on, of the outcomes that ratios are of.

    They are made of :func:`~flows.released.file.evidence.deviations`; 0 in a slice of one unit.
    """
    return ", ".join(
        f"coalesce(covar_samp(d{one.numerator}, d{one.denominator}), 0.0) AS covariance{at}"
        for at, one in enumerate(ratios)
    )


def read_whole(
    connection: duckdb.DuckDBPyConnection,
    every: Sequence[Released],
    ratios: Sequence[ReleasedRatio],
) -> tuple[RatioEvidence, ...]:
    """Read the evidence of all ratios on whole strata, in one pass over the units.

    ``every`` has the outcomes that were read, of which the ratios are.
    """
    if not ratios:
        return ()
    names = [f"covariance{at}" for at in range(len(ratios))]
    found = read_frame(
        connection,
        _WHOLE.format(
            names=", ".join(names),
            covariances=covariances_of(ratios),
            deviations=deviations(every),
            units=units_of(every),
        ),
    )
    return tuple(
        one.whole(
            found[name].to_numpy().astype(np.float64),
            one.above.read_products(
                connection, one.below, (one.above.everyone, one.below.everyone)
            ),
        )
        for one, name in zip(ratios, names, strict=True)
    )
