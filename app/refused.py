"""What the database refuses, in words: what it said, and what to do about it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection

NO_TABLE = "42P01"

CURES = {
    "28000": "correct the user in pg.dsn, or let it in by pg_hba.conf",
    "28P01": "correct the user and the password in pg.dsn",
    "3D000": "create it, or correct the name at the end of pg.dsn",
    "42501": "grant it to the user of pg.dsn, or let pg.dsn name the schema's owner",
    "53300": "raise PostgreSQL's max_connections, or lower pg.pool.max, which holds for each process",
    "57P03": "it starts or stops; wait for it",
    "ConnectionRefusedError": "start PostgreSQL there, or correct the host and the port in pg.dsn",
    "FileNotFoundError": "start PostgreSQL there, or correct the socket's directory in pg.dsn",
    "gaierror": "correct the host in pg.dsn",
}
"""What to do, by PostgreSQL's error code or by the name of Python's error."""


UNANSWERED = (DBAPIError, NoConnection, OSError)
"""How the driver and the pool give up, also on a server that is not there."""


class DatabaseRefused(Exception):
    """The database did not do what a command needs; the message says why, and what to do."""


@contextmanager
def refusals_in_words() -> Iterator[None]:
    """Raise DatabaseRefused where the driver or the pool gives up."""
    try:
        yield
    except UNANSWERED as error:
        raise DatabaseRefused(f"the database refuses: {in_words(error)}") from error


def in_words(error: Exception) -> str:
    """One line without the statement and its parameters, which may be customers' data."""
    if isinstance(error, NoConnection):
        return "all connections of the pool are in use: raise pg.pool.max, or wait longer by pg.pool.acquire_timeout"
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    cure = CURES.get(sqlstate(error) or type(said).__name__)
    return ": ".join(part for part in (_words(said), cure) if part)


def _words(said: BaseException) -> str:
    if isinstance(said, OSError) and said.errno is not None:
        return os.strerror(said.errno) if said.errno > 0 else str(said.strerror)
    return str(said).partition("\n")[0] or type(said).__name__


def sqlstate(error: Exception) -> str | None:
    """PostgreSQL's code for the error; None when it never got there."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)
