"""The section of the events: what it refuses, and that it keeps its secrets."""

import base64
import json

import pytest

from app.settings import load_settings
from tests.unit.settings.refusals import problems

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
WEBHOOK = {
    "ORDERS_EVENTS__SINK": "webhook",
    "ORDERS_EVENTS__WEBHOOK__URL": "https://hooks.example.com/orders?tenant=7",
    "ORDERS_EVENTS__WEBHOOK__SECRETS": json.dumps([SECRET]),
}


NATS = {"ORDERS_EVENTS__SINK": "nats", "ORDERS_EVENTS__NATS__SERVERS": '["nats://n1:4222", "tls://n2"]'}


def whsec(size: int) -> str:
    return json.dumps(["whsec_" + base64.b64encode(b"k" * size).decode()])


def test_a_webhook_needs_an_address_and_a_secret() -> None:
    """With the default sink neither is asked for; with the webhook both are."""
    assert load_settings({}).events.sink == "log"
    assert load_settings(WEBHOOK).events.webhook.url == "https://hooks.example.com/orders?tenant=7"
    found = problems({"ORDERS_EVENTS__SINK": "webhook"})
    assert [problem.split(":")[0] for problem in found] == ["events.webhook.url", "events.webhook.secrets"]


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("LEASE", "14.9", "events.lease = 14.9: at least publish_timeout + 5 s = 15"),
        ("PUBLISH_TIMEOUT", "7.9", "events.publish_timeout = 7.9: at least webhook.connect_timeout + "),
        ("WEBHOOK__READ_TIMEOUT", "2", "events.webhook.connect_timeout = 2: must be below read_timeout = 2 (TO-1)"),
        ("WEBHOOK__READ_TIMEOUT", "61", "events.webhook.read_timeout = 61: must be less than or equal to 60"),
        ("WEBHOOK__CONNECT_TIMEOUT", "11", "events.webhook.connect_timeout = 11: must be less than or equal to 10"),
        ("WEBHOOK__BREAKER__MINIMUM_CALLS", "51", "events.webhook.breaker.minimum_calls = 51: breaker.window = 50"),
        ("CONCURRENCY", "0", "events.concurrency = 0: must be greater than or equal to 1"),
        ("SOURCE", "", "events.source = : must have at least 1 character"),
        ("SOURCE", "my orders", "events.source = my orders: must match pattern"),
        ("SINK", "kafka", "events.sink = kafka: must be 'log', 'webhook' or 'nats'"),
    ],
)
@pytest.mark.rule("TO-1", "TO-X3")
def test_a_wrong_number_is_refused_by_name(name: str, value: str, line: str) -> None:
    """The refusal names the key, the value and the rule."""
    assert any(problem.startswith(line) for problem in problems({**WEBHOOK, f"ORDERS_EVENTS__{name}": value}))


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://hunter2", "file:///hunter2", "hunter2", "https://", " https://h/hunter2"),
        *("https://h:port/hunter2", "https://u:hunter2@h/x", "https://h/x#hunter2"),
    ],
)
def test_an_address_that_cannot_be_posted_to_is_refused_unseen(url: str) -> None:
    """Only http and https addresses with a host are taken; what was written may be a secret and is not shown."""
    (problem,) = problems({**WEBHOOK, "ORDERS_EVENTS__WEBHOOK__URL": url})
    assert problem.startswith("events.webhook.url = ***: must ")


@pytest.mark.parametrize(
    "secrets",
    [
        *(whsec(23), whsec(65), whsec(32).replace("whsec_", ""), whsec(32).replace("=", "")),
        *('["whsec_"]', '["whsec_hunter2!"]', '["hunter2"]', "whsec_hunter2", '{"a": "hunter2"}'),
    ],
)
def test_a_secret_that_is_none_is_refused_unseen(secrets: str) -> None:
    """A signing secret is whsec_ and 24 to 64 bytes in base64; a wrong one is not shown either."""
    (problem,) = problems({**WEBHOOK, "ORDERS_EVENTS__WEBHOOK__SECRETS": secrets})
    assert problem.startswith("events.webhook.secrets")
    assert "hunter2" not in problem
    assert "a2tra2tr" not in problem


@pytest.mark.parametrize("size", [24, 64])
def test_the_standards_sizes_are_accepted(size: int) -> None:
    """Keys of 192 and 512 bits are secrets, and neither settings nor their JSON shows them."""
    events = load_settings({**WEBHOOK, "ORDERS_EVENTS__WEBHOOK__SECRETS": whsec(size)}).events
    (secret,) = events.webhook.secrets
    assert secret.get_secret_value() not in repr(events) + events.model_dump_json()


def test_nats_needs_a_server() -> None:
    """With any other sink none is asked for."""
    assert load_settings(NATS).events.nats.servers == ("nats://n1:4222", "tls://n2")
    (problem,) = problems({"ORDERS_EVENTS__SINK": "nats"})
    assert problem == "events.nats.servers: empty, and sink = nats publishes events there"


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("SERVERS", '["http://n1"]', "events.nats.servers.0 = ***: must begin with nats:// or tls:// and name a host"),
        ("SERVERS", '["nats://hunter2@n1"]', "events.nats.servers.0 = ***: must not carry a user or a token"),
        ("SERVERS", "hunter2", "events.nats.servers = ***: must be a list"),
        ("SERVERS", '["nats://n1/orders"]', "events.nats.servers.0 = ***: must end after the port"),
        ("SUBJECT", "orders.>", "events.nats.subject = orders.>: must match pattern"),
        ("STREAM", "my orders", "events.nats.stream = my orders: must match pattern"),
        ("PASSWORD", "hunter2", "events.nats.user: goes with password"),
        ("READ_TIMEOUT", "8.5", "events.publish_timeout = 10: at least nats.connect_timeout + nats.read_timeout + 1 s"),
        ("CONNECT_TIMEOUT", "5", "events.nats.connect_timeout = 5: must be below read_timeout = 5 (TO-1)"),
    ],
)
def test_a_wrong_nats_section_is_refused_by_name(name: str, value: str, line: str) -> None:
    """The refusal names the key and the rule, and shows nothing that may be a secret."""
    found = problems({**NATS, f"ORDERS_EVENTS__NATS__{name}": value})
    assert [problem for problem in found if problem.startswith(line)]
    assert "hunter2" not in str(found)


def test_nats_secrets_are_kept() -> None:
    """Neither settings nor their JSON show the token, and beside it there is no use for a user."""
    events = load_settings({**NATS, "ORDERS_EVENTS__NATS__TOKEN": "hunter2"}).events
    assert "hunter2" not in repr(events) + events.model_dump_json()
    both = {"ORDERS_EVENTS__NATS__USER": "u", "ORDERS_EVENTS__NATS__PASSWORD": "p", "ORDERS_EVENTS__NATS__TOKEN": "t"}
    (problem,) = problems({**NATS, **both})
    assert problem.startswith("events.nats.token: beside user and password")
