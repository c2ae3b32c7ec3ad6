"""Whether PostgreSQL has room for all connections that the processes of the service may open."""

from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

# A process is counted by its listener, whose name tells the size of its pool.
_ROOM = text("""
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true)::int, 0) AS allowed,
       count(pool) AS processes, coalesce(sum(pool + 1), 0) AS wanted,
       count(*) FILTER (WHERE application_name NOT LIKE 'orders-%') AS others
FROM (SELECT application_name, substring(application_name FROM '^orders-.* pool=([0-9]+)$')::int AS pool
      FROM pg_stat_activity WHERE datid IS NOT NULL) AS sessions""")


class Room(NamedTuple):
    """Connections that the server allows, that `processes` may open in sum, and that others have now."""

    allowed: int
    processes: int
    wanted: int
    others: int

    @property
    def missing(self) -> int:
        return self.wanted + self.others - self.allowed

    def __str__(self) -> str:
        return (
            f"{self.processes} processes may open {self.wanted}, others have {self.others}, PostgreSQL allows "
            f"{self.allowed}: raise max_connections by {self.missing}, lower pg.pool.max, or put PgBouncer in between"
        )


async def look_for_room(conn: AsyncConnection) -> Room:
    """Count what may be opened on the whole server."""
    return Room(*(await conn.execute(_ROOM)).one())
