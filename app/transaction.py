"""Transactions: plain code over a plain connection, from BEGIN to COMMIT in one go."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

T = TypeVar("T")


async def transact(engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
    """Run `work` in a transaction: committed when `work` returns, rolled back when it raises.

    `work` awaits nothing. SQLAlchemy gives each await on a connection a greenlet of its own, and for short statements
    these cost more than the statements do: here one is enough, from the pool and back to it.
    """

    def whole() -> T:
        with engine.sync_engine.begin() as conn:
            return work(conn)

    return await greenlet_spawn(whole)


def autocommit(engine: AsyncEngine) -> AsyncEngine:
    """The engine as one whose statements each commit by themselves: BEGIN and COMMIT are round trips of their own."""
    return engine.execution_options(isolation_level="AUTOCOMMIT")
