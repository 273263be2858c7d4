"""How the wheel gets its front door: ``clusterdp.py``, as a package that says it is typed.

A module of one file cannot say so (PEP 561). In a checkout, and where one is installed as editable,
``clusterdp.py`` is imported as it stands.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FrontDoor(BuildHookInterface[Any]):
    """Puts ``clusterdp.py`` and ``py.typed`` into a folder of their own."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the two files and their places; ``version`` is how the wheel is to be used."""
        if version == "standard":
            root = Path(self.root)
            build_data["force_include"] |= {
                str(root / "clusterdp.py"): "clusterdp/__init__.py",
                str(root / "py.typed"): "clusterdp/py.typed",
            }
