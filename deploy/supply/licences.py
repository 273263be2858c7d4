"""Under which licence each locked package stands, and whether that one is allowed."""

import tomllib
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from license_expression import (
    AND,
    OR,
    ExpressionError,
    LicenseExpression,
    Licensing,
    get_spdx_licensing,
)

from deploy.supply.locked import Locked, SupplyError

POLICY = Path(__file__).with_name("licences.toml")
_SPDX = get_spdx_licensing()
_ANY = Licensing()


@dataclass(frozen=True)
class Licence:
    """What a package's licence is, and what is wrong with that."""

    name: str
    version: str
    expression: str | None
    """As SPDX writes it; None where it is not known."""
    says: str
    """What the package's own metadata say."""
    fault: str | None = None
    """Why it may not be used; None where it may."""


class Policy:
    """Which licences are allowed, and what names mean that are not SPDX's."""

    def __init__(self, path: Path = POLICY) -> None:
        """Read it.

        Raises:
            SupplyError: it cannot be read, or a package is reviewed twice.
        """
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
            self.allowed = frozenset[str](content["allowed"])
            self.names: dict[str, str] = content["names"]
            self.reviewed = {str(each["name"]): each for each in content["reviewed"]}
        except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
            raise SupplyError(f"{path.name}: cannot be read ({error})") from error
        if len(self.reviewed) != len(content["reviewed"]):
            raise SupplyError(f"{path.name}: a package is reviewed twice")

    @cached_property
    def _lower_names(self) -> dict[str, str]:
        return {name.lower(): licence for name, licence in self.names.items()}

    def judge(self, package: Locked, about: Distribution | None, *, is_run: bool) -> Licence:
        """Find a package's licence in its metadata, and say whether it may be used.

        Args:
            package: as it is locked.
            about: what is installed of it; None where nothing is.
            is_run: whether it is installed for runs, and not for tests alone.
        """
        if about is None or about.version != package.version:
            has = "nothing" if about is None else about.version
            return Licence(
                package.name, package.version, None, "", f"{has} of it is installed; run make test"
            )
        says = "; ".join(_said(about))
        review = self.reviewed.get(package.name)
        if review is not None and review["says"] == says:
            fault = "may be used by tests alone" if is_run and review.get("tests_only") else None
            return Licence(package.name, package.version, str(review["licence"]), says, fault)
        expression = self._expression(about)
        fault = None
        if expression is None:
            fault = f"its licence is not known: {says or 'it names none'!r}"
        elif not self.allows(expression):
            fault = f"its licence is not allowed: {expression}"
        return Licence(package.name, package.version, expression, says, fault)

    def allows(self, expression: str) -> bool:
        """Whether what an SPDX expression demands is within what is allowed."""
        return self._allows(_ANY.parse(expression))

    def _allows(self, part: LicenseExpression) -> bool:
        if isinstance(part, OR):
            return any(map(self._allows, part.args))
        if isinstance(part, AND):
            return all(map(self._allows, part.args))
        return str(part) in self.allowed

    def _expression(self, about: Distribution) -> str | None:
        """The SPDX expression of a package: of its newer field, its older one, or classifiers."""
        for text in _fields(about):
            if known := self._spdx(text):
                return known
        classified = {self._lower_names.get(each.lower(), "") for each in _classifiers(about)}
        return classified.pop() or None if len(classified) == 1 else None

    def _spdx(self, text: str) -> str | None:
        """What a short text means; None for whole licences, and names that nobody knows."""
        known = self._lower_names.get(text.lower())
        if known or "\n" in text:
            return known
        try:
            return str(_SPDX.parse(text, validate=True))
        except ExpressionError:
            return None


def _classifiers(about: Distribution) -> list[str]:
    """The last words of its classifiers of licences; that it is approved is none."""
    every: list[Any] = about.metadata.get_all("Classifier") or []
    names = [str(one).rpartition(" :: ")[2] for one in every if str(one).startswith("License ::")]
    return [name for name in names if name != "OSI Approved"]


def _said(about: Distribution) -> list[str]:
    """All that its metadata say of its licence; of a whole text the first line."""
    return [*(text.splitlines()[0] for text in _fields(about)), *_classifiers(about)]


def _fields(about: Distribution) -> list[str]:
    """The fields of a licence that are filled, the newer one first."""
    names = ("License-Expression", "License")
    texts = [str(text).strip() for name in names for text in about.metadata.get_all(name) or []]
    return [text for text in texts if text]
