"""Metrics of an experiment as a file for Prometheus' textfile collector.

One file an experiment, written anew from the ledger, the folder of releases and the clock. Nothing
in it hangs on an outcome: whether a run found its period unchanged or in conflict changes no line.
(How long a release took is rounded up to whole seconds; it may depend on the data, faintly.)
"""

import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from flows.config.model.experiment import Config
from flows.ledger.account import Account
from flows.ledger.ends import AttemptState
from flows.ledger.standing import PeriodState
from flows.runtime import clock
from flows.runtime.files import replace_file
from schemas.errors import InputError


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
    text = _metrics_text(config, account)
    try:
        with replace_file(path, mode=0o644) as file:
            os.fchmod(file.fileno(), 0o644)  # the umask may have taken something away
            file.write(text.encode("ascii"))
    except OSError as error:
        raise InputError(
            f"run.metrics_directory: {path} cannot be written ({error.strerror}); the folder has "
            "to be there, and who releases must be allowed to write in it",
            key="run.metrics_directory",
        ) from None
    return path


_LABELS = {"last_run_state": "state", "release_rows_set_aside": "rule", "periods": "state"}
_MEANINGS = {
    "last_success_timestamp_seconds": "When a release was last published.",
    "last_run_timestamp_seconds": "When a run last ended that published something or could not.",
    "last_run_state": "How that run ended.",
    "release_duration_seconds": "How long the last release took, rounded up to whole seconds.",
    "release_units": "Units in the last release.",
    "release_rows_read": "Rows, or exposures, that were read for it.",
    "release_rows_set_aside": "Rows that were set aside from it, by rule.",
    "sample_ratio_p": "p-value of its arm sizes against the intended shares.",
    "epsilon_left": "What one who has paid the most may still pay.",
    "periods": "Periods by the state that clusterdp status shows.",
    "next_due_timestamp_seconds": "When a period becomes due next.",
}
"""The gauges in their order; those with a label have a number for each of its values."""


def _metrics_text(config: Config, account: Account) -> str:
    """The metrics in Prometheus' text format; what is not known has no line.

    Names of experiments have letters, digits, - and _ alone, and labels are names of ours.
    """
    schedule, now, statement = config.calendar, clock.now(), account.statement()
    left = statement.terms.limit.left_after(statement.spent).epsilon
    runs = [vars(run) for run in account.log.attempts() if run.state != AttemptState.RUNNING]
    counts = Counter(str(one.state) for one in account.standings(schedule, now))
    last = runs[-1] if runs else {}
    published = [run for run in runs if run["state"] == AttemptState.PUBLISHED]
    made = published[-1] if published else {}
    ended = [state for state in AttemptState if last and state != AttemptState.RUNNING]
    found: dict[str, Any] = {
        "last_success_timestamp_seconds": made.get("at"),
        "last_run_timestamp_seconds": last.get("at"),
        "last_run_state": {state.value: float(last["state"] == state) for state in ended},
        "release_duration_seconds": made.get("seconds"),
        "release_units": made.get("n_units"),
        "release_rows_read": made.get("n_read"),
        "release_rows_set_aside": made.get("set_aside", {}),
        "sample_ratio_p": made.get("sample_ratio_p"),
        "epsilon_left": None if left == float("inf") else left,
        "periods": {str(state): counts[str(state)] for state in PeriodState},
        "next_due_timestamp_seconds": None if schedule is None else schedule.next_due(now),
    }
    lines: list[str] = []
    for name, meaning in _MEANINGS.items():
        label, value = _LABELS.get(name), found[name]
        values = value if label else {} if value is None else {"": value}
        if values:
            lines += [f"# HELP clusterdp_{name} {meaning}", f"# TYPE clusterdp_{name} gauge"]
        for one, each in values.items():
            number = float(each.timestamp() if isinstance(each, datetime) else each)
            written = repr(int(number)) if number.is_integer() else repr(number)
            labels = f'experiment="{config.experiment}"' + (f',{label}="{one}"' if label else "")
            lines.append(f"clusterdp_{name}{{{labels}}} {written}")
    return "\n".join([*lines, ""])
