"""The front door in Python: open a release and ask it, or plan, check and make one.

For example::

    import clusterdp

    rel = clusterdp.open("releases/autumn-campaign/latest.duckdb")
    rel.ate()  # every effect with its interval: a polars frame
    rel.ate(segments=frame)  # in segments of yours: columns unit_id, segment
    rel.ate(covariates=frame)  # adjusted for what you knew before: unit_id and columns of yours
    rel.units()  # every unit with its randomised outcome

**What is stable.** Versions follow semantic versioning, which covers four things: the names in
``__all__`` here; the commands, with their options, exit codes and JSON documents; the tables,
columns and macros of a released file; and the keys of a configuration. Everything else (the
packages ``flows``, ``privatizers``, ``estimators`` and ``schemas``) is internal and may change with
any version. Of the objects that are returned here, what the docstrings name is stable.

**The privacy boundary.** Opening a release, and asking it anything, imports no code that ever sees
an unprotected outcome. :func:`plan`, :func:`check`, :func:`release` and :func:`release_due` do:
they are for whoever may read the raw log. :func:`status`, and :func:`verify` against a ledger, are
for whoever may read the ledger.

**Errors** are :class:`ClusterdpError` and its kinds; their text says what is wrong and what to do.
What does not fit between a release and a table of yours is a :class:`ClusterdpWarning`.
"""

from __future__ import annotations

import warnings
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import polars as pl

from estimators.effects import Estimate
from flows.released.estimate import estimate_file
from flows.released.file.evidence import read_frame
from flows.released.file.read import ReleaseFile, open_release, read_release
from flows.released.file.sql import quote_name
from flows.released.segments import estimate_segments
from schemas.errors import (
    BudgetError,
    ClusterdpError,
    ConfigError,
    ConflictError,
    InputError,
    StepError,
)
from schemas.released import TABLES, Manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flows.check import CheckResult
    from flows.due import DueResult
    from flows.plan import PlanResult
    from flows.release import ReleaseResult
    from flows.status import StatusResult
    from flows.verify import VerifyResult

__all__ = [
    "BudgetError",
    "ClusterdpError",
    "ClusterdpWarning",
    "ConfigError",
    "ConflictError",
    "InputError",
    "Manifest",
    "Release",
    "StepError",
    "check",
    "open",
    "plan",
    "release",
    "release_due",
    "status",
    "verify",
]

_FIRST = ("metric", "segment", "arm", "estimator", "estimate", "ci_lower", "ci_upper", "control")
_SHARPEST_FIRST = (
    "regression_combined",
    "regression",
    "cuped",
    "combined",
    "tau_q",
    "histogram",
    "horvitz_thompson",
)
_TEXT = ("metric", "segment", "arm", "estimator", "control")
_WHOLE = ("n_units", "n_segment")


class ClusterdpWarning(UserWarning):
    """What does not fit between a release and a table of yours; the answer stands all the same."""


class Release:
    """A released file, opened by :func:`open`.

    Nothing is held open and nothing is kept: a release never changes, and every method reads it
    anew, as far as it has to.
    """

    def __init__(self, file: ReleaseFile) -> None:
        """Take what the file says of itself; use :func:`open`."""
        self._file = file

    def __repr__(self) -> str:
        """Which release it is, how many units it has and what it cost."""
        manifest = self.manifest
        return (
            f"<clusterdp release {manifest.release_id}: {manifest.n_units:,} units, "
            f"{manifest.mechanism}, epsilon {manifest.epsilon:g}>"
        )

    @property
    def path(self) -> Path:
        """Where the file is, absolute."""
        return self._file.path

    @property
    def manifest(self) -> Manifest:
        """What was done and what is promised of it, from the tables ``release`` and ``metrics``.

        First of all ``release_id``, ``mechanism``, ``epsilon``, ``delta``, ``n_units``,
        ``n_clusters``, ``n_set_aside`` (rows that were left out), ``sample_ratio_p`` and
        ``created_at`` (UTC). The fields are the columns of the two tables.
        """
        return self._file.manifest

    @property
    def row_counts(self) -> dict[str, int]:
        """The tables of the file, and how many rows each has."""
        return dict(self._file.row_counts)

    @overload
    def ate(self, *, level: float = ...) -> pl.DataFrame: ...
    @overload
    def ate(self, *, segments: pl.DataFrame, level: float = ...) -> pl.DataFrame: ...
    @overload
    def ate(self, *, segments: pd.DataFrame, level: float = ...) -> pd.DataFrame: ...
    @overload
    def ate(self, *, covariates: pl.DataFrame, level: float = ...) -> pl.DataFrame: ...
    @overload
    def ate(self, *, covariates: pd.DataFrame, level: float = ...) -> pd.DataFrame: ...
    def ate(
        self,
        *,
        segments: pl.DataFrame | pd.DataFrame | None = None,
        covariates: pl.DataFrame | pd.DataFrame | None = None,
        level: float = 0.95,
    ) -> pl.DataFrame | pd.DataFrame:
        """Estimate the effect of every treatment arm against control.

        A row is an effect by one estimator, the sharpest estimator first. The columns are those of
        ``FROM ate()`` in SQL, then ``minimum_detectable_effect``, ``relative`` and the ends of its
        interval. An effect that cannot be had is null.

        Args:
            segments: A table of yours with ``unit_id`` and ``segment``: an effect in each segment.
                A unit may be in several. Ids are matched as text.
            covariates: A table of yours with ``unit_id`` and columns of numbers, text or booleans
                from before the experiment: effects adjusted for them, beside those without.
            level: The confidence level of the intervals.

        Returns:
            A polars frame, or a pandas frame where the table is one.

        Raises:
            InputError: The table does not fit the release, or the file is none any more.
            ConfigError: The level is not between 0 and 1, or both tables are given.
        """
        if not 0 < level < 1:
            raise ConfigError("level", f"{level!r} is not strictly between 0 and 1")
        if segments is not None and covariates is not None:
            raise ConfigError("covariates", "cannot go with segments; ask for one of them")
        if segments is not None:
            table = _as_polars(segments, "segments")
            in_segments = estimate_segments(self.path, Path("segments"), level, table)
            _warn(in_segments.warnings)
            return _like(segments, _frame(in_segments.estimates))
        if covariates is not None:
            from flows.released.covariates import estimate_covariates  # noqa: PLC0415 - statsmodels

            table = _as_polars(covariates, "covariates")
            adjusted = estimate_covariates(self.path, Path("covariates"), level, table)
            _warn(adjusted.warnings)
            return _like(covariates, _frame(adjusted.estimates))
        return _frame(estimate_file(self.path, level))

    def units(self) -> pl.DataFrame:
        """Every unit: ``unit_id``, ``cluster``, ``arm``, and its outcome, randomised and debiased.

        A single unit's row says next to nothing of that unit; means of many are unbiased. There is
        no row where statistics of clusters alone are published.
        """
        return self.table("units")

    def table(self, name: str) -> pl.DataFrame:
        """A table of the file as it stands there; :attr:`row_counts` names them all.

        Raises:
            ConfigError: There is no table of that name in a release.
        """
        if name not in TABLES:
            raise ConfigError("name", f"{name!r} is none of the tables: {', '.join(TABLES)}")
        with open_release(self.path) as connection:
            return read_frame(connection, f"SELECT * FROM main.{quote_name(name)}")  # noqa: S608 - ours


def open(path: str | Path) -> Release:  # noqa: A001 - clusterdp.open reads well, and is never starred
    """Open a released file, whoever made it.

    The file is read by the same rules as on the command line: it can reach no other file, runs
    nothing of its maker's, and is refused where it contradicts itself.

    Raises:
        InputError: There is no such file, or it is not a sound release.
    """
    return Release(read_release(Path(path)))


def plan(config: str | Path, period: str | None = None) -> PlanResult:
    """The design that a release would have and how sharp it would be; reads no outcome.

    The same as ``clusterdp plan``. Stable of the answer: ``as_json()``, the document of
    ``clusterdp plan --json``.

    Raises:
        ConfigError: The configuration cannot be used.
        InputError: The log cannot be used.
    """
    from flows.plan import plan as plan_release  # noqa: PLC0415 - inside the privacy boundary

    return plan_release(Path(config), period)


def check(config: str | Path, period: str | None = None) -> CheckResult:
    """Read and validate configuration and log; nothing is drawn, charged or written.

    The same as ``clusterdp check``. Stable of the answer: ``warnings`` and ``as_json()``, the
    document of ``clusterdp check --json``.

    Raises:
        ConfigError: The configuration cannot be used.
        InputError: The log cannot be used.
    """
    from flows.check import check as dry_run  # noqa: PLC0415 - inside the privacy boundary

    return dry_run(Path(config), period)


def release(
    config: str | Path, period: str | None = None, *, revise: bool = False
) -> ReleaseResult:
    """Release one period of an experiment, once: the nightly run as a plain function.

    The same as ``clusterdp release``, in this process and without a Prefect server. Stable of the
    answer: ``release_id``, ``path`` (which :func:`open` takes), ``status`` (``"published"`` or
    ``"unchanged"``), ``warnings`` and ``as_json()``, the document of ``clusterdp release --json``.

    Args:
        config: The configuration file.
        period: The period to release; where the log's path needs none it may be left out.
        revise: Draw a published period anew, as its next revision; everybody in it pays again.

    Raises:
        ConfigError: The configuration cannot be used.
        InputError: The log cannot be used.
        BudgetError: The population's budget does not cover it; nothing was drawn or written.
        ConflictError: The period was released from other rows or settings; nothing was touched.
    """
    from flows.release import release_period  # noqa: PLC0415 - inside the privacy boundary

    return release_period(str(config), period, revise)


def release_due(config: str | Path) -> DueResult:
    """Release every period that is due by ``[schedule]`` and not published, the oldest first.

    The same as ``clusterdp release --due``. One that is refused or fails is no error and does not
    stop the others. Stable of the answer: ``exit_code``, ``failure`` (one error for all that are
    left, or None), ``warnings``, ``as_json()``, and ``period``, ``status``, ``reason`` and
    ``release_id`` of each of its ``releases``.

    Args:
        config: The configuration file, with a schedule.

    Raises:
        ConfigError: The configuration cannot be used, or has no schedule.
        InputError: The ledger cannot be used.
    """
    from flows.due import release_due as catch_up  # noqa: PLC0415 - inside the privacy boundary

    return catch_up(str(config))


def status(*configs: str | Path) -> StatusResult:
    """Where every period of every experiment stands, and why; reads no log, changes nothing.

    The same as ``clusterdp status``. Stable of the answer: ``as_json()``, the document of
    ``clusterdp status --json``.

    Raises:
        ConfigError: A configuration cannot be used.
        InputError: A ledger cannot be used.
    """
    from flows.status import status as find_status  # noqa: PLC0415 - reads ledgers

    return find_status([Path(config) for config in configs])


def verify(
    releases: str | Path | Sequence[str | Path],
    *,
    ledger: str | Path | None = None,
    key: str | Path | None = None,
) -> VerifyResult:
    """Whether released files are what was published, by the SHA-256 of their bytes.

    The same as ``clusterdp verify``. Stable of the answer: ``exit_code`` (4 where one differs, 2
    where no digest of one is known), and ``path``, ``release_id``, ``intact`` and ``reason`` of
    each of its ``releases``.

    Args:
        releases: A released file, or several; ``latest.duckdb`` and copies, too.
        ledger: A configuration whose ledger knows them.
        key: The public key (Ed25519, PEM) of the operator who has signed the list beside them.
            Without either, that list is taken as it is.

    Raises:
        ConfigError: Both were given, or one of them cannot be used.
        InputError: A file, or a list that was asked for, cannot be read.
    """
    from flows.verify import verify as verify_files  # noqa: PLC0415 - hashlib and lists, seldom

    several = [releases] if isinstance(releases, str | Path) else releases
    beside = [None if path is None else Path(path) for path in (ledger, key)]
    return verify_files([Path(release) for release in several], *beside)


def _as_polars(table: pl.DataFrame | pd.DataFrame, name: str) -> pl.DataFrame:
    """The table as polars has it; InputError where it is no table, or a column has no one type."""
    if isinstance(table, pl.DataFrame):
        return table
    try:
        return pl.from_pandas(table)
    except (TypeError, ValueError, ImportError):  # ArrowInvalid is a ValueError; it shows values
        pass
    raise InputError(
        f"{name}: neither a polars nor a pandas frame whose columns have one type each"
    )


def _like(table: pl.DataFrame | pd.DataFrame, found: pl.DataFrame) -> pl.DataFrame | pd.DataFrame:
    """The answer as the kind of frame that was handed in."""
    return found if isinstance(table, pl.DataFrame) else found.to_pandas()


def _frame(estimates: Sequence[Estimate]) -> pl.DataFrame:
    """A row an estimate: what a person looks for first, and the sharpest, first."""
    names = [one.name for one in fields(Estimate)]
    kinds = {name: pl.String if name in _TEXT else pl.Float64 for name in names}
    schema: dict[str, Any] = kinds | dict.fromkeys(_WHOLE, pl.Int64)
    rows = sorted(estimates, key=lambda one: _SHARPEST_FIRST.index(one.estimator))
    found = pl.DataFrame([vars(one) for one in rows], schema=schema)
    return found.select(*_FIRST, pl.exclude(_FIRST))


def _warn(texts: Sequence[str]) -> None:
    for text in texts:
        warnings.warn(text, ClusterdpWarning, stacklevel=3)
