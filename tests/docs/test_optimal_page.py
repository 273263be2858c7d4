"""What docs/optimal.md says of two tables, and its picture of them."""

import re
from pathlib import Path

import pytest

from tests.docs.tables_picture import GUESS, PICTURE, make_picture, tables

PAGE = PICTURE.with_name("optimal.md")


def test_the_picture_is_what_its_script_draws(tmp_path: Path) -> None:
    made = tmp_path / "optimal.svg"
    make_picture(made)

    def marks(path: Path) -> list[float]:
        """Every number of the drawing, to a pixel: other machines differ in the last digits."""
        text = re.sub(r'"[^"]*#[^"]*"', "", path.read_text(encoding="utf-8"))
        return [round(float(one)) for one in re.findall(r"-?\d+\.\d+", text)]

    assert marks(made) == pytest.approx(marks(PICTURE), abs=2)


def test_the_page_states_the_noise_of_both() -> None:
    text = PAGE.read_text(encoding="utf-8")
    noises = [float(GUESS @ table.noise) for table in tables().values()]
    assert noises[1] < 0.8 * noises[0]
    for noise in noises:
        assert f"{noise:.1f}" in text
