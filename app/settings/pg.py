"""The database's section."""

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from app.settings.section import Count, Place, Seconds, Section, unbroken


def _dsn(value: SecretStr) -> SecretStr:
    """Accept the spellings in use, keep the one that PostgreSQL's own tools and asyncpg read."""
    url = value.get_secret_value()
    scheme, separator, rest = url.partition("://")
    if scheme not in {"postgresql", "postgres", "postgresql+asyncpg"} or not separator or not rest:
        raise ValueError("must look like postgresql://user:password@host:5432/orders")
    try:
        _ = urlsplit(f"postgresql://{rest}").port
    except ValueError:
        raise ValueError("must be a URL, with special characters of the password percent-encoded") from None
    return SecretStr(f"postgresql://{unbroken(rest)}")


Dsn = Annotated[SecretStr, AfterValidator(_dsn)]


class PoolSettings(Section):
    """`max`: connections of this process; `acquire_timeout`: seconds a caller waits for one."""

    max: Annotated[Count, Field(le=1000)]
    acquire_timeout: Seconds


class PgSettings(Section):
    """Without `dsn` PostgreSQL is started in `data_dir`. `direct_dsn` goes around a pooler, to LISTEN and migrate."""

    dsn: Dsn | None
    direct_dsn: Dsn | None
    pgbouncer: bool
    data_dir: Place
    pool: PoolSettings
    connect_timeout: Seconds
    ping_timeout: Seconds
    statement_timeout: Annotated[Seconds, Field(le=3600)]
    lock_timeout: Annotated[Seconds, Field(le=3600)]
    idle_in_transaction_timeout: Annotated[Seconds, Field(le=3600)]

    @property
    def place(self) -> str:
        """Which database this is, in words and without a password."""
        if self.dsn is None:
            return f"embedded PostgreSQL in {self.data_dir}"
        url = urlsplit(self.dsn.get_secret_value())
        host = url.netloc.rpartition("@")[2] or dict(parse_qsl(url.query)).get("host", "localhost")
        return f"{url.path.strip('/') or 'the default'} on {host}"

    def contradictions(self) -> Iterator[str]:
        if self.lock_timeout > self.statement_timeout:
            yield (
                f"lock_timeout = {self.lock_timeout:g}: at most statement_timeout = {self.statement_timeout:g}, "
                "which would end every wait for a lock before it"
            )
        if self.dsn is None and self.direct_dsn is not None:
            yield "direct_dsn: given without dsn. Set dsn too, or neither for the embedded PostgreSQL"
        if self.dsn is None and self.pgbouncer:
            yield "pgbouncer = true: there is none before the embedded PostgreSQL. Set dsn"
