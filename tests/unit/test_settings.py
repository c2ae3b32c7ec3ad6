"""The configuration: its layers, what it refuses, and how it says so."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from app.resilience import PolicySettings
from app.settings import ApiKey, ConfigError, Settings, check_lease, load_settings
from app.settings.load import DEFAULT_FILE

DEFAULT = yaml.safe_load(DEFAULT_FILE.read_text())
EXAMPLES = DEFAULT_FILE.parent / "examples"
KEY = '{"name": "shop", "sha256": "' + "0a" * 32 + '", "scopes": ["orders:write"]}'


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    return tmp_path / "overlay.yml"


def problems(environ: Mapping[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_settings(environ)
    return refused.value.problems


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


# Refusals


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("ORDERS_PG_DSN", "x", "pg_dsn: unknown key, did you mean pg.dsn?"),
        ("ORDERS_PG__DNS", "x", "pg.dns: unknown key, did you mean pg.dsn?"),
        ("ORDERS_LOGG__LEVEL", "INFO", "logg: unknown key, did you mean log?"),
        (
            "ORDERS_CLIENT__SBER__REED_TIMEOUT",
            "1",
            "client.sber.reed_timeout: unknown key, did you mean client.sber.read",
        ),
        ("ORDERS_CLIENT__DEFAULT__RETRI", "1", "client.default.retri: unknown key, did you mean client.default.retry?"),
        ("ORDERS_CLIENT__INSURENCE__BASE_URL", "http://x", "client.insurence: unknown, did you mean client.insurance?"),
        ("ORDERS_TASKS__PAYMENT__BATCH", "1", "tasks.payment: unknown, did you mean tasks.payment_task?"),
        ("ORDERS_API__ZZZ", "1", "api.zzz: unknown key, known are host, port,"),
        ("ORDERS_CLIENT__DEFAULT__READ_TIMEOUT", "nan", "client.default.read_timeout = nan: must be a finite number"),
        ("ORDERS_SHUTDOWN__DRAIN", "inf", "shutdown.drain = inf: must be"),
        ("ORDERS_TASKS__DEFAULT__POLL_INTERVAL", "0", "tasks.default.poll_interval = 0: must be greater than 0"),
        (
            "ORDERS_TASKS__PAYMENT_TASK__JITTER",
            "1.1",
            "tasks.payment_task.jitter = 1.1: must be less than or equal to 1",
        ),
        ("ORDERS_TASKS__DEFAULT__JITTER", "-0.1", "tasks.default.jitter = -0.1: must be greater than or equal to 0"),
        ("ORDERS_TASKS__DEFAULT__BACKOFF_CAP", "0.5", "tasks.default.backoff_cap = 0.5: must be greater than or equal"),
        (
            "ORDERS_TASKS__DEFAULT__MAX_ATTEMPTS",
            "0",
            "tasks.default.max_attempts = 0: must be greater than or equal to 1",
        ),
        ("ORDERS_EVENTS__BATCH", "many", "events.batch = many: must be a valid integer"),
        ("ORDERS_PG__POOL", "[", "pg.pool = [: must be a mapping"),
        ("ORDERS_PG__DSN", "", "pg.dsn = ***: must look like postgresql://"),
        ("ORDERS_PG__DIRECT_DSN", "postgresql://h/d", "pg.direct_dsn: given without dsn"),
        ("ORDERS_PG__PGBOUNCER", "true", "pg.pgbouncer = true: there is none before the embedded"),
        ("ORDERS_PG__LOCK_TIMEOUT", "11", "pg.lock_timeout = 11: at most statement_timeout = 10"),
        ("ORDERS_CLIENT__SBER__BASE_URL", "ftp://x", "client.sber.base_url = ftp://x: must be an http:// or https://"),
        (
            "ORDERS_CLIENT__SBER__BASE_URL",
            "http://x ",
            "client.sber.base_url = http://x : must be an http:// or https://",
        ),
        ("ORDERS_CLIENT__SBER__BASE_URL", "http://", "client.sber.base_url = http://: must be an http:// or https://"),
        ("ORDERS_CLIENT__SBER__BASE_URL", "http://x:99999", "client.sber.base_url = http://x:99999: "),
        ("ORDERS_CLIENT__SBER__BASE_URL", "http://x?a=b", "client.sber.base_url = http://x?***: must have neither"),
        ("ORDERS_CLIENT__SBER__HEALTH__PATH", "health", "client.sber.health.path = health: must match pattern"),
        ("ORDERS_HEALTH__REQUIRED", '["sbr"]', "health.required = ['sbr']: no such systems, known are ['insurance'"),
        ("ORDERS_HEALTH__REQUIRED", "sber", "health.required = sber: must be a list"),
        (
            "ORDERS_HEALTH__STALLED_AFTER",
            "5",
            "health.stalled_after = 5: must be above tasks.order_confirmation_task.poll",
        ),
        ("ORDERS_EVENTS__POLL_INTERVAL", "40", "health.stalled_after = 30: must be above events.poll_interval = 40"),
        ("ORDERS_API__POLL_INTERVAL", "40", "health.stalled_after = 30: must be above api.poll_interval = 40"),
        ("ORDERS_API__MAX_STREAMS", "1000", "api.max_streams = 1000: event streams and waits stay for long"),
        ("ORDERS_AUTH__MODE", "api_key", "auth.mode = api_key: needs at least one entry in keys"),
        ("ORDERS_AUTH__KEYS", f"[{KEY}]", "auth.mode = none: the 1 keys would not be asked for"),
        ("ORDERS_PG__DATA_DIR", "", "pg.data_dir = : must be a path that ends in a name"),
        ("ORDERS_PG__DATA_DIR", "/", "pg.data_dir = /: must be a path that ends in a name"),
        ("ORDERS_PG__DATA_DIR", "data/..", "pg.data_dir = data/..: must be a path that ends in a name"),
        ("ORDERS_PG__DATA_DIR", "a\nb", "pg.data_dir = a\ufffdb: must be a path that ends in a name"),
        ("ORDERS_EVENTS__NATS__CA_FILE", "", "events.nats.ca_file = : must be a path that ends in a name"),
        ("ORDERS_PG__DSN", "postgresql://h/orders\n", "pg.dsn = ***: must have no spaces, line breaks"),
        ("ORDERS_CLIENT__SBER__BASE_URL", "http://a b/", "client.sber.base_url = http://a b/: must have no spaces"),
        ("ORDERS_CLIENT__SBER__BASE_URL", "http://u:p\nw@h", "client.sber.base_url = http://***@h: must not carry"),
        ("ORDERS_CLIENT__SBER__HEALTH__PATH", "/a b", "client.sber.health.path = /a b: must match pattern"),
        ("ORDERS_EVENTS__WEBHOOK__URL", "http://a/b c", "events.webhook.url = ***: must have no spaces"),
        ("ORDERS_EVENTS__NATS__SERVERS", '["nats://a b"]', "events.nats.servers.0 = ***: must have no spaces"),
        ("ORDERS_API__PUBLIC_URL", "http://a\x9b", "api.public_url = http://a\ufffd: must have no spaces"),
        ("ORDERS_API__HOST", " ", "api.host =  : must be an address or a name of this machine"),
        ("ORDERS_API__HOST", "not a host", "api.host = not a host: must be an address or a name"),
        ("ORDERS_API__HOST", "999.1.1.1", "api.host = 999.1.1.1: must be an address or a name"),
        ("ORDERS_TELEMETRY__SERVICE_NAME", " ", "telemetry.service_name =  : must be printable, not empty"),
        ("ORDERS_LOG__FORMAT", "xml", "log.format = xml: must be 'auto', 'json' or 'console'"),
    ],
)
def test_a_wrong_value_is_refused_by_name(variable: str, value: str, line: str) -> None:
    """The refusal names the key as it was written, the value, the rule and, where it can be guessed, the right key."""
    (problem,) = problems({variable: value})
    assert problem.startswith(line)


@pytest.mark.rule("TO-1", "TO-X2", "TO-X3", "RE-3")
@pytest.mark.parametrize(
    ("variable", "value", "key", "rule"),
    [
        ("ORDERS_CLIENT__SBER__READ_TIMEOUT", "61", "client.sber.read_timeout = 61", "TO-X3"),
        ("ORDERS_CLIENT__SBER__CONNECT_TIMEOUT", "11", "client.sber.connect_timeout = 11", "TO-1"),
        ("ORDERS_CLIENT__SBER__TOTAL_TIMEOUT", "4.9", "client.sber.total_timeout = 4.9", "TO-1"),
        ("ORDERS_CLIENT__SBER__TOTAL_TIMEOUT", "2", "client.sber.total_timeout = 2", "TO-X2"),
        ("ORDERS_CLIENT__DEFAULT__TOTAL_TIMEOUT", "0.5", "client.default.total_timeout = 0.5", "TO-X2"),
        ("ORDERS_CLIENT__SBER__RETRY__ATTEMPTS", "6", "client.sber.retry.attempts = 6", "RE-3"),
        ("ORDERS_CLIENT__DEFAULT__RETRY__ATTEMPTS", "6", "client.default.retry.attempts = 6", "RE-3"),
    ],
)
def test_a_contradiction_of_a_policy_is_refused(variable: str, value: str, key: str, rule: str) -> None:
    """Timeouts and attempts that break a rule stop the start, under the key that was written."""
    assert any(problem.startswith(key) and rule in problem for problem in problems({variable: value}))


@pytest.mark.rule("RE-3")
def test_five_attempts_are_the_ceiling() -> None:
    """Five attempts are accepted when their sleeps stay short."""
    environ = {"ORDERS_CLIENT__SBER__RETRY__ATTEMPTS": "5", "ORDERS_CLIENT__SBER__RETRY__BACKOFF_CAP": "0.4"}
    assert load_settings(environ).client["sber"].retry.attempts == 5


@pytest.mark.rule("SHUT-CFG")
def test_shutdown_budgets_must_fit_the_grace_period() -> None:
    """The phases together end before the orchestrator kills; the refusal adds them up."""
    (problem,) = problems({"ORDERS_SHUTDOWN__DRAIN": "13"})
    assert problem.startswith("shutdown.grace_period = 30: must be above lead 2 + drain 13 + poller 10 + close 5 = 30")
    assert load_settings({"ORDERS_SHUTDOWN__DRAIN": "12.9"}).shutdown.drain == 12.9


def test_every_problem_is_listed_at_once() -> None:
    """Nobody has to start the service once for each mistake."""
    found = problems({"ORDERS_LOG__LEVEL": "LOUD", "ORDERS_API__PORT": "70000", "ORDERS_PG__MAX": "1"})
    assert [problem.split(":")[0].split(" ")[0] for problem in found] == ["pg.max", "api.port", "log.level"]


def test_secrets_do_not_appear_in_a_refusal() -> None:
    """Neither a DSN, nor a key, nor an unknown value that may be a misplaced secret is shown."""
    refusals = [
        {"ORDERS_PG__DSN": "mysql://u:hunter2@h/d"},
        {"ORDERS_PG__DSN": "postgresql://u:hunter2@h:port/d"},
        {"ORDERS_PG": "postgresql://u:hunter2@h/d"},
        {"ORDERS_PG": "u:hunter2"},
        {"ORDERS_PG_DSN": "postgresql://u:hunter2@h/d"},
        {"ORDERS_PG__PASSWORD": "hunter2"},
        {"ORDERS_CLIENT__SBER__BASE_URL": "https://u:hunter2@h"},
        {"ORDERS_CLIENT__SBER__BASE_URL": "https://u:/hunter2@h"},
        {"ORDERS_CLIENT__SBER__BASE_URL": "https://u:hunter2/@h"},
        {"ORDERS_CLIENT__SBER__BASE_URL": "https://h/?token=hunter2"},
        {"ORDERS_AUTH__KEYS": '[{"name": "n", "sha256": "hunter2", "scopes": ["ops"]}]'},
        {"ORDERS_AUTH__KEYS": '[{"name": "n", "sha256": "hunter2", "scopes": ["ops"]}'},
        {"ORDERS_AUTH__KEYS": '[{"name": "n", "hunter2": "hunter", "scopes": ["ops"]}'},
        {"ORDERS_AUTH__KEYS": '["hunter2"]'},
        {"ORDERS_AUTH": "hunter2"},
    ]
    for environ in refusals:
        assert "hunter2" not in "\n".join(problems(environ))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- a", "must be a mapping of sections such as pg:, not a list"),
        ("a: [", "is not YAML: line 1"),
        ("\udcff", "is not YAML"),
    ],
)
def test_an_unusable_overlay_is_refused(overlay: Path, text: str, line: str) -> None:
    """A file that cannot be read as sections stops the start, instead of being passed over."""
    overlay.write_bytes(text.encode(errors="surrogateescape"))
    (problem,) = problems({"ORDERS_CONFIG": str(overlay)})
    assert problem.startswith(f"{overlay}: ")
    assert line in problem


def test_a_missing_overlay_is_refused(overlay: Path) -> None:
    """A name that leads nowhere is an error, not an empty overlay."""
    assert "No such file" in problems({"ORDERS_CONFIG": str(overlay)})[0]


def test_an_emptied_section_is_refused(overlay: Path) -> None:
    """A section whose lines are all commented out does not silently lose its defaults."""
    overlay.write_text("pg:\nclient: {sber: }\n")
    found = problems({"ORDERS_CONFIG": str(overlay)})
    assert found == ["pg = None: must be a mapping", "client.sber = None: must be a mapping"]


# Who may call


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


# Leases


def test_a_lease_outlasts_the_longest_call() -> None:
    """A lease of at most total_timeout + 1 s is a problem that names both keys and shows the sum."""
    settings = load_settings({"ORDERS_TASKS__PAYMENT_TASK__LEASE": "6"})
    task, client = settings.tasks["payment_task"], settings.client["sber"]
    problem = check_lease("payment_task", task, "sber", client)
    assert problem is not None
    assert problem.startswith("tasks.payment_task.lease = 6: must be above client.sber.total_timeout + 1 s = 5 + 1 = 6")
    assert check_lease("payment_task", task.model_copy(update={"lease": 6.1}), "sber", client) is None
