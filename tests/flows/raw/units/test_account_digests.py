"""Digests for accounts: of whole numbers and texts, alike in every type; and of earlier forms."""

import hmac
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from flows.ledger.members import AccountKey, Members, mark_of
from flows.raw.boundary.sealed import Sealed
from flows.raw.spill.sorted_runs import Stored
from flows.raw.units.account_digests import count_units, digest_units, digests_of_ids
from flows.raw.units.rows import Rows, counted, rows_of
from schemas.arrays import Words
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT
from tests.conftest import Builder

Digest = Callable[..., Members]

KEY = AccountKey(b"k" * 32, "f" * 32)


def rows_with(ids: pl.Series) -> Sealed[Rows]:
    arms = pl.Enum(["none", "mail"])
    n = len(ids)
    frame = pl.DataFrame(
        {
            UNIT: ids,
            ARM: pl.Series(["none", "mail"] * n, dtype=arms)[:n],
            CLUSTER: pl.Series(["all"] * n, dtype=pl.Categorical),
            OUTCOME: [0.0] * n,
        }
    )
    part = Stored(n, frame), counted(frame, 2, None)
    return Sealed(rows_of([part], ("none", "mail"), ids.dtype), n)


@pytest.fixture
def digest(experiment: Builder) -> Digest:
    def of(ids: pl.Series, known: tuple[str, ...] = (), *, exact: bool = False) -> Members:
        terms, rows = experiment().load().terms, rows_with(ids)
        return digest_units(terms, "exact" if exact else "canonical", rows, KEY, known)

    return of


def test_a_number_is_one_block_of_aes_and_a_text_is_as_before(digest: Digest) -> None:
    secret = hmac.digest(KEY.secret, b"whole numbers", "sha256")
    encrypt = Cipher(algorithms.AES256(secret), modes.ECB()).encryptor()  # noqa: S305 - one block
    blocks = [(7).to_bytes(8, "little") + bytes(8), (7).to_bytes(8, "little") + b"\1" + bytes(7)]
    wanted = [int.from_bytes(encrypt.update(one)[:8], "little") for one in blocks]
    found = digest(pl.Series(["7.0", "-07", "AB"])).digests
    assert found[:2].tolist() == wanted
    assert found[2:].tolist() == digests_of_ids(KEY.secret, pl.Series(["ab"])).tolist()


def test_columns_of_any_type_have_the_same_digests(digest: Digest) -> None:
    numbers = pl.Series([1, 7, 12, 10**16], dtype=pl.Int64)
    of_column: Words = digest(numbers).digests
    texts = pl.Series(["001", "7.0", " 12", "1e+16"])
    for other in (numbers.cast(pl.UInt64), numbers.cast(pl.String), texts):
        assert np.array_equal(digest(other).digests, of_column)
    assert np.array_equal(digest(numbers.cast(pl.String), exact=True).digests, of_column)
    assert not np.isin(digest(texts, exact=True).digests, of_column).any()


def test_registers_of_other_forms_are_sought_by_what_was_digested_then(digest: Digest) -> None:
    ids = pl.Series(["007", "8", "AB"])
    marks = [mark_of("f" * 32, form) for form in (None, "canonical", "exact")]
    tonight = digest(ids, (*marks, "of another key"))
    assert tonight.mark == marks[1]
    as_written = digests_of_ids(KEY.secret, ids)
    as_now = digests_of_ids(KEY.secret, pl.Series(["7", "8", "ab"]))
    exact = digest(ids, exact=True)
    assert set(tonight.others) == {marks[0], marks[2]}
    assert np.array_equal(tonight.others[marks[0]], [as_written, as_now])
    assert np.array_equal(tonight.others[marks[2]], [exact.digests, tonight.digests])
    assert {len(way) for way in digest(pl.Series([7, 8]), (*marks,)).others.values()} == {1}
    other = digest(ids, (*marks,), exact=True)
    assert np.array_equal(other.others[marks[0]], [as_written])
    assert np.array_equal(other.others[marks[1]], [tonight.digests])


def test_without_accounts_people_are_counted_all_the_same(experiment: Builder) -> None:
    terms = experiment().load().terms
    found = count_units(terms, "canonical", rows_with(pl.Series(["7", "7.0", "07", "8"])))
    assert found is not None
    assert sorted(found.n_rows.tolist()) == [1, 3]
    assert count_units(terms, "canonical", rows_with(pl.Series([7, 8]))) is None
