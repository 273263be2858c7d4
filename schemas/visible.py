r"""Makes text of others safe to show: no name can move a cursor or reverse a line.

Names come from logs, configurations, reports, ledgers and released files, hence from anybody. A
control character could overwrite parts of a terminal, a line break could fake a line of the
program, a mark for right-to-left text could swap two numbers, and a character without width makes
two names look alike. All of them are shown as Python escapes: ``\x1b``, ``\n``, ``\u202e``.
"""

import unicodedata


def visible(text: str, keep: str = "") -> str:
    """Return ``text`` with every invisible character escaped, except those in ``keep``.

    Letters, marks, signs and spaces of any language stay; control and format characters, line and
    paragraph breaks, surrogates and unassigned characters are escaped.
    """
    if text.isprintable():
        return text
    return "".join(
        character if _is_visible(character) or character in keep else _escape(character)
        for character in text
    )


def _is_visible(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
