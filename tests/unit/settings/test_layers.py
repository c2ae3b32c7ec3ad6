"""The configuration: its layers, what the default file states, and the sizes that follow from it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from app.resilience import PolicySettings
from app.settings import Settings, check_lease, load_settings
from app.settings.load import DEFAULT_FILE
from tests.unit.settings.refusals import EXAMPLES, KEY, problems

DEFAULT = yaml.safe_load(DEFAULT_FILE.read_text())


def test_the_defaults_are_accepted() -> None:
    """The service starts without any configuration, and only for callers on this machine."""
    settings = load_settings({})
    assert settings.pg.dsn is None
    assert settings.api.host == "127.0.0.1"
    assert set(settings.client) == {"insurance", "sber", "receipt", "odnakassa", "orderbook"}


# Layers


@pytest.mark.rule("CFG-1")
def test_the_environment_lies_over_the_overlay_and_that_over_the_defaults(overlay: Path) -> None:
    """Each layer states only what differs, down to a single number."""
    overlay.write_text("client: {insurance: {read_timeout: 2, retry: {backoff: 0.2}}, sber: {read_timeout: 2}}")
    environ = {"ORDERS_CONFIG": str(overlay), "ORDERS_CLIENT__INSURANCE__READ_TIMEOUT": "2.5"}
    client = load_settings(environ).client
    assert (client["insurance"].read_timeout, client["sber"].read_timeout, client["receipt"].read_timeout) == (
        2.5,
        2,
        3,
    )
    assert (client["insurance"].retry.backoff, client["insurance"].retry.attempts) == (0.2, 3)


@pytest.mark.rule("CFG-1", "CFG-2", "TO-2")
def test_common_values_reach_every_system_that_has_none_of_its_own() -> None:
    """What `client.default` and `tasks.default` say holds for all, except where a section says otherwise."""
    settings = load_settings(
        {
            "ORDERS_CLIENT__DEFAULT__BREAKER__FAILURE_RATE": "0.4",
            "ORDERS_TASKS__DEFAULT__BATCH": "7",
            "ORDERS_TASKS__PAYMENT_TASK__BATCH": "8",
        }
    )
    rates = {name: client.breaker.failure_rate for name, client in settings.client.items()}
    assert rates == {"insurance": 0.4, "sber": 0.3, "receipt": 0.4, "odnakassa": 0.4, "orderbook": 0.4}
    assert {name: task.batch for name, task in settings.tasks.items() if task.batch != 7} == {"payment_task": 8}


def test_lists_and_sections_in_the_environment_are_json() -> None:
    """A list, a whole section and null can be given in one variable."""
    settings = load_settings(
        {
            "ORDERS_AUTH": f'{{"mode": "api_key", "keys": [{KEY}]}}',
            "ORDERS_HEALTH__REQUIRED": '["sber"]',
            "ORDERS_PG__DSN": "null",
        }
    )
    assert settings.auth.keys[0].scopes == {"orders:write"}
    assert settings.health.required == ("sber",)
    assert settings.pg.dsn is None


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_a_dsn_may_be_spelt_as_any_tool_spells_it(scheme: str) -> None:
    """Every usual scheme is accepted and becomes the one that asyncpg and psql read."""
    dsn = load_settings({"ORDERS_PG__DSN": f"{scheme}://u:p@h:5433/orders?sslmode=require"}).pg.dsn
    assert dsn is not None
    assert dsn.get_secret_value() == "postgresql://u:p@h:5433/orders?sslmode=require"


def test_a_base_url_may_end_with_a_slash() -> None:
    """A base URL is kept without its trailing slash, so that paths can be appended."""
    settings = load_settings({"ORDERS_CLIENT__SBER__BASE_URL": "https://sber.example.com/api/"})
    assert settings.client["sber"].base_url == "https://sber.example.com/api"


def test_settings_are_frozen() -> None:
    """Nobody can change a number while the service runs."""
    settings = load_settings({})
    for section, field in ((settings, "api"), (settings.api, "port"), (settings.client["sber"], "max_concurrent")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(section, field, 1)


# The default file


def fields(model: type[BaseModel], tree: Any, path: str) -> Iterator[tuple[str, bool]]:
    """Every field below a model, with whether `tree` states it."""
    for name, field in model.model_fields.items():
        stated = isinstance(tree, dict) and name in tree
        yield f"{path}.{name}", stated
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, tree[name] if stated else None, f"{path}.{name}")


@pytest.mark.rule("CFG-1", "CFG-X1")
def test_the_default_file_states_every_number() -> None:
    """No section has a field that `config/default.yml` does not state: no default hides in code."""
    client, tasks = Settings.model_fields["client"], Settings.model_fields["tasks"]
    stated = {
        **dict(fields(get_args(client.annotation)[1], DEFAULT["client"]["default"], "client.default")),
        **dict(fields(get_args(tasks.annotation)[1], DEFAULT["tasks"]["default"], "tasks.default")),
    }
    for name, field in Settings.model_fields.items():
        if name not in {"client", "tasks"}:
            assert isinstance(field.annotation, type)
            stated |= dict(fields(field.annotation, DEFAULT[name], name))
    unstated = {key for key, found in stated.items() if not found}
    assert len(stated) > 60
    assert unstated == {"client.default.base_url"}
    assert all("base_url" in section for name, section in DEFAULT["client"].items() if name != "default")


@pytest.mark.rule("CFG-X1")
def test_the_policy_has_the_defaults_of_the_file() -> None:
    """A policy built without a file behaves as the file's common values say."""
    common = {key: value for key, value in DEFAULT["client"]["default"].items() if key in PolicySettings.model_fields}
    assert PolicySettings().model_dump() == common


@pytest.mark.rule("TO-2")
def test_every_deviation_in_the_default_file_is_explained() -> None:
    """A number that differs from the common one carries a comment in its line."""
    lines = DEFAULT_FILE.read_text().split("\nclient:")[1].split("  insurance:")[1].split("\n\n")[0].splitlines()
    numbers = [line for line in lines if line.split("#")[0].strip()[-1:].isdigit()]
    assert len(numbers) >= 5
    assert [line for line in numbers if "#" not in line] == []


@pytest.mark.parametrize("example", ["production.yml"])
def test_an_example_is_accepted_with_its_secrets(example: str) -> None:
    """The example overlay is a valid configuration once the environment adds the secrets."""
    settings = load_settings(
        {
            "ORDERS_CONFIG": str(EXAMPLES / example),
            "ORDERS_PG__DSN": "postgresql://orders:x@postgres/orders",
            "ORDERS_AUTH__KEYS": f"[{KEY}]",
        }
    )
    assert settings.auth.check_bind(settings.api.host) is None


# Sizes


@pytest.mark.rule("ISO-2")
def test_a_pool_is_a_fifth_larger_than_the_bulkhead() -> None:
    """A system gets ceil(max_concurrent x 1.2) connections, computed without rounding errors."""
    settings = load_settings({})
    sizes = {n: settings.client["sber"].model_copy(update={"max_concurrent": n}).pool_size for n in range(1, 301)}
    assert all(5 * size >= 6 * n > 5 * (size - 1) for n, size in sizes.items())
    assert (sizes[8], sizes[16], sizes[5], sizes[55]) == (10, 20, 6, 66)


@pytest.mark.rule("ISO-2")
def test_pools_above_half_of_the_database_pool_are_refused() -> None:
    """The refusal shows every term, the sum, the limit, and what to change."""
    (problem,) = problems({"ORDERS_CONFIG": str(EXAMPLES / "too-many-connections.yml")})
    assert "insurance ceil(8*1.2)=10 + sber ceil(16*1.2)=20 + receipt ceil(8*1.2)=10" in problem
    assert "= 50 > pg.pool.max/2 = 40/2 = 20" in problem
    assert "ISO-2" in problem
    assert "raise pg.pool.max to at least 100" in problem


@pytest.mark.rule("ISO-2")
def test_the_limit_itself_is_accepted_and_one_connection_more_is_not() -> None:
    """The sum may reach exactly half of the pool; the sizing table says how near it is."""
    rows = list(load_settings({"ORDERS_PG__POOL__MAX": "60"}).sizing())
    assert (rows[-1].total, rows[-1].limit) == (30, 30)
    assert [(row.system, row.pool) for row in rows[:2]] == [("insurance", 10), ("sber", 5)]
    assert problems({"ORDERS_PG__POOL__MAX": "59"})[0].startswith("client: pool sizes")


# Leases


def test_a_lease_outlasts_the_longest_call() -> None:
    """A lease of at most total_timeout + 1 s is a problem that names both keys and shows the sum."""
    settings = load_settings({"ORDERS_TASKS__PAYMENT_TASK__LEASE": "6"})
    task, client = settings.tasks["payment_task"], settings.client["sber"]
    problem = check_lease("payment_task", task, "sber", client)
    assert problem is not None
    assert problem.startswith("tasks.payment_task.lease = 6: must be above client.sber.total_timeout + 1 s = 5 + 1 = 6")
    assert check_lease("payment_task", task.model_copy(update={"lease": 6.1}), "sber", client) is None
