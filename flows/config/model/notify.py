"""``[notify]``: who is told of periods that need a person, and of what."""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from flows.config.model.sections import ConfigSection, Name, Number, Texts, as_tuple

Event = Literal["failed", "refused", "late", "lost", "sample_ratio", "set_aside", "one_value"]
"""What may be told of a period; nothing in it hangs on an outcome, but by what was released."""

EVENTS: tuple[Event, ...] = get_args(Event)


class EmailSection(ConfigSection):
    """How notifications are mailed."""

    smtp: Name
    """The server that takes mail, as HOST or HOST:PORT; the port is 587, of "tls" 465, else 25."""
    sender: Name = Field(alias="from")
    """The address that mails come from."""
    to: Texts
    """The addresses that they go to."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """TLS after the greeting, from the start, or (for a server of this machine) none."""
    user: Name | None = None
    """The name to log in with; None for no login."""
    password_file: Name | None = None
    """The file with its password, in one line, mode 0600."""


class NotifySection(ConfigSection):
    """Who is told where a period needs a person: once for each period and event."""

    webhook_file: Name | None = None
    """A file (mode 0600) with the URL, in one line, that a JSON document is posted to; the URL is
    a secret."""
    email: EmailSection | None = None
    """``[notify.email]``: how notifications are mailed."""
    on: Annotated[tuple[Event, ...], BeforeValidator(as_tuple)] = EVENTS
    """What is told: "failed", "refused" (by the budget), "late" (due, and its files have not come),
    "lost", "sample_ratio" (arm sizes do not fit), "set_aside", "one_value" (a released file tells
    of no more than one value of an outcome)."""
    set_aside_above: Annotated[Number, Field(ge=0, lt=1)] = 0.05
    """The share of a log's rows with a fault above which "set_aside" is told of a release."""
