from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pgbouncer.bouncer import bouncing


@pytest.fixture
def max_prepared_statements() -> int:
    """PgBouncer's setting of that name; a test may parametrise it."""
    return 0


@pytest.fixture
def pooled(pg_dsn: str, tmp_path: Path, max_prepared_statements: int) -> Iterator[dict[str, str]]:
    """The settings of a service that reaches the test's database through PgBouncer only; `pg_dsn` leads around it."""
    with bouncing(pg_dsn, tmp_path, max_prepared_statements=max_prepared_statements) as dsn:
        yield {"ORDERS_PG__DSN": dsn, "ORDERS_PG__PGBOUNCER": "true"}


@pytest.fixture
def with_direct_way(pooled: dict[str, str], pg_dsn: str) -> dict[str, str]:
    """The same, with a way around PgBouncer for what needs one."""
    return pooled | {"ORDERS_PG__DIRECT_DSN": pg_dsn}
