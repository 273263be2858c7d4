"""What ``[notify]`` must be like, and what its secrets must be; every error names a key."""

import re
import stat
from pathlib import Path
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
_WEBHOOK = "notify.webhook_file"
_LARGEST = 10_000  # bytes of a file with one line
_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def check_notify(config: "Config") -> None:
    """Raise ConfigError unless somebody can be told, as far as the keys alone tell."""
    notify = config.notify
    if notify is None:
        return
    if notify.webhook_file is None and notify.email is None:
        raise ConfigError("notify", "tells nobody: give webhook_file, or [notify.email]")
    if not notify.on:
        raise ConfigError("notify.on", "is empty, so nothing would be told; leave the section out")
    files = {"webhook_file": notify.webhook_file}
    if notify.email is not None:
        _check_email(notify.email)
        files["email.password_file"] = notify.email.password_file
    for key, path in files.items():
        if path is not None:
            check_place(config.directory, path, f"notify.{key}")


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
    found = _webhook_line(config)
    match = _URL.fullmatch(found or "https://none")
    if match is None or not 0 < int(match["port"] or 443) < 65_536:
        raise ConfigError(
            _WEBHOOK,
            "the file holds no URL (https://HOST/… or https://HOST:PORT/…, in one line and without "
            "a user or password before the host)",
        )
    return found


def _webhook_line(config: "Config") -> str | None:
    if config.notify is None or config.notify.webhook_file is None:
        return None
    path = config.path(config.notify.webhook_file)
    return _line(_WEBHOOK, path, "write the URL of the webhook into it")


def mail_password(config: "Config") -> str | None:
    """The password for the mail server; None where none is needed."""
    email = None if config.notify is None else config.notify.email
    if email is None or email.password_file is None:
        return None
    key = "notify.email.password_file"
    return _line(key, config.path(email.password_file), "write the password into it")


def notify_problems(config: "Config") -> tuple[str, ...]:
    """What is wrong with the files of secrets, as warnings: no run fails for them.

    Raises ConfigError for what is no URL of a webhook.
    """
    notify = config.notify
    if notify is None:
        return ()
    found = []
    for read in (_webhook_line, mail_password):
        try:
            read(config)
        except ConfigError as error:
            found.append(f"{error}; nobody will be told by it")
    if not found:
        webhook_url(config)
    files = {"webhook_file": notify.webhook_file}
    if notify.email is not None:
        files["email.password_file"] = notify.email.password_file
    for key, name in files.items():
        path = None if name is None else config.path(name)
        if path is not None and path.is_file() and path.stat().st_mode & _OTHERS:
            found.append(
                f"notify.{key}: {path} is open to others than its owner (mode "
                f"{stat.S_IMODE(path.stat().st_mode):04o}); whoever has it can use it. "
                "chmod 600 it"
            )
    return tuple(found)


def _line(key: str, path: Path, how: str) -> str:
    content, _ = given_key(key, path, _LARGEST, how)
    try:
        found = content.decode("utf-8").strip()
    except UnicodeDecodeError:
        found = ""
    if not found or len(found.splitlines()) != 1:
        raise ConfigError(key, f"{path}: does not hold one line of text; {how}")
    return found
