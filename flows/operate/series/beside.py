"""What lists beside releases say of them, to whoever reads several."""

from collections.abc import Sequence
from pathlib import Path

from flows.released.lists import Closing, Lists, WithdrawnRelease, read_lists
from schemas.names import ReleaseName

_LISTED = 5


class Beside:
    """What lists beside releases say of them, each read once."""

    def __init__(self) -> None:
        """Read nothing yet."""
        self._lists: dict[Path, Lists] = {}
        self._withdrawn: dict[str, WithdrawnRelease] = {}

    def _of(self, folder: Path) -> Lists:
        if folder not in self._lists:
            self._lists[folder] = read_lists(folder)
        return self._lists[folder]

    def withdraws(self, path: Path, release_id: str) -> bool:
        """Whether a release is withdrawn, by the list beside its file."""
        one = self._of(path.absolute().parent).withdrawn.get(release_id)
        if one is not None:
            self._withdrawn[release_id] = one
        return one is not None

    @property
    def withdrawn(self) -> tuple[WithdrawnRelease, ...]:
        """Those that are, in order."""
        return tuple(self._withdrawn[name] for name in sorted(self._withdrawn))

    @property
    def notes(self) -> list[str]:
        """That they are left out, and why."""
        found = self.withdrawn
        told = [f"left out: {one.warning}" for one in found[:_LISTED]]
        more = len(found) - _LISTED
        return [*told, f"{more:,} more were withdrawn and are left out"] if more > 0 else told

    @property
    def why_none(self) -> str | None:
        """Why nothing is left; None where it is for another reason."""
        if not self._withdrawn:
            return None
        return f"every release that is named was withdrawn: {self.withdrawn[0].warning}"

    def pruned(self, folders: Sequence[Path], experiment: str) -> list[ReleaseName]:
        """Releases of an experiment that were in these folders, by name."""
        found = {one for folder in folders for one in self._of(folder.absolute()).pruned}
        names = (ReleaseName.parse(one) for one in found)
        return sorted(name for name in names if name and name.experiment == experiment)

    def closing(self, paths: Sequence[Path], experiment: str) -> Closing | None:
        """How the experiment ended, as its folder says."""
        if len(paths) != 1 or not paths[0].is_dir():
            return None
        found = self._of(paths[0].absolute()).closing
        return found if found and found.experiment == experiment else None
