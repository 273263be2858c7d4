"""Alias tables realise priors exactly: every one of the 2⁵³ words is accounted for."""

import numpy as np
import pytest

from privatizers.mechanisms.prior import realised_prior, uniform_prior
from privatizers.noise import alias_tables as module
from privatizers.noise.alias_tables import AliasTables, alias_tables, choose
from privatizers.noise.randomness import UNIT
from schemas.arrays import Floats, Ints

N_STRATA = 20


def steps_of(prior: Floats) -> Ints:
    return (prior * UNIT).astype(np.int64)


def realised(tables: AliasTables) -> Ints:
    """How many of the 2⁵³ words fall on each column, by the look-up itself; shape [S, Kp].

    Within a column the outcome changes at the threshold and nowhere else, so the first and the
    last word on either side of it stand for all between them.
    """
    n_strata, n_columns = tables.entries.shape
    capacity = UNIT // n_columns
    thresholds = (tables.entries >> np.uint64(tables.column_bits)).astype(np.int64)
    assert (thresholds < capacity).all()
    strata = np.repeat(np.arange(n_strata), n_columns)
    start = np.tile(np.arange(n_columns) * capacity, n_strata)
    length = thresholds.ravel()
    found = np.zeros((n_strata, n_columns), dtype=np.int64)
    for first, size in ((start, length), (start + length, capacity - length)):
        there = size > 0
        low, high = (
            tables.outcomes(word[there].astype(np.uint64), strata[there])
            for word in (first, first + size - 1)
        )
        assert (low == high).all()
        np.add.at(found, (strata[there], low), size[there])
    return found


def is_exact(tables: AliasTables, prior: Floats) -> bool:
    """Whether exactly q̃ 2⁵³ words fall on every outcome, and none on a column that is padding."""
    found = realised(tables)
    k = prior.shape[1]
    return bool((found[:, :k] == steps_of(prior)).all() and (found[:, k:] == 0).all())


def random_prior(k: int, gamma: float = 2**-12) -> Floats:
    """Rows from nearly uniform to nearly all on one outcome, of which γ each are everybody's."""
    spread = np.random.default_rng(k).gamma(
        np.geomspace(0.01, 100, N_STRATA)[:, None], size=(20, k)
    )
    shares = (spread + 1e-9) / (spread + 1e-9).sum(axis=1, keepdims=True)
    return realised_prior(gamma + (1 - k * gamma) * shares, gamma)


def one_hot(k: int) -> Floats:
    """All on one outcome but for 2⁻⁵³ on each other: the least that γ can be."""
    steps = np.ones((k, k), dtype=np.int64)
    np.fill_diagonal(steps, UNIT - (k - 1))
    return steps / UNIT


@pytest.mark.parametrize("k", range(1, 41))
def test_tables_realise_a_prior_exactly(k: int) -> None:
    uniform = realised_prior(uniform_prior(2, k), (UNIT // k) / UNIT)
    for prior in (random_prior(k), uniform, one_hot(k)):
        assert is_exact(alias_tables(prior), prior)


@pytest.mark.parametrize("k", [100, 255, 256, 257, 300])
def test_many_outcomes_are_as_exact(k: int) -> None:
    prior = random_prior(k)
    assert is_exact(alias_tables(prior), prior)


def test_an_outcome_without_mass_is_never_drawn() -> None:
    prior = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.25, 0.75]])
    assert is_exact(alias_tables(prior), prior)


def test_a_table_with_two_entries_swapped_is_caught() -> None:
    prior = random_prior(5)
    tables = alias_tables(prior)
    for stratum in range(N_STRATA):
        broken = tables.entries.copy()
        broken[stratum, [0, 3]] = broken[stratum, [3, 0]]
        assert not is_exact(AliasTables(broken, 5), prior)


def test_a_threshold_off_by_one_unit_is_caught() -> None:
    prior = random_prior(5)
    tables = alias_tables(prior)
    column = np.argmax(tables.entries[0] >> np.uint64(tables.column_bits))
    for change in (-1, 1):
        broken = tables.entries.astype(np.int64)
        broken[0, column] += change << tables.column_bits
        assert not is_exact(AliasTables(broken.astype(np.uint64), 5), prior)


def test_a_prior_one_unit_off_is_told_from_it() -> None:
    prior = random_prior(7)
    other = prior.copy()
    other[:, 0] += 1 / UNIT
    other[:, 1] -= 1 / UNIT
    assert not is_exact(alias_tables(other), prior)


@pytest.mark.parametrize("slab", [1, 16, 48, 1 << 20])
def test_strata_that_are_built_in_slabs_have_the_same_tables(
    monkeypatch: pytest.MonkeyPatch, slab: int
) -> None:
    prior = random_prior(12)
    whole = alias_tables(prior).entries
    monkeypatch.setattr(module, "_SLAB", slab)
    assert (alias_tables(prior).entries == whole).all()


def test_a_word_is_looked_up_in_the_table_of_its_stratum() -> None:
    tables = alias_tables(one_hot(9))
    strata = np.arange(9)
    words = np.full(9, UNIT // 3, dtype=np.uint64)
    for kind in (np.uint8, np.uint32, np.int64):
        assert tables.outcomes(words, strata.astype(kind)).tolist() == strata.tolist()


def test_no_strata_make_no_tables() -> None:
    tables = alias_tables(np.empty((0, 12)))
    assert tables.entries.shape == (0, 16)
    none = np.empty(0, dtype=np.uint64)
    assert tables.outcomes(none, none.astype(np.int64)).shape == (0,)


@pytest.mark.parametrize(
    "row",
    [[0.5, 0.5 - 1 / UNIT], [0.5, 0.75], [-0.5, 1.5], [0.3, 0.7], [np.nan, 1.0], [2**-60, 1.0]],
)
def test_what_no_table_can_realise_is_refused(row: list[float]) -> None:
    good = [0.5, 0.5]
    with pytest.raises(ValueError, match="prior"):
        alias_tables(np.array([good, row]))


@pytest.mark.parametrize(
    ("k", "kind"), [(2, "u1"), (255, "u1"), (256, "u2"), (65_535, "u2"), (65_536, "u4")]
)
def test_levels_take_the_least_type_that_holds_k(k: int, kind: str) -> None:
    assert AliasTables(np.empty((0, 1), dtype=np.uint64), k).level_type == np.dtype(kind)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
def test_choosing_without_a_branch_is_choosing(kind: type[np.unsignedinteger]) -> None:
    made = np.random.default_rng(1)
    one, other = made.integers(0, np.iinfo(kind).max, (2, 500), dtype=kind, endpoint=True)
    mask = made.integers(0, 2, 500) == 1
    taken = choose(mask, one, other)
    assert taken.dtype == kind
    assert (taken == np.where(mask, one, other)).all()
