"""Clusters of Debian's PostgreSQL, started for a test on a unix socket of their own and thrown away after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

BIN = Path("/usr/lib/postgresql/15/bin")
CRON = Path("/usr/lib/postgresql/15/lib/pg_cron.so")

missing = [str(path) for path in (BIN / "initdb", CRON) if not path.exists()]

# Durability is proven elsewhere; pg_cron runs its jobs in workers of the server, so no password is needed.
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{folder}'
shared_preload_libraries = '{libraries}'
cron.use_background_workers = on
cron.database_name = 'postgres'
max_connections = 30
max_worker_processes = 12
fsync = off
synchronous_commit = off
"""


class Cluster:
    """One server with one folder; `url()` names a database in it."""

    def __init__(self, libraries: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pstk", dir="/tmp"))
        self.log = self.folder / "log"
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        settings = SETTINGS.format(folder=self.folder, libraries=libraries)
        (self.data / "postgresql.auto.conf").write_text(settings, encoding="utf-8")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def start(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-l", str(self.log), "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-m", "fast", "-w", "stop")

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        """The server refuses to run as root, so a test run by root goes on as the package's own user."""
        become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        done = subprocess.run(
            [*become, str(BIN / program), *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            said = self.log.read_text(encoding="utf-8")[-2000:] if self.log.exists() else ""
            raise RuntimeError(f"{program} failed: {done.stderr}\n{said}")
