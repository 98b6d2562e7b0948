"""A real PostgreSQL for tests: one server for each test process, in a folder of its own; a fresh database a test.

Use it by ``from postgres_case import postgres`` and a parameter of that name. Where there is no PostgreSQL,
or none that may be started, the test is skipped with the reason.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TRUSTED, GUARDED, PASSWORD = "postgres", "guarded", "s3cr/t@p%w"
"""A user who needs no password, one who does, and it."""
_HBA = f"""local all all trust
host all {GUARDED} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "log_min_messages": "fatal",
}
_USERS = ("postgres", "nobody")


@dataclass(frozen=True)
class Server:
    """A PostgreSQL that runs."""

    folder: Path
    port: int
    user: int | None
    """Whom its processes belong to, where that is not this process' own user."""

    def control(self, *words: str) -> None:
        """pg_ctl."""
        options = " ".join(f"-c {k}={v}" for k, v in _SETTINGS.items())
        options += f" -p {self.port} -k {self.folder}"
        _run(
            [
                *(_program("pg_ctl"), "-D", f"{self.folder}/data", "-w", "-t", "30"),
                *("-o", options, "-l", f"{self.folder}/log", *words),
            ],
            self.user,
        )

    def stop(self, mode: str = "immediate") -> None:
        """As a crash does: no connection is told."""
        self.control("stop", "-m", mode)

    def start(self) -> None:
        """Start it again, with everything that was committed."""
        self.control("start")

    def restart(self, away_s: float = 0.0) -> None:
        """Stop, stay away, come back."""
        self.stop()
        time.sleep(away_s)
        self.start()

    def ask(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement as the owner."""
        import psycopg

        url = f"postgresql://{TRUSTED}@127.0.0.1:{self.port}/{database}"
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)  # pyright: ignore[reportArgumentType, reportCallIssue]
            return cursor.fetchall() if cursor.description else []

    def url(self, database: str, user: str = TRUSTED) -> str:
        """Address of a database, without a password."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"


@dataclass(frozen=True)
class Database:
    """An empty database of its own."""

    server: Server
    name: str

    @property
    def url(self) -> str:
        """Its address, for the user who needs no password."""
        return self.server.url(self.name)

    @property
    def guarded_url(self) -> str:
        """Its address, for the user who needs `PASSWORD`."""
        return self.server.url(self.name, GUARDED)

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement in it."""
        return self.server.ask(statement, self.name)


@pytest.fixture
def postgres() -> Iterator[Database]:
    server = running()
    if isinstance(server, str):
        pytest.skip(server)
    name = f"test_{os.getpid()}_{time.monotonic_ns()}"
    server.ask(f"CREATE DATABASE {name}")
    server.ask(f"GRANT ALL ON SCHEMA public TO {GUARDED}", name)
    yield Database(server, name)
    server.ask(f"DROP DATABASE {name} WITH (FORCE)")


@functools.cache
def running() -> Server | str:
    """The server of this process, or why there is none."""
    absent = [name for name in ("initdb", "pg_ctl", "postgres") if _program(name) is None]
    if absent:
        return f"no PostgreSQL here: {', '.join(absent)} not found"
    folder = Path(tempfile.mkdtemp(prefix="kltune-pg-"))
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        known = [entry for name in _USERS if (entry := _user(name)) is not None]
        if not known:
            return f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)}"
        user = known[0].pw_uid
        os.chown(folder, user, known[0].pw_gid)
    try:
        _run(
            [
                *(_program("initdb"), "-D", f"{folder}/data", "-U", TRUSTED, "--no-sync"),
                *("--locale=C", "-E", "UTF8", "-A", "trust"),
            ],
            user,
        )
        (folder / "data" / "pg_hba.conf").write_text(_HBA, encoding="utf-8")
        server = Server(folder, _free_port(), user)
        server.start()
    except subprocess.CalledProcessError as error:
        shutil.rmtree(folder, ignore_errors=True)
        return f"PostgreSQL can't be started here: {error.stdout[-300:]}"
    _keep(server)
    server.ask(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'")
    return server


def _keep(server: Server) -> None:
    """Have a process of its own end the server with this one, however this one ends.

    It waits at a pipe whose other end is open in this process alone: a child that is forked closes it.
    """
    ours, theirs = os.pipe()  # ours is read by the keeper; theirs is never written
    words = [json.dumps([str(_program("pg_ctl")), str(server.folder), server.user])]
    keeper = subprocess.Popen(
        [sys.executable, "-c", _KEEPER, *words],
        stdin=ours,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,  # a Ctrl-C or a signal to the group is not for it
    )
    os.close(ours)
    os.register_at_fork(after_in_child=lambda: os.close(theirs))
    atexit.register(_end, theirs, keeper, os.getpid())


_KEEPER = """
import json, shutil, subprocess, sys
pg_ctl, folder, user = json.loads(sys.argv[1])
sys.stdin.buffer.read()
subprocess.run([pg_ctl, "-D", folder + "/data", "stop", "-m", "immediate"], user=user, cwd="/")
shutil.rmtree(folder, ignore_errors=True)
"""


def _end(pipe: int, keeper: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:  # not from a process that was forked by a test
        os.close(pipe)
        keeper.wait()


def _run(command: list[str | None], user: int | None) -> None:
    # Whoever the server belongs to may not look into this process' working directory.
    subprocess.run(
        [str(word) for word in command],
        check=True,
        user=user,
        cwd="/",
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if "start" not in command else subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )


def _program(name: str) -> str | None:
    """On PATH, or where Debian puts it."""
    others = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return shutil.which(name) or (str(others[0]) if others else None)


def _user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
