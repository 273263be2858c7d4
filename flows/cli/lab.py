"""The commands of the lab: whether what is promised is true, and what the literature prints."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile
from flows.runtime.terminal import pairs, paragraph
from schemas.errors import ClusterdpError, ConfigError

if TYPE_CHECKING:
    from flows.lab.audit import Audit
    from privatizers.lab.audit.effect_models import EffectsAudit

_LIMITS = (
    "People and outcomes were made up, and released by the run of a night. What files lose, what "
    "the ledger is charged and what is public is compared exactly, draws as far as samples can "
    "show. This shows faults, and is no proof: the proof lies beside the mechanism's code."
)
_LIMITS_OF_SUMS = (
    "Sums are computed, and noise is drawn, by the code of a run, for neighbours that are made up "
    "to be as far apart as any. This shows faults, and is no proof: the proof lies beside the code."
)
_NAMES = ("cate", "cluster-dp", "efficiency", "local-sensitivity", "multisite")


def audit(config: ConfigFile, period: str | None = None) -> Answer:
    """Test the whole promise of CONFIG on made-up people.

    They are released by the run of a night, in every way that it may go: what their files lose by
    themselves, what the ledger is charged, all that is public and every draw is held against what
    is claimed. This takes a minute or two. It reads no outcome; with mechanism = "auto" it reads
    who is in the log of the period. Leaves nothing behind. The exit code is 1 if a test fails.
    """
    from flows.lab.audit import Audit
    from flows.lab.audit import audit as run_audit

    result = run_audit(config, period)
    if isinstance(result, Audit):
        text = partial(_text, result.release.mechanism, _facts(result), result, _LIMITS)
    else:
        text = partial(_text, "the effect model", _facts_of_sums(result), result, _LIMITS_OF_SUMS)
    return Answer(text, result.as_json(), exit_code=0 if result.holds else 1)


def _facts(found: Audit) -> dict[str, str]:
    exact, bound = found.exact_epsilon, found.bound
    return {
        "claimed": f"epsilon {found.claimed.epsilon!r} at delta {found.claimed.delta:g}",
        "lost by files": "no file was made" if exact is None else f"epsilon {exact:.6g}",
        "sampled": f"at least {bound.epsilon:.4g}, from {bound.n_samples:,} made-up neighbours "
        f"({bound.evidence})",
    }


def _facts_of_sums(found: EffectsAudit) -> dict[str, str]:
    return {
        "claimed": f"epsilon {found.claimed_epsilon!r} at delta {found.delta:g}, by "
        f"rho {found.rho:.6g}",
        "attained": f"epsilon {found.attained_epsilon:.4g}, rho {found.attained_rho:.6g}, by the "
        "farthest made-up rows of each sum",
    }


def _text(what: str, facts: dict[str, str], found: Audit | EffectsAudit, limits: str) -> str:
    """A line a check, below one that fails what was seen; and what this does not show."""
    lines: list[tuple[str, str]] = []
    for check in found.checks:
        lines.append(("ok" if check.holds else "FAILS", check.name))
        lines += [] if check.holds else [("", check.evidence)]
    verdict = "holds" if found.holds else "DOES NOT HOLD: release nothing with it"
    head = [f"The claim of {what} {verdict}.", "", *pairs(facts)]
    return "\n".join([*head, "", *pairs(lines), "", *paragraph(limits)])


def replicate(
    name: Annotated[str | None, lambda: list(_NAMES)] = None,
    every: bool = False,
    quick: bool = False,
    full: bool = False,
    output: Path = Path(),
    data: Path | None = None,
) -> Answer:
    """Run an experiment of the literature again, and judge it.

    What is printed is judged claim by claim. "cluster-dp", "multisite" and "local-sensitivity" take
    a minute or two, "efficiency" (what we say ourselves of estimators and plans) and "cate" (who
    benefits) some minutes, each of them less than half a minute with --quick. Prints a table, and
    writes a figure into a folder, with the extra clusterdp[replicate]; --json has its numbers, too.

    Options:
        name ([NAME]): Which one: cate, cluster-dp, efficiency, local-sensitivity, multisite.
        every (--all): Every one, with a page of them: claims.md, .csv and .json.
        quick: Run less of it: fewer settings and repetitions.
        full: Run all sizes of cate, with as many repetitions as in print: an hour or more.
        output (--output -o FOLDER): Where to put the figures.
        data (FOLDER): A folder with data sets, for what needs some: multisite, a part of cluster-dp
            (YouTube) and of cate (Hillstrom). What needs data that are not there is not tried.
    """
    if (name is None) is not every:
        raise ConfigError("NAME", f"name one experiment ({', '.join(_NAMES)}), or --all")
    if name is not None and name not in _NAMES:
        raise ConfigError("NAME", f"{name!r} is none of the experiments: {', '.join(_NAMES)}")
    if quick and full:
        raise ConfigError("--full", "does not go with --quick")
    try:
        import matplotlib  # noqa: F401 - asked for before minutes are spent
    except ImportError:
        raise ClusterdpError(
            "replicate draws its figures with matplotlib, which is not installed: "
            "pip install 'clusterdp[replicate]'"
        ) from None
    from flows.lab.replication.gallery import replicate as judge
    from flows.lab.replication.gallery import replicate_all

    if name is None:
        found = replicate_all(output, quick=quick, data=data, full=full)
    else:
        found = judge(name, output, quick=quick, data=data, full=full)
    return Answer(found.text, found.as_json())
