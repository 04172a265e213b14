"""A real PgBouncer in front of a database: many clients share a few sessions of the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
# Everything else as PgBouncer has it by default.
SETTINGS = """
[databases]
* = host={host} user={user}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
"""


@contextmanager
def pooler(url: str, mode: str = "transaction", size: int = 2) -> Iterator[str]:
    """The URL of the same database through a pooler."""
    assert PROGRAM is not None
    target = conninfo_to_dict(url)
    with tempfile.TemporaryDirectory(prefix="pgb", dir="/tmp") as name:
        folder = Path(name)
        settings = folder / "settings.ini"
        settings.write_text(
            SETTINGS.format(host=target["host"], user=target["user"], folder=folder, mode=mode, size=size),
            encoding="utf-8",
        )
        folder.chmod(0o777)
        # It refuses to run as root.
        user = "nobody" if os.getuid() == 0 else None
        with subprocess.Popen([PROGRAM, "-q", str(settings)], user=user, stderr=subprocess.DEVNULL) as process:
            try:
                through = f"postgresql://{target['user']}@/{target['dbname']}?host={quote(name, safe='')}&port=6432"
                _wait_for(process, through)
                yield through
            finally:
                process.terminate()


def _wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    ends = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, "the pooler has ended"
            assert time.monotonic() < ends, "the pooler does not answer"
            time.sleep(0.02)
