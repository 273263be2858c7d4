"""Whether released files are what was published: their bytes against a digest of that time.

A file is hashed from one handle, and the verdict is about those bytes: what a link points to later,
or what stands in the file, has no part in it. The digest is the ledger's, or one of a list that an
operator has signed, or else of the list beside the file, which shows accidents, but no alteration
by somebody who can write in the folder.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.released.checksums import SIGNATURE, SUMS, read_sums, signed_sums
from flows.released.lists import LISTS, Lists, read_lists
from flows.released.located import each_located
from flows.runtime.houses import offered
from flows.runtime.paths import Paths, each_path
from flows.runtime.reading.regular_files import digest_of, is_link
from flows.runtime.reading.small_files import UnreadableError, read_small
from flows.runtime.terminal import shown
from schemas.documents import Document
from schemas.errors import ConfigError, ConflictError, InputError
from schemas.names import ReleaseName
from schemas.series import SERIES

if TYPE_CHECKING:
    from flows.released.loss.loss import Loss
    from flows.runtime.signatures import Fits

_LARGEST_KEY = 100_000  # bytes


@dataclass(frozen=True)
class Verdict(Document):
    """Whether a file is what was published."""

    path: Path
    release_id: str | None
    """Which release it is, or says it is; None where nobody can tell."""
    intact: bool | None
    """None where no digest of it is known."""
    against: str | None
    """What it was compared with: ``ledger``, ``signature`` or ``SHA256SUMS``."""
    reason: str | None = None
    """Why it is not intact, or what cannot be told."""
    withdrawn: str | None = None
    """Why the release was withdrawn since; None where nothing says that it was."""
    pruned_at: str | None = None
    """When its publisher removed the file as too old, UTC; None where nothing says so."""
    key: Path | None = None
    """The public key under which the list is signed that has its digest."""


@dataclass(frozen=True)
class VerifyResult:
    """Whether files are what was published."""

    releases: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which releases were withdrawn, whatever their bytes are."""
        return tuple(
            f"{one.release_id} was withdrawn: {one.withdrawn}"
            for one in self.releases
            if one.withdrawn is not None
        )

    @property
    def exit_code(self) -> int:
        """4 where one differs, else 2 where no digest of one is known, else 0."""
        if any(one.intact is False for one in self.releases):
            return ConflictError.exit_code
        return InputError.exit_code if any(one.intact is None for one in self.releases) else 0

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp verify --json``."""
        return {"releases": [one.as_json() for one in self.releases]}


@dataclass(frozen=True)
class LossResult(Document):
    """What released files cost, worked out from the files alone."""

    releases: "tuple[Loss, ...]"

    @property
    def exit_code(self) -> int:
        """4 where one costs more than it says, else 0."""
        return 0 if all(one.holds for one in self.releases) else ConflictError.exit_code


@dataclass(frozen=True)
class _Known:
    against: str
    digests: Mapping[str, str]
    """By release id."""
    problem: str | None = None
    """Why no digest can be believed: the list is not what was signed."""
    key: Path | None = None
    """The public key that the list is signed under."""
    lists: Lists = field(default_factory=Lists)
    doubt: str | None = None
    """Why nobody can tell which were."""


def verify(
    releases: Paths, *, ledger: str | Path | None = None, key: Paths | None = None
) -> VerifyResult:
    """Whether released files are what was published, by the SHA-256 of their bytes.

    Stable besides: ``exit_code`` (4 where one differs, 2 where no digest of one is known), and
    ``path``, ``release_id``, ``intact``, ``reason``, ``withdrawn`` and ``pruned_at`` of each of its
    ``releases``.

    Args:
        releases: A released file, or several, copies, too; or a folder.
        ledger: A configuration whose ledger knows them; not with ``key``.
        key: The operator's public key (Ed25519, PEM) for the list beside them, or several, of which
            one has to fit. Without either, that list is taken as it is.
    """
    keys = [] if key is None else each_path(key)
    if ledger is not None and keys:
        raise ConfigError("--key", "cannot go with --ledger; ask for one of them")
    of_ledger = None
    if ledger is not None:  # whoever only has a release needs no ledger, nor what reads one
        from flows.ledger.account import account_of  # noqa: PLC0415 - see above

        _, account = account_of(Path(ledger))
        of_ledger = _Known("ledger", account.digests(), lists=account.lists())
    fits = {one.absolute(): _public_key(one) for one in keys}
    verdicts = []
    files = _files(releases)
    named = [path for path in files if path.name != SERIES]
    notes = tuple(
        f"{path.absolute()} is no release: it is made anew from them after each publication"
        for path in files
        if path.name == SERIES
    )
    if not named:
        raise InputError(notes[0])
    for path in named:
        folder, known = path.absolute().parent, of_ledger
        if known is None:
            known = _signed(folder, fits) if fits else _listed(folder, SUMS, read_sums(folder))
        verdicts.append(_compared(path, known))
    return VerifyResult(tuple(verdicts), notes)


def _files(given: Paths) -> Sequence[Path]:
    releases = each_located(given)
    if not any(path.is_dir() for path in releases):
        return releases
    from flows.operate.series.nights import release_files  # noqa: PLC0415 - DuckDB, hardly ever

    found = release_files(releases)
    if not found:
        folders = ", ".join(str(path.absolute()) for path in releases)
        raise InputError(f"{folders}: no release in it; name the folder of one experiment")
    return found


def verify_loss(files: Paths) -> LossResult:
    """What released files cost, worked out from their tables and noise scales alone.

    Stable besides: ``exit_code`` (4 where one costs more than it states), and ``path``,
    ``release_id``, ``holds``, ``broken``, ``trusted``, ``epsilon``, ``delta``, ``stated_epsilon``
    and ``stated_delta`` of each of its ``releases``.
    """
    return LossResult(tuple(map(_loss, _files(files))))


def _loss(path: Path) -> "Loss":
    # Each kind of file needs libraries of its own.
    if path.suffix != ".json":
        from flows.released.loss.check import check_loss  # noqa: PLC0415 - see above

        return check_loss(path)
    for read in offered("document_loss"):
        found: Loss = read(path)
        return found
    raise InputError(f"{path.absolute()}: no release")


def _compared(path: Path, known: _Known) -> Verdict:
    """Compare a file, and add what lists say of the release that it is, or says it is."""
    gone = known.lists.pruned.get(path.stem)
    if gone is not None and not path.exists():
        raise InputError(
            f"{path.absolute()}: there is no such file, as it was pruned on "
            f"{shown(gone.pruned_at[:10])}; a copy of it can be compared all the same"
        )
    verdict = _verdict(path.absolute(), digest_of(path), known)
    withdrawn = known.lists.withdrawn.get(verdict.release_id or "")
    pruned = known.lists.pruned.get(verdict.release_id or "")
    return replace(
        verdict,
        reason="; ".join(one for one in (verdict.reason, known.doubt) if one) or None,
        withdrawn=None if withdrawn is None else withdrawn.reason,
        pruned_at=None if pruned is None else pruned.pruned_at,
    )


def _verdict(path: Path, digest: str, known: _Known) -> Verdict:
    """Compare a digest with those that are known: by the file's name, else by the digest itself."""
    named = ReleaseName.parse(path.stem)
    same = next((name for name, one in known.digests.items() if one == digest), None)
    if known.problem is not None:
        release_id = named.release_id if named else None
        return Verdict(path, release_id, False, known.against, known.problem)
    if named is None:
        if same is not None:  # latest.duckdb, or a copy under another name
            return Verdict(path, same, True, known.against, key=known.key)
        return _of_unknown_name(path, known)
    expected = known.digests.get(named.release_id)
    if expected == digest:
        return Verdict(path, named.release_id, True, known.against, key=known.key)
    if expected is not None or same is not None:
        reason = (
            "its bytes are not those that were published"
            if same is None
            else f"its bytes are those of {same}, not those of the release it is named after"
        )
        return Verdict(path, named.release_id, False, known.against, reason)
    return Verdict(path, named.release_id, None, None, _unknown(named.release_id, known))


def _of_unknown_name(path: Path, known: _Known) -> Verdict:
    """Of a file that no digest fits, ask itself which release it means to be."""
    from flows.released.file.read import read_release  # noqa: PLC0415 - DuckDB, hardly ever

    claimed: str | None = None
    with suppress(InputError):
        claimed = read_release(path).manifest.release_id
    if not known.digests or (claimed is not None and claimed not in known.digests):
        return Verdict(path, claimed, None, None, _unknown(claimed or "this file", known))
    reason = "its bytes are those of none of the releases that were published"
    return Verdict(path, claimed, False, known.against, reason)


def _unknown(name: str, known: _Known) -> str:
    if known.against == "ledger":
        return f"no digest of {name} is in the ledger; is it of this experiment?"
    if not known.digests:
        return f"there is no {SUMS} beside it; get that, too, or compare with a ledger"
    return f"no digest of {name} is in the list {SUMS} beside it"


def _listed(folder: Path, against: str, sums: Mapping[str, str] | None) -> _Known:
    doubt = None if sums is None else _doubt(folder, sums)
    lists = read_lists(folder) if doubt is None else Lists()
    digests = {name: one.sha256 for name, one in lists.pruned.items() if one.sha256}
    for file, digest in (sums or {}).items():
        name = ReleaseName.parse(Path(file).stem)
        if name is not None:  # other files in a list are none of ours
            digests[name.release_id] = digest
    return _Known(against, digests, lists=lists, doubt=doubt)


def _doubt(folder: Path, sums: Mapping[str, str]) -> str | None:
    for name in LISTS:
        path = folder / name
        there = path.exists() or is_link(path)
        if (digest_of(path) if there else None) != sums.get(name):
            return f"{path} is not the one that {SUMS} lists, so what it says of releases is open"
    return None


def _signed(folder: Path, fits: "Mapping[Path, Fits]") -> _Known:
    for key, one in fits.items():
        sums = signed_sums(folder, one)
        if sums is not None:
            return replace(_listed(folder, "signature", sums), key=key)
    which = "this key" if len(fits) == 1 else "any of these keys"
    problem = f"{folder / SIGNATURE} is no signature of {folder / SUMS} under {which}"
    return _Known("signature", {}, problem)


def _public_key(path: Path) -> "Fits":
    try:
        content = read_small(path, _LARGEST_KEY)
    except UnreadableError as error:
        raise ConfigError("--key", f"{path.absolute()}: {error}") from None
    from flows.runtime.signatures import checking_with  # noqa: PLC0415 - only where keys are used

    fits = checking_with(content)
    if fits is None:
        raise ConfigError(
            "--key",
            f"{path.absolute()}: no Ed25519 public key in PEM; make it from the private one with: "
            "openssl pkey -in FILE -pubout -out PUBLIC",
        )
    return fits
