"""What tables need is loaded for tables alone."""

import subprocess
import sys

from tests.conftest import Builder, a_log

DRIVERS = (
    *("deltalake", "pyiceberg", "adbc_driver_postgresql", "adbc_driver_flightsql"),
    *("adbc_driver_manager", "pyarrow.flight"),
)


def test_a_log_of_files_loads_no_driver(experiment: Builder) -> None:
    built = experiment(a_log(20))
    program = (
        "import sys\nfrom flows.check import check\ncheck(sys.argv[1])\n"
        f"print([name for name in {DRIVERS!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(built.config)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
