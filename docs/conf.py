"""How the documentation becomes a site: ``make docs``, without network.

Pages are the papers of the checkout where they lie, so that links between them work here and on the
site alike; proofs stay beside the code that they prove. Pages of reference are made of the code.
"""

import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from reference_pages import PAGES  # noqa: E402 - it lies in this folder

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = _PROJECT["name"]
release = version = _PROJECT["version"]
project_copyright = "the maintainers. Licence: Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "deploy/*.md", "flows/*.md", "privatizers/**.md"]
include_patterns += ["estimators/*.md", "schemas/*.md", "tests/*.md", "tests/nights/*.md"]
exclude_patterns = [".*", "site", "build", "**/__pycache__", "docs/_*"]

myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # papers that begin with a list of parts

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"clusterdp {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]
html_additional_pages = {"index": "front.html"}
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # fetched from the pages, which a browser allows on servers alone
html_theme_options: dict[str, object] = {"top_of_page_buttons": []}
pygments_style = "default"
pygments_dark_style = "github-dark"


def _made_of_code(_: Sphinx, page: str, source: list[str]) -> None:
    """Put what is made of the code in place of the line that asks for it."""
    name = page.removeprefix("docs/reference/")
    if page.startswith("docs/reference/") and name in PAGES:
        source[0] = source[0].replace("<!-- made of the code -->", PAGES[name]())


def _bars(*arguments: object) -> None:
    """Leave |y| in a docstring as it is: to docutils it would be the name of a substitution."""
    lines = arguments[-1]
    if isinstance(lines, list):
        lines[:] = [line.replace("|", "\\|") for line in lines]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _made_of_code)
    app.connect("autodoc-process-docstring", _bars)
