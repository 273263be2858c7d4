"""What the page of a release is made of, read as the page itself reads it; and what a page says."""

import html
import re
from pathlib import Path

from flows.released.estimates.release import estimate_open
from flows.released.file.read import open_release
from flows.released.page.contents import Contents, contents_of


def read_contents(path: Path) -> Contents:
    """Read what the report needs of the release at ``path``."""
    with open_release(path) as connection:
        return contents_of(connection, path, estimate_open(connection))


def text_of(page: Path | str) -> str:
    """What a page says, without its markup."""
    source = page if isinstance(page, str) else page.read_text(encoding="utf-8")
    body = re.sub(r"<style>.*?</style>", "", source, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]*>", "", body)).replace("\u00a0", " ")
    return re.sub(r"[ \n]+", " ", text)
