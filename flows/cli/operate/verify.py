"""``clusterdp verify``: whether files are as published, and what they cost."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigOrNone, ReleaseFiles
from flows.cli.show.words import table_of
from flows.runtime.terminal import pairs, paragraph

if TYPE_CHECKING:
    from pathlib import Path

    from flows.operate.verify import LossResult, Verdict, VerifyResult
    from flows.released.loss.loss import Loss

_SOURCES = {
    "ledger": "ledger",
    "signature": "signed list SHA256SUMS",
    "SHA256SUMS": "list SHA256SUMS",
}
_OF_A_LIST = (
    "SHA256SUMS lies beside the files: whoever can change them can change it, too. Compare with "
    "the ledger (--ledger CONFIG), or check its signature (--key PUBLIC)."
)


def verify(
    releases: ReleaseFiles,
    ledger: ConfigOrNone = None,
    key: list[Path] | None = None,
    loss: bool = False,
) -> Answer:
    """Check that files are as published, or cost what they say.

    Compares the SHA-256 of each RELEASE with that of its publication: in the ledger, in a signed
    list, or else in SHA256SUMS beside it. Writes nothing. The exit code is 4 if a file differs, or
    costs more than it says (--loss), 2 if no digest of one is known.

    Options:
        releases (RELEASE… | FOLDER): Released files, copies and latest.duckdb, too; or a folder of
            them.
        ledger (CONFIG): Compare with the ledger of this configuration.
        key (PUBLIC): Compare with SHA256SUMS beside the file, if this public key (Ed25519, PEM)
            says that SHA256SUMS.sig is its signature. May be given several times: one has to fit,
            so lists that were signed under a key of before can be checked.
        loss: Work out epsilon and delta from the tables and noise scales of each file, and compare
            with what it states; asks nothing but the file.
    """
    from flows.operate.verify import verify as verify_files
    from flows.operate.verify import verify_losses

    if loss:
        found = verify_losses(releases, ledger, key or ())
        return Answer(partial(_losses_text, found), found.as_json(), exit_code=found.exit_code)
    result = verify_files(releases, ledger, key or ())
    code, text = result.exit_code, partial(_text, result)
    return Answer(text, result.as_json(), result.warnings, result.notes, exit_code=code)


def _text(result: VerifyResult) -> str:
    """What was found of each file; where a list alone spoke for it, what that is worth."""
    words = {None: "UNKNOWN", True: "intact", False: "ALTERED"}
    lines = [line for one in result.releases for line in pairs({words[one.intact]: _about(one)})]
    if any(one.against == "SHA256SUMS" for one in result.releases):
        lines += ["", *paragraph(_OF_A_LIST)]
    return "\n".join(lines)


def _about(one: Verdict) -> str:
    named = "" if one.release_id is None else f" ({one.release_id})"
    against = "" if one.against is None else f", against the {_SOURCES[one.against]}"
    reason = "" if one.reason is None else f": {one.reason}"
    pruned = "" if one.pruned_at is None else f"; pruned by its publisher on {one.pruned_at[:10]}"
    withdrawn = "" if one.withdrawn is None else f"; WITHDRAWN: {one.withdrawn}"
    return f"{one.path}{named}{against}{reason}{pruned}{withdrawn}"


def _losses_text(result: LossResult) -> str:
    return "\n\n".join(map(_loss_text, result.releases))


def _loss_text(one: Loss) -> str:
    """What a file costs, what that is made of, and what has to be taken on trust."""
    facts = {
        "stated": f"epsilon {one.stated_epsilon:.12g}, delta {one.stated_delta:g}",
        "worked out": f"epsilon {one.epsilon:.12g}, delta {one.delta:g}",
    }
    if one.rows_each != 1:  # whoever pays for several units
        epsilon, delta = one.household
        facts[f"{one.rows_each} units"] = f"epsilon {epsilon:.12g}, delta {delta:g}"
    verdict = "costs what it says, at most" if one.holds else "COSTS MORE THAN IT SAYS"
    parts = table_of(
        one.parts,
        {
            "of": lambda each: each.metric or "–",
            "published": lambda each: each.name,
            "epsilon": lambda each: f"{each.epsilon:.6g}",
            "delta": lambda each: f"{each.delta:g}",
            "known": lambda each: each.how,
        },
    )
    return "\n".join(
        [
            f"{one.path} ({one.release_id}) {verdict}",
            "",
            *pairs(facts),
            *(line for rule in one.broken for line in pairs({"broken": rule})),
            "",
            *parts,
            "",
            "Taken on trust:",
            *(line for each in one.trusted for line in paragraph(each)),
        ]
    )
