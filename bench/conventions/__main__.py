"""`python -m bench.conventions`: workers, a producer and pg_cron for a quarter of an hour; lost and doubled messages.

The server is Debian's PostgreSQL 15 with `postgresql-15-cron`, in a folder of its own. Penstock is installed as
docs/sql.md says; from then on only pg_cron and the programs of the conventions run. Four workers end messages in each
of the four ways, two of them without a transaction, and die now and then; for two minutes there is no worker at all.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.conventions.verdict import Verdict, judge
from bench.machine import surroundings
from tests.engines.postgres.sql.clusters import Cluster

# Without background workers pg_cron opens a connection for each job: its default.
SETTINGS = "cron.use_background_workers = off\ncron.host = '{folder}'\ntimezone = 'UTC'\nlog_timezone = 'UTC'\n"
INSTALL = (
    "create extension pg_cron",
    "select penstock.create_message_schema('messages')",
    "select penstock.create_queue_schema('test01')",
    "select penstock.install_cron()",
    "select cron.schedule('tick', '* * * * *',"
    """ $$insert into messages.message (message) values ('{"do": "work"}')$$)""",
)
WORKERS = ("whole", "parts", "whole", "parts")
# Of a hundred messages; the rest is work that succeeds.
SHARES = {"break": 10, "garbage": 10, "dawdle": 2, "die": 1}
PAUSE_SECONDS = 0.2
NO_WORKERS = (0.4, 0.4 + 2 / 15)
# A lock of five seconds ends within a minute after it, and pg_cron comes once a minute.
DRAIN_SECONDS = 240


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.jsonl"):
        old.unlink()
    cluster = Cluster("pg_cron")
    with (cluster.data / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
        file.write(SETTINGS.format(folder=cluster.folder))
    cluster.start()
    try:
        _install(cluster.url())
        alone, began, ended = _run(cluster.url(), out, arguments.minutes * 60)
        verdict = judge(out, cluster.url(), cluster.log, alone, began, ended)
    finally:
        cluster.stop()
        (out / "server.log").write_bytes(cluster.log.read_bytes())
        cluster.remove()
    _write(out, verdict)
    sys.exit(verdict.is_bad)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.conventions", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15, help="how long messages are sent (default 15)")
    parser.add_argument("--out", default="build/conventions", help="where journals and the result are written")
    return parser.parse_args()


def _install(url: str) -> None:
    """As docs/sql.md says it."""
    subprocess.run([Path(sys.executable).with_name("penstock"), "migrate", "--url", url], check=True)
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in INSTALL:
            connection.execute(statement)


def _run(url: str, out: Path, seconds: float) -> tuple[int, float, float]:
    rng = random.Random(14)
    with (
        psycopg.connect(url, autocommit=True) as producer,
        _process(url, out, "ear"),
        _process(url, out, "dead"),
        (out / "producer.jsonl").open("a", encoding="utf-8") as journal,
    ):
        alone = _send(producer, "wait")
        workers = Workers(url, out, alone)
        began = time.time()
        while (passed := time.time() - began) < seconds:
            workers.keep(() if NO_WORKERS[0] <= passed / seconds < NO_WORKERS[1] else WORKERS)
            do = rng.choices([*SHARES, "work"], [*SHARES.values(), 100 - sum(SHARES.values())])[0]
            number = _send(producer, do)
            journal.write(json.dumps({"at": time.time(), "event": "sent", "id": number, "do": do}) + "\n")
            time.sleep(PAUSE_SECONDS)
        ended = time.time()
        producer.execute("select cron.unschedule('tick')")
        while _waiting(producer) > 1 and time.time() < ended + DRAIN_SECONDS:
            workers.keep(WORKERS)
            time.sleep(PAUSE_SECONDS)
        workers.keep(())
        # What was notified last is still to be written down.
        time.sleep(2)
    return alone, began, ended


def _send(connection: psycopg.Connection[tuple[int]], do: str) -> int:
    row = connection.execute(
        "INSERT INTO messages.message (message) VALUES (%s) RETURNING id", (json.dumps({"do": do}),)
    ).fetchone()
    assert row is not None
    return row[0]


def _waiting(connection: psycopg.Connection[tuple[int]]) -> int:
    row = connection.execute("SELECT count(*) FROM messages.message").fetchone()
    assert row is not None
    return row[0]


class Workers:
    """Worker processes, started again when they died."""

    def __init__(self, url: str, out: Path, alone: int) -> None:
        self.words = [url, str(out / "workers.jsonl"), str(alone)]
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def keep(self, roles: Sequence[str]) -> None:
        for place, worker in list(self.running.items()):
            if place >= len(roles):
                worker.terminate()
                worker.wait()
            if worker.poll() is not None:
                del self.running[place]
        for place, role in enumerate(roles):
            if place not in self.running:
                self.running[place] = subprocess.Popen([*_words(role), *self.words])


@contextmanager
def _process(url: str, out: Path, role: str) -> Iterator[None]:
    journal = out / f"{role}.jsonl"
    process = subprocess.Popen([*_words(role), url, str(journal)])
    try:
        while not (journal.exists() and journal.read_text(encoding="utf-8")):
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def _words(role: str) -> list[str]:
    return [sys.executable, "-m", "bench.conventions.worker", role]


def _write(out: Path, verdict: Verdict) -> None:
    result = {"machine": surroundings(out), **verdict.lines}
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, value in verdict.lines.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
