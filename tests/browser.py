"""A real browser that looks at pages, and what it sees of them.

Modules that need it say ``pytest_plugins = ["tests.browser"]``. It is Debian's Chromium without a
window, steered by playwright, and ends with the module: while it runs, nothing else in this thread
can start an event loop. Where there is none, tests that ask for it are skipped.

PYTEST_DONT_REWRITE: nothing is asserted here, and modules both name it and import from it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from deploy.supply.engine import Npm, fetched
from deploy.supply.locked import ROOT
from flows.runtime.files import replace_file

PHONE = (360, 740)
DESKTOP = (1280, 900)
PAPER = (688, 1000)
"""What A4 less the page's own margins leaves, in CSS pixels."""

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")

AXE = Npm(
    "axe-core",
    "4.14.1",
    "MPL-2.0",
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    ("axe.min.js",),
)
"""Knows what keeps people from reading a page (WCAG)."""
_VIOLATIONS = """
async () => (await axe.run()).violations.map(one =>
  `${one.id} (${one.impact}): ${one.nodes.map(node => node.target.join(' ')).slice(0, 3)}`)
"""

_CONTRAST = """
() => {
  const parse = text => {
    const numbers = text.match(/[\\d.]+/g);
    if (!numbers) return [0, 0, 0, 0];
    const [r, g, b, a] = numbers.map(Number);
    return [r, g, b, a === undefined ? 1 : a];
  };
  const over = (top, below) =>
    [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const background = element => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      layers.push(parse(getComputedStyle(one).backgroundColor));
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const luminance = colour => {
    const [r, g, b] = colour.slice(0, 3).map(x => x / 255)
      .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  for (const element of document.body.querySelectorAll('*')) {
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || ['TITLE', 'DESC', 'STYLE'].includes(element.tagName.toUpperCase())) continue;
    if (element.getClientRects().length === 0) continue;
    const style = getComputedStyle(element);
    const behind = background(element);
    const inFigure = element instanceof SVGElement;
    const ink = over(parse(inFigure ? style.fill : style.color), behind);
    const [low, high] = [luminance(ink), luminance(behind)].sort((x, y) => x - y);
    const size = parseFloat(style.fontSize)
      * (inFigure ? Math.hypot(element.getScreenCTM().a, element.getScreenCTM().b) : 1);
    found.push({ text: element.textContent.trim().slice(0, 60),
      contrast: (high + 0.05) / (low + 0.05), size });
  }
  return found;
}
"""
"""Contrast (WCAG 2.2) and size in pixels of every text; what is painted within figures, under
their texts, does not count."""

_UNNAMED = """
() => [...document.querySelectorAll('svg, img, canvas')].filter(one => {
  // Drawn for the eye alone, with its numbers beside it; a part of a drawing.
  if (one.closest('svg[aria-hidden="true"], [aria-hidden="true"] svg')) return false;
  if (one.parentElement.closest('svg')) return false;
  const named = (one.getAttribute('aria-labelledby') || '').split(/\\s+/).filter(Boolean)
    .map(id => document.getElementById(id));
  const text = (one.getAttribute('aria-label') || one.getAttribute('alt') || '')
    + named.map(other => other ? other.textContent : '').join(' ');
  const role = one.tagName === 'IMG' || one.getAttribute('role') === 'img';
  return !role || !text.trim() || named.includes(null);
}).length
"""


@dataclass(frozen=True)
class Text:
    """A text as it is seen."""

    text: str
    contrast: float
    size: float


@dataclass
class Seen:
    """A page in the browser, and what went on while it was loaded."""

    page: Page
    requests: list[str] = field(default_factory=list)
    """Addresses that it asked for, its own excepted."""
    errors: list[str] = field(default_factory=list)
    """Errors on the console."""

    def texts(self) -> list[Text]:
        """Every text on the page."""
        return [Text(**one) for one in self.page.evaluate(_CONTRAST)]

    def hard_to_read(self, least: float = 4.5) -> list[Text]:
        """Texts with less contrast than that to what is behind them."""
        return [one for one in self.texts() if one.contrast < least]

    def violations(self, axe: str) -> list[str]:
        """What axe-core finds where all is open, in light and dark, on a phone and on a desk."""
        self.page.evaluate(axe)
        self.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        found = list[str]()
        for width, height in (PHONE, DESKTOP):
            self.page.set_viewport_size({"width": width, "height": height})
            for scheme in SCHEMES:
                self.page.emulate_media(color_scheme=scheme)
                found += self.page.evaluate(_VIOLATIONS)
        return found

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return self.number("document.documentElement.scrollWidth - innerWidth")

    def unnamed_figures(self) -> int:
        """How many figures have no accessible name."""
        return self.number(f"({_UNNAMED})()")

    def faults(self, least: float = 4.5) -> dict[str, object]:
        """Errors, requests, sideways scrolling, figures without a name, hard texts."""
        texts = self.texts()
        found = {
            "errors": self.errors,
            "requests": self.requests,
            "sideways": max(self.overflow(), 0),
            "unnamed": self.unnamed_figures(),
            "hard": [one for one in texts if one.contrast < least],
            "small": [one for one in texts if one.size < 9.5],
            "nothing": len(texts) <= 50,
        }
        return {kind: what for kind, what in found.items() if what}

    def disorder(self) -> dict[str, list[Any]]:
        """Heads that leave one out, ids that are there twice, and those that are missing."""
        levels = self.page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(one => +one.tagName[1])"
        )
        ids = self.page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
        dangling = self.page.evaluate(
            "[...document.querySelectorAll('[aria-labelledby], a[href^=\"#\"]')].flatMap(one =>"
            " (one.getAttribute('aria-labelledby') || one.hash.slice(1)).split(' '))"
            ".filter(id => !document.getElementById(id))"
        )
        found = {
            "heads": [one for one, after in pairwise([0, *levels]) if after > one + 1],
            "titles": [] if levels.count(1) == 1 else levels,
            "twice": [one for one in ids if ids.count(one) > 1],
            "missing": dangling,
        }
        return {kind: what for kind, what in found.items() if what}

    def number(self, script: str) -> int:
        """What an expression gives."""
        found: Any = self.page.evaluate(script)
        return int(found)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium on this machine")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, fetched once by npm; without npm, what asks for it is skipped."""
    kept = ROOT / "build" / "axe.min.js"
    if not kept.exists():
        if shutil.which("npm") is None:
            pytest.skip("there is no npm on this machine, which fetches axe-core")
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder, replace_file(kept, mode=0o644) as file:
            file.write(fetched(AXE, Path(folder))[0])
    return kept.read_text(encoding="utf-8")


@contextmanager
def seen(
    browser: Browser, path: Path, size: tuple[int, int] = DESKTOP, scheme: Scheme = "light"
) -> Iterator[Seen]:
    """Look at a page in a file."""
    address = path.absolute().as_uri()
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    try:
        page = context.new_page()
        page.set_default_timeout(900_000)  # milliseconds; the slowest machine takes less
        found = Seen(page)
        page.on("request", lambda one: found.requests.append(one.url))
        page.on("console", lambda one: found.errors.extend([one.text] * (one.type == "error")))
        page.on("pageerror", lambda one: found.errors.append(str(one)))
        page.goto(address, wait_until="load")  # with all that it asks for
        found.requests.remove(address)
        yield found
    finally:
        context.close()
