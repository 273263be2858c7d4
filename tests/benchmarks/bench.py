"""``make bench``: speed and memory of the pipeline beside baselines in the same run.

See ``--help``. Nothing here is a test; numbers are for people to read.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.case import Case, Contender, Place
from tests.benchmarks.cases import NAMES, QUICK, cases_of
from tests.benchmarks.measure import BenchError, Run, run_job
from tests.benchmarks.results import Result, result_of
from tests.benchmarks.show import machine, save, text_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; exit code 1 if any of it could not be."""
    asked = _parser().parse_args(arguments)
    words = list(asked.cases)
    if asked.size:
        words += [f"units-{asked.size}", f"units-{asked.size}-text"]
    setting = {**machine(), "rounds": asked.rounds, "memory_limit": asked.memory_limit}
    try:
        with _folder(asked.folder, keep=asked.keep) as folder:
            place = Place(folder / "data", asked.memory_limit)
            cases = [case for word in words or QUICK for case in cases_of(word, place)]
            _say(", ".join(f"{key} {value}" for key, value in setting.items()) + "\n")
            results: list[Result] = []
            for case in cases:
                results.append(measured(case, folder, asked.rounds))
                _say(text_of(results[-1]) + "\n")
                save(results, setting, asked.results)  # after every case: a long run may be cut
    except BenchError as error:
        sys.stderr.write(f"bench: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("bench: interrupted\n")
        return 130
    _say(f"stored in {asked.results.absolute()}")
    return 1 if any(one.failure for one in results) else 0


def measured(case: Case, folder: Path, rounds: int) -> Result:
    """Run the contenders of a case in turns, ``rounds`` times."""
    try:
        _progress(f"{case.name}: preparing its input …")
        case.prepare()
        load = os.getloadavg()[0]
        found: list[list[Run]] = []
        for number in range(rounds):
            found.append([])
            for contender in case.contenders:
                _progress(f"{case.name}: round {number + 1} of {rounds}, {contender.name} …")
                found[-1].append(_run(contender, folder))
    except BenchError as error:
        return Result(case, failure=str(error))
    finally:
        _progress("")
    return result_of(case, found, load)


def _run(contender: Contender, folder: Path) -> Run:
    """One run in a folder of its own, which is removed with what was written there."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    home = str(folder / "prefect") if contender.needs_prefect else None
    given = {**contender.job.arguments, "work": str(work), "prefect_home": home}
    try:
        run = run_job(replace(contender.job, arguments=given))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if run.rows != contender.rows:
        raise BenchError(
            f"{contender.name}: {run.rows:,} rows in its result instead of {contender.rows:,}"
        )
    return run


@contextmanager
def _folder(given: Path | None, *, keep: bool) -> Iterator[Path]:
    """Where input and runs lie: a new folder in ``given`` or in the system's temporary one.

    Removed in the end; with ``keep`` it is ``given`` itself, its input is used again, and stays.
    """
    if keep and given is None:
        raise BenchError("--keep needs --folder FOLDER: where input is kept and found again")
    if keep and given is not None:
        (given / "data").mkdir(parents=True, exist_ok=True)
        try:
            yield given.absolute()
        finally:
            shutil.rmtree(given / "prefect", ignore_errors=True)
        return
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="clusterdp-bench-", dir=given) as name:
        (Path(name) / "data").mkdir()
        yield Path(name).absolute()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench",
        description="Measures the pipeline beside baselines in the same run.",
        epilog=f"Cases: {NAMES}. Without any: {' '.join(QUICK)}.",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="what to measure, see below")
    parser.add_argument("--size", help="as the cases units-SIZE and units-SIZE-text")
    parser.add_argument("--rounds", type=_positive, default=3, help="runs of each contender (3)")
    parser.add_argument(
        "--memory-limit", default="4GB", help="of releases and of DuckDB's tables (4GB)"
    )
    parser.add_argument("--folder", type=Path, help="where input and runs lie (a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep the input in --folder for later")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("benchmark-results"),
        help="folder for results.json, results.md and plots (benchmark-results)",
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError("has to be a whole number above 0")
    return int(text)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _progress(text: str) -> None:
    """On a terminal alone, on one line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was made is removed
    sys.exit(main())
