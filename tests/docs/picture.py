"""The picture in the README: ``python -m tests.docs.picture`` makes it anew.

A real browser looks at the page of the demo's release. The randomness is real, so its numbers are
others each time; it is made anew when the page has changed, and not by the tests.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[2] / "docs" / "page.webp"
SIZE = (1280, 900)


def make_picture() -> None:
    """Release the demo, make its page and look at the top of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page, image = folder / "page.html", folder / "page.png"
        _clusterdp(folder, "demo")
        (latest,) = folder.glob("clusterdp-demo/releases/*/latest.duckdb")
        _clusterdp(folder, "report", str(latest), "-o", str(page))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox"]
            )
            seen = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
            seen.goto(page.as_uri())
            seen.screenshot(path=image)
            browser.close()
        Image.open(image).convert("RGB").save(PICTURE, quality=85, method=6)


def _clusterdp(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "flows.cli", *arguments], cwd=folder, check=True)


if __name__ == "__main__":
    make_picture()
