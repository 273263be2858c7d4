"""The four real data sets of `multisite`, as the experiment needs them: outcomes on [0, 1].

Where Koga, Chaudhuri and Page do not say what they did, what was chosen is said at each. Outcomes
are brought to [0, 1] from ranges that are declared here, round numbers about the least and greatest
that there are; the paper says only that they are between 0 and 1.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.random import Generator

from flows.lab.replication.claims import Run
from flows.runtime.reading.table_files import read_table
from privatizers.effects.sites.matching import SitePeople
from schemas.arrays import Ints

STROKE = Path("international_stroke_trial", "ist.parquet")
STAR = Path("tennessee_star", "star_aer.parquet")
LALONDE = Path("lalonde_nsw", "nsw_722.parquet")
IHDP = Path("ihdp", "ihdp_npci_1.parquet")

STRATA = 100
"""Of Synth."""
URBANITY = ("rural", "suburban", "inner-city", "urban")
"""The sites of STAR, the largest first; the sizes are 5:3:3:1, as in the paper."""
SCALES = {"k": (280, 630), "1": (400, 680), "2": (440, 730), "3": (480, 780)}
"""Of the mathematics score, by grade: it grows with the grade."""
EARNINGS = (0, 61_000)  # dollars of 1982
AGES = (17, 55)
TEST_SCORES = (-2, 12)
BINARY = ("x7", "x9", "x14")
"""Sex, married and firstborn; the paper takes three of 25 and does not say which."""


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """One experiment: everybody in it, and where they are."""

    name: str
    title: str
    people: SitePeople
    """Outcomes on [0, 1]; a randomised trial has one stratum."""
    epsilon: float
    """ε of the first site."""
    site: Ints | None
    """Positions of fixed sites, shape [N]; None where people are dealt out to sites anew."""
    truth: float | None = None
    """The true effect, where it is known: of people who are made up."""

    @property
    def is_trial(self) -> bool:
        """Whether arms were randomised, so that nobody need be matched."""
        return self.people.n_strata == 1


def studies(run: Run) -> tuple[Study, ...]:
    """Read all four. Raises NotTriedError where one is not there."""
    files = {STROKE: stroke, STAR: star, LALONDE: lalonde, IHDP: ihdp}
    paths = {run.file(path): made for path, made in files.items()}
    return tuple(made(read_table(path)) for path, made in paths.items())


def synth(random: Generator, n_units: int = 10_000, imbalance: float | None = None) -> Study:
    """Make up people as the paper does: 100 strata x from 0 to 1, treated with odds e^(a(2x − 1)).

    y = b x + W/2 + e, b uniform on [0, .4] and e on [0, .1]; a is ``imbalance``, or uniform on
    [−1, 1].
    """
    a = random.uniform(-1.0, 1.0) if imbalance is None else imbalance
    stratum = random.integers(0, STRATA, n_units)
    x = stratum / (STRATA - 1)
    treated = random.random(n_units) < 1.0 / (1.0 + np.exp(-a * (2.0 * x - 1.0)))
    noise = random.uniform(0.0, 0.1, n_units)
    outcome = random.uniform(0.0, 0.4) * x + 0.5 * treated + noise
    return Study("synth", "Synth", SitePeople(stratum, treated, outcome, STRATA), 1.0, None, 0.5)


def stroke(frame: pl.DataFrame) -> Study:
    """Aspirin or none, and a recurrent ischaemic stroke within 14 days (``ISC14``).

    Of those whose discharge form says whether there was one (``DRSISC``): 9,705 and 9,703, the
    arms of the paper, which has N as 18,995 once; that is how many had none.
    """
    known = frame.filter(pl.col("DRSISC").is_in(["Y", "N"]))
    treated = known["RXASP"] == "Y"
    return Study(
        "ist", "International Stroke Trial", _of(known, treated, known["ISC14"]), 1.0, None
    )


def star(frame: pl.DataFrame) -> Study:
    """A small class against others, and the mathematics score, by the school's urbanity.

    Each pupil counts in the grade of entry, if there is a score: 2,643 and 7,686 (the paper: 2,643
    and 7,688, with no word on the outcome).
    """
    entered = pl.coalesce(
        pl.when(pl.col(f"star{grade}").is_not_null()).then(pl.lit(grade)) for grade in SCALES
    )

    def at_entry(column: str) -> pl.Expr:
        return pl.coalesce(
            pl.when(entered == grade).then(pl.col(f"{column}{grade}")) for grade in SCALES
        )

    score = pl.coalesce(
        pl.when(entered == grade).then((pl.col(f"math{grade}") - low) / (high - low))
        for grade, (low, high) in SCALES.items()
    )
    pupils = frame.select(
        arm=at_entry("star"), place=at_entry("school"), score=score
    ).filter(pl.col("score").is_not_null())  # fmt: skip
    site = pupils["place"].replace_strict(URBANITY, list(range(len(URBANITY))))
    people = _of(pupils, pupils["arm"] == "small", pupils["score"])
    return Study("star", "Tennessee STAR", people, 1.0, site.to_numpy().astype(np.int64))


def lalonde(frame: pl.DataFrame) -> Study:
    """Job training and earnings in 1978; matched by age in years, all from 17 to 55 declared."""
    low, high = EARNINGS
    people = _of(
        frame,
        frame["treat"] == 1,
        (frame["re78"] - low) / (high - low),
        (frame["age"] - AGES[0]).to_numpy().astype(np.int64),
        AGES[1] - AGES[0] + 1,
    )
    return Study("lalonde", "Lalonde (job training)", people, 5.0, None)


def ihdp(frame: pl.DataFrame) -> Study:
    """Home visits and simulated test scores; matched by three binary covariates, eight strata."""
    low, high = TEST_SCORES
    bits = [(frame[one] == frame[one].max()).to_numpy().astype(np.int64) for one in BINARY]
    stratum = np.asarray(bits[0] + 2 * bits[1] + 4 * bits[2], dtype=np.int64)
    outcome = (frame["y_factual"] - low) / (high - low)
    people = _of(frame, frame["treatment"] == 1, outcome, stratum, 2 ** len(BINARY))
    return Study("ihdp", "IHDP (simulated outcomes)", people, 5.0, None)


def _of(
    frame: pl.DataFrame,
    treated: pl.Series,
    outcome: pl.Series,
    stratum: Ints | None = None,
    n_strata: int = 1,
) -> SitePeople:
    return SitePeople(
        stratum=np.zeros(len(frame), dtype=np.int64) if stratum is None else stratum,
        treated=treated.to_numpy().astype(np.bool_),
        outcome=outcome.to_numpy().astype(np.float64),
        n_strata=n_strata,
    )
