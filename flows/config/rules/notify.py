"""What ``[notify]`` must be like, and what its secrets must be; every error names a key."""

import re
from typing import TYPE_CHECKING

from flows.config.model.notify import EmailSection
from flows.runtime.paths import check_place
from flows.runtime.reading.key_files import given_key
from schemas.errors import ConfigError, shown

if TYPE_CHECKING:
    from flows.config.model.experiment import Config

_ADDRESS = re.compile(r"[^\s@<>,;:\"()\[\]\\]+@[^\s@<>,;:\"()\[\]\\]+")
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_URL = re.compile(
    r"(?i:https?)://(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9_-]|\.(?!\.))*|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?:[/?#][!-~]*)?"
)
_WEBHOOK, _PASSWORD = "notify.webhook_file", "notify.email.password_file"
_HOW = {
    _WEBHOOK: "write the URL of the webhook into it",
    _PASSWORD: "write the password into it",
}
_LARGEST = 10_000  # bytes of a file with one line


def check_notify(config: "Config") -> None:
    """Raise ConfigError unless somebody can be told, as far as the keys alone tell."""
    notify = config.notify
    if notify is None:
        return
    if notify.webhook_file is None and notify.email is None:
        raise ConfigError("notify", "tells nobody: give webhook_file, or [notify.email]")
    if not notify.on:
        raise ConfigError("notify.on", "is empty, so nothing would be told; leave the section out")
    if notify.email is not None:
        _check_email(notify.email)
    for key, path in _files(config).items():
        check_place(config.directory, path, key)


def _check_email(email: EmailSection) -> None:
    server_of(email)
    for key, addresses in (("from", (email.sender,)), ("to", email.to)):
        if not addresses:
            raise ConfigError(f"notify.email.{key}", "is empty; name who is to be told")
        for address in addresses:
            if not _ADDRESS.fullmatch(address) or not address.isascii():
                raise ConfigError(
                    f"notify.email.{key}", f"{shown(address)} is no address such as ops@example.org"
                )
    if (email.user is None) != (email.password_file is None):
        raise ConfigError("notify.email.user", "goes with password_file: give both, or neither")
    if email.user is not None and email.security == "none":
        raise ConfigError(
            "notify.email.security", '"none" would send the password in clear; take "starttls"'
        )


def server_of(email: EmailSection) -> tuple[str, int]:
    """Host and port of the server that takes mail."""
    match = _SERVER.fullmatch(email.smtp)
    port = int(match["port"] or _PORTS[email.security]) if match else 0
    if match is None or not 0 < port < 65_536:
        raise ConfigError(
            "notify.email.smtp", f"{shown(email.smtp)} is not HOST or HOST:PORT of a server"
        )
    return match["host"].strip("[]"), port


def webhook_url(config: "Config") -> str | None:
    """The secret URL; None where there is no webhook. Raises ConfigError, never with the URL."""
    found, _ = _secret(config, _WEBHOOK)
    match = _URL.fullmatch(found or "https://none")
    if match is None or not 0 < int(match["port"] or 443) < 65_536:
        raise ConfigError(
            _WEBHOOK,
            "the file holds no URL (https://HOST/… or https://HOST:PORT/…, in one line and without "
            "a user or password before the host)",
        )
    return found


def mail_password(config: "Config") -> str | None:
    """The password for the mail server; None where none is needed."""
    return _secret(config, _PASSWORD)[0]


def notify_problems(config: "Config") -> tuple[str, ...]:
    """What is wrong with the files of secrets, as warnings: no run fails for them.

    Raises ConfigError for what is no URL of a webhook.
    """
    problems: list[str] = []
    warnings: list[str] = []
    for key in _files(config):
        try:
            warnings += _secret(config, key)[1]
        except ConfigError as error:
            problems.append(f"{error}; nobody will be told by it")
    if not problems:
        webhook_url(config)
    return (*problems, *warnings)


def _files(config: "Config") -> dict[str, str]:
    if config.notify is None:
        return {}
    email = config.notify.email
    password = None if email is None else email.password_file
    named = {_WEBHOOK: config.notify.webhook_file, _PASSWORD: password}
    return {key: path for key, path in named.items() if path is not None}


def _secret(config: "Config", key: str) -> tuple[str | None, tuple[str, ...]]:
    """What stands in a file of a secret, in one line, and warnings; None where none is named."""
    named = _files(config)
    if key not in named:
        return None, ()
    path = config.path(named[key])
    content, warnings = given_key(key, path, _LARGEST, _HOW[key])
    try:
        found = content.decode("utf-8").strip()
    except UnicodeDecodeError:
        found = ""
    if len(found.splitlines()) != 1:
        raise ConfigError(key, f"{path}: does not hold one line of text; {_HOW[key]}")
    return found, warnings
