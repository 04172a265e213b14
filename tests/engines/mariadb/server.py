"""A real MariaDB for tests: one server for each process of a run, and databases that are emptied and used again.

The server comes with Debian's package `mariadb-server`; `MYSQL_SERVER` names the program of a MySQL server to be tested
instead. The server does not wait for the disk, because no test turns the
machine off; tests that kill the server make one of their own (`MariadbServer(folder, durable=True)`).
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pymysql
import pytest
from pymysql.constants import CLIENT

from tests.ports import LOOPBACK

PROGRAM = os.environ.get("MYSQL_SERVER", "/usr/sbin/mariadbd")
IS_MYSQL = "MYSQL_SERVER" in os.environ
USER = "root"
SETTINGS = {
    "max_connections": "300",
    "max_allowed_packet": "1G",
    "innodb_buffer_pool_size": "64M",
    "performance_schema": "OFF",
    "skip_name_resolve": "ON",
    "innodb_lock_wait_timeout": "60",
}
SETTINGS |= (
    {"mysqlx": "OFF", "secure_file_priv": "NULL", "innodb_redo_log_capacity": "64M"}
    if IS_MYSQL
    else {"innodb_log_file_size": "48M"}
)
RELAXED = {"innodb_doublewrite": "0", "innodb_flush_method": "nosync"}
READ_COMMITTED = "set session transaction isolation level read committed"
# Facts about a store that stay when it is emptied.
KEPT = ("penstock_store",)


class MariadbServer:
    """One server in a folder, started when it is made, unless it is a node of a cluster."""

    starts_alone = True

    def __init__(
        self, folder: Path, durable: bool = False, settings: dict[str, str] | None = None, port: int | None = None
    ) -> None:
        if not os.path.exists(PROGRAM):
            pytest.skip("mariadb-server is not installed: `make databases` does that, as root on Debian")
        self.folder = folder
        self.data = folder / "data"
        self.socket = folder / "socket"
        # Of its own: a server that starts removes the temporary tables it finds, also those of others.
        self.temporary = folder / "tmp"
        self.settings = {**SETTINGS, **({} if durable else RELAXED), **(settings or {})}
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        if not self.data.exists():
            self._make()
        if self.starts_alone:
            self.start()

    def url(self, database: str, user: str = USER, password: str = "") -> str:
        socket = quote(str(self.socket), safe="")
        return f"mysql://{quote(user)}:{quote(password)}@localhost/{quote(database)}?unix_socket={socket}"

    def connect(self, database: str | None = None, **settings: Any) -> pymysql.Connection[Any]:
        return pymysql.connect(unix_socket=str(self.socket), user=USER, database=database, **settings)

    def start(self, *words: str) -> None:
        command = [*self.command(), *words]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._await_start()

    def command(self) -> list[str]:
        network = ["--skip-networking"] if self.port is None else [f"--bind-address={LOOPBACK}", f"--port={self.port}"]
        options = [f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items()]
        return [PROGRAM, "--no-defaults", f"--datadir={self.data}", f"--tmpdir={self.temporary}",
                f"--socket={self.socket}", f"--pid-file={self.folder / 'pid'}",
                *network, *_user_option(), *options]  # fmt: skip

    def _await_start(self) -> None:
        assert self.process is not None
        ends = time.monotonic() + 120
        while not self._is_answering():
            if self.process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"mariadbd did not start: {self._log()}")
            time.sleep(0.05)

    def _is_answering(self) -> bool:
        """Asked on a socket of our own: the driver leaves its own open when connecting fails."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            try:
                asked.connect(str(self.socket))
            except OSError:
                return False
            return bool(asked.recv(1))

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(120)
            self.process = None

    def remove(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data.mkdir()
        self.temporary.mkdir()
        if (user := _other_user()) is not None:
            for path in (self.folder, self.data, self.temporary):
                shutil.chown(path, user)
        installer = [PROGRAM] if IS_MYSQL else ["mariadb-install-db"]
        options = (
            ["--initialize-insecure"] if IS_MYSQL else ["--auth-root-authentication-method=normal", "--skip-test-db"]
        )
        command = [*installer, "--no-defaults", f"--datadir={self.data}", f"--tmpdir={self.temporary}",
                   *options, *_user_option()]  # fmt: skip
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{installer[0]}: {done.stdout.decode()}{done.stderr.decode()}")

    def _log(self) -> str:
        log = self.folder / "log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def _other_user() -> str | None:
    """MariaDB does not run as root unless told to; the package has made a user for it."""
    if os.geteuid() != 0:
        return None
    return pwd.getpwnam("mysql").pw_name


def _user_option() -> list[str]:
    user = _other_user()
    return [] if user is None else [f"--user={user}"]


@cache
def server() -> MariadbServer:
    """The server of this process, removed when the process ends."""
    # Short: the path of a socket has at most 107 bytes. Readable: the server runs as another user.
    folder = Path(tempfile.mkdtemp(prefix="penstock-maria-"))
    folder.chmod(0o755)
    owner = os.getpid()
    (folder / "owner").write_text(str(owner))
    _remove_orphans(folder.parent)
    running = MariadbServer(folder / "server")

    def remove() -> None:
        if os.getpid() == owner:
            running.remove()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return running


def _remove_orphans(parent: Path) -> None:
    """Servers of runs that were killed."""
    for owner in parent.glob("penstock-maria-*/owner"):
        folder = owner.parent
        try:
            if Path(f"/proc/{owner.read_text()}").exists():
                continue
            number = int((folder / "server" / "pid").read_text())
            if str(folder).encode() in Path(f"/proc/{number}/cmdline").read_bytes():
                os.kill(number, signal.SIGKILL)
        except (OSError, ValueError):
            pass  # removed meanwhile, or never started
        shutil.rmtree(folder, ignore_errors=True)


class MariadbDatabases:
    """Databases of this process: one that no test uses any more is emptied and used again."""

    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}
        self._admin: pymysql.Connection[Any] | None = None

    def fresh(self, folder: Path | None) -> str:
        import penstock

        name = None if folder is None else self._free(folder)
        if name is None:
            name = f"test_{len(self._folders)}_{time.monotonic_ns()}"
            self.execute(f"create database `{name}`")
            with penstock.connect(server().url(name)) as store:
                store.migrate()
        else:
            self._empty(name)
        if folder is not None:
            self._folders[name] = folder
        return server().url(name)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        if self._admin is None:
            self._admin = server().connect(autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS)
        with self._admin.cursor() as cursor:
            cursor.execute(statement)
            rows = list(cursor.fetchall())
            while cursor.nextset():
                pass
            return rows

    def _free(self, folder: Path) -> str | None:
        """One of another test, which is over: its folder is not near this one, and nobody is connected to it."""
        for name, used in self._folders.items():
            if used.is_relative_to(folder) or folder.is_relative_to(used):
                continue
            if self.execute(f"select count(*) from information_schema.processlist where db = '{name}'")[0][0] == 0:
                return name
        return None

    def _empty(self, name: str) -> None:
        tables = self.execute(
            "select table_name from information_schema.tables where table_type = 'BASE TABLE' "
            f"and table_schema = '{name}'"
        )
        statements = [f"delete from `{name}`.`{table}`" for (table,) in tables if table not in KEPT]
        store = f"`{name}`.penstock_store"
        self.execute(
            ";".join(
                [
                    *statements,
                    f"delete from {store} where name = 'swept_at'",
                    f"update {store} set value = 0 where name = 'trail_upto'",
                    f"update {store} set value = floor(rand() * 4611686018427387903) where name = 'epoch'",
                ]
            )
        )


_databases = MariadbDatabases()


def fresh_database(folder: Path | None = None) -> str:
    """The URL of a database with nothing but the schema in it. With a folder it may be one that a test with another
    folder has used before."""
    return _databases.fresh(folder)


def own_connection(url: str, **settings: Any) -> pymysql.Connection[Any]:
    """A connection of a user's program to the database of a URL, in the isolation level that a send needs."""
    settings.setdefault("init_command", READ_COMMITTED)
    return server().connect(urlsplit(url).path.removeprefix("/"), **settings)


def await_lock_wait(watcher: pymysql.Connection[Any]) -> None:
    """The server renews this table only when nobody has read it for a tenth of a second."""
    ends = time.monotonic() + 60
    with watcher.cursor() as cursor:
        while True:
            cursor.execute("select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'")
            if cursor.fetchall()[0][0]:
                return
            assert time.monotonic() < ends, "the call does not wait for the lock"
            time.sleep(0.15)
