"""The explorer: the page of a release with the release itself inside, and DuckDB to ask it.

The engine is a file of its own, ``engine.gz`` beside this module, which ``make explorer`` makes of
two packages of npm, pinned by version and digest: scripts, and behind them, from the first zero on,
the module of WebAssembly. ``explorer.js`` is what we add. The page's policy allows that one script,
by its digest, and no request at all.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from flows.released.file.macros import LEVEL
from flows.released.page.contents import Contents
from flows.released.page.cost import forecasts
from flows.released.page.results import Answered, about
from flows.released.page.rows import Finding, Group, Head, Verdict, results
from flows.released.page.words import called, level_words
from schemas.errors import InputError

ENGINE: Final = Path(str(files("flows.released.page"))) / "engine.gz"
"""Where ``make explorer`` puts the engine."""
DIGEST: Final = "45a792257ee21340fbbaacd502b1c5439fc9c2a78f935f66f76e9ebc1c8889fd"
"""SHA-256 of the engine as it is unpacked."""
_FORECASTS: Final = np.geomspace(0.1, 10.0, 41).round(2).tolist()
"""At which ε the slider stands, besides the release's own."""


def read_engine(path: Path | None = None) -> bytes:
    """Return the engine, packed, from ``path`` or, None, from its place beside this module.

    Raises InputError where there is none, or it is not the one that this program was made for.
    """
    try:
        packed = (path or ENGINE).read_bytes()
        if sha256(gzip.decompress(packed)).hexdigest() == DIGEST:
            return packed
        why = "is not the engine that this version of the program was made for"
    except FileNotFoundError:
        why = "there is no such file"
    except (OSError, EOFError, ValueError) as error:
        why = f"cannot be read ({getattr(error, 'strerror', None) or type(error).__name__})"
    raise InputError(
        f"{(path or ENGINE).absolute()}: {why}. In a checkout of clusterdp `make explorer` "
        "fetches the engine there, and wheels that are built after that carry it; --engine FILE "
        "takes the engine.gz of another place"
    )


def explorer(
    release: Path, packed: bytes, contents: Contents, found: Sequence[Answered]
) -> dict[str, Any]:
    """Return what the page of a release needs to be asked, for ``templates/explorer.html``."""
    script = files("flows.released.page").joinpath("explorer.js").read_text(encoding="utf-8")
    script = f"\n{script}"
    facts = {
        "release": contents.manifest.release_id,
        "metrics": {
            one.contents.metric.metric: {
                "name": called(one.contents.scale).striptags(),
                "about": about(one.contents.metric, one.contents.scale).striptags(),
                "factor": one.contents.scale.factor,
                "step": one.contents.scale.step,
                "direction": one.contents.metric.direction,
            }
            for one in found
        },
        "forecasts": forecasts(contents, found, _FORECASTS),
    }
    example = Finding(
        name="", verdict=Verdict("calm", "", note="–"), estimate=0.0, low=-1.0, high=1.0
    )
    group = Group(name="", about="", findings=[example])
    head = Head("Effects in your segments", "Segment", "", level_words(LEVEL))
    return {
        "digest": b64encode(sha256(script.encode()).digest()).decode(),
        "script": Markup(script),  # noqa: S704 - our own
        "facts": Markup(json.dumps(facts).replace("<", "\\u003c")),  # noqa: S704 - no markup in it
        "engine": Markup(b64encode(packed).decode()),  # noqa: S704 - no markup in it
        "release": Markup(b64encode(gzip.compress(release.read_bytes(), mtime=0)).decode()),  # noqa: S704
        "rows": results("asked", [group], head),
    }
