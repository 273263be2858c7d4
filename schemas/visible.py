r"""Text of others made safe to show: nothing in a name can move a cursor or turn a line around.

Names come from logs, configurations, reports, ledgers and released files, hence from anybody. A
control character of theirs could write over what a terminal shows, a line break could make up a
line of ours, a mark for right-to-left text could swap two numbers, and a character without width
makes two names look alike. All of them are shown as Python spells them: ``\x1b``, ``\n``,
``\u202e``.
"""

import unicodedata


def visible(text: str, keep: str = "") -> str:
    """``text`` with every character spelt out that cannot be seen, but for those to ``keep``.

    Letters, marks, signs and spaces of any language stay; control and format characters, line and
    paragraph breaks, surrogates and what is not assigned do not.
    """
    if text.isprintable():
        return text
    return "".join(
        character if _is_seen(character) or character in keep else _spelt(character)
        for character in text
    )


def _is_seen(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
