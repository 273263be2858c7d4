"""Licences: each locked package stands under one that is allowed, or fails by its name."""

from importlib.metadata import Distribution
from importlib.metadata._meta import SimplePath
from os import PathLike
from pathlib import Path

import pytest

from deploy.supply.__main__ import installed_here, judged
from deploy.supply.licences import POLICY, Policy
from deploy.supply.locked import LOCKS, ROOT, Locked, SupplyError, here, installed_by

THING = Locked("thing", "1.0", None, ("a" * 64,))


class Installed(Distribution):
    """Metadata as a package brings them."""

    def __init__(self, *lines: str) -> None:
        self.text = "\n".join(["Metadata-Version: 2.4", "Name: thing", "Version: 1.0", *lines])

    def read_text(self, filename: str | PathLike[str]) -> str | None:
        return f"{self.text}\n" if filename == "METADATA" else None

    def locate_file(self, path: str | PathLike[str]) -> SimplePath:
        raise FileNotFoundError(path)


def fault(*lines: str, is_run: bool = True, policy: Path = POLICY) -> str | None:
    return Policy(policy).judge(THING, Installed(*lines), is_run=is_run).fault


@pytest.mark.process  # it reads the metadata of two hundred packages
def test_every_locked_package_is_allowed() -> None:
    licences = judged(installed_here())
    assert {name: one.fault for name, one in licences.items() if one.fault} == {}
    assert set(licences) == set(installed_by([ROOT / name for name in LOCKS], here()))
    assert all(one.expression for one in licences.values())


@pytest.mark.parametrize(
    "lines",
    [
        ("License-Expression: MIT",),
        ("License-Expression: GPL-3.0-only OR MIT",),
        ("License-Expression: MPL-2.0 AND (Apache-2.0 OR AGPL-3.0-only)",),
        ("License: BSD-3-Clause",),
        ("License: mit license", "Classifier: License :: OSI Approved"),
        ("License: UNKNOWN", "Classifier: License :: OSI Approved :: ISC License (ISCL)"),
        ("License: (c)\n        all", "Classifier: License :: OSI Approved :: BSD License"),
    ],
)  # fmt: skip
def test_what_is_allowed_is_found_however_it_is_written(lines: tuple[str, ...]) -> None:
    assert fault(*lines) is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "its licence is not known: 'it names none'"),
        (("License: my own",), "its licence is not known: 'my own'"),
        (("License-Expression: AGPL-3.0-only",), "its licence is not allowed: AGPL-3.0-only"),
        (("License-Expression: MIT AND GPL-3.0-only",), "is not allowed: MIT AND GPL-3.0-only"),
        (("License: SSPL-1.0",), "its licence is not allowed: SSPL-1.0"),
        (("License-Expression: Apache-2.0 WITH LLVM-exception",), "is not allowed"),
        (
            (
                "Classifier: License :: OSI Approved :: MIT License",
                "Classifier: License :: OSI Approved :: BSD License",
            ),
            "its licence is not known",  # both, or either? nobody says
        ),
        (("Classifier: License :: Other/Proprietary License",), "its licence is not known"),
    ],
)
def test_any_other_is_refused(lines: tuple[str, ...], said: str) -> None:
    assert said in (fault(*lines) or "")


def test_a_package_that_is_not_installed_as_locked_is_refused() -> None:
    policy = Policy()
    missing = policy.judge(THING, None, is_run=True)
    assert missing.fault == "nothing of it is installed; run make test"
    other = Locked("thing", "2.0", None, ())
    found = policy.judge(other, Installed("License-Expression: MIT"), is_run=True)
    assert found.fault == "1.0 of it is installed; run make test"


def reviewing(folder: Path, says: str, *, tests_only: bool = False, name: str = "thing") -> Path:
    path = folder / "licences.toml"
    lines = [
        'allowed = ["MIT"]',
        "[names]",
        "[[reviewed]]",
        f'name = "{name}"',
        f'says = "{says}"',
        'licence = "GPL-3.0-only"',
        'why = "a program of its own"',
        *(["tests_only = true"] if tests_only else []),
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_reviewed_package_is_taken_as_reviewed_until_it_says_otherwise(tmp_path: Path) -> None:
    policy = reviewing(tmp_path, "my own; Free For Home Use")
    said = ("License: my own", "Classifier: License :: Free For Home Use")
    assert fault(*said, policy=policy) is None
    assert fault("License: my new one", policy=policy) == "its licence is not known: 'my new one'"


def test_what_tests_alone_may_use_is_refused_for_a_run(tmp_path: Path) -> None:
    policy = reviewing(tmp_path, "my own", tests_only=True)
    assert fault("License: my own", policy=policy, is_run=False) is None
    assert fault("License: my own", policy=policy) == "may be used by tests alone"


def test_a_review_of_what_is_not_locked_any_more_is_refused(tmp_path: Path) -> None:
    policy = Policy(reviewing(tmp_path, "my own", name="gone"))
    with pytest.raises(SupplyError, match="reviewed, but not locked: gone"):
        judged({}, policy)


@pytest.mark.process
def test_reviews_are_of_packages_that_need_one() -> None:
    """Whose metadata would else be refused."""
    about, packages = installed_here(), installed_by([ROOT / name for name in LOCKS], here())
    for name in Policy().reviewed:
        policy = Policy()
        del policy.reviewed[name]
        assert policy.judge(packages[name], about[name], is_run=False).fault is not None, name


def test_a_policy_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "licences.toml").write_text("allowed = [", encoding="utf-8")
    with pytest.raises(SupplyError, match=r"licences\.toml: cannot be read"):
        Policy(tmp_path / "licences.toml")
