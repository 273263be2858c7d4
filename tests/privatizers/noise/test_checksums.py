"""Checksums: what the library makes of all at once, and another for whatever is changed."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from privatizers.noise import checksums
from privatizers.noise.checksums import Checksum


def checksum(*contents: bytes, like: str | None = None) -> str:
    found = Checksum() if like is None else Checksum.like(like)
    for content in contents:
        found.update(memoryview(content))
    return found.result()


@pytest.mark.parametrize("at_once", [1, 5, 16, 1 << 26])
def test_a_checksum_is_a_gmac_however_its_content_is_told(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "_AT_ONCE", at_once)
    for parts in ([], [b""], [b"one"], [b"the words", b"", b" of a register", b"!" * 40]):
        kind, key, tag = checksum(*parts).split(":")
        by_the_library = AESGCM(bytes.fromhex(key)).encrypt(bytes(12), b"", b"".join(parts))
        assert (kind, bytes.fromhex(tag)) == ("gmac", by_the_library)


@given(st.binary(min_size=1, max_size=60), st.data())
def test_whatever_is_changed_is_told(content: bytes, data: st.DataObject) -> None:
    known = checksum(content)
    assert checksum(content, like=known) == known
    place = data.draw(st.integers(0, len(content) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    changed = content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
    for other in (changed, content + b"\0", content[:-1], content[::-1] + b"x"):
        assert checksum(other, like=known) != known


def test_each_has_a_key_of_its_own() -> None:
    assert checksum(b"the same") != checksum(b"the same")


@pytest.mark.parametrize(
    "text", ["", "x", "gmac", "gmac:00:00", "gmac:xy:00", f"sha:{'0' * 64}:0", f"gmac:{'0' * 64}"]
)
def test_what_is_no_checksum_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        Checksum.like(text)
