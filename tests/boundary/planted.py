"""Logs with canaries in them: what is planted, and all that is to be looked for because of it."""

import itertools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import polars as pl

from flows.config.resolve import resolve_release
from flows.ledger.place import KEY_FILE as ACCOUNT_KEY
from flows.ledger.place import ledger_place
from flows.ledger.units.account_key import read_account_key
from flows.raw.fingerprint import KEY_FILE
from flows.raw.ingest import ingest
from flows.raw.units.private_clusters import known_sizes
from flows.raw.validate import validate
from tests.boundary.canary import Canary, Number, Secret, marked
from tests.conftest import Builder, Experiment
from tests.support.known_again import fingerprint_of

_numbers = itertools.count()


@dataclass(frozen=True)
class Planted:
    """An experiment whose log has canaries in it, and all that is to be looked for."""

    built: Experiment
    secrets: tuple[Secret, ...]

    def named(self, name: str) -> Secret:
        """One of the secrets."""
        (found,) = (secret for secret in self.secrets if secret.name == name)
        return found


LOW_AND_HIGH = {"values": [0, 1_000_000]}
"""A grid with the canary inside its range, so that nothing is clipped before outcomes are drawn."""

CLIPPED = {"values": [0, 1, 2]}

Ids = Literal["plain", "hashed words", "hashed numbers"]


def plant(
    experiment: Builder,
    file: str = "log.parquet",
    outcome: dict[str, Any] = LOW_AND_HIGH,
    ids: Ids = "hashed words",
    privacy: dict[str, Any] | None = None,
    *,
    facts: bool = False,
    repeated: bool = False,
) -> Planted:
    """Build an experiment with one faultless row and one that is set aside full of canaries.

    With ``facts`` it has an attribute, and households whose names are canaries, too. Where units
    are ``repeated``, the faultless row comes again with another outcome, which is not used.
    """
    outcomes, covariate = Canary.hatch("outcome"), Canary.hatch("covariate")
    kept, aside = Canary.hatch("unit"), Canary.hatch("unit")
    as_text = not file.endswith(".parquet")
    rows: list[tuple[Any, ...]] = [
        (f"c{i:02d}", "mail" if i % 2 else "none", "east", float(i // 2 % 2), 1.5)
        for i in range(24)
    ]
    rows.append((kept.word, "mail", "east", outcomes.value, covariate.value))
    rows.append((aside.word, "fax", "east", outcomes.value, covariate.value))
    unused = Canary.hatch("outcome")
    if repeated:
        rows.append((kept.word, "mail", "east", unused.value, covariate.value))
    if ids == "hashed numbers":
        units = [*range(24), kept.value, aside.value]
        rows = [(unit, *row[1:]) for unit, row in zip(units, rows, strict=True)]
    if as_text:
        rows.append((f"{kept.word}2", "mail", "east", outcomes.word, covariate.word))
        rows.append((f"{aside.word}2", "fax", "east", outcomes.word, covariate.word))
        rows = [(*row[:3], *map(str, row[3:])) for row in rows]
    log = pl.DataFrame(rows, ["customer", "variant", "region", "clicks", "income"], orient="row")

    hashed = ids != "plain"
    publish = {"unit_id": "keyed-hash", "key_file": "ids.key"} if hashed else {}
    home = Canary.hatch("unit")
    columns: dict[str, Any] = {}
    if facts:
        log = log.with_columns(
            pl.concat_str(pl.lit("land "), pl.int_range(pl.len()) % 3).alias("country"),
            pl.when(pl.col("variant") == "mail")
            .then(pl.lit(home.word))
            .otherwise(pl.concat_str(pl.lit("h"), pl.int_range(pl.len())))
            .alias("home"),
        )
        columns = {"attributes": ["country"], "assigned_by": "home"}
    built = experiment(
        log,
        file,
        source={"repeated": "first"} if repeated else {},
        outcome=outcome,
        publish=publish,
        privacy=privacy or {},
        columns=columns,
    )
    secrets = [
        *([home.secret("household")] if facts else []),
        *([unused.secret("outcome that is not used")] if repeated else []),
        outcomes.secret("outcome"),
        covariate.secret("covariate"),
        aside.secret("id set aside", home="quarantine/trial/*.parquet"),
    ]
    if hashed:
        key = os.urandom(32).hex().encode()
        (built.folder / "ids.key").touch(mode=0o600)
        (built.folder / "ids.key").write_bytes(key)
        secrets += [kept.secret("id"), marked("key of ids", key, home="ids.key")]
    return Planted(built, (*secrets, *digests_of(built)))


def plant_several(
    experiment: Builder,
    ending: str = "parquet",
    mechanism: str = "uniform-prior-dp",
    *,
    events: bool = False,
) -> Planted:
    """Build an experiment of three outcomes, two of numbers and one of texts, a canary in each.

    Text formats hold a word where a number should be, too; the outcome of texts has one that is
    none of the declared. There are an attribute and households, some of these set aside. With
    ``events`` outcomes stand in a log of events, which has ids.
    """
    clicks, spend, answer, which = (Canary.hatch() for _ in range(4))
    home, aside = Canary.hatch("unit"), Canary.hatch("unit")
    units = [f"c{number:02d}" for number in range(48)]
    roster = pl.DataFrame({"customer": [*units, aside.word]}).with_row_index("n")
    roster = roster.select(
        "customer",
        variant=pl.Series(["none", "mail"] * 24 + ["fax"]),
        region=pl.lit("east"),
        country=pl.concat_str(pl.lit("land "), pl.col("n") % 3),
        # The last two units are of one household, and in two arms.
        home=pl.when(pl.col("n") < 46)
        .then(pl.concat_str(pl.lit("h"), pl.col("n")))
        .otherwise(pl.lit(home.word)),
    )
    values = pl.DataFrame({"customer": [*units[:44], units[46], aside.word]}).with_columns(
        clicks=pl.Series([float(n % 2) for n in range(44)] + [clicks.value] * 2),
        spend=pl.Series([float(n % 3) for n in range(44)] + [spend.value] * 2),
        answer=pl.Series([("no", "yes")[n % 2] for n in range(44)] + [answer.word] * 2),
    )
    more = pl.DataFrame(
        {"customer": units[44:46], "clicks": clicks.value, "spend": spend.value}
    ).with_columns(answer=pl.lit(answer.word))
    values = pl.concat([values, more])
    if ending != "parquet":
        words = {"clicks": clicks.word, "spend": spend.word, "answer": answer.word}
        values = values.with_columns(pl.col("clicks", "spend").cast(pl.String))
        values = pl.concat([values, pl.DataFrame({"customer": [units[47]], **words})])
    outcomes: list[dict[str, Any]] = [
        {"name": "clicked", "column": "clicks", **LOW_AND_HIGH},
        {"name": "spent", "column": "spend", "low": 0, "high": 1_000_000, "levels": 5},
        {"name": "answered", "column": "answer", "values": ["no", "yes"]},
    ]
    columns = {"outcome": None, "attributes": ["country"], "assigned_by": "home"}
    source: dict[str, Any] = {}
    if events:
        start = datetime(2026, 11, 20, tzinfo=UTC)
        times = {"seen": pl.lit(start.isoformat())}
        numbered = pl.concat_str(pl.lit("e"), pl.int_range(pl.len()))
        happened = values.with_columns(
            event=pl.when(pl.int_range(pl.len()) == 45)
            .then(pl.lit(which.word))
            .otherwise(numbered),
            **times,
        )
        files = {f"log.{ending}": roster.with_columns(**times), f"log.events.{ending}": happened}
        source = {"grain": "event", "outcomes_path": f"log.events.{ending}"}
        columns |= {"time": "seen", "event": "event"}
        for one in outcomes:
            one["aggregate"] = "max"
    else:
        files = {f"log.{ending}": roster.join(values, on="customer", how="left")}
    built = experiment(
        files,
        f"log.{ending}",
        source=source,
        columns=columns,
        outcome=None,
        outcomes=outcomes,
        ratios=[{"name": "per_click", "numerator": "spent", "denominator": "clicked"}],
        privacy={"mechanism": mechanism, "epsilon": 6.0},
    )
    secrets = [
        clicks.secret("clicks"),
        spend.secret("spend"),
        answer.secret("answer"),
        home.secret("household"),
        aside.secret("id set aside", home="quarantine/trial/*.parquet"),
        *([which.secret("event id")] if events else []),
    ]
    return Planted(built, (*secrets, *digests_of(built)))


N_EVENTS = 71_993
"""Outcome events in the log of :func:`plant_events`."""

WINDOW = 7 * 86_400


def plant_events(
    experiment: Builder, ending: str = "parquet", **sections: dict[str, Any]
) -> Planted:
    """Build an experiment of grain "event" with canaries in its log of events.

    They are an event's value, what two events add up to, an event's id, its time, how long that is
    after the exposure, the id of a unit that was never exposed, and how many events there are.
    """
    value, total, which, stranger = (Canary.hatch() for _ in range(4))
    moment = datetime(2026, 11, 20, 3, 14, 15, 926_000 + next(_numbers), UTC)
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    units = [f"c{number:02d}" for number in range(24)]
    seen = pl.DataFrame({"customer": [*units, "c00"]}).with_columns(
        variant=pl.Series(["none", "mail"] * 12 + ["mail"]), region=pl.lit("east"), seen=start
    )
    planted = [
        ("c01", moment, value.value, which.word),
        ("c02", start, total.value - 1000.25, "a"),
        ("c02", moment + timedelta(hours=1), 1000.25, "b"),
        (f"{stranger.word}X", moment, value.value, "c"),
    ]
    rest = pl.DataFrame({"place": range(N_EVENTS - len(planted))}).select(
        pl.format("c{}", (pl.col("place") % 20 + 3).cast(pl.String).str.zfill(2)).alias("customer"),
        (pl.lit(start) + pl.duration(seconds=pl.col("place") * 10)).alias("seen"),
        (pl.col("place") % 2).cast(pl.Float64).alias("clicks"),
        pl.format("e{}", "place").alias("event"),
    )
    happened = pl.concat([pl.DataFrame(planted, rest.schema, orient="row"), rest])
    if ending != "parquet":
        spelling = pl.col("seen").dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        happened, seen = happened.with_columns(spelling), seen.with_columns(spelling)
    settings: dict[str, dict[str, Any]] = {
        "source": {
            "grain": "event",
            "outcomes_path": f"log.events.{ending}",
            "window": f"{WINDOW}s",
        },
        "columns": {"time": "seen", "event": "event"},
        "outcome": LOW_AND_HIGH | {"aggregate": "sum"},
        **sections,
    }
    files = {f"log.exposures.{ending}": seen, f"log.events.{ending}": happened}
    built = experiment(files, f"log.exposures.{ending}", **settings)
    since = int((moment - start) / timedelta(microseconds=1))
    secrets = [
        value.secret("value"),
        total.secret("outcome"),
        which.secret("event id"),
        stranger.secret("unexposed id"),
        marked("event time", *_of_a_moment(moment)),
        marked("since", *(struct.pack(f"{order}q", since) for order in "<>"), str(since).encode()),
        Number("number of events", (), number=N_EVENTS),
    ]
    return Planted(built, (*secrets, *digests_of(built)))


def _of_a_moment(moment: datetime) -> Iterator[bytes]:
    whole = int((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
    for separator in "T ":
        yield f"{moment:%Y-%m-%d{separator}%H:%M:%S.%f}".encode()
    yield str(whole).encode()
    for order in "<>":
        yield struct.pack(f"{order}q", whole)


def digests_of(built: Experiment) -> list[Secret]:
    """What the ledger will know the rows by, and the key that this depends on."""
    config = built.load()
    rows, _, _ = validate(config.log_facts, ingest(config.log_source, "once"))
    chosen = resolve_release(config, known_sizes(config.log_facts, rows))
    digests = vars(fingerprint_of(chosen.config, rows, chosen.designs))
    found = [
        marked(f"digest of {name}", text.encode(), bytes.fromhex(text), home="ledger.sqlite")
        for name, digest in digests.items()
        for text in [digest.partition(":")[2]]
    ]
    key = (built.folder / "quarantine" / KEY_FILE).read_bytes()
    derived = read_account_key(ledger_place(config), config.terms, begun=False).secret
    of_accounts = (built.folder / ACCOUNT_KEY).read_bytes()
    return [
        *found,
        marked("digest key", key, key.hex().encode(), home=f"quarantine/{KEY_FILE}"),
        marked("account key", of_accounts, of_accounts.hex().encode(), home=ACCOUNT_KEY),
        marked("key of a population", derived, derived.hex().encode()),
    ]
