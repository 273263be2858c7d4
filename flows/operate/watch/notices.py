"""Which periods need a person, and telling people so: once for each period and event.

What is told is what ``clusterdp status`` shows, without places in files, counts by public rules,
and what a released file says: no outcome, nothing else that hangs on one, nothing of a person.
Whether a run found its period unchanged or in conflict is told to nobody. A Prefect server is told
by every run of its own.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.config.model.experiment import Config
from flows.config.model.notify import Event, NotifySection
from flows.ledger.account import Account
from flows.operate.watch.sending import Notice, send
from flows.orchestration.events import tell_prefect
from flows.orchestration.leaving import without_places
from flows.runtime import clock, logs
from schemas.errors import ClusterdpError
from schemas.roster import SAMPLE_RATIO_ALARM, Roster
from schemas.visible import visible

_SAYS: dict[Event, str] = {
    "failed": "the release failed",
    "refused": "the release was refused by the budget",
    "late": "the files have not come yet",
    "lost": "the published file is gone or altered",
    "sample_ratio": "arm sizes do not fit the intended shares",
    "set_aside": "many rows were set aside",
    "one_value": "nothing tells of more than one value of an outcome",
}
_OF_RELEASES: frozenset[Event] = frozenset({"sample_ratio", "set_aside", "one_value"})
_UNTOLD = "untold "  # before an event that people are to be told of
_LONGEST = 2000  # characters of a reason


@dataclass(frozen=True)
class News:
    """Something that people should know of a period, or (without one) of an experiment's runs."""

    event: Event
    period: str | None
    state: str
    """The period's, as ``clusterdp status`` has it."""
    reason: str | None
    more: dict[str, Any] = field(default_factory=dict)
    """Public counts."""

    def of(self, experiment: str) -> str:
        """What it is about: an experiment, and its period if there is one."""
        return experiment if self.period is None else f"{experiment} {self.period}"


@dataclass(frozen=True)
class Waiting:
    """A notice that is to be sent."""

    config: Config
    account: Account
    news: News
    notice: Notice

    def note(self, event: str) -> None:
        """Note an event of the period, if there is one, in the ledger."""
        if self.news.period is not None:
            try:
                self.account.log.note_told(self.news.period, event, clock.now())
            except ClusterdpError as error:
                named = self.news.of(self.config.experiment)
                logs.warn(f"{named}: may be told again ({self.news.event}): {error}")


WAITING: ContextVar[list[Waiting] | None] = ContextVar("WAITING", default=None)
"""The notices that wait for the end of the run; None where they are sent at once."""


def news_of_release(
    config: Config, period: str, roster: Roster, of_one_value: tuple[str, ...] = ()
) -> list[News]:
    """What people should know of a release that was published.

    ``of_one_value`` are the warnings of outcomes that may all be alike, by the file.
    """
    found: list[News] = []
    if of_one_value:
        found.append(News("one_value", period, "published", "\n".join(of_one_value)))
    p = roster.sample_ratio_p
    if p is not None and p < SAMPLE_RATIO_ALARM:
        told = roster.sample_ratio_problem
        if not roster.units_by_arm:  # of a release whose run could not tell of it
            told = f"p = {p:.2g}: the arm sizes do not fit the intended shares"
        found.append(News("sample_ratio", period, "published", told, {"sample_ratio_p": p}))
    notify, share = config.notify or NotifySection(), roster.faulty_share
    if share is not None and share > notify.set_aside_above:
        by_rule = ", ".join(f"{rule} {n:,}" for rule, n in roster.quarantined_by_rule.items())
        reason = f"{100 * share:.3g} % of {roster.n_read:,} rows have a fault"
        reason += f" ({by_rule})" if by_rule else ""
        reason += f". {roster.repeats.problem}" if roster.repeats.problem else ""
        more: dict[str, Any] = {
            "set_aside": roster.quarantined_by_rule,
            "rows_read": roster.n_read,
        }
        found.append(News("set_aside", period, "published", reason, more))
    return found


def tell_people(config: Config, account: Account, found: list[News], **facts: str | None) -> None:
    """Send what is new and wanted, and note that it was sent; what goes wrong is a warning.

    Where notices wait for the end of a run (:data:`WAITING`), they are sent then. The Prefect
    server of the flow that is running, if one is, is told of everything at once.
    """
    notices = [(one, _notice(config.experiment, one, facts)) for one in found]
    for one, notice in notices:
        document = {**notice.document, "text": notice.text}
        try:
            tell_prefect(one.event, config.experiment, one.period, document)
        except Exception as error:
            logs.warn(f"Prefect was not told ({one.event}): {type(error).__name__}")
    notify, waiting = config.notify, WAITING.get()
    wanted = [
        Waiting(config, account, *one)
        for one in notices
        if notify is not None and one[0].event in notify.on
    ]
    for one_of in wanted:
        if one_of.news.event in _OF_RELEASES:  # no other run finds it out by itself
            one_of.note(_UNTOLD + one_of.news.event)
    if waiting is None:
        send_all(wanted)
    else:
        waiting += wanted


def send_all(waiting: list[Waiting]) -> None:
    """Send notices in their order; by a way that did not answer one, no other of its experiment."""
    silent: dict[tuple[Path, str], set[str]] = {}
    for one in waiting:
        event, period, config = one.news.event, one.news.period, one.config
        if period is not None and (period, event) in _told(one.account):
            continue
        given_up = silent.setdefault((config.directory, config.experiment), set())
        problems = send(config, one.notice, given_up)
        for problem in problems:
            logs.warn(f"{one.news.of(config.experiment)}: nobody was told ({event}) by {problem}")
        if not problems:
            one.note(event)


def untold(config: Config, account: Account) -> set[str]:
    """Periods that were published and need a person, of which nobody was told."""
    told = _told(account)
    events = _OF_RELEASES.intersection(() if config.notify is None else config.notify.on)
    return {
        period
        for period, noted in told
        for event in events
        if noted == _UNTOLD + event and (period, event) not in told
    }


def _told(account: Account) -> set[tuple[str, str]]:
    try:
        return account.log.notices()
    except ClusterdpError:  # the news may be that the ledger cannot be reached
        return set()


def _notice(experiment: str, news: News, facts: dict[str, str | None]) -> Notice:
    named = news.of(experiment)
    title = f"clusterdp: {named}: {_SAYS[news.event]}"
    said = None if news.reason is None else without_places(news.reason)
    reason = None if said is None else visible(said[:_LONGEST], keep="\n")
    lines = [news.state, *([] if reason is None else reason.split("\n"))]
    document = {
        "experiment": experiment,
        "period": news.period,
        "event": news.event,
        "state": news.state,
        "reason": reason,
        **news.more,
        **{name: value for name, value in facts.items() if value is not None},
    }
    return Notice(title, "\n".join(f"{named}: {line}" for line in lines), document)
