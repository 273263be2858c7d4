"""``[notify]``: what is read of it, and what is refused by the name of a key."""

from typing import Any

import pytest

from flows.config.model.notify import EVENTS
from flows.config.rules.notify import server_of
from schemas.errors import ConfigError
from tests.conftest import Builder

EMAIL = {"smtp": "mail.example.org", "from": "a@example.org", "to": ["b@example.org"]}


def test_defaults(experiment: Builder) -> None:
    notify = experiment(notify={"webhook_file": "hook"}).load().notify
    assert notify is not None
    assert (notify.on, notify.set_aside_above) == (EVENTS, 0.05)
    assert experiment().load().notify is None


@pytest.mark.parametrize(
    ("keys", "server"),
    [
        ({}, ("mail.example.org", 587)),
        ({"security": "tls"}, ("mail.example.org", 465)),
        ({"security": "none", "smtp": "localhost"}, ("localhost", 25)),
        ({"smtp": "[::1]:2525"}, ("::1", 2525)),
    ],
)
def test_a_mail_server_has_the_port_of_its_security(
    experiment: Builder, keys: dict[str, Any], server: tuple[str, int]
) -> None:
    notify = experiment(notify={"email": EMAIL | keys}).load().notify
    assert notify is not None
    assert notify.email is not None
    assert server_of(notify.email) == server


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "notify: tells nobody"),
        ({"webhook_file": "hook", "on": []}, "notify.on: is empty"),
        ({"webhook_file": "hook", "on": ["conflict"]}, "notify.on[0]: input should be 'failed'"),
        ({"webhook_fil": "hook"}, "notify.webhook_fil: unknown key; remove it or correct its s"),
        ({"webhook_file": "hook", "set_aside_above": 1.0}, "notify.set_aside_above: input should"),
        ({"email": EMAIL | {"smtp": "smtp://mail"}}, "notify.email.smtp: 'smtp://mail' is not HO"),
        ({"email": EMAIL | {"smtp": "mail:0"}}, "notify.email.smtp: 'mail:0' is not HOST"),
        ({"email": EMAIL | {"to": []}}, "notify.email.to: is empty"),
        ({"email": EMAIL | {"to": ["b@c\nBcc: d@e"]}}, "notify.email.to: 'b@c\\nBcc: d@e' is no"),
        ({"email": EMAIL | {"from": "nobody"}}, "notify.email.from: 'nobody' is no address"),
        ({"email": EMAIL | {"user": "me"}}, "notify.email.user: goes with password_file"),
        (
            {"email": EMAIL | {"user": "me", "password_file": "p", "security": "none"}},
            'notify.email.security: "none" would send the password in clear',
        ),
    ],
)
def test_what_is_refused(experiment: Builder, keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(notify=keys).load()
    assert str(caught.value).startswith(says)


def test_who_is_told_has_no_part_in_a_release(experiment: Builder) -> None:
    """Else a new address would make a published period one in conflict."""
    built = experiment(privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "none"})
    made = built.run()
    text = built.config.read_text()
    built.config.write_text(f'{text}\n[notify]\nwebhook_file = "hook"\non = ["lost"]\n')
    again = built.run()
    assert (again.status, again.release_id) == ("unchanged", made.release_id)
