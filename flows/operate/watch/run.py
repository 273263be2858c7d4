"""What is kept and told of a run, whatever becomes of it: log lines, the ledger, metrics, notices.

None of it changes how a run ends: what goes wrong here is a warning.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from flows.config.model.experiment import Config
from flows.config.model.notify import Event
from flows.ledger.account import Account
from flows.ledger.attempts import reason_of
from flows.ledger.ends import Attempt, AttemptState
from flows.ledger.rules import Entry, State
from flows.ledger.standing import FOR_A_PERSON, PeriodState, Standing
from flows.ledger.watch import Watch
from flows.operate.watch.metrics import write_metrics
from flows.operate.watch.notices import (
    WAITING,
    News,
    Waiting,
    news_of_release,
    send_all,
    tell_people,
    untold,
)
from flows.released.file.checks.stated import stated_warnings
from flows.released.file.draft import run_of
from flows.released.file.read import read_release
from flows.runtime import clock, logs
from flows.runtime.working_folders import is_alive
from flows.schedule.periods import Schedule
from schemas.documents import taken
from schemas.errors import BudgetError, ClusterdpError, ConflictError, NoFileError
from schemas.roster import Roster

_EVENTS: dict[PeriodState, Event] = {
    PeriodState.FAILED: "failed",
    PeriodState.REFUSED: "refused",
    PeriodState.LOST: "lost",
    PeriodState.ALTERED: "lost",
}
_ENDS: dict[type[BaseException], AttemptState] = {
    BudgetError: AttemptState.REFUSED,
    NoFileError: AttemptState.NO_FILE,
}
"""How a run ends by an error, where it has not just failed."""


@contextmanager
def _never_failing() -> Iterator[None]:
    """Let nothing that goes wrong here change how a run ends; its kind alone is told."""
    try:
        yield
    except Exception as error:
        with suppress(Exception):
            kind = type(error).__name__
            logs.warn(f"watching the run failed ({kind})")


@contextmanager
def watched(config: Config, account: Account, period: str) -> Iterator[Watch]:
    """Keep and tell what becomes of the run that the block is."""
    watch = Watch()
    begun = time.monotonic()
    if config.schedule is not None:
        watch.works_in = lambda folder: account.log.keep(
            Attempt(watch.run, period, AttemptState.RUNNING, folder=folder)
        )
    with logs.known(experiment=config.experiment, period=period, run=watch.run):
        logs.tell(logging.INFO, "the run begins")
        try:
            yield watch
        except BaseException as error:
            if isinstance(error, ClusterdpError):
                error.night = f"{config.experiment} {period}"
            with _never_failing():
                if watch.done is None:
                    _after_failure(config, account, period, watch, error)
                else:  # it is public all the same
                    _after_success(config, account, period, watch, time.monotonic() - begun)
            raise
        with _never_failing():
            _after_success(config, account, period, watch, time.monotonic() - begun)


@contextmanager
def telling_at_the_end() -> Iterator[None]:
    """Send all notices of the block at its end; not if it is interrupted: the next run tells then.

    Within another such block they wait for the end of that.
    """
    if WAITING.get() is not None:
        yield
        return
    waiting: list[Waiting] = []
    token = WAITING.set(waiting)
    try:
        yield
    except Exception:
        with _never_failing():
            send_all(waiting)
        raise
    else:
        with _never_failing():
            send_all(waiting)
    finally:
        WAITING.reset(token)


@_never_failing()
def after_all(config: Config, account: Account, periods: list[Standing]) -> None:
    """Once a run has caught up: tell of periods whose file is lost, and write the metrics anew."""
    lost = [one for one in periods if one.state in FOR_A_PERSON]
    tell_people(config, account, [_news(one, "lost") for one in lost])
    _metrics(config, account)


@_never_failing()
def tell_of_missed(config: Config, account: Account) -> None:
    """Tell of each period's last release, if it is public and its run died untold, or told nobody.

    Once what dead runs left is finished: a run may be killed while publishing, or just after. It is
    told from the file, which has no rules of rows set aside, nor how many events were read.
    """
    attempts, unsent = account.log.attempts(), untold(config, account)
    dead = {
        attempt.period
        for attempt in attempts
        if attempt.state == AttemptState.RUNNING and attempt.folder is not None
        if is_alive(attempt.folder, attempt.host) is False
    }
    if not dead | unsent:
        return
    told = {attempt.release_id for attempt in attempts}
    last: dict[str, Entry] = {}
    for entry in account.statement().entries:
        if entry.name.experiment == config.experiment and entry.state == State.PUBLISHED:
            before = last.get(entry.name.period, entry)
            last[entry.name.period] = max(entry, before, key=lambda each: each.name)
    for period in sorted((dead | unsent) & set(last)):
        entry = last[period]
        missed = period in dead and entry.name.release_id not in told
        is_news = missed or period in unsent
        if is_news and entry.draft is not None and entry.path.exists():
            _tell_of_entry(config, account, entry, run_of(entry.draft), keep=missed)


def _tell_of_entry(
    config: Config, account: Account, entry: Entry, run: str | None, *, keep: bool
) -> None:
    if run is None:  # of a version that kept no runs
        return
    release_id, period = entry.name.release_id, entry.name.period
    manifest, privacy = read_release(entry.path).manifest, config.privacy
    aside, of_events = manifest.n_set_aside, config.source.grain == "event"
    for_faults = (privacy.returning, privacy.spent) == ("charge", "refuse")
    roster = Roster(
        manifest.n_units,
        manifest.n_clusters,
        units_by_arm={},
        quarantined=aside or 0,
        sample_ratio_p=manifest.sample_ratio_p,
        n_read=None if aside is None or of_events else manifest.n_units + aside,
        n_faulty=aside if for_faults else None,
    )
    if keep:
        how = {"state": AttemptState.PUBLISHED, "release_id": release_id}
        account.log.keep(taken(Attempt, roster, run=run, period=period, **how))
    news = news_of_release(config, period, roster, stated_warnings(entry.path))
    tell_people(config, account, news, run=run, release_id=release_id)


@_never_failing()
def tell_of_failure(config: Config, account: Account, error: Exception) -> None:
    """Tell of a failure before any period could be looked at, such as of the ledger."""
    tell_people(config, account, [News("failed", None, "failed", reason_of(error))])


def _after_success(
    config: Config, account: Account, period: str, watch: Watch, seconds: float
) -> None:
    if watch.done is None:
        _was_public(config, account, watch)
        return
    release_id, roster, of_one_value = watch.done
    attempt = taken(
        Attempt,
        roster,
        run=watch.run,
        period=period,
        state=AttemptState.PUBLISHED,
        release_id=release_id,
        seconds=math.ceil(seconds),
        set_aside=roster.quarantined_by_rule,
    )
    logs.tell(
        logging.INFO,
        "the run ends: published",
        state=attempt.state.value,
        seconds=attempt.seconds,
        n_units=attempt.n_units,
        set_aside=dict(attempt.set_aside),
    )
    _keep(config, account, attempt)
    _metrics(config, account)
    news = news_of_release(config, period, roster, of_one_value)
    tell_people(config, account, news, run=watch.run, release_id=release_id)


def _after_failure(
    config: Config, account: Account, period: str, watch: Watch, error: BaseException
) -> None:
    try:  # whatever became of this run: of a revision that failed, say
        is_public = account.has_released(period)
    except ClusterdpError:
        is_public = isinstance(error, ConflictError)  # it may say how rows compare
    if is_public:
        _was_public(config, account, watch)
        return
    kinds = (state for kind, state in _ENDS.items() if isinstance(error, kind))
    state, reason = next(kinds, AttemptState.FAILED), reason_of(error)
    level = logging.WARNING if state == AttemptState.NO_FILE else logging.ERROR
    logs.tell(level, f"the run ends: {state}", state=state.value, reason=reason)
    _keep(config, account, Attempt(watch.run, period, state, reason))
    _metrics(config, account)
    if isinstance(error, Exception) and not isinstance(error, ConflictError):
        news = _news_of_failure(config, account, period, state, reason)
        tell_people(config, account, [] if news is None else [news], run=watch.run)


def _was_public(config: Config, account: Account, watch: Watch) -> None:
    """Keep nothing of a run whose period was public before: what the rows were is for nobody."""
    logs.tell(logging.INFO, "the run ends: the period was published before")
    if config.schedule is not None:
        _warning(lambda: account.log.drop(watch.run))
    _metrics(config, account)


def _news_of_failure(
    config: Config, account: Account, period: str, state: AttemptState, reason: str
) -> News | None:
    standing = standing_of(account, config.calendar, period)
    if standing is None:  # not of a schedule, or the ledger cannot be read
        event: Event = "refused" if state == AttemptState.REFUSED else "failed"
        kept: Literal["refused", "failed"] = "refused" if event == "refused" else "failed"
        return News(event, period, kept, reason)
    if standing.state == PeriodState.WAITING:
        return _news(standing, "late") if standing.is_due else None
    told = _EVENTS.get(standing.state)
    return None if told is None else _news(standing, told)


def standing_of(account: Account, schedule: Schedule | None, period: str) -> Standing | None:
    """Return where a period stands by now; None where it has no place, or the ledger is mute."""
    try:
        standings = account.standings(schedule, clock.now())
    except ClusterdpError:
        return None
    return next((one for one in standings if one.period == period), None)


def _news(standing: Standing, event: Event) -> News:
    return News(event, standing.period, str(standing.state), standing.reason)


def _keep(config: Config, account: Account, attempt: Attempt) -> None:
    asked = (config.schedule, config.notify, config.run.metrics_directory)
    if any(one is not None for one in asked):
        _warning(lambda: account.log.keep(attempt))


def _metrics(config: Config, account: Account) -> None:
    _warning(lambda: write_metrics(config, account))


def _warning(act: Callable[[], object]) -> None:
    try:
        act()
    except ClusterdpError as error:
        logs.warn(f"{error}")
