"""What the configuration refuses, and how it says so."""

from pathlib import Path

import pytest

from app.settings import load_settings
from tests.unit.settings.refusals import KEY, problems


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
