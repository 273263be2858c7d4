"""The folder of an experiment's releases in a store, kept as the folder on this machine is.

A release is drafted, checked and made public in the folder on this machine first. What is there is
then put up, so that a reader never finds a name without what it means: the release under its
digest, only where nothing is; ``RELEASE_ID.pointer.json``, likewise; ``beside.json``, all that lies
beside releases in one object, in place of the one that was read; ``latest.pointer.json`` and
``series.pointer.json`` in place of those. Names are given by conditional puts alone: of two that
put one name at once one wins, and the other reads again, brings what is new there, and makes all
anew. A put whose answer was lost finds its own first try, which is told by its digest.

The ledger is the lock, and says which releases there are and their digests: nothing else is brought
from the store, and a pointer that leads to other bytes than the ledger knows is a conflict. A run
that was killed between two puts leaves the earlier ones, which no name leads to yet; the next run
puts the rest.
"""

import hashlib
import json
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from flows.released.checksums import sha256_of
from flows.released.file.draft import LATEST
from flows.released.lists import named
from flows.released.stored import (
    LARGEST_LIST,
    LISTED,
    Pointer,
    fetch,
    parse_pointer,
    sums_in,
)
from flows.runtime import clock
from flows.runtime.files import public_directory
from flows.runtime.paths import Address
from flows.runtime.reading.object_stores import (
    Tagged,
    check_named,
    put_new,
    read_pieces,
    read_tagged,
    remove,
    size_of,
    swap,
)
from schemas.errors import ConflictError
from schemas.series import SERIES

_POINTERS = {LATEST: "latest", SERIES: "series"}


@dataclass(frozen=True)
class Seen:
    """What was in the store when it was looked at."""

    beside: Tagged
    pointers: Mapping[str, Tagged]
    """By the names of the files on this machine that they stand for."""


@dataclass(frozen=True)
class StoreShelf:
    """The folder of an experiment's releases in a store, or of its effect models or reports."""

    address: Address
    """Of ``beside.json`` in it."""
    suffix: str = ".duckdb"
    has_lists: bool = True
    """Whether lists and a latest one are beside them: models and reports have pointers alone."""

    def check_named(self) -> None:
        """Raise InputError where the environment does not say who publishes there."""
        check_named(self.address)

    def look(self) -> Seen:
        """Read what will be replaced; raises InputError where the store cannot be asked."""
        if not self.has_lists:
            return Seen(Tagged(), {})
        pointers = {
            name: read_tagged(self._pointer(stem), LARGEST_LIST) for name, stem in _POINTERS.items()
        }
        return Seen(read_tagged(self.address, LARGEST_LIST), pointers)

    def bring(self, folder: Path, seen: Seen, digests: Mapping[str, str]) -> int:
        """Bring the releases here that other machines have put up; how many.

        ``digests`` are those that the ledger knows of all that is published, by release id.
        """
        there = self._there(seen, digests)
        lacking = [
            release_id
            for release_id, digest in digests.items()
            if there.get(f"{release_id}{self.suffix}") == digest
            and not (folder / f"{release_id}{self.suffix}").exists()
        ]
        if lacking:
            public_directory(folder)
        for release_id in lacking:
            path = folder / f"{release_id}{self.suffix}"
            fetch(self._object(path, digests[release_id]), path, digests[release_id])
            path.chmod(0o444)
        return len(lacking)

    def put_up(
        self, folder: Path, seen: Seen, digests: Mapping[str, str], pruned: Collection[str]
    ) -> bool:
        """Put up what the folder has; False where others have put something since it was ``seen``.

        Those that were ``pruned`` are taken away. Raises ConflictError where another ledger has put
        something up, InputError as :meth:`look`.
        """
        there = self._there(seen, digests)
        ids = {name: name.removesuffix(self.suffix) for name in there}
        unknown = [
            one
            for name, one in ids.items()
            if one not in pruned and digests.get(one) != there[name]
        ]
        if unknown:
            raise ConflictError(
                f"{self.address}: lists {named(unknown)}, which this ledger has not drawn, so "
                "another ledger publishes into this folder. Name another (publish.directory), or "
                "put the right ledger back"
            )
        for release_id, digest in digests.items():
            path = folder / f"{release_id}{self.suffix}"
            if path.exists() and there.get(path.name) != digest:
                self._put_release(path, digest)
        if not self.has_lists:
            return True
        here = {name: folder / name for name in LISTED if (folder / name).exists()}
        files = {name: b64encode(path.read_bytes()).decode() for name, path in here.items()}
        beside = json.dumps({"files": files}, sort_keys=True).encode()
        if beside != seen.beside.content and (here or there):
            for name in (name for name, one in ids.items() if one in pruned):
                self._take_away(name, there[name])
            if not swap(self.address, beside, seen.beside):
                return False
        names = {digest: release_id for release_id, digest in digests.items()}
        return all(self._point(folder / name, seen.pointers[name], names) for name in _POINTERS)

    def _put_release(self, path: Path, digest: str) -> None:
        place = self._object(path, digest)
        if sha256_of(path) != digest:
            raise ConflictError(f"{path}: is not the file that was published; put that back")
        if not put_new(place, path):
            _check_same(place, digest)
        pointer = self._pointer(path.stem)
        if not put_new(pointer, _pointing(path.stem, digest, path)):
            found = parse_pointer(read_tagged(pointer, LARGEST_LIST).content, str(pointer))
            if found.sha256 != digest:
                raise ConflictError(
                    f"{pointer}: leads to another release than the one that this ledger knows "
                    f"({digest[:12]}…): another ledger publishes into this folder. Name another "
                    "(publish.directory), or find out whose release it is"
                )

    def _point(self, path: Path, before: Tagged, names: Mapping[str, str]) -> bool:
        """Let the pointer of a file that is replaced lead to what it is now.

        ``names`` are those of releases by their digests: the latest is one of them, or left alone.
        """
        pointer = self._pointer(_POINTERS[path.name])
        if not path.exists():
            if before.tag is not None:
                remove(pointer)
            return True
        digest = sha256_of(path)
        known = parse_pointer(before.content, str(pointer)) if before.tag is not None else None
        if known is not None and known.sha256 == digest:
            return True
        release_id = names.get(digest) if path.name == LATEST else path.stem
        if release_id is None:
            return True
        if path.name == SERIES and not put_new(self._object(path, digest), path):
            _check_same(self._object(path, digest), digest)
        if not swap(pointer, _pointing(release_id, digest, path), before):
            return False
        if known is not None and path.name == SERIES:
            remove(self._object(path, known.sha256))
        return True

    def _take_away(self, name: str, digest: str) -> None:
        remove(self._pointer(Path(name).stem))
        remove(self._object(Path(name), digest))

    def _there(self, seen: Seen, digests: Mapping[str, str]) -> dict[str, str]:
        """The digests of what is there, by the names of the files on machines."""
        if self.has_lists:
            content = seen.beside.content
            return {} if seen.beside.tag is None else sums_in(content, str(self.address))
        pointers = {name: read_tagged(self._pointer(name), LARGEST_LIST) for name in digests}
        return {
            f"{name}{self.suffix}": parse_pointer(one.content, str(self._pointer(name))).sha256
            for name, one in pointers.items()
            if one.tag is not None
        }

    def _object(self, path: Path, digest: str) -> Address:
        return self.address.beside(f"{path.stem}.{digest}{path.suffix}")

    def _pointer(self, stem: str) -> Address:
        return self.address.beside(f"{stem}.pointer.json")


def _pointing(release_id: str, digest: str, path: Path) -> bytes:
    moment = f"{clock.now():%Y-%m-%dT%H:%M:%SZ}"
    pointer = Pointer(release_id, digest, path.stat().st_size, moment)
    return f"{json.dumps(pointer.as_json(), indent=1)}\n".encode()


def _check_same(place: Address, digest: str) -> None:
    """Raise ConflictError where an object of this name has other bytes than its name says."""
    taken = hashlib.sha256()
    for piece in read_pieces(place, size_of(place)):
        taken.update(piece)
    if taken.hexdigest() != digest:
        raise ConflictError(
            f"{place}: somebody has put something else here; take it away, and run again"
        )
