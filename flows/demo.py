"""`clusterdp demo`: release a real randomised experiment.

Rebecca Thornton's 2004 trial in rural Malawi ("The Demand for, and Impact of, Learning HIV Status",
American Economic Review 2008): people tested for HIV drew a cash incentive at random, or none, to
pick up their result. The data ship with the package `causaldata` (MIT licence).
"""

from pathlib import Path

import polars as pl

from flows.runtime.files import private_directory, public_directory
from schemas.errors import InputError

DIRECTORY = "clusterdp-demo"

_CONFIG = """\
# Thornton (2008): does a cash incentive make people pick up their HIV test result?
experiment = "thornton-hiv"

[source]
path = "raw/thornton_hiv.csv"

[columns]
unit = "person"            # the data have no person id: the row number stands in for one
arm = "incentive"
cluster = "village"
outcome = "picked_up_result"

[arms]
control = "none"
treatments = ["cash"]
same_shares = true         # incentives were drawn the same way in every village, so villages too
                           # small for a comparison of their own are compared together
shares = "undeclared"      # about one in four drew nothing; no exact share was announced

[outcome]
label = "Test result picked up"
values = [0, 1]
missing = 0                # no record of picking it up counts as not picked up

[privacy]
mechanism = "cluster-dp"
epsilon = 2.0
budget_epsilon = 6.0       # these people pay for three releases, and no more
min_stratum = 10           # villages with a smaller arm share one prior and its counts
"""


PERIOD = "2004"


def prepare(directory: Path) -> Path:
    """Write the demo's log and configuration, and return the configuration's path.

    The log lies in a folder of mode 0700, as raw outcomes do.
    """
    public_directory(directory)
    raw = private_directory(directory / "raw")
    _log().write_csv(raw / "thornton_hiv.csv")
    (raw / "thornton_hiv.csv").chmod(0o600)
    config = directory / "demo.toml"
    config.write_text(_CONFIG, encoding="utf-8")
    return config


def _log() -> pl.DataFrame:
    """The trial as a log: a row for everyone who was tested, which is who drew an incentive.

    Who is in the log follows from the test, before the outcome; never from the outcome itself.
    """
    try:
        from causaldata import thornton_hiv  # noqa: PLC0415 - an extra, only the demo needs it
    except ImportError:
        raise InputError(
            "the demo's data are not installed: run `make demo`, or pip install 'clusterdp[demo]'"
        ) from None
    table = thornton_hiv.load_pandas().data
    columns = {name: table[name].to_numpy() for name in ("villnum", "got", "any", "hiv2004")}
    rows = pl.DataFrame(columns).fill_nan(None).with_row_index("row", offset=1)
    return rows.filter(pl.col("hiv2004").is_not_null()).select(
        pl.format("row-{}", pl.col("row").cast(pl.String).str.zfill(4)).alias("person"),
        pl.col("villnum").cast(pl.Int64).alias("village"),
        pl.col("any")
        .replace_strict({0.0: "none", 1.0: "cash"}, default=None, return_dtype=pl.String)
        .alias("incentive"),
        pl.col("got").cast(pl.Int64).alias("picked_up_result"),
    )


NOTES = (
    "The trial has no person id: the row number stands in for one, and is what `unit_id` shows. "
    "Villages in which an arm has fewer than 10 people share one prior and its noisy counts; "
    "villages too small for a comparison of their own (fewer than 4 people of an arm to be "
    "expected) are compared together, as incentives were drawn the same way everywhere."
)
