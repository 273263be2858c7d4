"""The canonical form of ids: which spellings are one, which are not, and hostile ones."""

import unicodedata

import numpy as np
import polars as pl
import pytest

from schemas.canonical_ids import Ids, canonical, spelt

SEVEN = [
    *("7", "007", "+7", " 7", "7\t", "7.", "7.0", "7.000", "07.0", ".7e1", "70e-1", "0.7E+1"),
    *("７", "٧", "７.０", "\ufeff7", "7\u00a0", "7e0", "7e-0", "700e-02"),
]
ALIKE: list[tuple[int | str, list[str]]] = [
    (7, SEVEN),
    (-7, ["-7", "-007", "-7.0", " -70e-1"]),
    (0, ["0", "000", "-0", "+0", "0.0", ".0", "0.", "0e5", "0e999999999", "-0.0e-7"]),
    (10**16, ["1e16", "1e+16", "1E16", "1.0E+16", "10000000000000000", "10000000000000000.0"]),
    (2**64 - 1, ["18446744073709551615", "18446744073709551615.0", "1844674407370955161.5e1"]),
    (-(2**63), ["-9223372036854775808", "-9223372036854775808.0"]),
    ("18446744073709551616e0", ["18446744073709551616", "018446744073709551616.00"]),
    ("1e20", ["1e20", "100000000000000000000", "10e19", "+1.0e+20"]),
    ("1e999999999", ["1e999999999", "10e999999998", "1E+0999999999"]),
    ("josé", ["josé", "jose\u0301", "JOSÉ", " José "]),
    ("strasse", ["straße", "STRASSE", "ſtraße", "STRAẞE"]),
    ("kelvin", ["\u212aelvin", "Kelvin", "ＫＥＬＶＩＮ"]),
    ("σοφοσ", ["σοφος", "ΣΟΦΟΣ"]),
    ("i\u0307", ["İ", "i\u0307"]),
    ("fi", ["ﬁ", "FI"]),
    ("nan", ["nan", "NaN"]),
    ("", ["", " ", "\t\u200b"]),
]
APART = [
    *("7", "-7", "7.5", "7.50", "0x7", "7,0", "1_000", "1000", "7e", "e7", ".", "+", "-", "+-7"),
    *("--7", "7.0.0", "7 0", "7-", "1e-1", "1e9999999999", "1e9999999998", "\u22127", "ı", "i"),
]


@pytest.mark.parametrize(("form", "texts"), ALIKE, ids=lambda one: ascii(one)[:20])
def test_all_spellings_of_an_id_have_one_form(form: int | str, texts: list[str]) -> None:
    assert {canonical(text) for text in texts} == {form}
    assert canonical(str(form)) == form
    assert set(spelt(pl.Series(texts), "canonical").written().to_list()) == {str(form)}


def test_other_ids_differ() -> None:
    assert len({canonical(text) for text in APART}) == len(APART)
    assert len(set(spelt(pl.Series(APART), "canonical").written().to_list())) == len(APART)


def test_columns_are_read_as_their_ids_are_one_by_one() -> None:
    chars = "0017.e+-E 7aßſé\u0301K9٧７\t"
    rng = np.random.default_rng(1)
    texts = ["".join(rng.choice(list(chars), rng.integers(1, 9))) for _ in range(20_000)]
    found = spelt(pl.Series(texts), "canonical")
    forms = [canonical(text) for text in texts]
    assert found.written().to_list() == [str(form) for form in forms]
    assert found.is_text.tolist() == [isinstance(form, str) for form in forms]


def test_forms_are_final_and_those_of_other_spellings_in_every_script() -> None:
    texts = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    wrong = [
        text
        for text in texts[::7]
        if any(
            canonical(other) != canonical(text)
            for other in (
                str(canonical(text)),
                text.lower(),
                unicodedata.normalize("NFD", text),
                unicodedata.normalize("NFKC", text),
            )
        )
    ]
    assert not wrong


def test_exact_ids_are_as_they_are_written() -> None:
    texts = ["7", "007", "7.0", " 7", "Ab", "ab", "+7", "-0", "-7", "18446744073709551615"]
    found = spelt(pl.Series(texts), "exact")
    assert found.written().to_list() == texts
    assert found.is_text.tolist() == [False, *[True] * 7, False, False]


@pytest.mark.parametrize("kind", [pl.Int64, pl.UInt64])
@pytest.mark.parametrize("ids", ["canonical", "exact"])
def test_integers_are_as_their_digits(kind: pl.DataType, ids: Ids) -> None:
    ends = (0, 7, 2**63 - 1, *((-7, -(2**63)) if kind == pl.Int64 else (2**64 - 1,)))
    numbers = pl.Series(ends, dtype=kind)
    one, other = spelt(numbers, ids), spelt(numbers.cast(pl.String), ids)
    for name in ("values", "negative", "is_text"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert one.written().to_list() == list(map(str, ends))


def test_long_ids_take_no_longer_than_their_length() -> None:
    long = 1_000_000
    hostile = ["1" * long, "1" * long + "e", "1" * long + ".x", "1e" + "9" * long, "." + "0" * long]
    forms = [canonical(text) for text in hostile]
    assert [len(str(form)) for form in forms] == [long + 2, long + 1, long + 2, long + 2, 1]
    assert spelt(pl.Series(hostile), "canonical").written().to_list() == list(map(str, forms))
