"""One spelling for all spellings of an id, so that accounts know a person again.

A column of whole numbers is written as ``7``, as ``7.0`` once one of them is missing, as ``007`` or
``1e+16`` by other programs; a text composed or decomposed, in capitals, between blanks. Accounts
take them for one id. Two people whom that brings together are charged together, which errs toward
privacy. What is released keeps the spelling of the log.

The canonical form of a text:

1. compatibility forms are replaced and case is folded, as by Unicode's compatibility caseless match
   (D146), digits of any script are written 0 to 9, and blanks at the ends go;
2. what then is a whole number (a sign, digits, a point, an exponent; ``007``, ``7.``, ``+7``,
   ``.7e1``, ``70e-1``, ``-0``) is that number. ``7.5``, ``0x7``, ``1,000`` and ``nan`` are texts.

A number beyond 64 bits is written ``MeX``, M without zeros at its end, and never multiplied out.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.arrays import Bools, Ints, Words

Ids = Literal["canonical", "exact"]

_BLANKS = " \t\n\r\v\f\0\x1c\x1d\x1e\x1f\x85\u1680\u2028\u2029\u200b\u200c\u200d\u2060\ufeff"
_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:e([+-]?)0*([0-9]{1,9}))?")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_LIKE_NUMBER = r"^[+-]?\.?[0-9][0-9.e+-]*$"
_DIGITS = 20  # of a number of 64 bits
_FIRST, _LAST = np.uint8(33), np.uint8(126)
"""Bytes beyond these are blanks, or not ASCII; of others, capitals alone are folded."""
_CAPITAL, _CAPITALS = np.uint8(ord("A")), np.uint8(26)
_MAY_COUNT = np.isin(np.arange(256), list(b"+-.0123456789"))
"""Whether a text that begins with this byte may be a whole number."""


@dataclass(frozen=True)
class Spelt:
    """Ids as accounts tell them apart: whole numbers of up to 64 bits, and texts."""

    values: Words
    """The numbers without their signs, shape [n]; 0 for texts."""
    negative: Bools
    """Which numbers are below 0, shape [n]."""
    is_text: Bools
    """Shape [n]."""
    texts: pl.Series
    """Those that are texts, in their order."""

    def written(self) -> pl.Series:
        """All of them as text, numbers in decimal; shape [n]."""
        signs = pl.Series(np.where(self.negative, "-", ""))
        found = signs + pl.Series(self.values).cast(pl.String)
        return found.scatter(np.flatnonzero(self.is_text), self.texts)


def spelt(units: pl.Series, ids: Ids) -> Spelt:
    """Read ids, text or integers without nulls: in canonical form, or exactly as they are.

    The integer 7 and the text "7" are one id either way.
    """
    found = _Numbers(len(units))
    if units.dtype.is_integer():
        found.note_all(slice(None), units.to_numpy())
        return found.beside(units)
    units = units.cast(pl.String)
    if _are_plain(units):
        return found.beside(units)
    left = found.read(np.arange(len(units)), units, exact=ids == "exact")
    if ids == "exact" or not len(left):
        return found.beside(units)
    given = units if len(left) == len(units) else units.gather(left)
    is_ascii = (given.str.len_bytes() == given.str.len_chars()).to_numpy()
    texts = given.str.strip_chars(_BLANKS).str.to_lowercase()  # right for ASCII alone
    like = np.flatnonzero(is_ascii & texts.str.contains(_LIKE_NUMBER).to_numpy())
    if len(like):
        like = like[found.read(left[like], texts.gather(like).str.replace(r"\.0*$", ""))]
    odd = np.union1d(like, np.flatnonzero(~is_ascii))  # few, but where no id is ASCII
    if len(odd):
        forms = [canonical(text) for text in given.gather(odd).to_list()]
        numbers = np.flatnonzero([isinstance(form, int) for form in forms])
        of_numbers = [int(forms[place]) for place in numbers]  # below 2⁶⁴ without their signs
        values = np.array([abs(number) for number in of_numbers], dtype=np.uint64)
        found.note(left[odd[numbers]], values, np.array([number < 0 for number in of_numbers]))
        texts = texts.scatter(odd, [str(form) for form in forms])
    return found.beside(texts if len(left) == len(units) else units.scatter(left, texts))


def _are_plain(units: pl.Series) -> bool:
    """Whether all texts are their own canonical form, and none can be a number, by their bytes."""
    content, ends = text_buffers(units)
    used = content[ends[0] : ends[-1]]
    return bool((np.diff(ends) > 0).all()) and not (
        (used - _FIRST > _LAST - _FIRST).any()
        or (used - _CAPITAL < _CAPITALS).any()
        or _MAY_COUNT[content[ends[:-1]]].any()
    )


class _Numbers:
    """Which ids are numbers of up to 64 bits, as far as they were read."""

    def __init__(self, n: int) -> None:
        self._values = np.zeros(n, dtype=np.uint64)
        self._negative = np.zeros(n, dtype=np.bool_)
        self._is_text = np.ones(n, dtype=np.bool_)

    def read(self, places: Ints, texts: pl.Series, *, exact: bool = False) -> Ints:
        """Read those of ``texts`` that are digits behind a sign or none; positions of the others.

        ``places`` are where the ids stand, shape [texts]. If ``exact``, "007" is not a number.
        """
        left = np.arange(len(texts))
        for kind in (pl.UInt64, pl.Int64):
            given = texts if len(left) == len(texts) else texts.gather(left)
            numbers = given.cast(kind, strict=False)
            known = numbers.is_not_null()
            if exact:
                known &= (numbers.cast(pl.String) == given).fill_null(value=False)
            there = known.to_numpy()
            if there.any():
                self.note_all(places[left[there]], numbers.filter(known).to_numpy())
                left = left[~there]
            if not len(left):
                break
        return left

    def note_all(self, places: Ints | slice, numbers: NDArray[np.integer]) -> None:
        """Note the numbers that stand at some places."""
        negative = numbers < 0
        values = numbers.astype(np.uint64)  # modulo 2⁶⁴, as is the difference
        self.note(places, np.subtract(0, values, out=values, where=negative), negative)

    def note(self, places: Ints | slice, values: Words, negative: Bools) -> None:
        """The same of numbers without their signs."""
        self._values[places] = values
        self._negative[places] = negative
        self._is_text[places] = False

    def beside(self, texts: pl.Series) -> Spelt:
        """The numbers beside what is not one, of ``texts``, shape [n]."""
        some = texts.filter(pl.Series(self._is_text)) if self._is_text.any() else texts[:0]
        return Spelt(self._values, self._negative, self._is_text, some.cast(pl.String))


def canonical(text: str) -> int | str:
    """The canonical form of one id: a whole number of up to 64 bits, or a text."""
    folded = text.lower() if text.isascii() else _folded(text)
    folded = folded.strip(_BLANKS)
    match = _NUMBER.fullmatch(folded)
    if match is None:
        return folded
    sign, whole, part, below, exponent = (group or "" for group in match.groups())
    digits = (whole + part).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return 0 if whole + part else folded
    power = int(below + (exponent or "0")) - len(part) + len(digits) - len(kept)
    if power < 0:
        return folded
    minus = "-" if sign == "-" else ""
    if len(kept) + power <= _DIGITS and (value := int(kept + "0" * power)) < 1 << 64:
        return int(f"{minus}{value}")
    return f"{minus}{kept}e{power}"


def _folded(text: str) -> str:
    """What all spellings of a text have in common by Unicode's compatibility caseless match."""
    folded = unicodedata.normalize("NFD", text).casefold()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", folded).casefold())
    return _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), folded)


def text_buffers(texts: pl.Series) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of texts without nulls, in UTF-8, and where each begins and the last ends, [n + 1].

    There may be other bytes before and behind them.
    """
    array = texts.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(content or b"", np.uint8), ends
