"""Estimates from a file with margins are generalised least squares, in Python, SQL and units."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators.arm_effects import Estimate
from estimators.response.pool_statistics import sum_noise
from flows.released.estimates.by_attribute import estimate_by
from flows.released.estimates.release import estimate_file
from flows.released.estimates.segments import estimate_segments
from flows.released.report import write_report
from schemas.arrays import Bools, Floats
from schemas.tables import margin_code
from tests.conftest import Section, build_experiment, released

MARGINS = ["country", ["country", "device"]]
ATTRIBUTES = ("country", "device")
EXACT = ("estimate", "std_error", "privacy_std_error", "coverage")
NEAR = ("ci_lower", "ci_upper", "p_value", "p_value_holm")
TWO: dict[str, Any] = {
    "columns": {"outcome": None, "attributes": list(ATTRIBUTES)},
    "outcome": None,
    "outcomes": [
        {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
        {"name": "views", "column": "views", "values": [0, 1]},
    ],
    "ratios": [{"name": "rate", "numerator": "clicks", "denominator": "views"}],
}
CASES: dict[str, dict[str, Any]] = {
    "counts": {"privacy": {"mechanism": "uniform-prior-dp", "strata_statistic": "counts"}},
    "a prior each": {"privacy": {"mechanism": "cluster-dp", "epsilon": 6.0}},
    "nothing of pools": {"privacy": {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}},
    "tables": {"privacy": {"mechanism": "cluster-optimal-dp", "epsilon": 1.0}},
    "one pool": {
        "privacy": {"mechanism": "cluster-free-dp", "min_stratum": 20},
        "arms": {"same_shares": True},
    },
    "households": {
        "columns": {"assigned_by": "house", "attributes": list(ATTRIBUTES)},
        "privacy": {"mechanism": "uniform-prior-dp", "strata_statistic": "means"},
    },
    "ratios": TWO | {"privacy": {"mechanism": "uniform-prior-dp", "epsilon": 8.0}},
}


def log() -> pl.DataFrame:
    """Three arms, clusters of every size, attributes that go with these; some have no device."""
    random = np.random.default_rng(8)
    n = 1500
    house = np.sort(random.integers(0, n // 2, n))
    arm = random.integers(3, size=n // 2)[house]
    region = random.choice(5, n, p=[0.5, 0.3, 0.17, 0.02, 0.01])
    country = np.minimum(random.poisson(0.4 + 0.3 * region), 3)
    device = random.choice(3, n, p=[0.5, 0.4, 0.1])
    level = random.random(n) < 0.2 + 0.1 * country + 0.1 * (arm == 1)
    return pl.DataFrame(
        {
            "customer": [f"c{one:05d}" for one in range(n)],
            "variant": np.array(["none", "mail", "call"])[arm],
            "region": np.array(["east", "west", "o'north", "s 1", "s 2"])[region],
            "country": np.array(["ch", "de", "fr", "it"])[country],
            "device": [["phone", "desk", None][one] for one in device],
            "house": house,
            "clicks": (level * random.integers(1, 4, n)).astype(float),
            "views": (random.random(n) < 0.8).astype(float),
        }
    )


@pytest.fixture(scope="module")
def file_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in made:
            given = dict(CASES[name])
            privacy: Section = {"margins": MARGINS, **given.pop("privacy")}
            arms: Section = {"treatments": ["mail", "call"], **given.pop("arms", {})}
            sections = {"columns": {"attributes": list(ATTRIBUTES)}} | given
            folder = tmp_path_factory.mktemp("margins") / "experiment"
            built = build_experiment(folder, log(), privacy=privacy, arms=arms, **sections)
            made[name] = built.run().path
            assert released(made[name], "margins").height > 0
        return made[name]

    return build


def rows_of(estimates: list[Estimate]) -> pl.DataFrame:
    frame = pl.DataFrame([asdict(one) for one in estimates], infer_schema_length=None)
    return frame.select("metric", "estimator", "segment", "arm", "n_units", *EXACT, *NEAR)


def check_equal(found: pl.DataFrame, wanted: pl.DataFrame) -> None:
    keys = ["metric", "estimator", "segment", "arm"]
    found, wanted = (one.select(wanted.columns).sort(keys) for one in (found, wanted))
    assert found.select(*keys, "n_units").rows() == wanted.select(*keys, "n_units").rows()
    # With few degrees of freedom ν a quantile t is about α^(−1/ν): a share off in ν is ln t off.
    width, error = ((pl.col("ci_upper") - pl.col("ci_lower")) / 2.0, pl.col("std_error"))
    times = wanted.select((width / error).log().fill_nan(1.0).fill_null(1.0).clip(1.0, 10.0))
    for names, share, least in ((EXACT, 1e-9, 1e-13), (NEAR, 1e-8, 1e-10)):
        for name in names:
            one, other = (frame[name].cast(pl.Float64).to_numpy() for frame in (found, wanted))
            allowed = share * (times.to_series().to_numpy() if name in NEAR else 1.0)
            near = np.isclose(one, other, rtol=allowed, atol=least, equal_nan=True)
            assert near.all(), f"{name}: {one[~near]} for {other[~near]}"


@pytest.mark.parametrize("name", CASES)
def test_macros_have_the_numbers_of_the_engine(
    file_of: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    path = file_of(name)
    for attribute in ATTRIBUTES:
        found = released(path, f"FROM ate_by('{attribute}')")
        wanted = rows_of(list(estimate_by(path, attribute).estimates))
        assert "combined" in wanted["estimator"].to_list()
        check_equal(found, wanted)
    ids = log()["customer"]
    some = pl.DataFrame({"unit_id": ids, "segment": ids.str.slice(4)}).filter(
        pl.col("segment") < "40"
    )
    mine = tmp_path / "mine.parquet"
    some.write_parquet(mine)
    found = released(path, f"FROM ate_by_segment('{mine}')")
    check_equal(found, rows_of(estimate_segments(path, mine).estimates))


@pytest.mark.parametrize("name", CASES)
def test_who_reads_a_file_has_the_numbers_that_it_states(
    file_of: Callable[[str], Path], name: str
) -> None:
    path = file_of(name)
    stated = released(path, "estimates").with_columns(pl.col("segment").cast(pl.String))
    read = rows_of([one for one in estimate_file(path) if one.estimate is not None])
    check_equal(stated, read.with_columns(pl.col("segment").cast(pl.String)))


class Units:
    """The units of a file one by one, with the whole system of what is published of them."""

    def __init__(self, path: Path) -> None:
        """Read a file of one outcome."""
        manifest = released(path, "release")
        schema = f"_clusterdp_{self._suffix(path)}"
        codes = ", ".join(
            f"{margin_code(at, len(MARGINS), 'd.')} AS margin{at}" for at in range(len(MARGINS))
        )
        self.rows = released(
            path,
            f"""SELECT u.unit_id, u.cluster::VARCHAR AS cluster, u.arm::VARCHAR AS arm, s.pool,
                u.outcome, u.outcome_debiased AS debiased, b.noise_variance AS noise,
                u.country, u.device, {codes}
            FROM units AS u JOIN {schema}.drawn AS d USING (unit_id)
            JOIN strata AS s ON s.cluster = u.cluster::VARCHAR AND s.arm = u.arm::VARCHAR
            JOIN debias AS b ON b.pool = s.pool AND b.arm::VARCHAR = s.arm
                AND b.outcome = u.outcome_randomised
            ORDER BY u.unit_id""",
        )
        assert self.rows.height == manifest["n_units"].item()
        self.planned = released(path, "metrics")["unit_noise"].item()
        self._statistics(path)

    @staticmethod
    def _suffix(path: Path) -> str:
        (name,) = (
            one
            for one in released(path, "SELECT schema_name FROM duckdb_schemas()")["schema_name"]
            if one.startswith("_clusterdp_")
        )
        return str(name).removeprefix("_clusterdp_")

    def _statistics(self, path: Path) -> None:
        grid = released(path, "SELECT outcome FROM outcomes ORDER BY 1")["outcome"].to_numpy()
        columns, values, variances = [], [], []
        for pool, arm, mean, weight in released(path, STATISTICS).rows():
            if weight:
                of_pool = (self.rows["pool"] == pool) & (self.rows["arm"] == arm)
                n = of_pool.sum()
                columns.append(of_pool.to_numpy())
                values.append(n * mean)
                variances.append(self.planned * n * (1.0 - weight) / weight)
        for one in released(path, "margins").iter_rows(named=True):
            of_cell = (self.rows["arm"] == one["arm"]) & (
                self.rows[f"margin{one['margin']}"] == one["cell"]
            )
            assert of_cell.sum() == one["n_units"]
            columns.append(of_cell.to_numpy())
            values.append(one["noisy_sum"])
            variance, _ = sum_noise(np.array([one["noise_scale"]]), grid)
            variances.append(float(variance[0]))
        incidence = np.stack(columns, axis=1).astype(np.float64)
        self._incidence, self._variance = incidence, np.array(variances)
        self._inverse = np.linalg.inv(self.planned * incidence.T @ incidence + np.diag(variances))
        self._apart = np.array(values) - incidence.T @ self.rows["debiased"].to_numpy()

    def estimate(self, part: Floats) -> tuple[float, float]:
        """The best linear estimate of Σ a y, and the variance of its noise."""
        factor = self._inverse @ (self.planned * self._incidence.T @ part)
        left = part - self._incidence @ factor
        noise = self.rows["noise"].to_numpy() @ left**2 + self._variance @ factor**2
        return part @ self.rows["debiased"].to_numpy() + factor @ self._apart, noise

    def contrast(self, among: Bools, arm: str) -> Floats:
        """Weights of units by which an arm is compared with control, cluster by cluster."""
        of_arms = [(self.rows["arm"] == one).to_numpy() & among for one in (arm, "none")]
        part, total = np.zeros(self.rows.height), 0
        for cluster in self.rows["cluster"].unique():
            inside = (self.rows["cluster"] == cluster).to_numpy()
            sizes = [(inside & one).sum() for one in of_arms]
            if min(sizes) >= 2:
                everyone = (inside & among).sum()
                total += everyone
                for sign, one, n in zip((1.0, -1.0), of_arms, sizes, strict=True):
                    part[inside & one] = sign * everyone / n
        return part / max(total, 1)


STATISTICS = """
    SELECT p.pool, p.arm, coalesce(p.noisy_mean, c.mean) AS mean, p.mean_weight FROM pools AS p
    LEFT JOIN (
        SELECT pool, arm::VARCHAR AS arm,
            middle + sum((outcome - middle) * noisy_count / n_units) AS mean
        FROM (SELECT * REPLACE (arm::VARCHAR AS arm) FROM counts) JOIN pools USING (pool, arm),
            (SELECT avg(outcome) AS middle FROM outcomes)
        GROUP BY pool, arm, middle
    ) AS c ON c.pool = p.pool AND c.arm = p.arm"""


@pytest.mark.parametrize("name", ["counts", "a prior each", "nothing of pools", "tables"])
def test_estimates_are_those_of_the_whole_system(file_of: Callable[[str], Path], name: str) -> None:
    """Everybody, values that are declared, and a device, which is only declared together."""
    path = file_of(name)
    units = Units(path)
    questions = [(np.ones(units.rows.height, dtype=np.bool_), one) for one in estimate_file(path)]
    for attribute in ATTRIBUTES:
        for of_value in estimate_by(path, attribute).estimates:
            value = None if of_value.segment == "(none)" else of_value.segment
            questions.append((units.rows[attribute].eq_missing(value).to_numpy(), of_value))
    asked = [one for one in questions if one[1].estimator == "combined"]
    assert len(asked) == 2 * (1 + 4 + 3)
    for among, one in asked:
        assert one.estimate is not None
        assert one.privacy_std_error is not None
        found, noise = units.estimate(units.contrast(among, one.arm))
        assert one.estimate == pytest.approx(found, rel=1e-9, abs=1e-9)
        assert one.privacy_std_error == pytest.approx(np.sqrt(noise), rel=1e-9)


@pytest.mark.parametrize("name", ["counts", "a prior each", "nothing of pools", "tables"])
def test_sums_of_calibrated_units_are_the_best_estimates(
    file_of: Callable[[str], Path], name: str
) -> None:
    units = Units(file_of(name))
    random = np.random.default_rng(3)
    for _ in range(20):
        part = random.normal(size=units.rows.height) * (random.random(units.rows.height) < 0.3)
        value, _ = units.estimate(part)
        assert part @ units.rows["outcome"].to_numpy() == pytest.approx(value, rel=1e-8, abs=1e-8)


def test_the_page_says_which_attribute_was_declared(
    file_of: Callable[[str], Path], tmp_path: Path
) -> None:
    """A device is declared together with the country alone."""
    page = write_report(file_of("counts"), tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("values were declared beforehand") == 1
