"""Where a benchmark of the pipeline runs and what it leaves behind: a store to fill, targets for people, JSON for
machines."""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.finding import Target
from bench.postgres.server import SETTINGS
from tests.engines.postgres.server import Server

# Where Debian's package libpostgresql-jdbc-java has it.
JDBC_JAR = Path("/usr/share/java/postgresql.jar")
# What a server that Spark writes to should have: twice as many as tasks that write at the same time.
PLEDGES = "8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    store = parser.add_mutually_exclusive_group()
    store.add_argument("--url", help="a store that may be filled (default: a new SQLite file)")
    store.add_argument("--postgres", action="store_true", help="a PostgreSQL server of its own instead, on loopback")
    parser.add_argument("--quick", action="store_true", help="small and once: to see that it works")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")


@contextmanager
def running(arguments: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """The URL of the store, and a temporary directory."""
    out = Path(arguments.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spark-", dir=out) as made:
        folder = Path(made)
        if arguments.postgres:
            # The server has a user of its own when we are root.
            folder.chmod(0o755)
            with _server(folder / "cluster") as url:
                yield url, folder
        else:
            yield arguments.url or f"sqlite:///{folder}/store.db", folder


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Reached by TCP, because JDBC knows no other way. It waits for the disk, as a real one does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {**SETTINGS, "listen_addresses": "127.0.0.1", "port": str(port), "max_prepared_transactions": PLEDGES}
    server = Server(folder, durable=True, settings=settings)
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        server.remove()


def jdbc_jars(given: str | None, url: str) -> str | None:
    """The jars that were given, or the one that the system has."""
    if given is None and url.startswith("postgres") and JDBC_JAR.exists():
        return str(JDBC_JAR)
    return given


def tell(arguments: argparse.Namespace, name: str, document: dict[str, Any], targets: Sequence[Target]) -> None:
    met = [{"text": one.text, "measured": one.measured, "is_met": one.is_met} for one in targets]
    written = Path(arguments.out).absolute() / f"{name}.json"
    whole = {"load": os.getloadavg()[0], "messages": arguments.messages, **document, "targets": met}
    written.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    for target in targets:
        print(f"  {'met   ' if target.is_met else 'MISSED'}  {target.text}: {target.measured:,.2f}")
    print(f"\nWritten: {written}")
