"""The errors that a person can act on, and the exit code of each kind.

Errors about people's data name the file or the rule and a count, never a value; errors about our
own parameters name the key, the value and what is allowed.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar, cast

from schemas.visible import visible

E = TypeVar("E", bound=BaseException)

_LONGEST = 80  # characters of a value that a message shows
_MOST = 19  # problems that are told after the first


class ClusterdpError(Exception):
    """A failure that a person can act on; its text is what the command line prints."""

    exit_code: ClassVar[int] = 1
    night: str | None = None
    """The experiment and period whose run it ended; None where it ended none."""
    kind: ClassVar[str] = "failed"
    """What it is, in one word, for programs that read ``--json``."""
    key: str | None = None
    """The key of the configuration, or the option, that it is about; None where it is of none."""
    _breaks: ClassVar[str] = ""

    def __str__(self) -> str:
        """Return the text with invisible characters escaped, since names come from others."""
        return visible(super().__str__(), keep=self._breaks)


class ConfigError(ClusterdpError):
    """A configuration, command line or parameter that cannot be used."""

    exit_code = 2
    kind = "config"
    key: str

    def __init__(self, key: str, problem: str) -> None:
        """Take the ``key`` at fault and its ``problem``, which says what to do."""
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem

    def __reduce__(self) -> tuple[type["ConfigError"], Any]:
        """Pickle both parts, as the text alone does not rebuild the error."""
        return type(self), (self.key, self.problem)


class SeveralConfigError(ConfigError):
    """Several problems of a configuration, a line each; ``key`` and ``problem`` are the first's."""

    _breaks = "\n"

    def __init__(self, key: str, problem: str, others: tuple[tuple[str, str], ...]) -> None:
        """Take the first problem with its key, and the ``others``."""
        super().__init__(key, problem)
        self.others = others
        told = [f"{key}: {problem}", *(f"{key}: {problem}" for key, problem in others[:_MOST])]
        if len(others) > _MOST:
            told.append(f"and {len(others) - _MOST:,} more")
        self.args = ("\n".join(visible(line) for line in told),)

    @staticmethod
    def of(found: list[tuple[str, str]]) -> ConfigError:
        """The error of these problems, the plain one where there is only one."""
        first, *others = found
        return SeveralConfigError(*first, tuple(others)) if others else ConfigError(*first)

    def __reduce__(self) -> tuple[type["ConfigError"], Any]:
        """Pickle all parts, as the text alone does not rebuild the error."""
        return type(self), (self.key, self.problem, self.others)


class InputError(ClusterdpError):
    """A log, or another input file, that cannot be used."""

    exit_code = 2
    kind = "input"

    def __init__(self, message: str, *, key: str | None = None) -> None:
        """Take what is wrong and what to do, and the ``key`` by which it was judged, if any."""
        super().__init__(message)
        if key is not None:
            self.key = key


class NoFileError(InputError):
    """A log without a file: it may come yet."""


class BudgetError(ClusterdpError):
    """A release that exceeds its population's budget; nothing was drawn or written."""

    exit_code = 3
    kind = "budget"
    _breaks = "\n"


class ConflictError(ClusterdpError):
    """The release exists already; nothing was touched."""

    exit_code = 4
    kind = "conflict"


class StepError(ClusterdpError):
    """A step that failed in an unexpected way; the text holds no value of anybody's row."""

    exit_code = 1


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Ask for the known name that is spelt most alike, in whatever case; empty where none is."""
    alike = {one.casefold(): one for one in known}
    near = get_close_matches(in_short(name).casefold(), alike, n=1)
    return f"; did you mean {shown(alike[near[0]])}?" if near else ""


def shown(value: object) -> str:
    """Return a value of a configuration or a public file as a message shows it, shortened."""
    if isinstance(value, int) and value.bit_length() > 8 * _LONGEST:  # thousands cannot be written
        return "a number with hundreds of digits"
    if isinstance(value, list | tuple | dict) and len(value) > _LONGEST:
        return f"{len(value):,} values"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # it holds such a number, or holds itself
        return f"a {type(value).__name__}"
    return in_short(text)


def bare(error: E) -> E:
    """Return the same error without traceback, cause, context and notes.

    It uses the error's own ``__reduce__``. ``copy.copy`` would ask ``copyreg`` first, where other
    libraries (tblib, which Dask needs) register copies with tracebacks and causes.
    """
    make, arguments, *state = cast("tuple[Any, ...]", error.__reduce__())
    copy: E = make(*arguments)
    for attributes in state:
        vars(copy).update({k: v for k, v in attributes.items() if k != "__notes__"})
    return copy


def in_short(text: str) -> str:
    """Return the text, cut to the length that a message shows."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
