"""Metrics of an experiment as a file for Prometheus' textfile collector.

One file an experiment, written anew from the ledger, the folder of releases and the clock. Nothing
in it hangs on an outcome: whether a run found its period unchanged or in conflict changes no line.
(How long a release took is rounded up to whole seconds; it may depend on the data, faintly.)
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from flows.config.model.experiment import Config
from flows.ledger.account import Account
from flows.ledger.ends import Attempt, AttemptState
from flows.ledger.standing import PeriodState, Standing
from flows.runtime import clock
from flows.runtime.files import replace_file
from schemas.errors import InputError


@dataclass(frozen=True)
class Facts:
    """What the metrics of an experiment are made of."""

    experiment: str
    runs: tuple[Attempt, ...]
    """Those that have ended, the oldest end first."""
    periods: tuple[Standing, ...]
    next_due_at: datetime | None
    least_epsilon_left: float | None


def metrics_path(config: Config) -> Path | None:
    """The file of the metrics of an experiment; None where there is to be none."""
    directory = config.run.metrics_directory
    if directory is None:
        return None
    return config.path(directory) / f"clusterdp_{config.experiment}.prom"


def write_metrics(config: Config, account: Account) -> Path | None:
    """Write the metrics of an experiment anew, whole; returns the file, None where none is asked.

    Raises InputError where the folder is not there or cannot be written, or the ledger not be read.
    """
    path = metrics_path(config)
    if path is None:
        return None
    schedule, now, statement = config.calendar, clock.now(), account.statement()
    left = statement.terms.limit.left_after(statement.spent).epsilon
    facts = Facts(
        experiment=config.experiment,
        runs=tuple(run for run in account.log.attempts() if run.state != AttemptState.RUNNING),
        periods=tuple(account.standings(schedule, now)),
        next_due_at=None if schedule is None else schedule.next_due(now),
        least_epsilon_left=None if left == float("inf") else left,
    )
    try:
        with replace_file(path, mode=0o644) as file:
            os.fchmod(file.fileno(), 0o644)  # the umask may have taken something away
            file.write(metrics_text(facts).encode("ascii"))
    except OSError as error:
        raise InputError(
            f"run.metrics_directory: {path} cannot be written ({error.strerror}); the folder has "
            "to be there, and who releases must be allowed to write in it",
            key="run.metrics_directory",
        ) from None
    return path


def metrics_text(facts: Facts) -> str:
    """The metrics in Prometheus' text format; what is not known has no line."""
    runs, counts = facts.runs, Counter(str(one.state) for one in facts.periods)
    last = runs[-1] if runs else None
    made = next((run for run in reversed(runs) if run.state == AttemptState.PUBLISHED), None)
    found = _Lines(facts.experiment)
    if made is not None:
        moment, meaning = made.at.timestamp(), "When a release was last published."
        found.add("last_success_timestamp_seconds", meaning, moment)
    if last is not None:
        moment = last.at.timestamp()
        meaning = "When a run last ended that published something or could not."
        found.add("last_run_timestamp_seconds", meaning, moment)
        ended = [state for state in AttemptState if state != AttemptState.RUNNING]
        states = {state.value: float(last.state == state) for state in ended}
        found.add_by("last_run_state", "How that run ended.", "state", states)
    if made is not None:
        found.add(
            "release_duration_seconds",
            "How long the last release took, rounded up to whole seconds.",
            made.seconds,
        )
        found.add("release_units", "Units in the last release.", made.n_units)
        found.add("release_rows_read", "Rows, or exposures, that were read for it.", made.n_read)
        found.add_by(
            "release_rows_set_aside",
            "Rows that were set aside from it, by rule.",
            "rule",
            made.set_aside,
        )
        found.add(
            "sample_ratio_p",
            "p-value of its arm sizes against the intended shares.",
            made.sample_ratio_p,
        )
    found.add(
        "epsilon_left", "What one who has paid the most may still pay.", facts.least_epsilon_left
    )
    by_state = {str(state): counts[str(state)] for state in PeriodState}
    found.add_by("periods", "Periods by the state that clusterdp status shows.", "state", by_state)
    if facts.next_due_at is not None:
        due = facts.next_due_at.timestamp()
        found.add("next_due_timestamp_seconds", "When a period becomes due next.", due)
    return found.text()


class _Lines:
    """Gauges of one experiment, whose name has letters, digits, - and _ alone."""

    def __init__(self, experiment: str) -> None:
        self._experiment = experiment
        self._lines: list[str] = []

    def add(self, name: str, meaning: str, value: float | None) -> None:
        if value is not None:
            self._write(name, meaning, [("", value)])

    def add_by(self, name: str, meaning: str, label: str, values: Mapping[str, float]) -> None:
        if values:
            self._write(name, meaning, [(f',{label}="{one}"', values[one]) for one in values])

    def _write(self, name: str, meaning: str, samples: Iterable[tuple[str, float]]) -> None:
        full = f"clusterdp_{name}"
        self._lines += [f"# HELP {full} {meaning}", f"# TYPE {full} gauge"]
        for labels, value in samples:
            number = repr(int(value)) if float(value).is_integer() else repr(float(value))
            self._lines.append(f'{full}{{experiment="{self._experiment}"{labels}}} {number}')

    def text(self) -> str:
        return "\n".join([*self._lines, ""])
