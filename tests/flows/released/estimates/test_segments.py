"""Effects in segments of the analyst's own, from a released file and a table of hers."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.main import run
from flows.released.estimates.release import estimate_file
from flows.released.estimates.segments import SegmentEstimates, estimate_segments
from schemas.errors import InputError
from tests.conftest import EXACT, Builder, a_log, build_experiment
from tests.support.tables import written

LOG = a_log(400)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that holds the outcomes as they are, but for one in 10¹²; read by all tests."""
    folder = tmp_path_factory.mktemp("segments") / "experiment"
    return build_experiment(folder, LOG, privacy=EXACT).run().path


def table(folder: Path, segment: pl.Expr, name: str = "segments.csv") -> Path:
    """Everybody's segment, as an analyst would write it down."""
    rows = LOG.select(pl.col("customer").alias("unit_id"), segment.cast(pl.String).alias("segment"))
    return written(rows, folder / name)


def by_hand(log: pl.DataFrame) -> float:
    """The effect by its definition: differences of means, weighted by the clusters' sizes."""
    means = log.group_by("region", "variant").agg(pl.col("clicks").mean().alias("mean"))
    wide = means.pivot("variant", index="region", values="mean")
    sizes = log.group_by("region").len("n").with_columns(pl.col("n") / log.height)
    joined = wide.join(sizes, on="region")
    return float(joined.select(((pl.col("mail") - pl.col("none")) * pl.col("n")).sum()).item())


def tau_q(found: SegmentEstimates) -> dict[str | None, float | None]:
    return {one.segment: one.estimate for one in found.estimates if one.estimator == "tau_q"}


BY_NUMBER = pl.col("customer").str.slice(1).cast(pl.Int64) // 4 % 3


@pytest.mark.parametrize("name", ["segments.csv", "segments.parquet"])
def test_every_segment_has_the_effect_of_its_own_units(
    path: Path, tmp_path: Path, name: str
) -> None:
    found = estimate_segments(path, table(tmp_path, BY_NUMBER, name))
    expected = {str(number): by_hand(LOG.filter(number == BY_NUMBER)) for number in range(3)}
    assert tau_q(found) == pytest.approx(expected, abs=1e-9)
    assert [one.segment for one in found.estimates] == ["0", "1", "2"]
    assert sum(one.n_units for one in found.estimates) == 400
    assert found.warnings == ()


def test_the_segment_of_everybody_is_the_whole(experiment: Builder, tmp_path: Path) -> None:
    """By every estimator that segments have; also where counts calibrate it."""
    path = experiment(LOG).run().path
    (whole, combined) = [
        one for one in estimate_file(path) if one.estimator in ("tau_q", "combined")
    ]
    (slice_, calibrated) = estimate_segments(path, table(tmp_path, pl.lit("all"))).estimates
    for one, other in ((whole, slice_), (combined, calibrated)):
        assert one.estimate == pytest.approx(other.estimate, abs=1e-12)
        assert one.std_error == pytest.approx(other.std_error, rel=1e-9)
        assert one.ci_lower == pytest.approx(other.ci_lower, rel=1e-9)
        assert (one.estimator, one.n_units) == (other.estimator, other.n_units)


def test_counts_sharpen_a_segment(experiment: Builder, tmp_path: Path) -> None:
    path = experiment(a_log(2000), privacy={"epsilon": 1.0}).run().path
    ids = [f"c{number:05d}" for number in range(2000)]
    rows = pl.DataFrame({"unit_id": ids, "segment": ["a"] * 1400 + ["b"] * 600})
    found = estimate_segments(path, written(rows, tmp_path / "s.csv")).estimates
    errors = {(one.estimator, one.segment): one.std_error or 0.0 for one in found}
    assert errors["combined", "a"] < 0.9 * errors["tau_q", "a"]


def test_a_unit_may_be_in_several_segments(path: Path, tmp_path: Path) -> None:
    ids = LOG["customer"].to_list()
    rows = pl.DataFrame({"unit_id": ids + ids[:200], "segment": ["all"] * 400 + ["first"] * 200})
    found = estimate_segments(path, written(rows, tmp_path / "s.csv"))
    expected = {"all": by_hand(LOG), "first": by_hand(LOG[:200])}
    assert tau_q(found) == pytest.approx(expected, abs=1e-9)


def test_what_does_not_fit_is_counted(path: Path, tmp_path: Path) -> None:
    ids = LOG["customer"].to_list()
    rows = pl.DataFrame(
        {
            "unit_id": [*ids, *ids[:30], "strange", "stranger", None, ids[0]],
            "segment": [*["a"] * 430, "a", "b", "a", None],
        }
    )
    found = estimate_segments(path, written(rows, tmp_path / "s.parquet"))
    assert tau_q(found) == pytest.approx({"a": by_hand(LOG), "b": None}, abs=1e-9)
    assert found.as_json() == {
        "n_segments": 2,
        "n_rows": 434,
        "n_matched": 400,
        "n_unmatched": 2,
        "n_duplicates": 30,
        "n_missing": 2,
    }
    assert [warning.split()[0] for warning in found.warnings] == ["2", "30", "2"]


def test_a_segment_that_is_too_small_says_so(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = pl.col("customer") == "c00000"
    file = table(tmp_path, pl.when(first).then(pl.lit("tiny")).otherwise(pl.lit("rest")))
    (rest, tiny) = estimate_segments(path, file).estimates
    assert rest.n_units == 399
    assert (tiny.estimate, tiny.std_error, tiny.p_value, tiny.n_units) == (None, None, None, 0)
    assert run(["estimate", str(path), "--segments", str(file)]) == 0
    assert "too few units to compare" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [pl.String, pl.Int64, pl.UInt16])
def test_ids_are_matched_as_text(
    experiment: Builder, tmp_path: Path, kind: type[pl.DataType]
) -> None:
    log = LOG.with_columns(pl.col("customer").str.slice(1).cast(pl.Int64))
    path = experiment(log, privacy=EXACT).run().path
    rows = log.select(pl.col("customer").cast(kind).alias("unit_id"), segment=pl.lit("a"))
    for name in ("s.csv", "s.parquet"):
        found = estimate_segments(path, written(rows, tmp_path / name))
        assert tau_q(found) == pytest.approx({"a": by_hand(LOG)}, abs=1e-9)


def test_a_hundred_thousand_segments_are_answered(path: Path, tmp_path: Path) -> None:
    ids = [f"c{number:05d}" for number in range(100_000)]
    rows = pl.DataFrame({"unit_id": ids, "segment": ids})
    found = estimate_segments(path, written(rows, tmp_path / "s.parquet"))
    assert (found.n_segments, found.n_matched, found.n_unmatched) == (100_000, 400, 99_600)
    assert len(found.estimates) == 100_000
    assert {one.estimate for one in found.estimates} == {None}


def wrong_columns(folder: Path) -> Path:
    return written(pl.DataFrame({"id": ["c00000"], "segment": ["a"]}), folder / "s.csv")


def no_segment(folder: Path) -> Path:
    return written(pl.DataFrame({"unit_id": ["c00000"]}), folder / "s.csv")


def numbers(folder: Path) -> Path:
    return written(pl.DataFrame({"unit_id": [1.5], "segment": ["a"]}), folder / "s.parquet")


def of_another_release(folder: Path) -> Path:
    return written(pl.DataFrame({"unit_id": ["x", "y"], "segment": ["a", "b"]}), folder / "s.csv")


def without_rows(folder: Path) -> Path:
    return written(pl.DataFrame({"unit_id": [], "segment": []}), folder / "s.csv")


def without_anything(folder: Path) -> Path:
    (folder / "s.csv").touch()
    return folder / "s.csv"


def torn(folder: Path) -> Path:
    (folder / "s.parquet").write_bytes(b"PAR1 but not really")
    return folder / "s.parquet"


def twice(folder: Path) -> Path:
    (folder / "s.csv").write_text("unit_id,segment,segment\nc1,a,b\n")
    return folder / "s.csv"


def twice_in_parquet(folder: Path) -> Path:
    names = ["unit_id", "segment", "segment"]
    pq.write_table(pa.table([["c1"], ["a"], ["b"]], names=names), folder / "s.parquet")
    return folder / "s.parquet"


def of_another_kind(folder: Path) -> Path:
    (folder / "s.xlsx").touch()
    return folder / "s.xlsx"


def nowhere(folder: Path) -> Path:
    return folder / "s.csv"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (wrong_columns, "no column 'unit_id'"),
        (no_segment, "no column 'segment'"),
        (numbers, "column 'unit_id' is Float64; it has to be text or integer"),
        (of_another_release, "none of its 2 ids is in"),
        (without_rows, "has no row with an id and a segment"),
        (without_anything, "cannot be read as CSV"),
        (torn, "cannot be read as Parquet"),
        (twice, "column 'segment' stands there twice"),
        (twice_in_parquet, "column 'segment' stands there twice"),
        (of_another_kind, r"not a format for this command \(.csv, .parquet\)"),
        (nowhere, "there is no such file"),
    ],
)
def test_a_table_that_cannot_be_used_is_a_plain_error(
    path: Path, tmp_path: Path, make: Callable[[Path], Path], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        estimate_segments(path, make(tmp_path))


def test_hashed_ids_are_hinted_at(experiment: Builder, tmp_path: Path) -> None:
    built = experiment(LOG, publish={"unit_id": "keyed-hash", "key_file": "ids.key"})
    (built.folder / "ids.key").write_text("a key that is long enough", encoding="utf-8")
    path = built.run().path
    with pytest.raises(InputError, match="clusterdp hash-ids makes them fit"):
        estimate_segments(path, table(tmp_path, BY_NUMBER))


def test_the_command_prints_one_document(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = table(tmp_path, BY_NUMBER)
    assert run(["estimate", str(path), "--segments", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["segments"]["n_segments"] == 3
    assert [one["segment"] for one in document["estimates"]] == ["0", "1", "2"]
