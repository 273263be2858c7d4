"""The steps of a release: what they tell to run is there."""

import re

from deploy.supply.locked import ROOT


def section(title: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, rest = text.partition(f"## {title}\n")
    assert rest, title
    return rest.partition("\n## ")[0]


def test_every_target_that_is_named_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set[str]()
    for title in ("What it is made of", "A release, step by step"):
        named |= set(re.findall(r"`make ([a-z]+)", section(title)))
    assert named >= {"supply", "pythons", "lock", "test", "soak", "bench"}
    for target in named:
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), target


def test_continuous_integration_makes_what_is_shipped() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert text.splitlines()[-1] == "make supply"


def test_every_file_that_is_named_is_there() -> None:
    for title in ("What it is made of", "A release, step by step"):
        for name in re.findall(r"`((?:deploy|tests|\.ci)/[\w./-]+|[\w-]+\.lock)`", section(title)):
            assert (ROOT / name).exists(), name
