"""Releases that their runs could not tell of: killed while publishing, or just after.

The next run that catches up finishes what such a run left, and tells in its place, from the
released file. That has no rules of rows set aside, and of event logs not how many were read.
"""

from flows.config.model.experiment import Config
from flows.ledger.account import Account
from flows.ledger.ends import Attempt, AttemptState
from flows.ledger.rules import Entry, State
from flows.operate.watch.notices import news_of_release, tell_people, untold
from flows.released.file.checks.stated import stated_warnings
from flows.released.file.draft import run_of
from flows.released.file.read import read_release
from flows.runtime.working_folders import is_alive
from schemas.documents import taken
from schemas.roster import Roster


def tell_of_missed(config: Config, account: Account) -> None:
    """Tell of each period's last release, if it is public and its run died untold, or told nobody.

    Raises InputError where the ledger or a file cannot be read.
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
            _tell(config, account, entry, run_of(entry.draft), keep=missed)


def _tell(config: Config, account: Account, entry: Entry, run: str | None, *, keep: bool) -> None:
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
