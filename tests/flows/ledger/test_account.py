"""Charge, publish, and finish what dead runs left: the ledger never shows less than was spent."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import clusterdp
from flows.ledger import account as charging
from flows.ledger.account import Account, Charge, resolve_charge
from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url
from flows.ledger.rules import Entry, Fingerprint, State
from flows.ledger.shelves import shelf
from flows.released.file.draft import LATEST, complete, draft_in, make_public, workplace
from privatizers.accounting.budget import Budget
from schemas.errors import BudgetError, ClusterdpError, ConflictError, InputError
from schemas.names import ReleaseName
from tests.conftest import Builder, Experiment, build_experiment


@pytest.fixture
def experiment(tmp_path: Path) -> Builder:
    """Experiments whose releases everybody pays for: there is no log here to look for units in."""

    def build(*logs: Any, **sections: Any) -> Experiment:
        privacy = {"account": "population", **sections.pop("privacy", {})}
        return build_experiment(tmp_path / "experiment", *logs, privacy=privacy, **sections)

    return build


ROWS = Fingerprint("k-1:rows", "k-1:units", "k-1:settings")
OTHER_ROWS = Fingerprint("k-1:other rows", "k-1:units", "k-1:settings")

RESERVED, PUBLISHING, PUBLISHED, LOST, VOID = (
    State.RESERVED,
    State.PUBLISHING,
    State.PUBLISHED,
    State.LOST,
    State.VOID,
)


# settling


class Found(NamedTuple):
    """What a run finds of another's: where its working folder is, and which files are there."""

    folder: str
    """``held`` by its living run, of a ``dead`` one, ``gone`` here, or gone ``elsewhere``."""
    public: bool = False
    draft: bool = False


HELD = [Found("held", public, draft) for public in (False, True) for draft in (False, True)]
DEAD = [Found("dead", public, draft) for public in (False, True) for draft in (False, True)]
GONE = [Found("gone", public) for public in (False, True)]
ELSEWHERE = [Found("elsewhere", public) for public in (False, True)]

TABLE: list[tuple[State, list[Found], State]] = [
    # Nothing is settled of a run that lives, or that cannot be seen from here.
    (RESERVED, HELD + ELSEWHERE, RESERVED),
    (PUBLISHING, HELD + ELSEWHERE, PUBLISHING),
    # A reservation showed nothing to anybody.
    (RESERVED, DEAD + GONE, VOID),
    # What was about to become public is so, or becomes so, or may have been so.
    (PUBLISHING, [Found("dead", public=True), Found("dead", public=True, draft=True)], PUBLISHED),
    (PUBLISHING, [Found("gone", public=True)], PUBLISHED),
    (PUBLISHING, [Found("dead", draft=True)], PUBLISHED),
    (PUBLISHING, [Found("dead"), Found("gone")], LOST),
    # What is settled stays so.
    *[(state, HELD + DEAD + GONE + ELSEWHERE, state) for state in (PUBLISHED, LOST, VOID)],
]
CASES = [(state, found, expected) for state, several, expected in TABLE for found in several]


@contextmanager
def surroundings(tmp_path: Path, state: State, found: Found) -> Iterator[Entry]:
    """An entry of the ledger, with its folder and files as they are found."""
    releases = tmp_path / "releases"
    releases.mkdir()
    path = releases / "trial.a.r1.duckdb"
    if found.public:
        path.write_text("drawn")
    with ExitStack() as stack:
        if found.folder == "held":
            folder = stack.enter_context(workplace(releases))
        else:
            folder = releases / ".draft-of-another"
            if found.folder == "dead":
                folder.mkdir()
        if found.draft:
            draft_in(folder).write_text("drawn")
        yield Entry(
            id=1,
            population="trial",
            name=ReleaseName("trial", "a", 1),
            cost=Budget(2.0, 0.0),
            state=state,
            path=path,
            draft=folder,
            host="another" if found.folder == "elsewhere" else socket.gethostname(),
            created_at=datetime(2026, 11, 20, 3, 15),
            file_sha256=sha256(b"drawn").hexdigest(),
        )


def test_every_case_is_in_the_table_once() -> None:
    found = [*HELD, *DEAD, *GONE, *ELSEWHERE]
    assert len(CASES) == len(set(CASES)) == len(State) * len(found) == 60


@pytest.mark.parametrize(("state", "found", "expected"), CASES)
def test_an_unfinished_charge_is_settled_as_it_must_be(
    tmp_path: Path, state: State, found: Found, expected: State
) -> None:
    with surroundings(tmp_path, state, found) as entry:
        assert resolve_charge(entry) == expected
        assert resolve_charge(entry) == expected  # asked again before the answer is written down
        rolled_forward = expected == PUBLISHED != state and not found.public
        if found.public or rolled_forward:
            assert entry.path.read_text() == "drawn"
        else:
            assert not entry.path.exists()
        assert entry.draft is not None
        if found.draft:
            assert draft_in(entry.draft).read_text() == "drawn"
        assert entry.draft.exists() == (found.folder in ("held", "dead"))


@pytest.mark.parametrize("state", list(State))
def test_a_charge_without_a_run_is_left_alone(tmp_path: Path, state: State) -> None:
    with surroundings(tmp_path, state, Found("dead", draft=True)) as entry:
        assert resolve_charge(Entry(**vars(entry) | {"draft": None})) == state
        assert not entry.path.exists()


def test_what_cannot_become_public_now_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with surroundings(tmp_path, PUBLISHING, Found("dead", draft=True)) as entry:
        with monkeypatch.context() as full:
            full.setattr(os, "link", refuse_link)
            assert resolve_charge(entry) == PUBLISHING
        assert resolve_charge(entry) == PUBLISHED
        assert entry.path.read_text() == "drawn"


@pytest.mark.parametrize("draft", [True, False])
def test_a_name_that_another_file_has_taken_does_not_count_as_given(
    tmp_path: Path, *, draft: bool
) -> None:
    with surroundings(tmp_path, PUBLISHING, Found("dead", draft=draft)) as entry:
        entry.path.write_text("by another")
        assert resolve_charge(entry) == (PUBLISHING if draft else LOST)
        entry.path.unlink()
        assert resolve_charge(entry) == (PUBLISHED if draft else LOST)


def test_a_draft_that_is_another_than_the_run_noted_is_not_made_public(tmp_path: Path) -> None:
    with surroundings(tmp_path, PUBLISHING, Found("dead", draft=True)) as entry:
        assert entry.draft is not None
        draft_in(entry.draft).write_text("by another")
        assert resolve_charge(entry) == LOST
        assert not entry.path.exists()


# a run's account, with drafts of one line


@pytest.fixture
def built(experiment: Builder) -> Experiment:
    """An experiment whose people may be released twice."""
    return experiment(privacy={"budget_epsilon": 4.0})


def account_of(built: Experiment) -> Account:
    config = built.load()
    return Account.of(config)


def ledger_of(built: Experiment) -> Ledger:
    config = built.load()
    return Ledger(ledger_url(config.ledger.url, config.directory))


def states(built: Experiment) -> dict[str, list[str]]:
    """The states of all charges of the experiment's population."""
    found: dict[str, list[str]] = {}
    for entry in account_of(built).statement().entries:
        found.setdefault(entry.name.release_id, []).append(entry.state.value)
    return found


def spent(built: Experiment) -> float:
    return account_of(built).statement().spent.epsilon


def publish(
    built: Experiment, period: str = "a", content: str = "whole", rows: Fingerprint = ROWS
) -> tuple[str, str]:
    """A run: which release it made or found, and whether that is new."""
    account = account_of(built)
    with workplace(built.releases) as folder:
        charge = account.reserve(period, rows, folder, revise=False)
        if charge.is_new:
            with account.publishing(charge):
                charge.draft.write_text(content)
        return charge.name.release_id, "published" if charge.is_new else "unchanged"


def a_dead_run(built: Experiment, state: State, period: str = "a") -> Charge:
    """Leave what a run leaves that was killed with its charge in this state."""
    built.releases.mkdir(parents=True, exist_ok=True)
    folder = built.releases / f".draft-of-the-dead-{period}"
    folder.mkdir()
    charge = account_of(built).reserve(period, ROWS, folder, revise=False)
    charge.draft.write_text("of the dead")
    if state == PUBLISHING:
        complete(charge.draft)
        assert charge.receipt.charge is not None
        digest = sha256(b"of the dead").hexdigest()
        ledger_of(built).begin_publishing(charge.receipt.charge, digest)
    return charge


def assert_released(built: Experiment, **expected: str) -> None:
    """These releases stand in the folder, latest is the last of them, and nothing lies about."""
    contents = {f"trial.{period}.r1.duckdb": text for period, text in expected.items()}
    if contents:
        sums = {name: sha256(text.encode()).hexdigest() for name, text in contents.items()}
        contents[LATEST] = contents[max(contents)]
        contents["SHA256SUMS"] = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
    found = built.releases.iterdir() if built.releases.exists() else ()
    assert {path.name: path.read_text() for path in found} == contents


def refuse_link(*_: object) -> None:
    raise OSError(28, "No space left on device")


@contextmanager
def unreachable(built: Experiment) -> Iterator[None]:
    """While this lasts, no ledger can be opened."""
    file, aside = built.folder / "ledger.sqlite", built.folder / "aside"
    file.rename(aside)
    file.mkdir()
    try:
        yield
    finally:
        file.rmdir()
        aside.rename(file)


def test_a_run_is_charged_before_it_draws_and_public_when_it_is_done(built: Experiment) -> None:
    account = account_of(built)
    with workplace(built.releases) as folder:
        charge = account.reserve("a", ROWS, folder, revise=False)
        assert (charge.is_new, charge.statement.spent.epsilon, spent(built)) == (True, 2.0, 2.0)
        assert states(built) == {"trial.a.r1": ["reserved"]}
        with account.publishing(charge):
            charge.draft.write_text("whole")
            assert not charge.path.exists()
        assert charge.path.read_text() == "whole"
        assert charge.path.stat().st_mode & 0o777 == 0o444
    assert states(built) == {"trial.a.r1": ["published"]}
    assert_released(built, a="whole")


def test_a_release_that_is_public_already_cannot_be_published_again(built: Experiment) -> None:
    publish(built)
    account = account_of(built)
    with workplace(built.releases) as folder:
        charge = account.reserve("a", ROWS, folder, revise=False)
        assert not charge.is_new
        with pytest.raises(AssertionError, match="public already"), account.publishing(charge):
            pass
    assert spent(built) == 2.0


@pytest.mark.parametrize(
    "failure", [RuntimeError(), InputError("no"), KeyboardInterrupt(), SystemExit()], ids=repr
)
def test_an_error_before_publishing_gives_the_charge_back(
    built: Experiment, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise failure

    with monkeypatch.context() as failing:
        failing.setattr(charging, "complete", fail)
        with pytest.raises(type(failure)):
            publish(built)
    assert states(built) == {"trial.a.r1": ["void"]}
    assert spent(built) == 0
    assert_released(built)
    assert publish(built) == ("trial.a.r1", "published")
    assert states(built) == {"trial.a.r1": ["void", "published"]}


def test_a_draft_that_was_never_written_gives_the_charge_back(built: Experiment) -> None:
    account = account_of(built)
    with workplace(built.releases) as folder:
        charge = account.reserve("a", ROWS, folder, revise=False)
        with pytest.raises(InputError), account.publishing(charge):
            pass
    assert states(built) == {"trial.a.r1": ["void"]}


def test_a_name_that_cannot_be_given_withdraws_the_charge(
    built: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(os, "link", refuse_link)
        with pytest.raises(InputError, match=r"cannot write here \(No space left"):
            publish(built)
    assert states(built) == {"trial.a.r1": ["void"]}
    assert_released(built)
    assert publish(built) == ("trial.a.r1", "published")
    assert spent(built) == 2.0


def test_a_name_that_a_stranger_takes_meanwhile_withdraws_the_charge(built: Experiment) -> None:
    account = account_of(built)
    with workplace(built.releases) as folder:
        charge = account.reserve("a", ROWS, folder, revise=False)
        with (  # noqa: PT012 - the block is what is tested
            pytest.raises(ConflictError, match="there is a file of this name already"),
            account.publishing(charge),
        ):
            charge.draft.write_text("whole")
            charge.path.write_text("a stranger's")
    assert states(built) == {"trial.a.r1": ["void"]}
    assert charge.path.read_text() == "a stranger's"


def test_a_link_that_is_made_and_yet_reported_as_failed_stays_charged(
    built: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As network file systems may do where an answer is lost and the request sent twice."""
    link = os.link

    def link_and_fail(source: Path, target: Path) -> None:
        link(source, target)
        if target.name == "trial.a.r1.duckdb":
            raise FileExistsError(17, "File exists")

    with monkeypatch.context() as lossy:
        lossy.setattr(os, "link", link_and_fail)
        with suppress(ClusterdpError):  # whatever it thinks of it
            publish(built)
    assert spent(built) == 2.0
    assert publish(built) == ("trial.a.r1", "unchanged")
    assert_released(built, a="whole")
    assert spent(built) == 2.0


# interrupted while publishing


def before_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", interrupt)


def after(monkeypatch: pytest.MonkeyPatch, target: object, name: str) -> None:
    """Interrupt right after this was done."""
    original = getattr(target, name)

    def act(*given: object) -> None:
        original(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(target, name, act)


NOT_PUBLIC_YET: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "after it was charged": lambda patch: after(patch, Ledger, "reserve"),
    "after it was noted": lambda patch: after(patch, Ledger, "begin_publishing"),
    "before the link": before_the_link,
}
PUBLIC: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "after the link": lambda patch: after(patch, os, "link"),
    "after it got its name": lambda patch: after(patch, charging, "make_public"),
    "after that was noted": lambda patch: after(patch, Ledger, "publish"),
    "after latest": lambda patch: after(patch, shelf, "point_latest"),
}


@pytest.mark.parametrize("moment", NOT_PUBLIC_YET)
def test_an_interruption_before_anything_is_public_lets_the_next_run_do_the_job(
    built: Experiment, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    with monkeypatch.context() as interrupted:
        NOT_PUBLIC_YET[moment](interrupted)
        with pytest.raises(KeyboardInterrupt):
            publish(built)
    assert_released(built)
    assert publish(built)[0] == "trial.a.r1"
    assert_released(built, a="whole")
    assert spent(built) == 2.0


@pytest.mark.parametrize("moment", PUBLIC)
def test_an_interruption_once_it_is_public_leaves_it_charged(
    built: Experiment, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    with monkeypatch.context() as interrupted:
        PUBLIC[moment](interrupted)
        with pytest.raises(KeyboardInterrupt):
            publish(built)
    assert spent(built) == 2.0
    assert publish(built, content="another") == ("trial.a.r1", "unchanged")
    assert_released(built, a="whole")
    assert states(built) == {"trial.a.r1": ["published"]}


# a ledger that cannot be reached


def test_without_a_ledger_nothing_becomes_public(built: Experiment) -> None:
    account = account_of(built)
    with ExitStack() as later, workplace(built.releases) as folder:
        charge = account.reserve("a", ROWS, folder, revise=False)
        later.enter_context(unreachable(built))
        with (
            pytest.raises(ClusterdpError, match=r"ledger\.sqlite: is a folder, not a file"),
            account.publishing(charge),
        ):
            charge.draft.write_text("whole")
    assert not charge.path.exists()
    assert states(built) == {"trial.a.r1": ["reserved"]}  # it could not be given back
    assert publish(built) == ("trial.a.r1", "published")
    assert states(built) == {"trial.a.r1": ["void", "published"]}
    assert_released(built, a="whole")


def test_a_name_and_a_ledger_that_fail_together_leave_the_draft_to_the_next_run(
    built: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as later, monkeypatch.context() as full:

        def refuse(*_: object) -> None:
            later.enter_context(unreachable(built))
            refuse_link()

        full.setattr(os, "link", refuse)
        with pytest.raises(InputError, match=r"cannot write here \(No space left"):
            publish(built)
    assert states(built) == {"trial.a.r1": ["publishing"]}
    assert publish(built, content="of a second draw") == ("trial.a.r1", "unchanged")
    assert states(built) == {"trial.a.r1": ["published"]}
    assert spent(built) == 2.0
    assert_released(built, a="whole")


def test_a_ledger_that_is_gone_after_the_link_is_a_warning_and_the_next_run_notes_it(
    built: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as later:

        def make_public_and_lose_the_ledger(draft: Path, path: Path) -> None:
            make_public(draft, path)
            later.enter_context(unreachable(built))

        with monkeypatch.context() as losing:
            losing.setattr("flows.ledger.account.make_public", make_public_and_lose_the_ledger)
            result = built.run("a")
    assert result.status == "published"
    warning, series = result.warnings
    assert warning.startswith("trial.a.r1 is public, which the next run notes: ledger ")
    assert "series.duckdb is not up to date, the release itself is public" in series
    assert states(built) == {"trial.a.r1": ["publishing"]}
    assert spent(built) == 2.0
    before = result.path.read_bytes()
    assert built.run("a").status == "unchanged"
    assert states(built) == {"trial.a.r1": ["published"]}
    assert result.path.read_bytes() == before


def test_a_reservation_that_was_abandoned_cannot_publish(built: Experiment) -> None:
    account = account_of(built)
    with workplace(built.releases) as folder:
        charge = account.reserve("a", ROWS, folder, revise=False)
        with (  # noqa: PT012 - the block is what is tested
            pytest.raises(ClusterdpError, match="was given back while it was being made"),
            account.publishing(charge),
        ):
            charge.draft.write_text("whole")
            assert account_of(built).abandon("trial.a.r1") == VOID
            assert publish(built, content="another's") == ("trial.a.r1", "published")
    assert_released(built, a="another's")
    assert states(built) == {"trial.a.r1": ["void", "published"]}
    assert spent(built) == 2.0


# what dead and living runs left


def test_a_dead_run_s_reservation_is_given_back_and_the_next_gets_its_name(
    built: Experiment,
) -> None:
    a_dead_run(built, RESERVED)
    assert publish(built) == ("trial.a.r1", "published")
    assert_released(built, a="whole")
    assert states(built) == {"trial.a.r1": ["void", "published"]}
    assert spent(built) == 2.0


def test_what_a_dead_run_was_publishing_becomes_public_byte_for_byte(built: Experiment) -> None:
    charge = a_dead_run(built, PUBLISHING)
    drafted = charge.draft.stat().st_ino
    assert publish(built) == ("trial.a.r1", "unchanged")
    assert_released(built, a="of the dead")
    assert charge.path.stat().st_ino == drafted
    assert states(built) == {"trial.a.r1": ["published"]}
    assert spent(built) == 2.0


def test_a_run_of_another_period_finishes_it_too(built: Experiment) -> None:
    a_dead_run(built, PUBLISHING)
    assert publish(built, "b") == ("trial.b.r1", "published")
    assert_released(built, a="of the dead", b="whole")
    assert states(built) == {"trial.a.r1": ["published"], "trial.b.r1": ["published"]}


@pytest.mark.parametrize("state", [RESERVED, PUBLISHING])
def test_a_run_that_is_refused_finishes_it_too(built: Experiment, state: State) -> None:
    publish(built, "a")
    a_dead_run(built, state, "b")
    with pytest.raises(ConflictError, match=r"published already, as trial\.a\.r1"):
        publish(built, "a", rows=OTHER_ROWS)
    public = ["trial.a.r1.duckdb"] + ["trial.b.r1.duckdb"] * (state == PUBLISHING)
    assert sorted(path.name for path in built.releases.glob("trial.*")) == public
    assert (built.releases / LATEST).samefile(built.releases / public[-1])
    assert states(built)["trial.b.r1"] == ["published" if state == PUBLISHING else "void"]


def test_a_draft_that_cannot_become_public_now_is_kept_for_a_later_run(
    built: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    charge = a_dead_run(built, PUBLISHING)
    account = account_of(built)
    with workplace(built.releases) as folder:
        with monkeypatch.context() as full:
            full.setattr(os, "link", refuse_link)
            account.reserve("b", ROWS, folder, revise=False)
        assert charge.draft.read_text() == "of the dead"
        assert states(built) == {"trial.a.r1": ["publishing"], "trial.b.r1": ["reserved"]}
    assert publish(built, "b") == ("trial.b.r1", "published")
    assert_released(built, a="of the dead", b="whole")


def test_a_living_run_keeps_its_charge_and_its_folder(built: Experiment) -> None:
    account = account_of(built)
    with workplace(built.releases) as folder:
        charge = account.reserve("a", ROWS, folder, revise=False)
        with account.publishing(charge):
            charge.draft.write_text("whole")
            with pytest.raises(ConflictError, match=r"trial\.a\.r1 is being released by another"):
                publish(built, "a", content="another's")
            assert publish(built, "b", content="another's") == ("trial.b.r1", "published")
    assert_released(built, a="whole", b="another's")
    assert spent(built) == 4.0


def test_the_charge_of_a_run_that_is_gone_elsewhere_stays(
    built: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setattr(socket, "gethostname", lambda: "another")
        charge = a_dead_run(built, RESERVED)
    shutil.rmtree(charge.folder)
    with pytest.raises(ConflictError, match=r"being released by another run \(on another, since"):
        publish(built)
    assert spent(built) == 2.0


def test_a_run_of_another_experiment_in_the_ledger_finishes_it_and_latest_follows(
    built: Experiment,
) -> None:
    charge = a_dead_run(built, PUBLISHING)
    other = Experiment(built.folder / "other.toml")
    text = built.config.read_text(encoding="utf-8")
    other.config.write_text(text.replace('"trial"', '"other"'), encoding="utf-8")
    config = other.load()
    with workplace(config.releases) as folder:
        Account.of(config).reserve("a", ROWS, folder, revise=False)
    assert charge.path.read_text() == "of the dead"
    assert states(built) == {"trial.a.r1": ["published"]}
    assert publish(built) == ("trial.a.r1", "unchanged")
    assert_released(built, a="of the dead")


# releases that the ledger does not know


def lose_the_ledger(built: Experiment) -> None:
    (built.folder / "ledger.sqlite").unlink()


def no_draw(*_: object) -> None:
    msg = "noise was drawn"
    raise AssertionError(msg)


def adopt(built: Experiment) -> None:
    clusterdp.restore(None, built.config, complete=True)


def test_releases_that_a_new_ledger_does_not_know_are_never_drawn_again(
    built: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = built.run("a").path.read_bytes()
    lose_the_ledger(built)
    with monkeypatch.context() as watched:
        watched.setattr("flows.raw.drawing.strata_counts.stochastic_levels", no_draw)
        with pytest.raises(ConflictError, match="the ledger knows nothing of this file"):
            built.run("b")
        assert states(built) == {}
        adopt(built)
        with pytest.raises(ConflictError, match="the ledger knows it from its file alone"):
            built.run("a")
    assert states(built) == {"trial.a.r1": ["published"]}
    assert spent(built) == 2.0
    assert (built.releases / "trial.a.r1.duckdb").read_bytes() == before
    result = built.run("b")
    assert (result.release_id, result.statement.spent.epsilon) == ("trial.b.r1", 4.0)
    assert built.run("b").status == "unchanged"
    with pytest.raises(BudgetError, match="of the 4 that population 'trial' may pay 0 is left"):
        built.run("a", revise=True)
    assert spent(built) == 4.0


def test_releases_without_a_ledger_leave_no_budget_for_another(built: Experiment) -> None:
    for period in "ab":
        built.run(period)
    lose_the_ledger(built)
    adopt(built)
    with pytest.raises(BudgetError) as caught:
        built.run("c")
    assert caught.value.exit_code == 3
    assert states(built) == {"trial.a.r1": ["published"], "trial.b.r1": ["published"]}
    assert not (built.releases / "trial.c.r1.duckdb").exists()


def test_a_file_that_its_own_list_does_not_fit_is_not_charged(built: Experiment) -> None:
    path = built.run("a").path
    lose_the_ledger(built)
    path.unlink()
    path.write_bytes(build_experiment(built.folder / "other").run("a").path.read_bytes())
    with pytest.raises(InputError, match="is not the file that SHA256SUMS beside it lists"):
        adopt(built)
    assert states(built) == {}


@pytest.mark.parametrize("known", [True, False], ids=["a ledger", "no ledger"])
@pytest.mark.parametrize("content", [b"", b"no database", None], ids=["empty", "text", "a copy"])
def test_a_file_that_only_looks_like_a_release_is_a_plain_error(
    built: Experiment, content: bytes | None, *, known: bool
) -> None:
    """Nobody can say what it has cost, so nothing is charged or drawn beside it."""
    path = built.releases / "trial.x.r1.duckdb"
    if known:
        built.run("a")
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:  # cut off in the middle
        other = build_experiment(built.folder / "other").run()
        content = other.path.read_bytes()[:20_000]
    path.write_bytes(content)
    before, charges = sorted(built.releases.iterdir()), states(built)
    with pytest.raises(ConflictError, match=r"trial\.x\.r1\.duckdb: the ledger knows nothing of"):
        built.run("b")
    with pytest.raises(InputError, match=r"trial\.x\.r1\.duckdb: not a "):
        adopt(built)
    assert (sorted(built.releases.iterdir()), states(built)) == (before, charges)
