"""The sums of an effect model: shape, price, rows that take no part, batches."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from estimators.concentrated import concentrated_rho
from estimators.effects.models.fit import fit
from estimators.effects.models.queries import queries, rho_shares
from privatizers.accounting.accountant import delta_at
from privatizers.effects.models.lattice_sums import BATCH, MOST_ROWS, Query, drawn_sums, summed
from privatizers.effects.models.moments import (
    STAGES,
    KnownMoments,
    draw_sums,
    event,
    released,
    stand_in,
)
from privatizers.effects.models.rows import EffectRows
from schemas.arrays import Ints
from schemas.effects.model import EffectDesign, LevelFeature, NoisySums, Propensity
from schemas.errors import InputError
from tests.support.effect_rows import DESIGN, batches, people, without

PROPENSITIES = {
    "value": Propensity("value", 0.4),
    "column": Propensity("column", None, 0.1),
    "learn": Propensity("learn"),
}


def without_noise(query: Query, steps: Ints) -> NoisySums:
    return replace(drawn_sums(replace(query, rho=0.0), steps), step=query.step)


def exact_sums(design: EffectDesign, rows: object, size: int = 8192) -> dict[str, NoisySums]:
    known = KnownMoments(design, 2000)
    for stage in STAGES:
        known = released(known, stage, batches(rows, size)(), without_noise)  # type: ignore[arg-type] # rows are rows
    return known.sums


@pytest.mark.parametrize("neighbours", ["row", "outcome"])
@pytest.mark.parametrize("kind", PROPENSITIES)
def test_all_sums_cost_what_is_declared(kind: str, neighbours: str) -> None:
    design = replace(DESIGN, propensity=PROPENSITIES[kind], neighbours=neighbours)  # type: ignore[arg-type] # a parameter is any text
    sums = stand_in(design, 1000)
    assert tuple(each.name for each in sums) == queries(design)
    assert sum(rho_shares(design).values()) == pytest.approx(1.0)
    rho = concentrated_rho(design.epsilon, design.delta)
    assert event(sums).rho <= rho
    assert event(sums).rho == pytest.approx(rho, rel=1e-9)
    assert delta_at(event(sums), design.epsilon) <= design.delta
    for each in sums:
        if each.rho:
            assert (each.sensitivity / each.step / each.scale) ** 2 / 2.0 <= each.rho
        else:
            assert neighbours == "outcome"
            assert each.name in {"histograms", "gram", "treatment", "treated_gram"}


@pytest.mark.parametrize("kind", PROPENSITIES)
def test_a_stand_in_has_the_shape_of_what_is_drawn(kind: str) -> None:
    design = replace(DESIGN, propensity=PROPENSITIES[kind])
    made_up = people(300, np.random.default_rng(1), propensity=kind == "column")
    drawn = draw_sums(design, 300, batches(made_up.rows))
    for one, other in zip(drawn, stand_in(design, 300), strict=True):
        assert (one.name, one.rho) == (other.name, other.rho)
        if one.name in ("histograms", "squares"):
            assert len(one.steps) == len(other.steps)


def test_no_row_at_all_can_be_fitted() -> None:
    """A log of faults alone gives a model, too: whether there is one says nothing of the rows."""
    made_up = people(200, np.random.default_rng(2)).rows
    faulty = without(made_up, np.ones(200, dtype=np.bool_))
    model = fit(DESIGN, 200, draw_sums(DESIGN, 200, batches(faulty)))
    assert np.isfinite(model.coefficients).all()
    assert np.isfinite(model.predict(made_up.features)[0]).all()


def test_faulty_rows_are_zeros_in_every_sum() -> None:
    random = np.random.default_rng(3)
    made_up = people(2000, random).rows
    faulty = random.uniform(size=2000) < 0.3
    among = exact_sums(DESIGN, without(made_up, faulty))
    kept = without(made_up, faulty).kept()
    alone = exact_sums(DESIGN, kept)
    for name, sums in among.items():
        assert sums.values == pytest.approx(alone[name].values, abs=4 * sums.step), name


def test_batches_do_not_change_sums() -> None:
    made_up = people(2000, np.random.default_rng(4)).rows
    whole, parts = exact_sums(DESIGN, made_up), exact_sums(DESIGN, made_up, size=77)
    for name, sums in whole.items():
        assert sums.values == pytest.approx(parts[name].values, abs=2 * sums.step), name


def test_the_exact_sums_are_those_of_plain_formulas() -> None:
    made_up = people(2000, np.random.default_rng(5)).rows
    known = KnownMoments(DESIGN, 2000)
    for stage in STAGES:
        known = released(known, stage, batches(made_up)(), without_noise)
    assert known.base is not None
    assert known.nuisance is not None
    assert known.fitted is not None
    phi = known.base.basis.values(made_up.features)
    w = np.minimum(1.0, np.sqrt(phi.shape[1]) / np.linalg.norm(phi, axis=1))
    sums = {name: each.values for name, each in known.sums.items()}
    y, t = made_up.outcome, made_up.treated
    assert sums["outcomes"] == pytest.approx((w**2 * y) @ phi, abs=0.1)
    assert sums["squares"] == pytest.approx([np.sum((w * y) ** 2)], abs=0.01)
    gram = (phi * (w**2)[:, None]).T @ phi
    rows, columns = np.triu_indices(phi.shape[1])
    factor = np.where(rows == columns, 1.0, np.sqrt(2.0))
    assert sums["gram"] == pytest.approx(gram[rows, columns] * factor, abs=0.2)
    clip = known.nuisance.clip
    residual = np.clip(y - known.nuisance.outcomes(phi), -clip, clip)
    assert sums["effects"] == pytest.approx((w**2 * (t - 0.4) * residual) @ phi, abs=0.1)
    table = sums["table"].reshape(-1, 3)
    assert table[0, 0] / 0.3 == pytest.approx(2000, abs=0.1)
    assert table[1:4, 0].sum() == pytest.approx(table[0, 0], abs=0.1)
    eta = known.nuisance.table_outcomes.of(phi @ known.nuisance.outcome_coefficients)
    psi = (t - 0.4) * (y - eta) / 0.24
    assert table[0, 1] * known.nuisance.greatest_psi == pytest.approx(psi.sum(), abs=0.1)
    assert np.abs(psi).max() <= known.nuisance.greatest_psi


def test_no_row_moves_another_over_the_edge_of_a_fifth() -> None:
    """Of levels, edges are effects that rows have: the last digit decides, and is a row's own."""
    features = tuple(LevelFeature(name, tuple("abcd")) for name in ("one", "two", "three"))
    design = replace(DESIGN, features=features, subgroups=())
    random = np.random.default_rng(7)
    levels = random.integers(4, size=(2000, 3)).astype(np.float64)
    treated, noise = random.uniform(size=2000) < 0.4, random.normal(0.0, 0.3, 2000)
    outcome = np.clip(noise + treated * levels[:, 0] / 10.0, -1.0, 1.0)
    rows = EffectRows(levels, treated, outcome, None, np.ones(2000, dtype=np.bool_))
    alike = np.array(list(product(range(4), repeat=3)), dtype=np.float64)
    for _ in range(5):
        known = KnownMoments(design, 2000)
        for stage in STAGES[:3]:
            known = released(known, stage, batches(rows)())
        assert known.base is not None
        assert known.fitted is not None
        for one in alike:
            v, w = known.base.basis.weighted(np.tile(one, (7, 1)))
            predicted = known.fitted.effects(v / w[:, None])
            assert len({*known.parts[-1].cells(levels[:7], predicted).tolist()}) == 1


def test_more_rows_than_sums_hold_are_refused_before_any_is_read() -> None:
    for ask in (stand_in, partial(draw_sums, batches=list)):
        with pytest.raises(InputError, match="4,294,967,297 units"):
            ask(DESIGN, MOST_ROWS + 1)


@pytest.mark.parametrize("rho", [0.0, 1e-3, 1e3])
def test_sums_of_the_most_rows_stay_within_64_bits(rho: float) -> None:
    """Of the longest rows that there are, in batches of the same sum, up or down."""
    query = Query("gram", 3, 2.0**-3 * 1.7, rho)
    n_batches = MOST_ROWS // BATCH
    most = np.rint(np.full(3, BATCH * query.sensitivity) / query.unit)
    assert float(most.max()) * n_batches < 2.0**63
    parts = [[("gram", np.full(3, times * query.step))] for times in (5.0, -2.0)]
    assert summed({"gram": query}, parts)["gram"].tolist() == [3, 3, 3]
