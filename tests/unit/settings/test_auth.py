"""Who may call: what the settings allow without keys, and what they ask of keys."""

import pytest

from app.settings import ApiKey, load_settings
from tests.unit.settings.refusals import KEY, problems


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_a_loopback_address_needs_no_auth(host: str) -> None:
    """Without auth the API may listen for callers on this machine."""
    assert load_settings({"ORDERS_API__HOST": host}).auth.check_bind(host) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "orders.example.com", "localhost.example.com"])
def test_another_address_needs_auth(host: str) -> None:
    """Without auth no other address is accepted, neither configured nor given on the command line."""
    assert problems({"ORDERS_API__HOST": host})[0].startswith(f"api.host = {host}: others can reach this address")
    assert load_settings({}).auth.check_bind(host) is not None
    assert load_settings({"ORDERS_API__HOST": host, "ORDERS_AUTH__ALLOW_ANONYMOUS": "true"}).api.host == host
    environ = {"ORDERS_API__HOST": host, "ORDERS_AUTH__MODE": "api_key", "ORDERS_AUTH__KEYS": f"[{KEY}]"}
    assert load_settings(environ).auth.check_bind(host) is None


def test_keys_must_be_told_apart() -> None:
    """Two keys with one name, or one hash, are refused."""
    other = KEY.replace("0a", "0b")
    for keys in (f"[{KEY}, {other}]", f"[{KEY}, {KEY.replace('shop', 'desk').replace('0a', '0A')}]"):
        assert problems({"ORDERS_AUTH__MODE": "api_key", "ORDERS_AUTH__KEYS": keys})[0].startswith("auth.keys: ")


def test_an_operators_key_is_bound_to_no_customers() -> None:
    """Operators see all tasks: a key that is meant for some customers only cannot be theirs."""
    key = KEY.replace('"orders:write"', '"ops"').replace('"shop"', '"shop", "customers": ["c-1"]')
    (problem,) = problems({"ORDERS_AUTH__MODE": "api_key", "ORDERS_AUTH__KEYS": f"[{key}]"})
    assert problem.startswith("auth.keys: ['shop'] have the scope ops")


def test_a_hash_is_a_secret_too() -> None:
    """Whoever prints the settings sees neither the hash nor, if somebody put it there, the key."""
    settings = load_settings({"ORDERS_AUTH__MODE": "api_key", "ORDERS_AUTH__KEYS": f"[{KEY}]"})
    assert "0a0a" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"


def test_a_key_acts_for_all_customers_unless_it_names_some() -> None:
    """`customers` is optional, and its ids obey the rule for customer ids."""
    assert ApiKey(name="n", sha256="0" * 64, scopes=frozenset({"ops"})).customers is None
    with pytest.raises(ValueError, match="at most 64"):
        ApiKey(name="n", sha256="0" * 64, scopes=frozenset({"ops"}), customers=frozenset({"c" * 65}))
