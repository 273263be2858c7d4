"""The list of commands in the program's help: each under the heading that it was given."""

from itertools import groupby
from typing import Any

from typer.core import TyperGroup


class UnderHeadings(TyperGroup):
    """A program whose help lists commands under their headings (``rich_help_panel``)."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer hands it in
        """Write a line a command, headings and commands in the order that they were given in."""
        widest = max(map(len, self.commands))
        room = formatter.width - widest - 6  # columns for what a command does
        for heading, named in groupby(self.commands.items(), _heading):
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(widest), one.get_short_help_str(room)) for name, one in named]
                )


def _heading(named: tuple[str, Any]) -> str:
    _, command = named
    return str(command.rich_help_panel)
