"""Step 2, private: set aside rows with public faults, and make sure the rest is sound."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandera.errors
import polars as pl
from scipy.special import chdtrc

from flows.config import Config
from flows.files import private_directory, replace_file
from flows.raw.guard import values_free
from flows.raw.sealed import Sealed
from flows.raw.sources import RawLog
from flows.roster import Roster
from schemas.errors import InputError
from schemas.raw import ARM, CLUSTER, FILE, PUBLIC_COLUMNS, RULE, UNIT, Rule, fits, rules


@dataclass(frozen=True)
class Aside:
    """The rows that were set aside, without their outcome, and the files they came from."""

    frame: pl.DataFrame
    """The rule each row broke, and its public columns."""
    files: tuple[Path, ...]


@values_free
def validate(
    config: Config, log: Sealed[RawLog]
) -> tuple[Sealed[pl.DataFrame], Sealed[Aside], Roster]:
    """Return the rows that are kept, those that are set aside, and public facts about the log.

    Rows are set aside for faults in unit, arm or cluster alone (:func:`schemas.raw.rules`), never
    for an outcome. Raises InputError where a declared arm has no units or nothing is left. Nothing
    is written here: see :func:`set_aside`.
    """
    raw = log.open()
    applied = rules(config.arms.names)
    judged = raw.frame.with_columns(_first_broken(applied).alias(RULE))
    # By unit from here on, whatever order the log had: it may have been sorted by outcome.
    kept = judged.filter(pl.col(RULE).is_null()).drop(RULE).sort(UNIT)
    aside = judged.filter(pl.col(RULE).is_not_null()).select(RULE, *PUBLIC_COLUMNS)
    roster = _roster(config, kept, aside, applied)
    _check_left(config, roster, raw)
    _check_schema(kept, config.arms.names)
    return Sealed(kept, kept.height), Sealed(Aside(aside, raw.files), aside.height), roster


@values_free
def set_aside(config: Config, aside: Sealed[Aside], release_id: str) -> None:
    """Keep what was set aside of a release where the operator alone can read it (mode 0600).

    ``RELEASE_ID.parquet`` in the quarantine folder has the file, row number, rule and public
    columns of each row. Where nothing was set aside, that of an earlier attempt at this release is
    removed.
    """
    found = aside.open()
    path = config.quarantined / f"{release_id}.parquet"
    if found.frame.is_empty():
        path.unlink(missing_ok=True)
        return
    private_directory(path.parent)
    names = pl.Series([str(file) for file in found.files])
    rows = found.frame.with_columns(names.gather(found.frame[FILE]).alias(FILE))
    with replace_file(path, mode=0o600) as file:
        rows.write_parquet(file)
        os.fsync(file.fileno())


def _first_broken(applied: Iterable[Rule]) -> pl.Expr:
    """Name of the first rule a row breaks; null where it breaks none."""
    return pl.coalesce([pl.when(rule.faulty).then(pl.lit(rule.name)) for rule in applied])


def _roster(
    config: Config, kept: pl.DataFrame, aside: pl.DataFrame, applied: tuple[Rule, ...]
) -> Roster:
    counted = dict(aside.group_by(RULE).len().iter_rows())
    sizes = dict(kept.group_by(ARM).len().iter_rows())
    by_arm = {arm: int(sizes.get(arm, 0)) for arm in config.arms.names}
    return Roster(
        n_units=kept.height,
        n_clusters=kept[CLUSTER].n_unique(),
        units_by_arm=by_arm,
        quarantined=aside.height,
        quarantined_by_rule={
            rule.name: int(counted[rule.name]) for rule in applied if rule.name in counted
        },
        sample_ratio_p=_sample_ratio(list(by_arm.values()), config.arms.expected_shares),
    )


def _sample_ratio(observed: list[int], shares: tuple[float, ...] | None) -> float | None:
    """p-value of Pearson's χ² test of the arm sizes against the intended shares."""
    total = sum(observed)
    if shares is None or total == 0:
        return None
    expected = [share * total for share in shares]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(chdtrc(len(observed) - 1, statistic))


def _check_left(config: Config, roster: Roster, raw: RawLog) -> None:
    """Fail where the log cannot be released; by public facts alone."""
    aside = ", ".join(f"{name} {count:,}" for name, count in roster.quarantined_by_rule.items())
    if roster.n_units == 0:
        raise InputError(
            f"no row is left: all {raw.frame.height:,} were set aside ({aside}); "
            "check columns and arms in the configuration"
        )
    for arm, count in roster.units_by_arm.items():
        if count == 0:
            key = "arms.control" if arm == config.arms.control else "arms.treatments"
            raise InputError(
                f"{key}: the declared arm {arm!r} has no units in this log"
                + (f" (rows set aside: {aside})" if aside else "")
            )


def _check_schema(kept: pl.DataFrame, arms: tuple[str, ...]) -> None:
    """Let pandera judge the rows that are kept; they always pass, unless a rule is wrong."""
    try:
        fits(arms).validate(kept, lazy=True)
    except pandera.errors.SchemaErrors as error:
        checks = sorted({str(one.reason_code) for one in error.schema_errors})
    else:
        return
    raise InputError(f"rows that passed every rule break the schema ({', '.join(checks)})")
