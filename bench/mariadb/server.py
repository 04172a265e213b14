"""The server that all contenders share, each in a database of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql

PROGRAM = "/usr/sbin/mariadbd"
# What a small production server would have, and nothing that trades durability for speed.
SETTINGS = {
    "innodb_buffer_pool_size": "1G",
    "innodb_log_file_size": "2G",
    "innodb_flush_log_at_trx_commit": "1",
    "max_allowed_packet": "64M",
    "max_connections": "1000",
    "performance_schema": "OFF",
    "skip_name_resolve": "ON",
}
SHOWN = ("version", "innodb_flush_log_at_trx_commit", "innodb_flush_method", "innodb_buffer_pool_size")
START_SECONDS = 120


class MariadbBenchServer:
    def __init__(self, port: int) -> None:
        self.port = port

    def fresh(self, name: str) -> str:
        """The URL of an empty database."""
        self.execute(f"drop database if exists `{name}`")
        self.execute(f"create database `{name}` character set utf8mb4")
        return f"mysql://root@127.0.0.1:{self.port}/{name}"

    def execute(self, statement: str) -> tuple[Any, ...]:
        with closing(pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return tuple(cursor.fetchone() or ())

    def describe(self) -> dict[str, str]:
        shown = {name: str(self.execute(f"select @@{name}")[0]) for name in SHOWN}
        if shown["innodb_flush_log_at_trx_commit"] != "1":
            raise SystemExit("the server does not flush its commits: the numbers say nothing")
        return shown


@contextmanager
def running(folder: Path) -> Iterator[MariadbBenchServer]:
    data, temporary = folder / "data", folder / "tmp"
    for path in (data, temporary):
        path.mkdir()
    user = _user_option(folder, data, temporary)
    places = ["--no-defaults", f"--datadir={data}", f"--tmpdir={temporary}", *user]
    subprocess.run(
        ["mariadb-install-db", *places, "--auth-root-authentication-method=normal", "--skip-test-db"],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    port = _free_port()
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    process = subprocess.Popen(
        [PROGRAM, *places, f"--socket={folder / 's'}", f"--port={port}", "--bind-address=127.0.0.1", *options],
        stderr=(folder / "log").open("wb"),
    )
    try:
        server = MariadbBenchServer(port)
        _await(server, process)
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _user_option(*folders: Path) -> list[str]:
    """The server does not run as root; the package has made a user for it."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam("mysql").pw_name
    for folder in folders:
        folder.chmod(0o755)
        shutil.chown(folder, user)
    return [f"--user={user}"]


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _await(server: MariadbBenchServer, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        with suppress(pymysql.MySQLError):
            server.execute("select 1")
            return
        time.sleep(0.1)
    raise SystemExit("the server did not start")
