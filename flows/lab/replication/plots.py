"""Figures with our settings and nobody else's: no file of the user's changes what is drawn."""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from flows.runtime.files import public_directory, replace_file
from schemas.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {"Software": None}}


@contextmanager
def plain_matplotlib(settings: Mapping[Any, Any]) -> Iterator[None]:
    """Draw with Matplotlib's defaults and ``settings``; the same figure gives the same bytes.

    ``svg.hashsalt`` among them names the figure: ids in it hang on nothing else.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # on its caches: harmless
    with mpl.rc_context(), warnings.catch_warnings():
        # It measures text by a typeface that lacks many scripts; whoever looks at it has others.
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", **settings})
        yield


def save_figure(figure: "Figure", path: Path) -> None:
    """Write an SVG or PNG, as the path's ending says; raises InputError where that fails."""
    kind = path.suffix[1:].lower()
    try:
        with replace_file(path, 0o644) as file:
            figure.savefig(file, format=kind, metadata=_METADATA[kind])
    except OSError as error:
        raise InputError(f"{path}: cannot write the figure ({error.strerror})") from None


def folder_for_figures(folder: Path) -> Path:
    """Make the folder if need be, and return it; raises InputError if none can be put there."""
    public_directory(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot write into this folder; name another with --output")
    return folder.absolute()
