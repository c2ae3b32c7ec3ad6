from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pgbouncer.bouncer import Bouncer, bouncing


@pytest.fixture
def max_prepared_statements() -> int:
    """PgBouncer's setting of this name; a test may parametrise it."""
    return 0


@pytest.fixture
def bouncer(server_dsn: str, tmp_path: Path, max_prepared_statements: int) -> Iterator[Bouncer]:
    with bouncing(server_dsn, tmp_path, max_prepared_statements=max_prepared_statements) as bouncer:
        yield bouncer


@pytest.fixture
def through(bouncer: Bouncer, pg_dsn: str) -> str:
    """The DSN of the test's own migrated database by way of PgBouncer; `pg_dsn` leads around it."""
    return bouncer.through(pg_dsn)
