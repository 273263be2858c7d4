"""What is left out of an error before it leaves the operator's hands."""

import pytest

from flows.orchestration.leaving import without_places


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("done/a.jsonl: line 7 does not parse", "done/a.jsonl: a line does not parse"),
        ("line 1,234,567 is longer than 256 MB", "a line is longer than 256 MB"),
        (
            "a.csv: cannot be read as CSV: row 31 does not parse (the header is row 1)",
            "a.csv: cannot be read as CSV: a row does not parse",
        ),
        ("a: line 3; b: row 4", "a: a line; b: a row"),
        ("(at line 12, column 5)", "(at line 12, column 5)"),  # of a configuration
        ("12 lines, 4 rows; outline 3 has 2 arms", "12 lines, 4 rows; outline 3 has 2 arms"),
        ("line 3, which is broken", "a line, which is broken"),
    ],
)
def test_places_in_files_are_left_out(text: str, expected: str) -> None:
    assert without_places(text) == expected
