"""The houses beside the night, and what they offer it: registered here and nowhere else.

The night imports none of them. Where it calls upward it asks for what is offered under a name; each
house says in its ``house.py`` what it offers, and loads what does it when that is called.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

HOUSES = ("flows.operate.house", "flows.effects.house")


def offered(name: str) -> Iterator[Any]:
    """What the houses offer under this name, in their order."""
    for house in map(import_module, HOUSES):
        if hasattr(house, name):
            yield getattr(house, name)
