"""What a population has paid, and which draws are granted: no sum is off, no name given twice."""

import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.config.model.declared import Terms
from flows.ledger.rules import (
    OPEN,
    ChargeRequest,
    Decision,
    Entry,
    Fingerprint,
    State,
    check_budget,
    decide,
    refuse_early,
    same_people,
    spent,
)
from privatizers.accounting.budget import Budget
from schemas.errors import BudgetError, ConflictError
from schemas.names import ReleaseName

RESERVED, PUBLISHING, PUBLISHED, LOST, VOID = State
COUNTING = [state for state in State if state != VOID]
SETTLED = [PUBLISHED, LOST]

INFINITE = float("inf")
NO_LIMIT = Budget(INFINITE, INFINITE)
HERE = Path("/somewhere/releases/trial")

MADE = Fingerprint("k-1:aaaa", "k-1:bbbb", "k-1:cccc")
OTHER_ROWS = replace(MADE, rows="k-1:dddd")
OTHER_SETTINGS = replace(MADE, settings="k-1:eeee")
OTHER_BOTH = replace(OTHER_ROWS, settings="k-1:eeee")
OTHER_KEY = Fingerprint("k-2:ffff", "k-2:abab", "k-2:cdcd")
DIGESTS = {
    part
    for made in (MADE, OTHER_ROWS, OTHER_SETTINGS, OTHER_KEY)
    for digest in (made.rows, made.units, made.settings)
    for part in digest.split(":")
}


def entry(
    period: str = "p",
    revision: int = 1,
    state: State = PUBLISHED,
    *,
    cost: Budget | float = 1.0,
    population: str = "people",
    experiment: str = "trial",
    made_from: Fingerprint | None = MADE,
    directory: Path = HERE,
) -> Entry:
    name = ReleaseName(experiment, period, revision)
    return Entry(
        id=0,  # nothing depends on it
        population=population,
        name=name,
        cost=cost if isinstance(cost, Budget) else Budget(cost),
        state=state,
        path=directory / f"{name.release_id}.duckdb",
        draft=None,
        host="a-machine",
        created_at=datetime(2026, 11, 20, 3, 30),
        fingerprint=made_from,
    )


def application(
    period: str = "p",
    *,
    cost: Budget | float = 1.0,
    limit: Budget | float = NO_LIMIT,
    population: str = "people",
    experiment: str = "trial",
    made_from: Fingerprint = MADE,
    directory: Path = HERE,
    revise: bool = False,
) -> ChargeRequest:
    terms = Terms(
        experiment,
        population,
        cost if isinstance(cost, Budget) else Budget(cost),
        limit if isinstance(limit, Budget) else Budget(limit, INFINITE),
    )
    return ChargeRequest(terms, period, made_from, directory, None, revise)


def names(entries: Sequence[Entry]) -> list[str]:
    return [one.name.release_id for one in entries]


def refusal(entries: Sequence[Entry], asked: ChargeRequest) -> str:
    """The text of a refusal by budget."""
    with pytest.raises(BudgetError) as failure:
        decide(entries, asked)
    return tells_no_digest(failure.value)


def conflict(entries: Sequence[Entry], asked: ChargeRequest) -> str:
    """The text of a conflict."""
    with pytest.raises(ConflictError) as failure:
        decide(entries, asked)
    return tells_no_digest(failure.value)


def tells_no_digest(error: BudgetError | ConflictError) -> str:
    for digest in DIGESTS:
        assert digest not in str(error)
    return str(error)


# what was spent


def test_nothing_is_spent_at_first() -> None:
    assert spent([], "people") == Budget()


@pytest.mark.parametrize("state", COUNTING)
def test_every_charge_counts_whatever_became_of_it(state: State) -> None:
    assert spent([entry(state=state, cost=Budget(0.5, 1e-6))], "people") == Budget(0.5, 1e-6)


def test_what_was_given_back_does_not_count() -> None:
    entries = [entry("a"), entry("b", state=VOID), entry("c")]
    assert spent(entries, "people") == Budget(2.0)


def test_who_has_paid_is_a_population_in_all_of_its_experiments() -> None:
    entries = [
        entry(experiment="one", cost=0.5),
        entry(experiment="two", cost=0.25),
        entry(experiment="three", cost=8.0, population="others"),
    ]
    assert spent(entries, "people") == Budget(0.75)
    assert spent(entries, "others") == Budget(8.0)
    assert spent(entries, "nobody") == Budget()


def test_amounts_are_the_numbers_they_are_written_as() -> None:
    tenths = [entry(f"p{number}", cost=Budget(0.1, 1e-7)) for number in range(10)]
    assert spent(tenths, "people") == Budget(1.0, 1e-6)


# a first draw


def test_a_period_that_is_new_gets_its_first_name() -> None:
    assert decide([], application("p")) == Decision(ReleaseName("trial", "p", 1))


def test_other_periods_and_experiments_take_no_names() -> None:
    entries = [entry("q"), entry("p", experiment="other")]
    assert decide(entries, application("p")) == Decision(ReleaseName("trial", "p", 1))


@pytest.mark.parametrize(
    ("cost", "limit", "fits"),
    [
        (Budget(0.1), Budget(2.0, INFINITE), 20),
        (Budget(0.1), Budget(2.0, 0.0), 20),
        (Budget(0.1, 1e-6), Budget(INFINITE, 3e-6), 3),
        (Budget(0.1, 1e-6), Budget(0.2, 3e-6), 2),
        (Budget(0.1, 1e-6), Budget(0.4, 3e-6), 3),
        (Budget(0.3), Budget(0.9, 0.0), 3),
        (Budget(1.1), Budget(3.3, 0.0), 3),
        (Budget(1e-9), Budget(7e-9, 0.0), 7),
        (Budget(1.0), Budget(0.5, 0.0), 0),
        (Budget(1.0, 1e-9), Budget(10.0, 0.0), 0),
        (Budget(INFINITE), Budget(10.0, 0.0), 0),
    ],
)
def test_as_many_draws_fit_as_the_written_numbers_say(
    cost: Budget, limit: Budget, fits: int
) -> None:
    entries: list[Entry] = []
    for number in range(fits):
        decide(entries, application(f"p{number}", cost=cost, limit=limit))
        entries.append(entry(f"p{number}", cost=cost))
    refusal(entries, application("one-more", cost=cost, limit=limit))


@pytest.mark.parametrize("cost", [Budget(1e300, 1.0), Budget(INFINITE, INFINITE)])
def test_without_a_limit_everything_fits(cost: Budget) -> None:
    assert decide([entry("a", cost=cost)], application(cost=cost)).unchanged is None


@pytest.mark.parametrize("state", COUNTING)
def test_charges_of_all_states_leave_less_to_spend(state: State) -> None:
    entries = [entry("a", state=state, cost=1.5)]
    refusal(entries, application(limit=2.0))
    assert decide(entries, application(limit=2.5)).name.period == "p"


def test_what_was_given_back_can_be_spent_again() -> None:
    entries = [entry("a", state=VOID, cost=1.5)]
    assert decide(entries, application(limit=1.0)).name.period == "p"


def test_others_spend_nothing_of_this_population() -> None:
    entries = [entry("a", population="others", cost=9.0)]
    assert decide(entries, application(limit=1.0)).name.period == "p"


def test_an_experiment_that_moved_to_other_people_pays_from_their_budget() -> None:
    entries = [entry("a", population="before", cost=9.0), entry("b", population="after")]
    assert decide(entries, application("c", population="after", limit=2.0)).name.period == "c"
    refusal(entries, application("c", population="after", limit=1.5))


# a period that was released


@pytest.fixture
def public(tmp_path: Path) -> Entry:
    """A published release whose file is there."""
    one = entry(directory=tmp_path)
    one.path.touch()
    return one


@pytest.mark.parametrize("limit", [NO_LIMIT, 0.0])
def test_the_same_again_is_unchanged_and_needs_no_budget(
    public: Entry, limit: Budget | float
) -> None:
    entries = [entry("a"), public, entry("b")]
    assert decide(entries, application(limit=limit)) == Decision(public.name, public)


def test_other_units_digests_alone_change_nothing(public: Entry) -> None:
    """They are of the rows' ids, which the rows' digest covers."""
    asked = application(made_from=replace(MADE, units="k-1:0000"))
    assert decide([public], asked).unchanged == public


def test_of_revisions_that_are_the_same_the_latest_answers(tmp_path: Path) -> None:
    made = [MADE, OTHER_ROWS, MADE, OTHER_SETTINGS]
    entries = [
        entry("p", revision, made_from=each, directory=tmp_path)
        for revision, each in enumerate(made, start=1)
    ]
    for one in entries:
        one.path.touch()
    assert decide(entries, application(directory=tmp_path)).unchanged == entries[2]
    other = application(made_from=OTHER_ROWS, directory=tmp_path)
    assert decide(entries, other).unchanged == entries[1]


def test_a_release_that_moved_with_its_folder_is_found(tmp_path: Path) -> None:
    """The ledger has the path of another machine, or of before."""
    one = entry(directory=tmp_path / "before")
    now = tmp_path / one.path.name
    now.touch()
    found = decide([one], application(directory=tmp_path)).unchanged
    assert found == replace(one, path=now)


@pytest.mark.parametrize("state", SETTLED)
def test_a_file_that_is_gone_is_told_with_what_to_do(state: State) -> None:
    one = entry(state=state)
    elsewhere = conflict([one], application())
    told = conflict([replace(one, host=socket.gethostname())], application())
    for each in (elsewhere, told):
        assert "'p' was released as trial.p.r1, from the same rows and settings" in each
    assert f"not here: a-machine released it into {HERE}" in elsewhere
    assert f"gone from {HERE}" in told
    assert "Put the file back from a copy" in told
    assert "--revise" in told


@pytest.mark.parametrize(
    ("known", "asked", "why"),
    [
        (MADE, OTHER_ROWS, "from other rows; rows that came late need a revision"),
        (MADE, OTHER_SETTINGS, "with other settings"),
        (MADE, OTHER_BOTH, "with other settings, and from other rows"),
        (MADE, OTHER_KEY, "the key its rows could be compared with is not the one"),
        (None, MADE, "the ledger knows it from its file alone, so the rows cannot be compared"),
    ],
)
def test_a_conflict_says_in_what_the_two_differ(
    known: Fingerprint | None, asked: Fingerprint, why: str
) -> None:
    told = conflict([entry(made_from=known)], application(made_from=asked))
    assert re.search(r"'p' is published already, as trial\.p\.r1 \((.*)\); nothing was", told)
    assert f"({why}" in told
    assert ("other rows" in told) == ("other rows" in why)
    assert ("other settings" in told) == ("other settings" in why)
    assert "costs privacy again: ask for it with --revise" in told


def test_a_conflict_is_with_the_latest_revision() -> None:
    entries = [entry("p", 1, made_from=OTHER_SETTINGS), entry("p", 2, made_from=OTHER_ROWS)]
    told = conflict(entries, application())
    assert "as trial.p.r2 (from other rows;" in told


def test_a_conflict_comes_before_a_refusal() -> None:
    conflict([entry(cost=5.0)], application(made_from=OTHER_ROWS, limit=1.0))


def test_a_period_is_known_whoever_paid_for_it() -> None:
    conflict([entry(population="before")], application(population="after", made_from=OTHER_ROWS))


def test_a_period_that_was_given_back_is_new_again() -> None:
    entries = [entry(state=VOID, made_from=OTHER_ROWS)]
    assert decide(entries, application()) == Decision(ReleaseName("trial", "p", 1))


@pytest.mark.parametrize("revise", [False, True])
@pytest.mark.parametrize("state", OPEN)
def test_a_period_that_is_being_released_is_told_with_what_to_do(
    state: State, *, revise: bool
) -> None:
    told = conflict([entry(state=state)], application(revise=revise))
    assert "trial.p.r1 is being released by another run" in told
    assert "on a-machine, since 2026-11-20 03:30 UTC" in told
    assert "clusterdp ledger CONFIG --abandon trial.p.r1" in told


def test_a_revision_that_is_being_made_hides_what_is_public(public: Entry) -> None:
    """Whoever asks for the period gets what the other run will make of it, a little later."""
    conflict([public, entry("p", 2, RESERVED)], application())


def test_other_periods_that_are_being_released_are_in_nobody_s_way() -> None:
    entries = [entry("q", state=RESERVED), entry("p", experiment="other", state=PUBLISHING)]
    assert decide(entries, application()).name == ReleaseName("trial", "p", 1)


# a revision


@pytest.mark.parametrize("made_from", [MADE, OTHER_ROWS])
@pytest.mark.parametrize("state", SETTLED)
def test_a_revision_gets_the_next_name_and_is_charged_for(
    public: Entry, state: State, made_from: Fingerprint
) -> None:
    entries = [replace(public, state=state)]
    asked = application(made_from=made_from, revise=True, limit=2.0)
    assert decide(entries, asked) == Decision(ReleaseName("trial", "p", 2))
    poor = application(made_from=made_from, revise=True, limit=1.5)
    assert "0.5 is left" in refusal(entries, poor)


@pytest.mark.parametrize(
    ("entries", "revision"),
    [
        ([], 1),
        ([entry("p", 1, VOID)], 1),
        ([entry("p", 1), entry("p", 2), entry("p", 3)], 4),
        ([entry("p", 1), entry("p", 2, VOID)], 2),
        ([entry("p", 1, VOID), entry("p", 1), entry("p", 2, LOST)], 3),
        ([entry("p", 7, made_from=None), entry("p", 2)], 8),
        ([entry("q", 5), entry("p", 1)], 2),
    ],
)
def test_revisions_go_on_from_the_greatest_that_counts(entries: list[Entry], revision: int) -> None:
    assert decide(entries, application(revise=True)).name.revision == revision


# what a refusal says


def test_a_refusal_says_what_was_spent_what_is_left_and_what_to_do() -> None:
    entries = [
        entry("a", cost=0.1),
        entry("given-back", cost=0.1, state=VOID),
        entry("theirs", cost=0.1, population="others"),
        entry("b", cost=0.7, experiment="other"),
    ]
    assert refusal(entries, application(cost=0.3, limit=1.0)) == (
        "refused: this release costs epsilon 0.3, and of the 1 that population 'people' may pay "
        "0.2 is left; nothing was drawn or written.\n"
        "Spent by trial.a.r1 0.1, other.b.r1 0.7.\n"
        "Ask for a smaller privacy.epsilon; or, if these people may pay more, raise "
        "privacy.budget_epsilon"
    )


def test_a_refusal_of_the_first_draw_names_no_others() -> None:
    told = refusal([], application(cost=3.0, limit=1.0))
    assert "of the 1 that population 'people' may pay 1 is left" in told
    assert "Spent by" not in told


def test_a_refusal_of_many_names_the_last_ones() -> None:
    entries = [entry(f"p{number}", cost=0.1) for number in range(8)]
    told = refusal(entries, application(cost=0.5, limit=1.0))
    shown = ", ".join(f"trial.p{number}.r1 0.1" for number in range(3, 8))
    assert f"Spent by {shown}, and 3 more before them (clusterdp ledger CONFIG lists" in told


def test_a_refusal_says_which_of_the_two_is_short() -> None:
    entries = [entry("a", cost=Budget(1.0, 2e-6))]
    asked = application(cost=Budget(1.0, 2e-6), limit=Budget(10.0, 3e-6))
    told = refusal(entries, asked)
    assert "costs delta 2e-06, and of the 3e-06 that" in told
    assert "may pay 1e-06 is left" in told
    assert "Spent by trial.a.r1 2e-06." in told
    assert "smaller privacy.delta; or" in told
    assert told.endswith("raise privacy.budget_delta")
    assert "epsilon" not in told


def test_what_is_left_is_never_below_nothing() -> None:
    """The budget may have been lowered."""
    assert "may pay 0 is left" in refusal([entry("a", cost=5.0)], application(limit=1.0))


def test_a_budget_can_be_checked_without_asking_for_a_period() -> None:
    entries = [entry("a")]
    check_budget(entries, "people", Budget(1.0), Budget(2.0))
    with pytest.raises(BudgetError, match=r"0\.5 is left"):
        check_budget(entries, "people", Budget(1.0), Budget(1.5))


# refused before a log is read


def early(
    entries: Sequence[Entry], asked: ChargeRequest, *, revise: bool = False, period: str = "p"
) -> None:
    refuse_early(entries, asked.terms, period, revise=revise)


POOR = application(limit=1.5)


def test_what_cannot_fit_is_refused_early() -> None:
    early([entry("a")], application(limit=2.0))
    with pytest.raises(BudgetError, match=r"0\.5 is left"):
        early([entry("a")], POOR)


@pytest.mark.parametrize("state", SETTLED)
def test_what_may_turn_out_unchanged_is_not_refused_early(state: State) -> None:
    early([entry("a"), entry("p", state=state)], POOR)


def test_a_revision_is_refused_early() -> None:
    early([entry("p")], application(limit=2.0), revise=True)
    with pytest.raises(BudgetError):
        early([entry("p")], POOR, revise=True)


@pytest.mark.parametrize("revise", [False, True])
@pytest.mark.parametrize("period", ["a", "p"])
@pytest.mark.parametrize("state", OPEN)
def test_what_a_dead_run_may_give_back_refuses_nobody_early(
    state: State, period: str, *, revise: bool
) -> None:
    early([entry(period, state=state)], POOR, revise=revise)


def test_what_was_given_back_refuses_nobody_early() -> None:
    early([entry("a", state=VOID)], POOR)
    with pytest.raises(BudgetError):
        early([entry("a"), entry("p", state=VOID)], POOR)


# the same people elsewhere


def test_others_that_paid_for_the_same_units_are_told() -> None:
    entries = [
        entry("a", population="b-people", experiment="one", cost=0.1),
        entry("b", population="b-people", experiment="two", cost=0.2, made_from=OTHER_SETTINGS),
        entry("c", population="a-people", cost=0.5, made_from=OTHER_ROWS),
    ]
    theirs = same_people(entries, application())
    assert theirs == {"a-people": Budget(0.5), "b-people": Budget(0.3)}
    assert list(theirs) == ["a-people", "b-people"]


@pytest.mark.parametrize(
    "other",
    [
        entry("a"),
        entry("a", population="others", state=VOID),
        entry("a", population="others", made_from=None),
        entry("a", population="others", made_from=replace(MADE, units="k-1:0000")),
        entry("a", population="others", made_from=OTHER_KEY),
    ],
    ids=["the same population", "given back", "known from its file", "other units", "other key"],
)
def test_who_has_not_paid_for_the_same_units_is_not_told(other: Entry) -> None:
    assert same_people([other], application()) == {}


def test_of_others_only_what_they_paid_for_the_same_units_is_told() -> None:
    entries = [
        entry("a", population="others", cost=0.1),
        entry("b", population="others", cost=8.0, made_from=OTHER_KEY),
        entry("c", population="others", cost=8.0, state=VOID),
    ]
    assert same_people(entries, application()) == {"others": Budget(0.1)}


# digests are for comparing alone


def test_no_text_of_an_entry_shows_a_digest(public: Entry) -> None:
    shown = repr(public) + repr(application()) + repr(decide([public], application()))
    for digest in DIGESTS:
        assert digest not in shown


# whatever comes

amounts = st.one_of(
    st.integers(0, 30).map(lambda tenths: float(Decimal(tenths) / 10)),
    st.floats(0, 3, allow_subnormal=True),
)
costs = st.builds(Budget, amounts, st.sampled_from([0.0, 1e-6, 1e-7]))
limits = st.builds(
    Budget,
    st.one_of(amounts.map(lambda amount: 3 * amount), st.just(INFINITE)),
    st.sampled_from([0.0, 1e-6, 3e-6, INFINITE]),
)
digests = st.sampled_from([MADE, OTHER_ROWS, OTHER_SETTINGS, OTHER_KEY])
periods = st.sampled_from(["p", "q", "r"])
experiments = st.sampled_from(["one", "two"])
populations = st.sampled_from(["people", "others"])

applications = st.builds(
    application,
    periods,
    cost=costs,
    limit=limits,
    population=populations,
    experiment=experiments,
    made_from=digests,
    revise=st.booleans(),
)
histories = st.lists(
    st.builds(
        entry,
        periods,
        st.integers(1, 4),
        st.sampled_from(State),
        cost=costs,
        population=populations,
        experiment=experiments,
        made_from=st.one_of(st.none(), digests),
    ),
    max_size=6,
)
lives = st.lists(st.tuples(applications, st.sampled_from(State)), max_size=30)


def exactly(entries: Sequence[Entry], population: str) -> tuple[Decimal, Decimal]:
    """What a population has paid, in the numbers as they are written."""
    paid = [one.cost for one in entries if one.population == population and one.counts]
    return (
        sum((Decimal(repr(cost.epsilon)) for cost in paid), Decimal()),
        sum((Decimal(repr(cost.delta)) for cost in paid), Decimal()),
    )


@given(histories, lives)
def test_no_budget_is_overspent_and_no_name_given_twice(
    history: list[Entry], life: list[tuple[ChargeRequest, State]]
) -> None:
    """However entries are mixed, and whatever becomes of what is granted."""
    entries = list(history)
    for asked, becomes in life:
        try:
            decision = decide(entries, asked)
        except (BudgetError, ConflictError):
            continue
        assert decision.unchanged is None  # no file is there
        assert decision.name.release_id not in names([one for one in entries if one.counts])
        granted = entry(
            decision.name.period,
            decision.name.revision,
            RESERVED,
            cost=asked.terms.cost,
            population=asked.terms.population,
            experiment=asked.terms.experiment,
            made_from=asked.fingerprint,
        )
        epsilon, delta = exactly([*entries, granted], asked.terms.population)
        assert epsilon <= Decimal(repr(asked.terms.limit.epsilon))
        assert delta <= Decimal(repr(asked.terms.limit.delta))
        entries.append(replace(granted, state=becomes))


thousandths = st.integers(0, 10_000).map(lambda each: Decimal(each) / 1000)


@given(st.lists(thousandths, max_size=20), thousandths, st.integers(-2, 2))
def test_what_fits_is_granted_to_the_last_digit(
    paid: list[Decimal], cost: Decimal, over: int
) -> None:
    entries = [entry(f"p{number}", cost=float(each)) for number, each in enumerate(paid)]
    limit = max(Decimal(), sum(paid, cost) - Decimal(over) / 1000)
    asked = application(cost=float(cost), limit=Budget(float(limit), 0.0))
    if sum(paid, cost) <= limit:
        assert decide(entries, asked).name.period == "p"
    else:
        refusal(entries, asked)


@given(histories, applications)
def test_what_is_refused_early_would_be_refused_later(
    history: list[Entry], asked: ChargeRequest
) -> None:
    """Whatever becomes of what is open now."""
    try:
        refuse_early(history, asked.terms, asked.period, revise=asked.revise)
    except BudgetError:
        for state in (PUBLISHED, VOID):
            settled = [replace(one, state=state) if one.state in OPEN else one for one in history]
            with pytest.raises(BudgetError):
                decide(settled, asked)
