"""How a command failed, for programs: the document that ``--json`` prints then."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

from flows.runtime.interruption import was_interrupted
from flows.runtime.system import code_of
from schemas.errors import ClusterdpError
from schemas.visible import visible

_UsageError: Any = typer.BadParameter.__bases__[0]  # typer names it nowhere else


@dataclass(frozen=True)
class Failure:
    """Why a command failed; nothing in it is anybody's value."""

    code: int
    """The exit code."""
    kind: str
    """That of the error (:attr:`schemas.errors.ClusterdpError.kind`), or ``usage``,
    ``interrupted``, ``unforeseen``."""
    message: str
    """What standard error shows."""
    key: str | None = None
    """The key of the configuration, or the option, at fault; None where it is of none."""

    def as_json(self) -> dict[str, Any]:
        """The document: ``{"error": {"code", "kind", "key", "message"}}``."""
        told = {"code": self.code, "kind": self.kind, "key": self.key, "message": self.message}
        return {"error": told}


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for ``--json``, sound or not; what follows ``--`` is none."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def failure_of(error: BaseException) -> Failure | None:
    """What a command ended in; None for what is no failure of it.

    Of an error that nobody foresaw it says what the operating system said, or the kind alone.
    """
    if _is_interruption(error):
        return Failure(code_of(error), "interrupted", "interrupted")
    if isinstance(error, ClusterdpError):
        key = None if error.key is None else visible(error.key)
        named = "" if error.night is None else f"{error.night}: "
        return Failure(error.exit_code, error.kind, f"{named}{error}", key)
    if not isinstance(error, Exception):
        return None
    message = f"unforeseen failure ({type(error).__name__}); run again with --debug to see where"
    if isinstance(error, OSError) and error.strerror:
        message = visible(f"{error.filename}: " * bool(error.filename) + error.strerror)
    return Failure(code_of(error), "unforeseen", message)


def _is_interruption(error: BaseException) -> bool:
    """Whether this is Ctrl-C, or what Prefect makes of SIGTERM while a flow is running.

    Also what a query makes of them: a RuntimeError.
    """
    is_of_query = isinstance(error, RuntimeError) and was_interrupted()
    is_signal = type(error).__name__ == "TerminationSignal"
    return isinstance(error, KeyboardInterrupt) or is_signal or is_of_query


def usage_failure(end: SystemExit) -> Failure | None:
    """What was wrong with a command line that typer has refused; None if it has not."""
    error: Any = end.__context__
    is_usage = isinstance(error, _UsageError)
    if not is_usage or not isinstance(end.code, int):
        return None
    message = visible(" ".join(error.format_message().split()))
    return Failure(end.code, "usage", message, _option(error))


def _option(error: Exception) -> str | None:
    """The option or argument at fault, as it is spelt on the command line."""
    name = getattr(error, "option_name", None)
    parameter = getattr(error, "param", None)
    if name is None and parameter is not None:
        is_option = parameter.param_type_name == "option"
        of_argument = parameter.metavar or parameter.name.upper()
        name = max(parameter.opts, key=len) if is_option else of_argument
    return None if name is None else visible(str(name))
