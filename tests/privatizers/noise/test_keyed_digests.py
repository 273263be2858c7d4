"""Keyed digests of ids: the standard's own examples, and a library's code for any text."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given, settings
from hypothesis import strategies as st

from privatizers.noise.keyed_digests import keyed_digests

KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
MESSAGE = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
EXAMPLES = {
    0: "028962f61b7bf89efc6b551f4667d983",
    16: "28a7023f452e8f82bd4bf28d8c37c35c",
    40: "aaf3d8f1de5640c232f5b169b9c911e6",
    64: "e1992190549f6ed5696a2c056c315410",
}
"""NIST SP 800-38B, D.3: CMAC-AES256 of the first so many bytes of MESSAGE."""


def digests(texts: list[bytes], key: bytes = KEY) -> list[bytes]:
    ends = np.cumsum([0, *map(len, texts)])
    found = keyed_digests(key, np.frombuffer(b"".join(texts), np.uint8), ends)
    return [int(one).to_bytes(8, "little") for one in found]


@pytest.mark.parametrize("length", EXAMPLES)
def test_the_examples_of_the_standard_hold(length: int) -> None:
    assert digests([MESSAGE[:length]]) == [bytes.fromhex(EXAMPLES[length])[:8]]


def by_the_library(text: bytes, key: bytes) -> bytes:
    code = CMAC(algorithms.AES256(key))
    code.update(text)
    return code.finalize()[:8]


@pytest.mark.statistical
@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=70), max_size=20), st.binary(min_size=32, max_size=32))
def test_any_texts_are_digested_as_the_library_does_one_by_one(
    texts: list[bytes], key: bytes
) -> None:
    assert digests(texts, key) == [by_the_library(text, key) for text in texts]


def test_more_texts_than_are_digested_at_once() -> None:
    texts = [str(i).encode() * (1 + i % 7) for i in range(70_000)]
    found = digests(texts)
    for i in (0, 32_767, 32_768, 65_535, 65_536, 69_999):
        assert found[i] == by_the_library(texts[i], KEY)
    assert len(set(found)) == len(set(texts))


def test_no_texts() -> None:
    assert digests([]) == []
    assert digests([b"", b""]) == [bytes.fromhex(EXAMPLES[0])[:8]] * 2
