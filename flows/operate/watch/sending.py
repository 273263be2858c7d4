"""Sending a notification: a JSON document posted to a webhook, or a mail; within seconds or never.

What went wrong is told without the URL, which is a secret, and without what a server answered.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flows.config.model.experiment import Config
from flows.config.model.notify import EmailSection
from flows.config.rules.notify import mail_password, server_of, webhook_url
from schemas.errors import ConfigError

SECONDS = 5.0
"""How long all that is sent at once may take."""
_NO_ANSWER = "no answer in time"


@dataclass(frozen=True)
class Notice:
    """What people are told of a period."""

    title: str
    """One line, of names of ours."""
    text: str
    document: Mapping[str, Any]


def send(config: Config, notice: Notice, silent: set[str], seconds: float = SECONDS) -> list[str]:
    """Send a notice by every way that is configured; returns what went wrong, by way.

    All ways are tried at the same time, and none is waited for longer than ``seconds``. One that
    gave no answer is put among the ``silent``, which are not tried.
    """
    notify = config.notify
    ways: dict[str, Callable[[], None]] = {}
    if notify is not None and notify.webhook_file is not None:
        ways["webhook"] = lambda: _post(config, notice, seconds)
    email = None if notify is None else notify.email
    if email is not None:
        ways["email"] = lambda: _mail(config, email, notice, seconds)
    problems: dict[str, str | None] = dict.fromkeys(ways, _NO_ANSWER)

    def attempt(name: str) -> None:
        problems[name] = _problem(ways[name])

    clock = threading.Event()
    timer = threading.Timer(seconds, clock.set)
    tries = [threading.Thread(target=attempt, args=(name,)) for name in ways if name not in silent]
    for one in (timer, *tries):
        one.daemon = True  # a name that never resolves holds up nobody
        one.start()
    for one in tries:
        while one.is_alive() and not clock.is_set():
            one.join(0.02)
    timer.cancel()
    known = dict(problems)
    silent.update(name for name, problem in known.items() if problem == _NO_ANSWER)
    return [f"{name}: {problem}" for name, problem in known.items() if problem is not None]


def _problem(act: Callable[[], None]) -> str | None:
    try:
        act()
    except ConfigError as error:
        return str(error)
    except OSError as error:  # of the network, of TLS, of HTTP and SMTP as well
        return _said(error)
    except Exception as error:
        return type(error).__name__
    return None


def _said(error: OSError) -> str:
    """What an error says, if that is the system's or a number: nothing of a URL or an answer."""
    code = getattr(error, "code", None) or getattr(error, "smtp_code", None)
    if isinstance(code, int):
        return f"was answered with {code}"
    inner = getattr(error, "reason", None)
    cause = inner if isinstance(inner, BaseException) else error
    if isinstance(cause, TimeoutError):
        return _NO_ANSWER
    strerror = getattr(cause, "strerror", None)
    kind = type(cause).__name__
    is_of_tls = kind.startswith("SSL")  # whose text may name the server
    return strerror if isinstance(strerror, str) and not is_of_tls else kind


def _post(config: Config, notice: Notice, seconds: float) -> None:
    from urllib import request  # noqa: PLC0415 - most runs tell nobody anything

    class Straight(request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """Follow nobody: the document is for the URL that was given."""

    body = json.dumps({"text": f"{notice.title}\n{notice.text}", **notice.document}).encode()
    asked = request.Request(  # noqa: S310 - the scheme was checked: http or https
        webhook_url(config) or "",
        data=body,
        headers={"Content-Type": "application/json", "User-Agent": "clusterdp"},
        method="POST",
    )
    with request.build_opener(Straight).open(asked, timeout=seconds):
        pass


def _mail(config: Config, email: EmailSection, notice: Notice, seconds: float) -> None:
    import smtplib  # noqa: PLC0415 - most runs tell nobody anything
    import ssl  # noqa: PLC0415 - likewise
    from email.message import EmailMessage  # noqa: PLC0415 - likewise
    from email.utils import formatdate, make_msgid  # noqa: PLC0415 - likewise

    message = EmailMessage()
    message["From"], message["To"] = email.sender, ", ".join(email.to)
    message["Subject"], message["Date"] = notice.title, formatdate()
    message["Message-ID"] = make_msgid(domain=email.sender.rpartition("@")[2])
    message.set_content(f"{notice.text}\n")
    host, port = server_of(email)
    password, trusted = mail_password(config), ssl.create_default_context()
    with (
        smtplib.SMTP_SSL(host, port, timeout=seconds, context=trusted)
        if email.security == "tls"
        else smtplib.SMTP(host, port, timeout=seconds)
    ) as server:
        if email.security == "starttls":
            server.starttls(context=trusted)
        if email.user is not None and password is not None:
            server.login(email.user, password)
        server.send_message(message)
