"""Released ids: as in the log, or HMAC-SHA-256 under a key that only some hold."""

import hmac
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.config.unit_id_key import UnitIdKey, read_key
from flows.ledger.place import ledger_place
from flows.ledger.units.account_key import read_account_key
from flows.raw.units.unit_ids import released_ids
from schemas.errors import ConfigError
from tests.conftest import Builder, Experiment, released
from tests.support.odd_files import NO_FILES

Keyed = Any
"""A configuration whose unit ids are hashed under the given content of a key file."""


@pytest.fixture
def keyed(experiment: Builder, tmp_path: Path) -> Keyed:
    built = with_key_file(experiment)

    def configure(content: bytes, mode: int = 0o600) -> Path | None:
        path = tmp_path / "key"
        path.write_bytes(content)
        path.chmod(mode)
        return built.load().id_key_path

    return configure


def with_key_file(experiment: Builder) -> Experiment:
    """An experiment whose key file is ``key``, beside its folder."""
    return experiment(publish={"unit_id": "keyed-hash", "key_file": "../key"})


def expected(secret: bytes, ids: list[Any]) -> list[str | None]:
    """The same by Python's own HMAC, an id at a time."""
    return [
        None if one is None else hmac.new(secret, str(one).encode(), "sha256").hexdigest()
        for one in ids
    ]


KEY = b"thirty-two bytes of some secret!"


# ids


@pytest.mark.parametrize("ids", [pl.Series(["b", "a"]), pl.Series([3, -1])])
def test_plain_ids_are_released_as_they_are(experiment: Builder, ids: pl.Series) -> None:
    assert released_ids(None, ids).equals(ids)


ODD = ["", "a", "é", "日本語 🎲", "x" * 55, "x" * 56, "y" * 10_000, "a\0b", "\\x41", "'; --", " a "]


@pytest.mark.parametrize(
    "ids",
    [
        pl.Series(ODD),
        pl.Series(["b", None, "a"]),
        pl.Series([0, -1, 7, -(2**63), 2**63 - 1, None], dtype=pl.Int64),
        pl.Series([0, 2**63, 2**64 - 1], dtype=pl.UInt64),
        pl.Series([], dtype=pl.String),
    ],
    ids=["odd", "null", "int64", "uint64", "none"],
)
def test_hashed_ids_are_pythons_hmac(keyed: Keyed, ids: pl.Series) -> None:
    found = released_ids(keyed(KEY), ids.alias("unit"))
    assert found.to_list() == expected(KEY, ids.to_list())
    assert found.dtype == pl.String
    assert found.name == "unit"


@pytest.mark.parametrize("size", [1, 16, 63, 64, 65, 128, 1000])
def test_keys_of_any_length_are_taken_as_rfc_2104_takes_them(keyed: Keyed, size: int) -> None:
    secret = bytes((7 * i + 1) % 256 for i in range(size))
    assert released_ids(keyed(secret), pl.Series(ODD)).to_list() == expected(secret, ODD)


@pytest.mark.process
def test_any_id_under_any_key(keyed: Keyed) -> None:
    readable = st.text(st.characters(exclude_categories=["Cs"]))

    @settings(max_examples=40, deadline=None)  # each example starts a database
    @given(st.binary(min_size=1, max_size=80), st.lists(readable, max_size=5))
    def is_pythons_hmac(secret: bytes, ids: list[str]) -> None:
        found = released_ids(keyed(secret + b"\r\n"), pl.Series(ids, dtype=pl.String))
        assert found.to_list() == expected(secret, ids)

    is_pythons_hmac()


def test_many_ids_keep_their_places(keyed: Keyed) -> None:
    """More than one thread of the database takes at once."""
    size = 400_000
    ids = pl.select(pl.format("id {}", pl.int_range(size) * 7919 % size)).to_series()
    found = released_ids(keyed(KEY), ids)
    places = [*range(0, size, 997), size - 1]
    assert found.gather(places).to_list() == expected(KEY, ids.gather(places).to_list())
    assert found.n_unique() == size


# the key


def test_without_hashing_there_is_no_key(experiment: Builder) -> None:
    assert read_key(experiment().load().id_key_path) is None


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (KEY, KEY),
        (KEY + b"\n", KEY),
        (KEY + b"\r\n", KEY),
        (KEY + b"\n\n", KEY + b"\n"),
        (KEY + b"\r", KEY + b"\r"),
        (b"\n" + KEY, b"\n" + KEY),
        (b" " + KEY + b" ", b" " + KEY + b" "),
        (b"\xff\x00" * 16, b"\xff\x00" * 16),
    ],
)
def test_a_key_is_the_bytes_of_its_file_but_for_one_newline(
    keyed: Keyed, content: bytes, secret: bytes
) -> None:
    key = read_key(keyed(content))
    assert key is not None
    assert key.secret == secret
    assert key.warnings == ()


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n"])
def test_an_empty_key_is_refused(keyed: Keyed, tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"publish\.key_file: .*is empty; make one") as caught:
        read_key(keyed(content))
    assert str(tmp_path / "experiment" / "../key") in str(caught.value)


def test_a_missing_key_is_named(experiment: Builder) -> None:
    built = with_key_file(experiment)
    with pytest.raises(ConfigError, match=r"publish\.key_file: .*key: there is no such file"):
        released_ids(built.load().id_key_path, pl.Series(["a"]))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        *NO_FILES,
        (lambda path: path.write_bytes(b"k" * 2_000_000), "is far too large"),
    ],
)
def test_a_key_that_is_no_file_is_named_and_not_waited_for(
    experiment: Builder, tmp_path: Path, make: Callable[[Path], object], says: str
) -> None:
    make(tmp_path / "key")
    with pytest.raises(ConfigError, match=r"publish\.key_file: .*key: " + re.escape(says)):
        read_key(with_key_file(experiment).load().id_key_path)


@pytest.mark.parametrize(("size", "warned"), [(1, True), (15, True), (16, False), (200, False)])
def test_a_short_key_is_warned_of(keyed: Keyed, size: int, warned: bool) -> None:
    key = read_key(keyed(b"s" * size + b"\n"))
    assert key is not None
    assert [f"has {size} bytes" in warning for warning in key.warnings] == [True] * warned


@pytest.mark.parametrize(
    ("mode", "warned"),
    [(0o600, False), (0o400, False), (0o640, True), (0o604, True), (0o620, True), (0o602, True)],
)
def test_a_key_that_others_can_read_or_change_is_warned_of(
    keyed: Keyed, mode: int, warned: bool
) -> None:
    key = read_key(keyed(KEY, mode))
    assert key is not None
    assert [f"mode {mode:04o}" in warning for warning in key.warnings] == [True] * warned


def test_a_key_does_not_show(keyed: Keyed) -> None:
    key = read_key(keyed(b"short secret", 0o644))
    assert key is not None
    assert len(key.warnings) == 2
    assert "short secret" not in repr(key) + "".join(key.warnings)


# the dry run


def test_a_dry_run_finds_that_the_key_is_missing_before_it_reads_the_log(
    experiment: Builder,
) -> None:
    built = with_key_file(experiment)
    (built.folder / "log.parquet").unlink()
    with pytest.raises(ConfigError, match=r"publish\.key_file"):
        built.check()


def test_a_dry_run_tells_the_warnings(experiment: Builder, tmp_path: Path) -> None:
    built = with_key_file(experiment)
    (tmp_path / "key").write_bytes(b"short")
    (tmp_path / "key").chmod(0o600)
    (warning,) = built.check().warnings
    assert "can be guessed" in warning
    assert built.check().as_json()["warnings"] == [warning]


# its fingerprint


def test_a_fingerprint_tells_keys_apart_and_nothing_else(keyed: Keyed) -> None:
    def key_of(content: bytes) -> UnitIdKey:
        found = read_key(keyed(content))
        assert found is not None
        return found

    one, same, other = (key_of(content) for content in (KEY, KEY + b"\n", KEY[::-1]))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert one.fingerprint is not None
    assert re.fullmatch("[0-9a-f]{32}", one.fingerprint)
    assert one.fingerprint not in one.name
    assert one.name not in one.fingerprint
    assert key_of(b"only 15 bytes..").fingerprint is None  # found by trying, else


def test_no_unit_has_an_id_that_is_released_as_the_fingerprint(keyed: Keyed) -> None:
    """What is hashed for it is no UTF-8, as every id is."""
    config = keyed(KEY)
    key = read_key(config)
    assert key is not None
    assert key.fingerprint is not None
    for text in ("public fingerprint", "ÿpublic fingerprint", "\x7fpublic fingerprint"):
        (found,) = released_ids(config, pl.Series([text]))
        assert not found.startswith(key.fingerprint)


def test_a_release_states_it(experiment: Builder, tmp_path: Path) -> None:
    built = with_key_file(experiment)
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    (row,) = released(built.run().path, "release").to_dicts()
    key = read_key(built.load().id_key_path)
    assert key is not None
    assert row["unit_id_key_fingerprint"] == key.fingerprint
    account = read_account_key(ledger_place(built.load()), built.load().terms, begun=True)
    assert row["account_key_fingerprint"] == account.fingerprint != key.fingerprint
