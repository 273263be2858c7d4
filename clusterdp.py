"""The front door in Python: open a release and ask it, or plan, check and make one.

For example::

    import clusterdp

    rel = clusterdp.open("releases/autumn-campaign/latest.duckdb")
    rel.ate()  # every effect with its interval: a polars frame
    rel.ate(segments=frame)  # in segments of yours: columns unit_id, segment
    rel.ate(covariates=frame)  # adjusted for what you knew before: unit_id and columns of yours
    rel.effects(covariates=frame).subgroups()  # who benefits: by each of those columns
    rel.units()  # every unit with its randomised outcome

    clusterdp.open_series("releases/autumn-campaign").ate()  # over all nights together
    clusterdp.open_model("autumn-campaign+cate.once.r1.json").predict(frame)  # who benefits

**What is stable** (semantic versioning): the names in ``__all__`` here; the commands, with their
options, exit codes and JSON documents; the tables, columns and macros of a released file; and the
keys of a configuration. Everything else is internal. Of the objects that are returned here, what
the docstrings name is stable.

**The privacy boundary.** Opening a release, or an effect model, and asking it anything, imports no
code that ever sees an unprotected outcome. :func:`plan`, :func:`check`, :func:`release`,
:func:`release_due`, :func:`cate` and :func:`prune` are for whoever may read the raw log;
:func:`status`, :func:`withdraw`, :func:`backup`, :func:`restore`, and :func:`verify` against a
ledger, for whoever may read the ledger.

**Commands as functions.** A function with the name of a command does the same as it, in this
process and without a Prefect server; so do ``release_due`` (``release --due``) and ``verify_loss``
(``verify --loss``). ``config`` is the file of a configuration; ``period`` may be left out where the
log's path needs none. The answer's ``as_json()`` is the document of the command with ``--json``;
what else of it is stable stands with each function.

**Tables of yours** are polars or pandas frames; what comes back is polars unless it says otherwise.
``segments`` has ``unit_id`` and ``segment``; a unit may be in several. ``covariates`` has
``unit_id`` and columns of numbers, text or booleans from before the experiment. Ids are matched as
text. ``level`` is the confidence level of the intervals.

**Errors** are :class:`ClusterdpError` and its kinds; their text says what is wrong and what to do,
``kind`` what it is in a word, ``key`` which key of a configuration it is about (or None), and
``exit_code`` how a command would end. Whatever is called here may raise :class:`InputError` where a
file, a table of yours, a log or a ledger cannot be used, and :class:`ConfigError` where a
configuration or an argument cannot. :class:`BudgetError` and :class:`ConflictError` stand with the
functions that raise them; before either, nothing is drawn, written or touched. What is to be looked
into, but stops nothing, is a :class:`ClusterdpWarning`.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import polars as pl

from estimators.arm_effects import Estimate
from estimators.operate.series import LOOKS
from flows.effects.released.frames import EffectModel, Effects
from flows.effects.released.from_release import effects_from_release
from flows.operate.series import estimates as series
from flows.operate.series.estimates import PooledAttributeEstimate
from flows.operate.series.nights import Nights, find_nights
from flows.operate.series.pooling import PooledEstimate
from flows.released.estimates import frames
from flows.released.estimates.by_attribute import AttributeEstimate
from flows.released.estimates.release import estimate_release
from flows.released.export import export as write_table
from flows.released.file.evidence import read_frame
from flows.released.file.read import ReleaseFile, open_release, read_release
from flows.released.file.sql import quote_name
from flows.released.located import each_located, located
from flows.released.withdrawal import withdrawal_of
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
    from typing import Literal, TypeAlias

    import pandas as pd
    from typing_extensions import TypeVar

    from flows.check import check
    from flows.effects.cate import CateResult
    from flows.operate.backup import backup
    from flows.operate.due import DueResult
    from flows.operate.prune import prune
    from flows.operate.restore import restore
    from flows.operate.status import status
    from flows.operate.verify import verify, verify_loss
    from flows.operate.withdraw import withdraw
    from flows.plan import plan
    from flows.release import ReleaseResult
    from flows.runtime.paths import Paths

    Table: TypeAlias = pl.DataFrame | pd.DataFrame
    Frame = TypeVar("Frame", bound=Table, default=pl.DataFrame)
    Names = str | Sequence[str]
    People = Literal["disjoint", "returning"] | None
else:

    def __getattr__(name: str) -> object:
        """A command as a function: imported, with what it needs, when it is first asked for."""
        if name not in _COMMANDS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_COMMANDS[name]), name)

    def __dir__() -> list[str]:
        return [*globals(), *_COMMANDS]


_COMMANDS = {
    "backup": "flows.operate.backup",
    "check": "flows.check",
    "plan": "flows.plan",
    "prune": "flows.operate.prune",
    "restore": "flows.operate.restore",
    "status": "flows.operate.status",
    "verify": "flows.operate.verify",
    "verify_loss": "flows.operate.verify",
    "withdraw": "flows.operate.withdraw",
}
"""Functions that stand where the command's page does: they read raw logs, ledgers or lists."""

__all__ = ["Effects", "Manifest", "Release", "Series", "open", "open_series"]
__all__ += ["EffectModel", "open_model"]
__all__ += ["cate", "check", "plan", "release", "release_due", "status", "verify", "verify_loss"]
__all__ += ["backup", "prune", "restore", "withdraw"]
__all__ += ["BudgetError", "ClusterdpError", "ConfigError", "ConflictError", "InputError"]
__all__ += ["ClusterdpWarning", "StepError"]


class ClusterdpWarning(UserWarning):
    """What to look into before an answer is believed; it stands all the same.

    A table of yours that does not fit the release, say, or an effect that compares few people.
    """


class Release:
    """A released file, opened by :func:`open`; it never changes, and every method reads it anew."""

    def __init__(self, file: ReleaseFile) -> None:
        """Take what the file says of itself; use :func:`open`."""
        self._file = file

    def _repr_html_(self) -> str:
        """The same as :attr:`manifest` says it, for a notebook."""
        return frames.release_html(self._file)

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
        """What was done and what is promised of it: the columns of ``release`` and ``metrics``.

        First of all ``release_id``, ``mechanism``, ``epsilon``, ``delta``, ``n_units``,
        ``n_clusters``, ``n_set_aside`` (rows left out), ``sample_ratio_p``, ``created_at`` (UTC).
        """
        return self._file.manifest

    @property
    def withdrawn(self) -> str | None:
        """Why its publisher has withdrawn it, as a list beside the file says; None: it has not."""
        found = withdrawal_of(self.path)
        return None if found is None else found.reason

    @property
    def row_counts(self) -> dict[str, int]:
        """The tables of the file, and how many rows each has."""
        return dict(self._file.row_counts)

    def ate(
        self,
        *,
        segments: Frame | None = None,
        covariates: Frame | None = None,
        by: str | None = None,
        adjust: Names | None = None,
        level: float = 0.95,
        metric: str | None = None,
    ) -> Frame:
        """Estimate the effect of every treatment arm against control.

        A row is an effect by one estimator, metric by metric, ``combined`` first; null
        where it cannot be had. The columns are those of ``FROM ate()`` in SQL (but for ``effect``
        and ``note``), then ``minimum_detectable_effect``, ``relative`` and the ends of its
        interval. ``coverage`` is the share of the people meant that are compared; under 0.9 a
        :class:`ClusterdpWarning` says what to do. A pandas frame where the table is one.

        Args:
            segments: A table of yours: an effect in each segment.
            covariates: A table of yours: effects adjusted for it, beside those without.
            by: An attribute that the release publishes: an effect for each of its values, with
                ``p_value_holm_segments``, adjusted for their number, and ``shrunken`` with its
                ``_std_error``, ``_ci_lower`` and ``_ci_upper``, drawn towards their mean.
            adjust: Attributes that the release publishes: effects adjusted for them.
            level: The confidence level of the intervals.
            metric: The metric that effects are on; all of them unless you say.
        """
        table = _split(segments, covariates, by, adjust, level)
        found = series.estimate_one(self.path, level, table, () if metric is None else (metric,))
        _warn(found.warnings)
        answer = frames.frame(found.estimates, Estimate if by is None else AttributeEstimate)
        given = segments if covariates is None else covariates
        return cast("Frame", answer if given is None else frames.like(given, answer))

    def decisions(self, *, level: float = 0.95) -> pl.DataFrame:
        """What the rule that was declared for the release says of every arm.

        A row is a primary or guardrail metric and an arm, by its first estimator. ``verdict`` is
        "better", "worse", "not worse than the margin" or "undecided", by ``p_value_adjusted``;
        ``least_benefit`` is the end of the interval on the bad side, below 0 for a harm. ``keep``:
        the arm gains as declared and holds all guardrails, one-sided at (1 - ``level``) / 2.
        """
        frames.check_asked(level)
        return frames.decisions_frame(estimate_release(self.path, level).decisions)

    def effects(
        self,
        *,
        covariates: Table | None = None,
        features: Sequence[str] | None = None,
        arm: str | None = None,
        metric: str | None = None,
        level: float = 0.95,
    ) -> Effects:
        """Find out who benefits from one treatment arm; as ``clusterdp effects``, it costs nothing.

        Args:
            covariates: A table of yours; else the attributes that the release publishes.
            features: The columns, or attributes, to use; all of them unless you say.
            arm: The treatment arm; the first one unless you say.
            metric: The outcome that effects are on; has to be said where there are several.
            level: The confidence level of the intervals.
        """
        table = None if covariates is None else frames.as_polars(covariates, "covariates")
        found = effects_from_release(
            self.path,
            None if table is None else Path("covariates"),
            frame=table,
            features=features,
            arm=arm,
            metric=metric,
            level=level,
        )
        _warn(found.warnings)
        return Effects(found)

    def units(self) -> pl.DataFrame:
        """Every unit: ``unit_id``, ``cluster``, ``arm``, and its outcome, randomised and debiased.

        A single unit's row says next to nothing of that unit; means of many are unbiased.
        """
        return self.table("units")

    def export(
        self, path: str | Path, table: str = "units", *, keep_formulas: bool = False
    ) -> Path:
        """Write a table to a new CSV or Parquet file, by its name; returns the absolute path.

        ``table`` is ``units``, ``estimates``, ``counts`` or ``debias``. ``keep_formulas`` writes
        CSV even if text begins as a formula of a spreadsheet does.
        """
        return write_table(self.path, Path(path), table, keep_formulas=keep_formulas).path

    def table(self, name: str) -> pl.DataFrame:
        """A table of the file as it stands there; :attr:`row_counts` names them all."""
        if name not in TABLES:
            raise ConfigError("name", f"{name!r} is none of the tables: {', '.join(TABLES)}")
        with open_release(self.path) as connection:
            ordered = " ORDER BY unit_id" if name == "units" else ""
            return read_frame(connection, f"SELECT * FROM main.{quote_name(name)}{ordered}")  # noqa: S608 - ours


class Series:
    """The releases of one experiment, a period each, opened by :func:`open_series`."""

    def __init__(self, nights: Nights, paths: Sequence[Path]) -> None:
        """Take what was found; use :func:`open_series`."""
        self._nights = nights
        self._paths = paths

    def __repr__(self) -> str:
        """Which experiment it is, how many releases there are, and from when to when."""
        manifests = self.manifests
        return (
            f"<clusterdp series {manifests[0].experiment}: {len(manifests):,} releases, "
            f"{manifests[0].period} to {manifests[-1].period}>"
        )

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """What each release says of itself (:attr:`Release.manifest`), by period."""
        return tuple(night.manifest for night in self._nights.nights)

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases, by period; of each period the greatest revision."""
        return tuple(open(night.path) for night in self._nights.nights)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of them: periods that are missing, withdrawn or pruned, say."""
        return self._nights.notes

    @property
    def is_final(self) -> bool:
        """Whether the experiment has ended, as a list beside the releases says: no more come."""
        return self._nights.closing is not None

    @property
    def sql(self) -> str:
        """SQL that attaches all releases in a DuckDB of yours, with views of all together."""
        return self._nights.sql

    def ate(
        self,
        *,
        segments: Table | None = None,
        covariates: Table | None = None,
        by: str | None = None,
        adjust: Names | None = None,
        level: float = 0.95,
        people: People = None,
        looks: int = LOOKS,
    ) -> pl.DataFrame:
        """Estimate the effect of every treatment arm over all releases together.

        As :meth:`Release.ate`, weighted by units, and ``ci_lower_always`` and ``ci_upper_always``
        (the interval for those who look after every release; null where the first states no
        forecast), ``n_releases`` and ``people``: whether nobody is in two releases (``disjoint``),
        some are (``returning``), or it is not known (``unknown``), which makes intervals wide.
        ``people`` says so where you know better than the ids show; ``looks`` is the look at which
        the interval for every look is to be at its narrowest.
        """
        found = self._estimate(
            _split(segments, covariates, by, adjust, level), level, people, looks
        )
        return frames.frame(found.pooled, PooledEstimate if by is None else PooledAttributeEstimate)

    def by_period(
        self,
        *,
        segments: Table | None = None,
        covariates: Table | None = None,
        by: str | None = None,
        adjust: Names | None = None,
        level: float = 0.95,
    ) -> pl.DataFrame:
        """Estimate the effects of every release alone: as :meth:`Release.ate`, after ``period``."""
        table = _split(segments, covariates, by, adjust, level)
        found = self._estimate(table, level, "disjoint", LOOKS)
        kind = Estimate if by is None else AttributeEstimate
        return series.frame_by_period(found, [(one.estimates, kind) for one in found.periods])

    def cumulative(
        self, *, level: float = 0.95, people: People = None, looks: int = LOOKS
    ) -> pl.DataFrame:
        """Estimate the effects over all releases up to each: as :meth:`ate`, after ``period``."""
        frames.check_asked(level)
        found = self._estimate(None, level, people, looks)
        rows = [found.cumulative.after(place) for place in range(len(found.periods))]
        return series.frame_by_period(found, [(one, PooledEstimate) for one in rows])

    def _estimate(
        self, table: series.Split | None, level: float, people: People, looks: int
    ) -> series.SeriesEstimates:
        told = series.people_of("people", people)
        found = series.estimate_series(self._paths, level, table=table, told=told, looks=looks)
        _warn(found.warnings, 4)
        return found


def _split(
    segments: Table | None,
    covariates: Table | None,
    by: str | None,
    adjust: Names | None,
    level: float,
) -> series.Split | None:
    """What effects are asked for by, or adjusted for."""
    frames.check_asked(level, segments=segments, covariates=covariates, by=by, adjust=adjust)
    for kind, table in (("segments", segments), ("covariates", covariates)):
        if table is not None:
            return series.Table(kind, Path(kind), frames.as_polars(table, kind))
    if by is not None:
        return series.ByAttribute(by)
    if isinstance(adjust, str):
        adjust = (adjust,)
    return None if adjust is None else series.ForAttributes(tuple(adjust))


def _warn(texts: Sequence[str], level: int = 3) -> None:
    for text in texts:
        warnings.warn(text, ClusterdpWarning, stacklevel=level)


def open(path: str | Path) -> Release:  # noqa: A001 - clusterdp.open reads well, and is never starred
    """Open a released file, whoever made it: at a path, or in a store (``s3://…``, as text).

    It can reach no other file, runs nothing of its maker's, and is refused where it contradicts
    itself. A :class:`ClusterdpWarning` says where a list beside it has it as withdrawn.
    """
    found_at = located(path)
    if found_at.is_dir():
        raise InputError(
            f"{found_at.absolute()}: a folder; clusterdp.open_series reads its releases together,"
            " and clusterdp.open one of them, latest.duckdb say"
        )
    file = read_release(found_at)
    found = withdrawal_of(file.path)
    _warn(() if found is None else (found.warning,))
    return Release(file)


def open_series(paths: Paths) -> Series:
    """Open several releases of one experiment: the folder that they are in, or a list of files.

    Of each period the greatest revision counts; ``latest.duckdb`` and ``series.duckdb`` are passed
    over. All have to be about the same effects: experiment, arms, metrics, range of outcomes.
    """
    several = each_located(paths)
    return Series(find_nights(several), several)


def open_model(path: str | Path) -> EffectModel:
    """Open the file of an effect model, whoever made it; one that was altered is refused."""
    from flows.effects.released.model_file import read_model  # noqa: PLC0415 - pydantic, seldom

    return EffectModel(read_model(located(path)))


def cate(config: str | Path, period: str | None = None, *, revise: bool = False) -> CateResult:
    """Make an effect model of one period; ``revise`` and the errors are as of :func:`release`.

    Stable besides: ``path`` (which :func:`open_model` takes), ``status`` and ``warnings``.
    """
    from flows.effects.cate import fit_period  # noqa: PLC0415 - inside the privacy boundary

    return fit_period(str(config), period, revise)


def release(
    config: str | Path, period: str | None = None, *, revise: bool = False
) -> ReleaseResult:
    """Release one period of an experiment, once: the nightly run as a plain function.

    Stable besides: ``release_id``, ``path`` (which :func:`open` takes), ``status`` ("published" or
    "unchanged") and ``warnings``. ``revise`` draws a published period anew, and everybody in it
    pays again. BudgetError where the population's budget does not cover it, ConflictError where the
    period was released from other rows or settings.
    """
    from flows.release import release_period  # noqa: PLC0415 - inside the privacy boundary

    return release_period(str(config), period, revise)


def release_due(config: str | Path) -> DueResult:
    """Release every period that is due by ``[schedule]`` and not published, the oldest first.

    One that fails does not stop the others. Stable besides: ``exit_code``, ``failure`` (one error
    for all that are left, or None), ``warnings``, and ``period``, ``status``, ``reason`` and
    ``release_id`` of each of its ``releases``.
    """
    from flows.operate.due import release_due as catch_up  # noqa: PLC0415 - inside the privacy boundary

    return catch_up(str(config))
