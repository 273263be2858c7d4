"""A file that contradicts itself is refused by the rule it breaks, and never computed with."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import duckdb
import polars as pl
import pytest

from flows.released.estimates.release import estimate_file
from flows.released.file import opening
from flows.released.file.read import check_sound, read_release
from flows.released.file.units import name_in_session
from flows.runtime.engine import engine
from schemas.errors import InputError
from schemas.released import TABLES
from tests.conftest import a_log, build_experiment
from tests.faults.hostile import changed, refusals, said
from tests.support.own_schema import alter


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_experiment(tmp_path_factory.mktemp("sound") / "e", a_log(400)).run().path


@pytest.fixture(scope="module")
def sound_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release whose units were drawn by response tables."""
    privacy = {"mechanism": "cluster-optimal-dp", "epsilon": 4.0, "learn_from": "arms"}
    folder = tmp_path_factory.mktemp("tables") / "e"
    return build_experiment(folder, a_log(400), privacy=privacy).run().path


@pytest.fixture(scope="module")
def sound_guess(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that has learnt from the one before it."""
    days = ("2026-11-01", "2026-11-02")
    logs = {f"{day}.parquet": a_log() for day in days}
    made = build_experiment(
        tmp_path_factory.mktemp("guess") / "e",
        logs,
        source={"path": "{period}.parquet"},
        privacy={"mechanism": "uniform-prior-dp"},
    )
    return [made.run(day).path for day in days][-1]


@pytest.fixture(scope="module")
def sound_margins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of two outcomes with sums of two margins."""
    log = a_log(400).with_columns(
        country=pl.Series([("US", "DE", None)[unit % 3] for unit in range(400)]),
        age=pl.Series([20 + unit // 4 % 2 for unit in range(400)]),
    )
    outcomes = [{"name": one, "column": "clicks", "values": [0, 1, 2, 3]} for one in ("a", "b")]
    made = build_experiment(
        tmp_path_factory.mktemp("margins") / "e",
        log,
        outcome=None,
        outcomes=outcomes,
        columns={"outcome": None, "attributes": ["country", "age"]},
        privacy={"mechanism": "uniform-prior-dp", "margins": ["country", ["age", "country"]]},
    )
    return made.run().path


def release_says(what: str) -> str:
    return f"UPDATE release SET {what}"


def metrics_say(what: str) -> str:
    return f"UPDATE metrics SET {what}"


_ONE = "WHERE unit_id = (SELECT max(unit_id) FROM units WHERE outcome_randomised > 0)"

CASES = {
    "release: epsilon is finite": [
        release_says(f"epsilon = {value}") for value in ("-1", "0", "NULL", "'nan'", "'inf'")
    ],
    "release: delta is at least 0": [
        release_says(f"delta = {value}") for value in ("-1e-9", "1", "NULL", "'nan'")
    ],
    "resampling_probability is between 0 and 1": [
        metrics_say(f"resampling_probability = {value}") for value in ("1", "0", "-3", "'nan'")
    ],
    "truncation_threshold is at least 0": [
        metrics_say(f"truncation_threshold = {value}") for value in ("-1", "0.7", "NULL", "'nan'")
    ],
    "noise_scale fits strata_statistic": [
        metrics_say(f"noise_scale = {value}")
        for value in ("1e308", "0", "-2", "NULL", "'nan'", "'inf'")
    ],
    "strata_statistic is one of": [
        metrics_say("strata_statistic = 'x'"),
        metrics_say("strata_statistic = NULL"),
    ],
    "grid_step fits": [metrics_say("grid_step = 1")],
    "control and same_shares are given": [
        release_says("control = NULL"),
        release_says("control = ''"),
        release_says("same_shares = NULL"),
    ],
    "estimates: every row has an arm, control": [release_says("control = 'nobody'")],
    "what was computed is at most": [
        metrics_say("computed_epsilon = epsilon + 1e-9"),
        metrics_say("computed_delta = 1e-9"),
        metrics_say("computed_epsilon = NULL"),
    ],
    "n_outcomes is at least 2": [metrics_say("n_outcomes = 1")],
    "there are units, and at most": [
        release_says("n_units = -5"),
        release_says("n_clusters = 0"),
    ],
    "release_id is EXPERIMENT": [
        release_says("revision = 0"),
        release_says("experiment = 'other'"),
        release_says(r"experiment = chr(27) || '[2J', release_id = chr(27) || '[2J.once.r1'"),
        release_says(
            "period = repeat('x', 2000), release_id = 'trial.' || repeat('x', 2000) || '.r1'"
        ),
        release_says("release_id = NULL"),
    ],
    "created_at is a time": [
        release_says("created_at = NULL"),
        release_says("created_at = 'infinity'"),
        release_says("created_at = '20000-01-01'"),
    ],
    "mechanism is a name": [release_says("mechanism = 'x' || chr(8238)")],
    "neighbours and cluster_epsilon": [
        release_says("neighbours = 'nobody'"),
        release_says("cluster_epsilon = 1"),
    ],
    "outcomes: every outcome is a number": [
        "UPDATE outcomes SET outcome = 'nan' WHERE outcome = 1",
        "UPDATE outcomes SET outcome = 1e300 WHERE outcome = 3",
        "INSERT INTO outcomes VALUES ('outcome', NULL)",
    ],
    "outcomes: each stands once": [
        "INSERT INTO outcomes VALUES ('outcome', 2)",
        "DELETE FROM outcomes",
        "DELETE FROM outcomes WHERE outcome = 2",
    ],
    "pools: every row has": [
        "UPDATE pools SET n_units = -n_units",
        "UPDATE pools SET arm = NULL",
        "UPDATE pools SET pool = ''",
        "UPDATE pools SET n_units = 0",
    ],
    "pools: each pool and arm stands once": ["INSERT INTO pools FROM pools"],
    "weights are from 0 to 1": [
        "UPDATE pools SET mean_weight = 1.5",
        "UPDATE pools SET mean_weight = 'nan'",
        "UPDATE pools SET square_weight = -1",
        "UPDATE pools SET mean_weight = NULL",
    ],
    "noisy means stand where": ["UPDATE pools SET noisy_mean = 1"],
    "noisy differences stand where": ["UPDATE pools SET noisy_difference = 1"],
    "strata: every row has": [
        "UPDATE strata SET cluster = NULL",
        "UPDATE strata SET n_units = -1",
        "UPDATE strata SET n_units = NULL",
    ],
    "strata: own_sizes is one number from 0 to 1, and 0 unless shares are the same": [
        "UPDATE strata SET own_sizes = 0.5",
        "UPDATE release SET same_shares = true; UPDATE strata SET own_sizes = 1.5",
        "UPDATE release SET same_shares = true; UPDATE strata SET own_sizes = 'nan'",
        "UPDATE release SET same_shares = true; UPDATE strata SET own_sizes = 0.1 + rowid / 100",
    ],
    "strata: each cluster and arm stands once": ["INSERT INTO strata FROM strata"],
    "strata: their units add up": [
        "UPDATE strata SET n_units = n_units + 1",
        "DELETE FROM strata WHERE arm = 'mail'",
        "DELETE FROM strata",
        "DELETE FROM pools WHERE pool = (SELECT min(pool) FROM pools)",
    ],
    "there is control, and another arm (": [
        "DELETE FROM pools",
        "DELETE FROM pools WHERE arm = 'mail'",
    ],
    "debias: probabilities are from": [
        "UPDATE debias SET probability = -probability",
        "UPDATE debias SET probability = 'nan'",
        "UPDATE debias SET probability = NULL",
    ],
    "debias: probabilities add up to 1": ["UPDATE debias SET probability = 0.125"],
    "debias: weights and noise_variance are numbers": [
        "UPDATE debias SET weight = 'inf'",
        "UPDATE debias SET weight = NULL",
        "UPDATE debias SET noise_variance = 'nan'",
        "UPDATE debias SET noise_variance = NULL",
    ],
    "debias: weights are those": [
        "UPDATE debias SET weight = weight + 1e-3",
        "UPDATE debias SET weight = 0",
    ],
    "debias: noise_variance is": [
        "UPDATE debias SET noise_variance = noise_variance * (1 + 1e-6)",
        "UPDATE debias SET noise_variance = 0",
    ],
    "debias: each pool and arm has each outcome": [
        "DELETE FROM debias WHERE outcome = 2",
        "DELETE FROM debias",
        "INSERT INTO debias FROM debias",
        "UPDATE debias SET outcome = 1.5 WHERE outcome = 2",
    ],
    "debias: every row has": ["UPDATE debias SET arm = NULL"],
    "units: there are n_units": [
        "DELETE FROM $own.drawn",
        "INSERT INTO $own.drawn FROM $own.drawn",
        "INSERT INTO $own.drawn FROM $own.drawn LIMIT 1",
    ],
    "units: they show each stratum once": [
        "DELETE FROM $own.unit_facts",
        "INSERT INTO $own.unit_facts FROM $own.unit_facts",
        "INSERT INTO $own.unit_facts FROM $own.unit_facts LIMIT 1",
        "UPDATE $own.unit_facts SET _stratum = 0",
        "UPDATE $own.unit_facts SET _stratum = NULL WHERE _stratum = 1",
        "UPDATE $own.unit_facts SET cluster = NULL",
        "UPDATE $own.unit_facts SET arm = 'mail'",
        "UPDATE $own.unit_facts SET weight = 'inf'",
        "UPDATE $own.unit_facts SET weight = 0",
        "UPDATE $own.unit_facts SET shift0 = 'nan'",
        "UPDATE $own.unit_facts SET shift0 = NULL",
    ],
    "units: each has an id": [
        "UPDATE $own.drawn SET outcome_randomised = 1.5",
        "UPDATE $own.drawn SET outcome_randomised = 'nan'",
        "UPDATE $own.drawn SET outcome_randomised = NULL",
        "UPDATE $own.drawn SET unit_id = NULL WHERE outcome_randomised = 1",
        "UPDATE $own.drawn SET _stratum = NULL",
        "UPDATE $own.drawn SET _stratum = 0",
        "UPDATE $own.unit_facts SET _stratum = _stratum + 1",
        "UPDATE $own.unit_facts SET base0 = base0 + 1e-6",
        "UPDATE $own.unit_facts SET factor0 = 1.001 * factor0",
        "UPDATE $own.unit_facts SET factor0 = 'nan' WHERE _stratum = 1",
        "UPDATE $own.unit_facts SET base0 = NULL WHERE _stratum = 1",
        # a single unit, and by little
        f"UPDATE $own.drawn SET outcome_randomised = outcome_randomised + 1e-12 {_ONE}",
        f"UPDATE $own.drawn SET outcome_randomised = outcome_randomised - 0.4 {_ONE}",
        f"UPDATE $own.drawn SET outcome_randomised = NULL {_ONE}",
        f"UPDATE $own.drawn SET outcome_randomised = 'nan' {_ONE}",
        f"UPDATE $own.drawn SET outcome_randomised = 1e308 {_ONE}",
        f"UPDATE $own.drawn SET outcome_randomised = '-inf' {_ONE}",
        f"UPDATE $own.drawn SET outcome_randomised = 256 + outcome_randomised {_ONE}",
        f"UPDATE $own.drawn SET _stratum = (_stratum + 1) % 2 {_ONE}",
        f"UPDATE $own.drawn SET _stratum = 4294967295 {_ONE}",
    ],
    "estimates: every row has an arm": [
        "UPDATE estimates SET control = 'nobody'",
        "UPDATE estimates SET estimator = 'new <one>'",
        "UPDATE estimates SET segment = 'x'",
        "UPDATE estimates SET arm = control",
    ],
    "estimates: estimates and errors are numbers": [
        "UPDATE estimates SET estimate = NULL",
        "UPDATE estimates SET std_error = -1",
        "UPDATE estimates SET privacy_std_error = 'nan'",
    ],
    "estimates: intervals and p-values": [
        "UPDATE estimates SET p_value = 2",
        "UPDATE estimates SET ci_lower = ci_upper + 1",
        "UPDATE estimates SET ci_lower = NULL",
        "UPDATE estimates SET confidence_level = 1",
    ],
    "metrics: a ratio is of two outcomes": [
        "INSERT INTO metrics (metric, kind, numerator, denominator) "
        "VALUES ('x', 'ratio', 'outcome', 'outcome')",
        "INSERT INTO metrics (metric, kind, numerator, denominator, epsilon) "
        "VALUES ('x', 'ratio', 'outcome', 'y', 1)",
        "INSERT INTO metrics (metric, kind) VALUES ('x', 'ratio')",
        metrics_say("numerator = 'x'"),
    ],
    "metrics: epsilon and delta are a part": [
        metrics_say("epsilon = 3"),
        metrics_say("epsilon = NULL"),
        metrics_say("delta = 0.1"),
        metrics_say("epsilon = 'nan'"),
    ],
    "metrics: labels are short": [
        metrics_say("label = repeat('x', 2000)"),
    ],
    "metrics: texts are short": [
        metrics_say("texts = repeat('x', 6000)"),
    ],
    "metrics: roles, directions and margins": [
        metrics_say("role = chr(27) || '[2J', direction = 'increase'"),
        metrics_say("role = 'secondary'"),
        metrics_say("direction = 'increase'"),
        metrics_say("role = 'secondary', direction = 'up'"),
        metrics_say("role = 'guardrail', direction = 'increase'"),
        metrics_say("role = 'guardrail', direction = 'increase', margin = 0"),
        metrics_say("role = 'guardrail', direction = 'increase', margin = 'nan'"),
        metrics_say("role = 'guardrail', direction = 'increase', margin = 'inf'"),
        metrics_say("role = 'secondary', direction = 'increase', margin = 1"),
        metrics_say("margin = 1"),
    ],
    "release: decision is all or any": [
        release_says("decision = 'all'"),
        metrics_say("role = 'primary', direction = 'increase'"),
        metrics_say("role = 'primary', direction = 'increase'")
        + "; "
        + release_says("decision = 'most'"),
    ],
    "release: numbers of rows": [release_says("n_set_aside = -1"), release_says("rows_each = 0")],
    "release: sample_ratio_p": [release_says("sample_ratio_p = 'nan'")],
    "release: account and returning": [release_says("account = 'x'")],
    "release: budget_epsilon": [release_says("budget_epsilon = 'inf'")],
    "release: fingerprints": [release_says("unit_id_key_fingerprint = chr(27)")],
    "every row is about": [
        "UPDATE pools SET metric = 'x'",
        "UPDATE debias SET metric = NULL",
        "UPDATE estimates SET metric = 'x'",
    ],
    "counts: noisy counts are numbers": [
        "UPDATE counts SET noisy_count = NULL",
        "UPDATE counts SET noisy_count = 9223372036854775807",
    ],
    "counts: each pool and arm has each outcome once": [
        "DELETE FROM counts",
        "INSERT INTO counts FROM counts",
        "UPDATE counts SET pool = 'x'",
    ],
    "squares: every row has an arm": [
        "INSERT INTO squares VALUES ('outcome', 'mail', 'nan', 1, 0)",
        "INSERT INTO squares VALUES ('outcome', 'mail', 1, -1, 0)",
    ],
    "squares: each arm of the release": ["INSERT INTO squares VALUES ('outcome', 'x', 1, 1, 0)"],
    "arm_counts: every row is about an outcome whose units": [
        "INSERT INTO arm_counts VALUES ('outcome', 'mail', 1, 1, 1)"
    ],
    "randomiser: every row is about an outcome whose units": [
        "INSERT INTO randomiser VALUES ('outcome', 0, 1, 0, 1, NULL)"
    ],
    "metrics: response_epsilon is above 0": [metrics_say("response_epsilon = 1")],
    "metrics: drawn_with is another outcome": [metrics_say("drawn_with = 'x'")],
    "means: every row has": ["UPDATE means SET mean = 'inf'", "UPDATE means SET std_error = -1"],
    "means: each arm of the release": ["UPDATE means SET arm = 'nobody'"],
    "estimates: they are of units": [
        "UPDATE estimates SET n_units = -1",
        "UPDATE estimates SET n_units = 1000000",
        "UPDATE estimates SET coverage = 7",
    ],
    "estimates: each arm of the release": [
        "INSERT INTO estimates FROM estimates",
        "UPDATE estimates SET arm = 'nobody'",
    ],
}
"""What breaks each rule; a rule is named by the beginning of its message."""


CASES_OF_OPENING = {
    "table release does not have one row": [
        "DELETE FROM release",
        "INSERT INTO release FROM release",
    ],
    "its table metrics has no outcome": ["DELETE FROM metrics", metrics_say("kind = 'ratio'")],
    "neither an outcome nor a ratio": [
        "INSERT INTO metrics (metric, kind) VALUES ('x', 'mean')",
        "INSERT INTO metrics (metric) VALUES ('x')",
    ],
    "a name in its table metrics": [
        "INSERT INTO metrics FROM metrics",
        "INSERT INTO metrics (metric, kind) VALUES ('OUTCOME', 'ratio')",
        "INSERT INTO metrics (metric, kind) VALUES ('x; --', 'ratio')",
        "INSERT INTO metrics (metric, kind) VALUES ('rowid', 'outcome')",
        "INSERT INTO metrics (metric, kind) SELECT repeat('x', 61), 'outcome'",
        metrics_say("metric = NULL"),
    ],
    "its table metrics has more than 200 rows": [
        "INSERT INTO metrics (metric, kind) SELECT 'x' || i, 'ratio' FROM range(200) AS t (i)"
    ],
    "the columns of table units": [metrics_say("metric = 'clicks'")],
}
"""The same of rules that are kept as a file is opened, before its values are looked at."""


_WITHOUT_TABLES = "response_epsilon = NULL, resampling_probability = 0.5, truncation_threshold = 0"
_ANOTHER = "mechanism = 'uniform-prior-dp'"

CASES_OF_TABLES = {
    "metrics: response_epsilon is above 0": [
        metrics_say(f"response_epsilon = {value}") for value in ("0", "-1", "'nan'", "101")
    ]
    + [metrics_say("resampling_probability = 0.5, truncation_threshold = 0.1")],
    "metrics: n_outcomes is at most 100": [metrics_say("n_outcomes = 101")],
    "metrics: units are drawn by tables where the mechanism is": [
        release_says(_ANOTHER),
        metrics_say(_WITHOUT_TABLES),
    ],
    "metrics: epsilon and delta pay for response_epsilon": [
        metrics_say("response_epsilon = 4.001"),
        f"{release_says('epsilon = 2')}; {metrics_say('epsilon = 2')}",
        f"{release_says('delta = 1e-6')}; {metrics_say('delta = 1e-6, response_epsilon = 4.001')}",
        "UPDATE arm_counts SET noise_scale = 0.9 * noise_scale",
    ],
    "pools: table is a number where units are drawn by tables": [
        f"{release_says(_ANOTHER)}; {metrics_say(_WITHOUT_TABLES)}",
    ],
    "arm_counts: every row has an arm, an outcome": [
        "UPDATE arm_counts SET noise_scale = 0",
        "UPDATE arm_counts SET noise_scale = 'inf'",
        "UPDATE arm_counts SET noisy_count = NULL",
    ],
    "arm_counts: each arm of the release has each outcome once": [
        "DELETE FROM arm_counts WHERE outcome = 1",
        "DELETE FROM arm_counts WHERE arm = 'mail'",
        "INSERT INTO arm_counts FROM arm_counts",
        "UPDATE arm_counts SET arm = 'x' WHERE arm = 'mail'",
        "UPDATE arm_counts SET outcome = outcome + 1",
        "UPDATE arm_counts SET noise_scale = 2 * noise_scale WHERE arm = 'mail'",
    ],
    "debias and randomiser: each pool and arm, or table, has each output once": [
        "DELETE FROM randomiser",
        "INSERT INTO randomiser FROM randomiser",
        "DELETE FROM debias WHERE outcome = 1",
        "UPDATE debias SET outcome = outcome + 0.5",
        "UPDATE debias SET outcome = outcome + 1",
        "UPDATE randomiser SET output = output + 1",
        "UPDATE randomiser SET outcome = outcome + 1",
        'UPDATE randomiser SET "table" = "table" + 1',
        'UPDATE pools SET "table" = "table" + 1',
        'UPDATE pools SET "table" = 4000000000',
        'UPDATE debias SET "table" = "table" + 1 WHERE pool = (SELECT min(pool) FROM pools)',
    ],
    "randomiser: probabilities are from 0 to 1": [
        "UPDATE randomiser SET probability = -probability",
        "UPDATE randomiser SET probability = NULL",
        "UPDATE randomiser SET probability = 'nan'",
    ],
    "table is a number where units are drawn by tables, else missing": [
        'UPDATE pools SET "table" = NULL',
        'UPDATE debias SET "table" = -1',
    ],
    "debias: pools of one table have its numbers": [
        f"UPDATE debias SET {change} WHERE pool = (SELECT max(pool) FROM pools)"
        for change in ("weight = weight * (1 + 1e-12)", "noise_variance = 0")
    ],
    "randomiser: probabilities add up to 1": [
        "UPDATE randomiser SET probability = 0.99 * probability"
    ],
    "randomiser: no output tells outcomes apart": [metrics_say("response_epsilon = 3.8")],
    "debias: probabilities add up to 1": ["UPDATE debias SET probability = 0.99 * probability"],
    "debias: weights are those that undo": ["UPDATE debias SET weight = 1.01 * weight"],
    "debias: noise_variance is": ["UPDATE debias SET noise_variance = 1.01 * noise_variance"],
    "units: each has an id, and an outcome": [
        "UPDATE $own.weights SET weight = 1.01 * weight",
        "DELETE FROM $own.weights",
        "INSERT INTO $own.weights FROM $own.weights",
        "UPDATE $own.unit_facts SET table0 = table0 + 1",
        f"UPDATE $own.drawn SET outcome_randomised = outcome_randomised + 100 {_ONE}",
        f"UPDATE $own.drawn SET outcome_randomised = 0.5 {_ONE}",
    ],
}
"""The same of a release by response tables."""


CASES_OF_GUESS = {
    "release: guess_from has names": [
        release_says(f"guess_from = {value}")
        for value in ("NULL", "'a b'", "'trial' || chr(10)", "'trial.1.r1 ' || repeat('g', 64)")
    ],
    "guess: every row has a cluster": [
        f"UPDATE guess SET {change}"
        for change in ("cluster = ''", "arm = NULL", "outcome = 'inf'", "probability = -1")
    ],
    "guess: each cluster and arm has each outcome once": [
        "UPDATE guess SET probability = probability / 2",
        "UPDATE guess SET outcome = 1 WHERE outcome = 2",
        "DELETE FROM guess WHERE arm = 'mail' AND outcome = 0",
    ],
    "guess: it is of the metric's range": [
        "UPDATE guess SET arm = 'nobody' WHERE arm = 'mail'",
        "UPDATE guess SET outcome = outcome + 1",
        release_says("guess_from = ''"),
    ],
}
"""The same of a release that has learnt from the one before it."""


_FIRST = "WHERE margin = 0 AND cell = 0 AND arm = 'mail'"

CASES_OF_MARGINS = {
    "margins: every row is about a cell": [
        f"UPDATE margins SET {change}"
        for change in ("margin = -1", "cell = -1", "attribute = ''", "n_units = 0", "arm = ''")
    ],
    "margins: sums are numbers": [
        "UPDATE margins SET noisy_sum = 'nan'",
        "UPDATE margins SET noise_scale = 0",
        "UPDATE margins SET noise_scale = 'inf'",
    ],
    "margins: they are of outcomes with unit_noise": [metrics_say("unit_noise = NULL")],
    "metrics: unit_noise is a number": [
        metrics_say("unit_noise = -1"),
        metrics_say("unit_noise = 'inf'"),
        "DELETE FROM margins",
    ],
    "margins: each cell and arm stands once": [
        f"INSERT INTO margins FROM margins {_FIRST} AND metric = 'a'",
        f"DELETE FROM margins {_FIRST} AND metric = 'b'",
        f"UPDATE margins SET n_units = n_units + 1 {_FIRST} AND metric = 'b'",
    ],
    "margins: a margin has a number of its own": [
        f"UPDATE margins SET value = 'x' {_FIRST}",
        "UPDATE margins SET margin = margin + 1",
        f"UPDATE margins SET noise_scale = 2 * noise_scale {_FIRST}",
        "UPDATE margins SET attribute = 'age' WHERE margin = 0 AND cell = 0",
    ],
    "margins: each is of attributes of units": [
        "UPDATE margins SET attribute = 'nothing' WHERE margin = 0",
        "UPDATE margins SET attribute = 'unit_id' WHERE margin = 0",
    ],
    "margins: units have numbers of cells of these alone": [
        "DELETE FROM margins WHERE margin = 1",
        f"DELETE FROM margins; {metrics_say('unit_noise = NULL')}",
    ],
    "units: those of one value are in one cell": [
        "UPDATE $own.drawn SET _margins2 = xor(_margins2, 1) WHERE _margins2 & 255 <= 1",
        f"UPDATE margins SET n_units = n_units + 1 {_FIRST}",
        f"DELETE FROM margins {_FIRST}",
        "UPDATE margins SET attribute = 'age' WHERE margin = 0",
        """UPDATE $own.drawn SET _margins2 = _margins2 & 255 WHERE unit_id = (
            SELECT max(unit_id) FROM $own.drawn WHERE _margins2 >> 8 = 1)""",
    ],
}
"""The same of a release with margins."""


@pytest.mark.parametrize("values", [[0, 1], [0, 1, 2]])
@pytest.mark.parametrize("statistic", ["none", "counts"])
def test_epsilon_pays_for_all_that_a_run_publishes(
    tmp_path: Path, values: list[int], statistic: str
) -> None:
    """Of two outcomes one count tells the other, and noise costs half as much."""
    privacy = {"mechanism": "cluster-optimal-dp", "learn_from": "arms", "epsilon": 4.0}
    built = build_experiment(
        tmp_path / "e",
        a_log(240).with_columns(clicks=pl.col("clicks").clip(0, values[-1])),
        outcome={"values": values},
        privacy={**privacy, "strata_statistic": statistic},
    )
    read_release(built.run().path)


SOUND = {
    "sound": CASES,
    "sound_tables": CASES_OF_TABLES,
    "sound_margins": CASES_OF_MARGINS,
    "sound_guess": CASES_OF_GUESS,
}
"""What each sound release is altered to."""


Copies = Callable[[str], tuple[Path, duckdb.DuckDBPyConnection]]


@pytest.fixture(scope="module")
def copies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copies]:
    """A copy of each sound release, open as a reader opens it, but for that it may be changed.

    To copy and open one anew takes longer than to check its values. Each time it is another
    connection, about which nothing is known yet.
    """
    made: dict[str, tuple[Path, duckdb.DuckDBPyConnection, opening._Units]] = {}
    with ExitStack() as stack:

        def copy_of(which: str) -> tuple[Path, duckdb.DuckDBPyConnection]:
            if which not in made:
                path = tmp_path_factory.mktemp("copy") / "theirs.duckdb"
                shutil.copyfile(request.getfixturevalue(which), path)
                connection = stack.enter_context(engine(opening._CLOSED))
                connection.execute(f"ATTACH '{path}' AS {opening.ATTACHED}")
                made[which] = path, connection, opening._checked(connection)
            path, connection, units = made[which]
            own = stack.enter_context(connection.cursor())
            place = f"{opening.ATTACHED}.{units.schema}"
            name_in_session(own, place, by_tables=units.by_tables)
            own.execute(f"USE {opening.ATTACHED}")
            return path, own

        yield copy_of


@pytest.mark.parametrize(
    ("which", "rule", "statement"),
    [
        (which, rule, statement)
        for which, cases in SOUND.items()
        for rule, statements in cases.items()
        for statement in statements
    ],
)
def test_a_release_that_contradicts_itself(
    which: str, rule: str, statement: str, copies: Copies
) -> None:
    """Changed in a transaction that is taken back; by commands below, and by their path."""
    path, connection = copies(which)
    connection.begin()
    try:
        alter(connection, statement)
        with pytest.raises(InputError) as caught:
            check_sound(connection, path)
    finally:
        connection.rollback()
    told = str(caught.value)
    assert told.startswith(f"{path}: ")
    assert rule in told


@pytest.mark.parametrize(
    ("rule", "statement"),
    [
        (rule, statement)
        for rule, statements in [*CASES_OF_OPENING.items(), *list(CASES.items())[:1]]
        for statement in statements
    ],
)
def test_a_release_that_is_refused_as_it_is_opened(
    rule: str, statement: str, sound: Path, tmp_path: Path
) -> None:
    path = changed(sound, tmp_path, said(statement))
    with pytest.raises(InputError) as caught:
        read_release(path)
    told = str(caught.value)
    assert told.startswith(f"{path}: ")
    assert rule in told


@pytest.mark.parametrize("which", SOUND)
def test_what_is_sound_stays_so(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The negative control: a copy in which every row was written anew."""
    sound: Path = request.getfixturevalue(which)
    places = {one: one for one in TABLES if one not in ("units", "metrics")}  # in their order
    places |= {one: f"$own.{one}" for one in ("drawn", "unit_facts")}
    again = [
        f"CREATE TEMP TABLE {one}_was AS FROM {place}; DELETE FROM {place}"
        for one, place in places.items()
    ]
    again += [
        f"INSERT INTO {place} FROM {one}_was ORDER BY random()" for one, place in places.items()
    ]
    path = changed(sound, tmp_path, said(*again))
    assert read_release(path).row_counts == read_release(sound).row_counts
    for one, other in zip(estimate_file(path), estimate_file(sound), strict=True):
        assert one.estimate == pytest.approx(other.estimate, abs=1e-9)


def test_every_command_says_so_in_one_line(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(sound, tmp_path, said("DELETE FROM pools"))
    for told in refusals(path, tmp_path, capsys):
        assert "not a sound release: pools: there is control, and another arm" in told
