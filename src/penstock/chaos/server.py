"""Stores of the run's own other than PostgreSQL: a file, and single-process servers that are killed and restarted."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import quote

import penstock
from penstock.chaos.proxy import LOOPBACK

START_SECONDS = 300
SBIN = ("/usr/sbin", "/sbin")


class OwnStore(Protocol):
    """A store that belongs to the run."""

    @property
    def url(self) -> str: ...

    def close(self) -> None: ...


@runtime_checkable
class Crashing(Protocol):
    def start(self) -> None: ...

    def crash(self) -> None: ...


@runtime_checkable
class Restored(Protocol):
    def copy(self) -> None: ...

    def restore(self) -> None: ...


class ProcessServer:
    """A server of one process on a Unix socket in its folder. `greeting` is the request that tests whether it
    responds."""

    greeting = b""

    def __init__(self, folder: Path, command: list[str], user: str | None = None) -> None:
        self.folder = folder
        self._command = command
        self._user = user if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> str:
        return str(self.folder / "socket")

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=self._user, cwd="/"
            )
        ends = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > ends:
                said = (self.folder / "log").read_text(errors="replace")[-500:]
                raise penstock.StoreUnavailable(f"{self._command[0]} did not start: {said}")
            time.sleep(0.02)

    def crash(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.crash()

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(START_SECONDS)
            try:
                asked.connect(self.socket)
                asked.sendall(self.greeting)
                return asked.recv(5) not in (b"", b"-LOAD")
            except OSError:
                return False


class OwnMariadb(ProcessServer):
    """MariaDB with the durability of its package: a commit waits for the disk."""

    SETTINGS = ("--skip-networking", "--skip-name-resolve", "--innodb-buffer-pool-size=32M", "--performance-schema=OFF",
                "--innodb-log-file-size=16M")  # fmt: skip

    def __init__(self, folder: Path) -> None:
        program = found("mariadbd", "mariadb-server")
        user = ["--user=mysql"] if os.geteuid() == 0 else []
        data, temporary = folder / "data", folder / "tmp"
        for part in (folder, data, temporary):
            part.mkdir(parents=True)
            if user:
                shutil.chown(part, "mysql")
        open_to_others(folder)
        places = [f"--datadir={data}", f"--tmpdir={temporary}"]
        install = [found("mariadb-install-db", "mariadb-server"), "--no-defaults", *places, *user, "--skip-test-db",
                   "--auth-root-authentication-method=normal"]  # fmt: skip
        subprocess.run(install, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        own = [f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}"]
        super().__init__(folder, [program, "--no-defaults", *places, *user, *own, *self.SETTINGS])
        self.start()
        self._make_database()

    @property
    def url(self) -> str:
        return f"mariadb://root:@localhost/penstock?unix_socket={quote(self.socket, safe='')}"

    def _make_database(self) -> None:
        import pymysql

        with pymysql.connect(unix_socket=self.socket, user="root") as connection, connection.cursor() as cursor:
            cursor.execute("create database penstock")


class OwnRedis(ProcessServer):
    """Redis with every write in the append-only file before its reply."""

    greeting = b"PING\r\n"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        program = found(os.environ.get("REDIS_SERVER", "redis-server"), "redis-server")
        options = ["--port", "0", "--unixsocket", str(folder / "socket"), "--dir", str(folder), "--save", ""]
        super().__init__(folder, [program, *options, "--appendonly", "yes", "--appendfsync", "always"])
        self.start()

    @property
    def url(self) -> str:
        return f"redis+unix://{self.socket}?durability=aof"


class OwnFile:
    """A SQLite file that can be replaced by its copy while no process has it open."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._file = folder / "store.db"
        self._copy = folder / "copy.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self._file}"

    def copy(self) -> None:
        """Copy with SQLite's backup API: the file as it is between two commits."""
        import apsw

        source, target = apsw.Connection(str(self._file)), apsw.Connection(str(self._copy))
        with target.backup("main", source, "main") as backup:
            backup.step()
        target.close()
        source.close()

    def restore(self) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{self._file}{suffix}").unlink(missing_ok=True)
        self._copy.replace(self._file)

    def close(self) -> None:
        pass


class OwnPooler(ProcessServer):
    """PgBouncer in transaction mode in front of a PostgreSQL server: clients share a few sessions."""

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True)
        settings = {"unix_socket_dir": folder, "listen_port": 6432, "auth_type": "any", "pool_mode": "transaction",
                    "default_pool_size": 5, "max_client_conn": 500, "server_login_retry": 1}  # fmt: skip
        text = "\n".join(f"{name} = {value}" for name, value in settings.items())
        (folder / "settings.ini").write_text(
            f"[databases]\n* = host={LOOPBACK} port={port} user=postgres\n[pgbouncer]\n{text}\n"
        )
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
        open_to_others(folder)
        command = [found("pgbouncer", "pgbouncer"), "-q", str(folder / "settings.ini")]
        super().__init__(folder, command, user="nobody")
        self.start()

    @property
    def socket(self) -> str:
        return str(self.folder / ".s.PGSQL.6432")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder), safe='')}&port=6432"

    def _answers(self) -> bool:
        return Path(self.socket).exists()


def found(program: str, package: str) -> str:
    path = shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), *SBIN)))
    if path is None:
        raise penstock.MissingExtra(f"there is no {program} here: install the package {package} of your system")
    return path


def open_to_others(folder: Path) -> None:
    """The server runs as another user, who needs access to its folder."""
    for part in (folder, *folder.parents):
        if part != Path(part.anchor) and part.stat().st_mode & 0o001 == 0 and part.stat().st_uid == os.geteuid() == 0:
            part.chmod(part.stat().st_mode | 0o011)


def other_user(*names: str) -> str | None:
    """For servers that do not run as root."""
    if os.geteuid() != 0:
        return None
    for name in names:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise penstock.InvalidInput(f"this server does not run as root, and this machine has none of {', '.join(names)}")
