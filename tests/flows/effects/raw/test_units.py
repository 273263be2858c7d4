"""Who is counted, and where a unit stands: by ids and places alone."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.effects.config.effects import EffectConfig
from flows.effects.raw.draw import effect_fingerprint
from flows.effects.raw.units import EffectUnits, arrange, ingest_effects
from flows.raw.boundary.sealed import Sealed
from flows.raw.spill.workspace import Workspace, open_workspace
from privatizers.effects.models.lattice_sums import BATCH
from schemas.effects.roster import EffectRoster
from tests.conftest import write_content
from tests.effect_logs import AtHome, Campaign, campaign, people

__all__ = ["campaign"]  # a fixture


def arranged(config: EffectConfig, workspace: Workspace) -> tuple[EffectUnits, EffectRoster]:
    units, _, roster = arrange(config, ingest_effects(config, config.log_source, "once"), workspace)
    return units.open(), roster


def spends(built: AtHome) -> tuple[list[float], EffectRoster]:
    """The outcomes of all units in order, in the unit of the log, and what is told."""
    config = built.load()
    with open_workspace(config.spill) as workspace:
        units, roster = arranged(config, workspace)
        found = [float(y) * 2.0 + 1.0 for rows in units.batches() for y in rows.outcome]
    return found, roster


def some(ids: list[str | None], spend: list[float]) -> pl.DataFrame:
    n_rows = len(ids)
    return pl.DataFrame({"id": pl.Series(ids, dtype=pl.String), "spend": spend}).with_columns(
        arm=pl.Series(["none", "mail"] * n_rows)[:n_rows], age=pl.lit(30.0), sex=pl.lit("f")
    )


def test_the_first_row_of_an_id_counts_and_rows_without_one_come_last(campaign: Campaign) -> None:
    log = some(["b", None, "a", "b", "", "a", "c"], [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    found, roster = spends(campaign(log))
    assert found == [1.0, 0.0, 3.0, 0.5, 2.0]
    assert roster == EffectRoster(5, n_repeats=2, n_without_id=2)
    assert [warning.split()[0] for warning in roster.warnings] == ["2", "2"]
    assert EffectRoster(5).warnings == ()


def test_several_files_are_read_in_the_order_of_their_names(campaign: Campaign) -> None:
    built = campaign(some(["a", "b"], [1.0, 2.0]), "day/2.parquet")
    write_content(built.folder / "day" / "1.csv", some(["b", "c"], [3.0, 0.0]))
    built.edit("day/2.parquet", "day/*")
    found, roster = spends(built)
    assert (found, roster.n_repeats) == ([1.0, 3.0, 0.0], 1)


def test_ids_of_files_with_numbers_are_numbers(campaign: Campaign) -> None:
    built = campaign(people(30).with_columns(id=30 - pl.int_range(30)))
    found, _ = spends(built)
    expected = people(30)["spend"].reverse().to_list()
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.usefixtures("tmp_path")
def test_batches_are_full_and_always_the_same(campaign: Campaign) -> None:
    config = campaign(people(20_000)).load()
    with open_workspace(config.spill) as workspace:
        units, _ = arranged(config, workspace)
        sizes = [len(rows.outcome) for rows in units.batches()]
        assert sizes == [BATCH, BATCH, 20_000 - 2 * BATCH]
        for once, again in zip(units.batches(), units.batches(), strict=True):
            assert np.array_equal(once.features, again.features)
            assert np.array_equal(once.outcome, again.outcome)


def test_what_does_not_fit_into_memory_gives_the_same_and_is_gone_at_the_end(
    campaign: Campaign,
) -> None:
    log = people(9_000).with_columns(
        id=pl.when(pl.int_range(9_000) % 50 == 7).then(None).otherwise("id")
    )
    log = pl.concat([log, log.head(40)]).sample(fraction=1.0, shuffle=True, seed=3)
    built = campaign(log)
    config = built.load()
    found: dict[str, list[np.ndarray]] = {}
    for limit in ("1GB", "400KB"):
        config = config.model_copy(
            update={"run": config.run.model_copy(update={"memory_limit": limit})}
        )
        with open_workspace(config.spill) as workspace:
            units, _ = arranged(config, workspace)
            rows = list(units.batches())
            found[limit] = [batch.outcome for batch in rows] + [b.features for b in rows]
            spilled = list((built.folder / "quarantine").rglob("*.arrow"))
            assert bool(spilled) == (limit == "400KB")
            assert {path.stat().st_mode & 0o777 for path in spilled} <= {0o600}
    for once, again in zip(*found.values(), strict=True):
        assert np.array_equal(once, again)
    assert not list(built.folder.rglob("*.arrow"))


def digests(built: AtHome) -> tuple[str, str]:
    config = built.load()
    with open_workspace(config.spill) as workspace:
        units, _, _ = arrange(config, ingest_effects(config, config.log_source, "once"), workspace)
        assert isinstance(units, Sealed)
        found = effect_fingerprint(config, units)
    return found.rows, found.settings


def test_the_same_rows_are_known_again_in_any_order_and_format(campaign: Campaign) -> None:
    built = campaign(people(300))
    first = digests(built)
    write_content(built.folder / "log.parquet", people(300).reverse())
    assert digests(built) == first
    write_content(built.folder / "log.csv", people(300))
    built.edit("log.parquet", "log.csv")
    assert digests(built) == first
    built.edit("epsilon = 4.0", "epsilon = 4.5")
    rows, chosen = digests(built)
    assert rows == first[0]
    assert chosen != first[1]


@pytest.mark.parametrize(
    "change",
    [
        {"spend": 2.25},
        {"age": 44.0},
        {"sex": "f"},
        {"arm": "mail"},
        {"arm": "call"},
        {"id": "q"},
        {"id": None},
    ],
)
def test_any_other_row_is_another_log(campaign: Campaign, change: dict[str, object]) -> None:
    built = campaign(people(50))
    first = digests(built)
    ((name, value),) = change.items()
    changed = people(50).with_columns(
        pl.when(pl.int_range(50) == 4).then(pl.lit(value)).otherwise(name).alias(name)
    )
    write_content(built.folder / "log.parquet", changed)
    assert digests(built)[0] != first[0]


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", None]),
            st.sampled_from(["none", "mail", "call", None]),
            st.sampled_from(["0.5", "x", None]),
            st.sampled_from(["30", "nan", None]),
            st.sampled_from(["f", "z", None]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_n_follows_from_ids_alone(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str | None, ...]]
) -> None:
    names = ["id", "arm", "spend", "age", "sex"]
    log = pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")
    build = campaign.__wrapped__(tmp_path_factory.mktemp("log"))  # type: ignore[attr-defined] # the fixture's own function
    found, roster = spends(build(log))
    ids = [row[0] for row in rows]
    n_units = len({one for one in ids if one is not None}) + ids.count(None)
    assert len(found) == roster.n_units == n_units
