"""The section of the events: what it refuses, and that it keeps its secrets."""

import base64
import json
from collections.abc import Mapping

import pytest

from app.settings import ConfigError, load_settings

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
WEBHOOK = {
    "ORDERS_EVENTS__SINK": "webhook",
    "ORDERS_EVENTS__WEBHOOK__URL": "https://hooks.example.com/orders?tenant=7",
    "ORDERS_EVENTS__WEBHOOK__SECRETS": json.dumps([SECRET]),
}


def problems(environ: Mapping[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_settings(environ)
    return refused.value.problems


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
