"""Step 2, private: set aside rows with public faults, and make sure the rest is sound."""

import os
from collections.abc import Iterable
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
from schemas.raw import ARM, CLUSTER, FILE, PUBLIC_COLUMNS, RULE, Rule, fits, rules


@values_free
def validate(
    config: Config, log: Sealed[RawLog], quarantine_name: str | None
) -> tuple[Sealed[pl.DataFrame], Roster]:
    """Return the rows that are kept, and the public facts about the log.

    Rows are set aside for faults in unit, arm or cluster alone (:func:`schemas.raw.rules`), never
    for an outcome. They are kept for the operator in the quarantine folder under
    ``quarantine_name``, with file, row and rule but without their outcome; None keeps nothing.
    Raises InputError where a declared arm has no units or nothing is left; nothing is written then.
    """
    raw = log.open()
    applied = rules(config.arms.names)
    judged = raw.frame.with_columns(_first_broken(applied).alias(RULE))
    kept = judged.filter(pl.col(RULE).is_null()).drop(RULE)
    aside = judged.filter(pl.col(RULE).is_not_null())
    roster = _roster(config, kept, aside, applied)
    _check_left(config, roster, raw)
    _check_schema(kept, config.arms.names)
    if quarantine_name is not None:
        _keep_aside(config.quarantined / f"{quarantine_name}.parquet", aside, raw.files)
    return Sealed(kept, kept.height), roster


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


def _keep_aside(path: Path, aside: pl.DataFrame, files: tuple[Path, ...]) -> None:
    """Write rows that were set aside where the operator alone can read them (mode 0600)."""
    if aside.is_empty():
        path.unlink(missing_ok=True)  # of an earlier attempt at this release
        return
    private_directory(path.parent)
    names = pl.Series([str(file) for file in files])
    rows = aside.select(RULE, *(name for name in PUBLIC_COLUMNS)).with_columns(
        names.gather(aside[FILE]).alias(FILE)
    )
    with replace_file(path, mode=0o600) as file:
        rows.write_parquet(file)
        os.fsync(file.fileno())
