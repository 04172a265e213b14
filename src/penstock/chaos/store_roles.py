"""Roles beside the clients: sweeping, filling batches, sending in transactions, and following a stream."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import penstock
from penstock.chaos.history import Recorder, clock
from penstock.chaos.plan import FOLLOWER_MARK, ActorPlan
from penstock.chaos.ports.port import LOST, Item
from penstock.chaos.ports.python import REFUSED, outgoing
from penstock.chaos.ports.resp import RespPort

T = TypeVar("T")
# READ COMMITTED, REPEATABLE READ and SERIALIZABLE, as psycopg numbers them.
LEVELS = (2, 3, 4)
PREPARED_SHARE = 0.2


class StoreRole:
    """A role that uses the store from Python."""

    def __init__(self, plan: ActorPlan, recorder: Recorder, store: penstock.Store) -> None:
        self.plan = plan
        self.recorder = recorder
        self.store = store
        self.random = random.Random(plan.seed)
        self._count = 0

    def queue(self, kind: str) -> penstock.Queue:
        return self.store.queue(self.plan.queues[kind])

    def name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self.plan.process}-{self._count}"

    def sweep(self) -> None:
        time.sleep(self.random.uniform(0.05, 0.3))
        try:
            self.store.sweep()
            asked = clock()
            stats = self.queue("work").stats()
        except LOST:
            return
        for group, one in stats.items():
            live = one.held + one.available + one.redo + one.in_progress
            count = live + sum(one.outcomes.values())
            self.recorder.note("stats", queue=self.plan.queues["work"], group=group, asked=asked, count=count)

    # -- batches ---------------------------------------------------------------------------------------------------

    def run_batch(self) -> None:
        time.sleep(self.random.uniform(0.1, 0.6))
        name = self.name("batch")
        queue = self.plan.queues["batches"]
        ends = {"batch": name, "queue": queue, "end": f"end-{name}", "abort": f"abort-{name}"}
        last = [Item(ends[kind], batch=name, conditional=True) for kind in ("end", "abort")]
        self.recorder.invoke("send", queue=queue, messages=[item.described for item in last])
        batch = self.queue("batches").batch(name)
        call = self.recorder.invoke("batch", verb="open", **ends)
        insist(lambda: batch.set_end(last[0].payload))
        insist(lambda: batch.set_abort(last[1].payload))
        self.recorder.answer("batch", "ok", call)
        for number in range(self.random.randint(0, 5)):
            self._send_member(batch, Item(f"member-{name}-{number}", batch=name))
        self._do("start", batch, ends)
        if self.random.random() < 0.3:
            time.sleep(self.random.uniform(0, 0.5))
            self._do("cancel", batch, ends)

    def _send_member(self, batch: penstock.Batch, item: Item) -> None:
        call = self.recorder.invoke("send", queue=self.plan.queues["batches"], messages=[item.described])
        try:
            sent = batch.send(item.payload)
        except REFUSED:
            self.recorder.answer("send", "fail", call)
        except LOST:
            self.recorder.answer("send", "unknown", call)
        else:
            self.recorder.answer("send", "ok", call, ids=[sent])

    def _do(self, verb: str, batch: penstock.Batch, ends: dict[str, str]) -> None:
        call = self.recorder.invoke("batch", verb=verb, **ends)
        try:
            info = batch.start() if verb == "start" else batch.cancel()
        except REFUSED:
            self.recorder.answer("batch", "fail", call)
        except LOST:
            self.recorder.answer("batch", "unknown", call)
        else:
            self.recorder.answer("batch", "ok", call, state=info.state)

    # -- transactions ----------------------------------------------------------------------------------------------

    def send_in_transaction(self) -> None:
        """Sends that commit late or are rolled back, so that other sends overtake them. On SQLite an open transaction
        blocks every writer and on MariaDB its queue, so it is short there."""
        time.sleep(self.random.uniform(0.02, 0.3))
        kind = self.random.choice([kind for kind in ("work", "stream", "jobs") if kind in self.plan.queues])
        items = [Item(self.name(kind)) for _ in range(self.random.randint(1, 3))]
        commits = "rollback" not in self.plan.faults or self.random.random() < 0.6
        longest = (1.5 if self.plan.engine == "postgres" else 0.1) if "hold" in self.plan.faults else 0
        call = self.recorder.invoke("send", queue=self.plan.queues[kind], messages=[item.described for item in items])
        begun_commit = False
        try:
            with self._own_connection() as (connection, end):
                ids = self.queue(kind).send_many([outgoing(item) for item in items], transaction=connection)
                time.sleep(self.random.uniform(0, longest))
                begun_commit = commits
                end("commit" if commits else "rollback")
        except LOST as error:
            # Without a commit the transaction is rolled back, whatever else failed.
            self.recorder.answer("send", "unknown" if begun_commit else "fail", call, error=str(error))
        else:
            self.recorder.answer("send", "ok" if commits else "fail", call, ids=ids if commits else None)

    @contextmanager
    def _own_connection(self) -> Iterator[tuple[Any, Callable[[str], object]]]:
        """With every isolation level and, where the server allows it, two-phase commit. What a killed process leaves
        prepared is undone by the drain."""
        if self.plan.engine != "postgres":
            with (sqlite_connection if self.plan.engine == "sqlite" else mariadb_connection)(self.plan.url) as found:
                yield found
            return
        level = self.random.choice(LEVELS)
        gid = f"{self.plan.queues['work']}-{self.name('prepared')}" if self.random.random() < PREPARED_SHARE else None
        with postgres_connection(self.plan.url, level, gid) as found:
            yield found

    # -- streams ---------------------------------------------------------------------------------------------------

    def follow(self, port: RespPort) -> bool:
        """Read on from the mark that this role keeps across kills; returns whether there was anything to read."""
        mark = self.plan.histories / FOLLOWER_MARK
        after = mark.read_text() if mark.exists() else "0-0"
        asked = clock()
        entries = port.follow(self.plan.queues["stream"], after, 50)
        if entries:
            described = [{"id": entry, "message": message} for entry, message in entries]
            self.recorder.note("follow", queue=self.plan.queues["stream"], asked=asked, entries=described)
            fresh = mark.with_suffix(".new")
            fresh.write_text(entries[-1][0])
            fresh.replace(mark)
        return bool(entries)


def insist(call: Callable[[], T], tries: int = 100) -> T:
    """Repeat an idempotent call until it succeeds."""
    for _ in range(tries):
        try:
            return call()
        except LOST:
            time.sleep(0.1)
    return call()


@contextmanager
def sqlite_connection(url: str) -> Iterator[tuple[Any, Callable[[str], object]]]:
    """A connection of the caller's own with an open transaction, and the function that ends it."""
    import apsw

    try:
        database = apsw.Connection(url.removeprefix("sqlite:///"))
        database.set_busy_timeout(5000)
        database.execute("begin immediate")
        try:
            yield database, database.execute
        finally:
            database.close()
    except apsw.Error as error:
        raise OSError(str(error)) from error


@contextmanager
def mariadb_connection(url: str) -> Iterator[tuple[Any, Callable[[str], object]]]:
    import pymysql

    parts = urlsplit(url)
    try:
        with pymysql.connect(
            host=parts.hostname, port=parts.port or 3306, user=unquote(parts.username or ""),
            password=unquote(parts.password or ""), database=unquote(parts.path[1:]), connect_timeout=5,
            init_command="set session transaction isolation level read committed",
        ) as connection:  # fmt: skip
            yield connection, lambda verb: connection.commit() if verb == "commit" else connection.rollback()
    except pymysql.Error as error:
        raise OSError(str(error)) from error


@contextmanager
def postgres_connection(url: str, level: int, gid: str | None) -> Iterator[tuple[Any, Callable[[str], object]]]:
    """The same on PostgreSQL, at this isolation level, and in two phases when there is a name for it."""
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=5, prepare_threshold=None) as connection:
            connection.isolation_level = psycopg.IsolationLevel(level)
            if gid is None or not _can_prepare(connection):
                yield connection, lambda verb: connection.commit() if verb == "commit" else connection.rollback()
                return
            connection.tpc_begin(gid)

            def end(verb: str) -> None:
                connection.tpc_prepare()
                connection.tpc_commit() if verb == "commit" else connection.tpc_rollback()

            yield connection, end
    except psycopg.Error as error:
        raise OSError(str(error)) from error


def _can_prepare(connection: Any) -> bool:
    (most,) = connection.execute("select current_setting('max_prepared_transactions')::int").fetchone()
    connection.rollback()
    return bool(most > 0)


def undo_prepared(url: str, prefix: str) -> None:
    """Prepared transactions that killed processes of this run have left open."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, %s)", [prefix]
        )
        for (gid,) in found.fetchall():
            connection.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))
