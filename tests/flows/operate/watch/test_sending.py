"""Notifications as servers get them, in time, and nothing secret where they do not."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import run
from flows.config.rules.notify import notify_problems, webhook_url
from flows.operate.watch.sending import Notice, send
from schemas.errors import ConfigError
from tests.conftest import PATIENCE, Builder, Experiment
from tests.flows.operate.watch.servers import Post, Web, mail_server, web_server
from tests.support.certificates import own_certificate

pytestmark = pytest.mark.process

TITLE = "clusterdp: autumn 2026-11-01: the release failed"
NOTICE = Notice(TITLE, "two\nlines – é", {"state": "failed"})
EMAIL = {"from": "clusterdp@example.org", "to": ["ops@example.org", "night@example.org"]}


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as server:
        yield server


@pytest.fixture
def post() -> Iterator[Post]:
    with mail_server() as server:
        yield server


def told_by(experiment: Builder, *, url: str | None = None, **email: Any) -> Experiment:
    """An experiment that tells people by these ways."""
    notify: dict[str, Any] = {"webhook_file": None if url is None else "hook"}
    if email:
        notify["email"] = EMAIL | email
    built = experiment(notify={name: one for name, one in notify.items() if one is not None})
    for name, text in (("hook", url or ""), ("password", "open sesame\n")):
        (built.folder / name).write_text(text)
        (built.folder / name).chmod(0o600)
    return built


def sent(built: Experiment, seconds: float = 5.0) -> list[str]:
    return send(built.load(), NOTICE, set(), seconds)


def test_a_document_is_posted_and_a_mail_sent(experiment: Builder, web: Web, post: Post) -> None:
    built = told_by(experiment, url=web.url, smtp=f"127.0.0.1:{post.port}", security="none")
    assert sent(built) == []
    assert web.got == [{"text": f"{NOTICE.title}\n{NOTICE.text}", "state": "failed"}]
    (mail,), (to,) = post.got, post.to
    assert (mail["From"], to) == ("clusterdp@example.org", EMAIL["to"])
    assert mail["Subject"] == NOTICE.title
    content = mail.get_payload(decode=True)
    assert isinstance(content, bytes)
    assert content.decode().replace("\r\n", "\n").strip() == NOTICE.text


def test_a_password_goes_through_tls_alone(
    experiment: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = own_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with mail_server(tls_context=context, require_starttls=True) as post:
        login = {"user": "clusterdp", "password_file": "password"}
        built = told_by(experiment, smtp=f"localhost:{post.port}", **login)
        assert sent(built) == ["email: SSLCertVerificationError"]  # nobody has vouched for it
        assert post.logins == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert sent(built) == []
        assert post.logins == [(b"clusterdp", b"open sesame")]
        (built.folder / "password").write_text("closed sesame")
        assert sent(built) == ["email: was answered with 535"]
        assert len(post.got) == 1


@pytest.mark.parametrize("code", [302, 404, 500])
def test_a_web_server_that_will_not_is_told_by_its_number(
    experiment: Builder, web: Web, code: int
) -> None:
    web.code = code
    assert sent(told_by(experiment, url=web.url)) == [f"webhook: was answered with {code}"]
    assert len(web.got) == 1  # no redirection is followed


def test_nothing_is_waited_for_longer_than_the_seconds_given(experiment: Builder, web: Web) -> None:
    web.delay = PATIENCE
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        built = told_by(experiment, url=web.url, smtp=f"127.0.0.1:{port}", security="none")
        problems = sent(built, 0.5)
    assert [one.split(":")[0] for one in problems] == ["webhook", "email"]
    assert web.got == []  # the server still waits


ODD_URLS = [
    *("http://a b/very-secret", "https://us:very-secret@example.org/", "https://very-secret@h/"),
    *(f"https://example.org:{port}/very-secret" for port in ("0", "65536", "99999999", "x", "+1")),
    *("https:///very-secret", "https://:80/very-secret", "https://[::1/very-secret", "https://?q"),
    *("https://h/very-secret\x07", "https://h\t/very-secret", "https://-h..x/very-secret"),
    *(
        "HTTPS//very-secret",
        "//h/very-secret",
        "https://h\\@x/very-secret",
        "https://h:/very-secret",
    ),
]


@pytest.mark.parametrize(
    "url",
    [
        *("https://example.org", "http://127.0.0.1:8080/a?b=c#d", "https://[::1]:65535/x"),
        *("HTTPS://Hooks.example.org:1/services/T0/B1/a@b:c", "http://my_hook/"),
    ],
)
def test_addresses_of_every_sound_form_are_taken(experiment: Builder, url: str) -> None:
    assert webhook_url(told_by(experiment, url=url).load()) == url


def test_what_goes_wrong_is_told_without_secrets(experiment: Builder, post: Post) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as gone:
        port = gone.getsockname()[1]
    post.refuses = True
    url = f"http://127.0.0.1:{port}/very-secret"
    built = told_by(experiment, url=url, smtp=f"127.0.0.1:{post.port}", security="none")
    assert sent(built) == ["webhook: Connection refused", "email: was answered with 554"]
    for text in ("", "ftp://very-secret", "file:///very-secret", "a\nb", *ODD_URLS):
        (built.folder / "hook").write_text(text)
        (problem, _) = sent(built)
        assert problem.startswith("webhook: notify.webhook_file: ")
        assert "very-secret" not in problem
    (built.folder / "hook").unlink()
    assert "there is no such file" in sent(built)[0]


def test_check_looks_at_the_files_of_secrets(experiment: Builder) -> None:
    built = told_by(experiment, url="https://example.org/very-secret")
    assert notify_problems(built.load()) == ()
    (built.folder / "hook").chmod(0o640)
    (problem,) = notify_problems(built.load())
    assert "is open to others than its owner (mode 0640)" in problem
    (built.folder / "hook").write_text("very-secret")
    with pytest.raises(ConfigError, match=r"notify\.webhook_file: the file holds no URL") as caught:
        notify_problems(built.load())
    assert "very-secret" not in str(caught.value)
    assert run(["check", str(built.config)]) == 2
