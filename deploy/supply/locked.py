"""What the lock files say: which packages are installed, in which version, from which files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
RUN = "requirements.lock"
"""What a run needs, and the demo: what is installed on machines that release."""
LOCKS = ("requirements-build.lock", RUN, "requirements-test.lock")


class SupplyError(Exception):
    """What is read here cannot be trusted: the message names the file, and what to do."""


@dataclass(frozen=True)
class Locked:
    """A line of a lock: one version of a package, and where it is the one to install."""

    name: str
    """As package indexes write names: small letters, hyphens."""
    version: str
    marker: Marker | None
    hashes: tuple[str, ...]
    """SHA-256 of each file that may be installed, in hexadecimal digits."""

    def applies(self, environment: Mapping[str, str]) -> bool:
        """Whether it is installed where the markers have these values."""
        return self.marker is None or self.marker.evaluate(dict(environment))


def read_lock(path: Path) -> list[Locked]:
    """The lines of a lock file, in their order.

    Raises:
        SupplyError: a line has no version of its own, or no hash.
    """
    return [_locked(line, path) for line in _lines(path)]


def here() -> dict[str, str]:
    """The values of markers for the Python that runs this."""
    return {name: str(value) for name, value in default_environment().items()}


def installed_by(locks: Iterable[Path], environment: Mapping[str, str]) -> dict[str, Locked]:
    """What locks install where the markers have these values, by name.

    Raises:
        SupplyError: two versions of a package would be installed.
    """
    found: dict[str, Locked] = {}
    for path in locks:
        for each in read_lock(path):
            if not each.applies(environment):
                continue
            known = found.setdefault(each.name, each)
            if known.version != each.version:
                raise SupplyError(
                    f"{path.name}: {each.name} is locked as {known.version} and as {each.version}"
                    " for the same Python; run make lock"
                )
    return found


def _lines(path: Path) -> list[str]:
    """Lines, with those that go on put together."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SupplyError(f"{path}: cannot be read ({error.strerror})") from error
    whole = text.replace("\\\n", " ").splitlines()
    return [line for line in map(str.strip, whole) if line and not line.startswith("#")]


def _locked(line: str, path: Path) -> Locked:
    wanted, *hashes = [part.strip() for part in line.split("--hash=")]
    try:
        requirement = Requirement(wanted)
    except InvalidRequirement as error:
        raise SupplyError(f"{path.name}: {wanted!r} is no requirement; run make lock") from error
    versions = [one.version for one in requirement.specifier if one.operator == "=="]
    if len(versions) != 1 or not hashes or not all(one.startswith("sha256:") for one in hashes):
        raise SupplyError(f"{path.name}: {wanted!r} has no version or no SHA-256; run make lock")
    return Locked(
        canonicalize_name(requirement.name),
        versions[0],
        requirement.marker,
        tuple(one.removeprefix("sha256:") for one in hashes),
    )
