"""What to ask several releases in a DuckDB of one's own: SQL that runs as it is printed."""

from typing import Any

from flows.operate.series.nights import Nights
from flows.released.file.sql import quote_name, text
from flows.released.night import Night
from schemas.tables import WEIGHT, debiased, randomised

_HEAD = """\
-- Every release of {experiment}, put together; run it in a DuckDB of your own.
SET autoinstall_known_extensions = false;
SET autoload_known_extensions = false;
"""
_TAIL = """\
SET enable_external_access = false;
-- For example:
SELECT period, arm, count(*) AS n_units FROM units GROUP BY ALL ORDER BY ALL;
"""


def nights_json(nights: Nights) -> dict[str, Any]:
    """The document of ``clusterdp inspect --json`` for a folder."""
    return {
        "experiment": nights.first.manifest.experiment,
        "arms": list(nights.arms),
        "notes": list(nights.notes),
        "withdrawn": [one.release_id for one in nights.withdrawn],
        "closing": None if nights.closing is None else nights.closing.as_json(),
        "releases": [
            {
                **night.manifest.row,
                "created_at": night.manifest.created_at.isoformat() + "Z",
                "path": str(night.path),
            }
            for night in nights.nights
        ],
    }


def series_sql(nights: Nights) -> str:
    """SQL that attaches every release read-only, with views of all units and all estimates."""
    every = list(enumerate(nights.nights, start=1))
    attached = [
        f"ATTACH {text(str(night.path))} AS {_name(number)} (READ_ONLY);" for number, night in every
    ]
    units = [_units(number, night) for number, night in every]
    estimates = [
        f"SELECT {_said(night)}, * FROM {_name(number)}.main.estimates"  # noqa: S608 - names are ours
        for number, night in every
    ]
    experiment = nights.first.manifest.experiment
    parts = [
        _HEAD.format(experiment=experiment),
        *attached,
        "CREATE TEMP VIEW units AS",
        "\nUNION ALL BY NAME ".join(units) + ";",
        "CREATE TEMP VIEW estimates AS",
        "\nUNION ALL BY NAME ".join(estimates) + ";",
        _TAIL,
    ]
    return "\n".join(parts)


def _name(number: int) -> str:
    return f"night_{number}"


def _said(night: Night) -> str:
    manifest = night.manifest
    return f"{text(manifest.period)} AS period, {text(manifest.release_id)} AS release_id"


def _units(number: int, night: Night) -> str:
    """The units of one release; ids and labels as text, whatever they are in the file."""
    outcomes = [one.metric for one in night.manifest.outcomes]
    columns = [quote_name(form(one)) for one in outcomes for form in (str, randomised, debiased)]
    labels = [f"{name}::VARCHAR AS {name}" for name in ("unit_id", "cluster", "arm")]
    every = ", ".join([_said(night), *labels, *columns, WEIGHT])
    return f"SELECT {every} FROM {_name(number)}.main.units"  # noqa: S608 - names are quoted
