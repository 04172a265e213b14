"""Transactions of a store on a MariaDB or MySQL server.

A write locks the row of its queue until it commits. So the positions of a queue become visible in their order, and
writers of different queues do not wait for each other (docs/decisions/0240). Reads use a snapshot and lock nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import pymysql

from penstock.domain.errors import NotFound, PenstockError, StoreUnavailable
from penstock.engines.mariadb import arrivals, caller_transaction, errors
from penstock.engines.mariadb.link import CallerLink, PooledLink, Results
from penstock.engines.mariadb.literals import PreparedBlock, Template
from penstock.engines.mariadb.location import ServerLocation
from penstock.engines.mariadb.pool import LinkPool, abandon, check_version
from penstock.engines.mariadb.transaction import SQL, MariadbTransaction, StoreSalt
from penstock.engines.positional.database import QueueHeld, ResultRow, Tokens

logger = logging.getLogger("penstock.dead_letters")
Clock = Callable[[], int]
_FAILURES = (pymysql.MySQLError, OSError)
# How long a sweep, or a read with arrivals, waits for a queue that another transaction has.
IMPATIENT_SECONDS = 1


class MariadbDatabase:
    def __init__(
        self,
        location: ServerLocation,
        clock: Clock | None,
        random: Callable[[], float],
        pool_size: int,
        busy_seconds: float,
    ) -> None:
        self.location = location
        self.name = location.name
        self.busy_seconds = busy_seconds
        self.lock_seconds = max(1, int(busy_seconds))
        self.random = random
        self.tokens = Tokens()
        self.on_commit: Callable[[], None] = lambda: None
        self.pool = LinkPool(location, pool_size, busy_seconds, self._prepare)
        self._clock = clock
        self.is_cluster = False
        self._salt = StoreSalt()
        self._local = threading.local()

    @property
    def salt(self) -> int:
        if self._salt.value is not None:
            return self._salt.value
        with self.read(checks=False) as transaction:
            return transaction.salt

    @property
    def clock(self) -> Clock:
        return self._clock or self._server_clock

    def _server_clock(self) -> int:
        with self.read(checks=False) as transaction:
            return transaction.now

    def given_time(self) -> int | None:
        """The time, where it is not that of the server."""
        return None if self._clock is None else self._clock()

    def _prepare(self, link: PooledLink) -> None:
        """The settings of a new connection, and the largest packet that the server takes."""
        settings = MariadbTransaction(link, None, self.random, self._salt, self.tokens)
        settings.run("session", {"busy_seconds": self.lock_seconds})
        version, _, link.max_packet, *_ = settings.rows("server")[0]
        link.has_compounds = check_version(version)
        cluster: dict[str, str] = dict(settings.rows("cluster_status"))
        self.is_cluster = int(cluster.get("wsrep_cluster_size", 0)) > 0
        if self.is_cluster:
            if cluster["wsrep_ready"] != "ON":
                raise StoreUnavailable(f"{self.name}: no node that answers is part of the cluster's majority")
            settings.run("read_latest")
            settings.flush()

    # -- transactions ----------------------------------------------------------------------------------------------

    def write(self, queue: str | None = None, durable: bool = True, patient: bool = True) -> MariadbWrite:
        """A write transaction; inside another write of the same thread, a savepoint. The server flushes all commits
        alike, so `durable` makes no difference."""
        return MariadbWrite(self, queue, patient=patient)

    def silent_write(self) -> MariadbWrite:
        return MariadbWrite(self, None, silent=True)

    @contextmanager
    def read(self, queue: str | None = None, checks: bool = True, waits: bool = True) -> Iterator[MariadbTransaction]:
        """A snapshot. With `checks`, the receives of this store that have returned are in it, and arrivals are appended
        first: those of `queue`, for whose lock the read waits a second if `waits`, or those of all queues that are not
        locked. Whether some are left, `lacks_arrivals` says."""
        current = self.current()
        if current is not None:
            yield current
            return
        if checks:
            self.pool.await_commits()
        link = self.pool.take()
        transaction = self.begin(link, is_reading=True)
        try:
            transaction.run("begin_read")
            if checks:
                transaction.check_arrivals(lambda: self._refresh(transaction, link, queue, waits), queue)
            yield transaction
            if link.is_used:
                transaction.discard()
                transaction.run("undo")
                transaction.flush()
        except _FAILURES as error:
            self.pool.drop(link)
            raise self.translate(error) from error
        except BaseException as error:
            if isinstance(error, PenstockError):
                self.give_back(link)
            else:
                self.pool.drop(link)
            if isinstance(error, NotFound) and transaction.lacks_arrivals:
                raise self._unplaced(queue) from error
            raise
        self.pool.give_back(link)

    def _refresh(self, transaction: MariadbTransaction, link: PooledLink, queue: str | None, waits: bool) -> None:
        """End the snapshot, append the arrivals and begin another. A read does not fail because that fails: the server
        may be read-only."""
        link.execute([SQL.undo])
        try:
            if queue is None:
                self.place_arrivals(link)
            else:
                self._place(link, queue, waits)
        except (pymysql.MySQLError, PenstockError):
            link.execute([SQL.undo])
        transaction.run("set_patience", {"seconds": self.lock_seconds})
        transaction.run("begin_read")
        transaction.check_arrivals(transaction.lack_arrivals, queue)

    def place_arrivals(self, link: PooledLink) -> None:
        """Append the arrivals of all queues, each queue in a transaction of its own. A queue that another transaction
        has locked is left to its next writer."""
        finding = self.begin(link)
        for (queue,) in finding.rows("queues_with_arrivals"):
            self._place(link, queue, waits=False)

    def _place(self, link: PooledLink, queue: str, waits: bool) -> None:
        """Append the arrivals of a queue in a transaction of its own."""
        transaction = self.begin(link)
        transaction.run("begin_write")
        transaction.run("set_patience", {"seconds": IMPATIENT_SECONDS})
        if waits:
            transaction.rows("lock_queue", {"name": queue})
        elif transaction.row("lock_free_queue", {"queue": queue}) is None and transaction.row(
            "policy_of", {"queue": queue}
        ):
            transaction.run("undo")
            transaction.flush()
            return
        arrivals.place(transaction, queue)
        transaction.run("end_write")
        transaction.flush()
        self.on_commit()

    def _unplaced(self, queue: str | None) -> QueueHeld:
        """Why a message was not found that may be among the arrivals."""
        return QueueHeld(
            f"{self.name}: queue {queue!r} has messages of committed transactions that could not be appended to its "
            f"log, because another transaction has held the queue for {IMPATIENT_SECONDS} s or the server is "
            "read-only: try again"
        )

    @contextmanager
    def alone(self, name: str) -> Iterator[MariadbTransaction]:
        """Statements that commit one by one, while no other process is in the same part of the program."""
        link = self.pool.take()
        lock = {"name": name, "seconds": self.busy_seconds}
        try:
            transaction = MariadbTransaction(link, self._clock, self.random, self._salt, self.tokens)
            if transaction.value("take_lock", lock) != 1:
                raise StoreUnavailable(f"{self.name}: another process has been migrating for {self.busy_seconds:g} s")
            yield transaction
            transaction.rows("release_lock", lock)
        except _FAILURES as error:
            self.pool.drop(link)
            raise self.translate(error) from error
        except BaseException:
            self.pool.drop(link)
            raise
        self.pool.give_back(link)

    def begin(self, link: PooledLink, is_reading: bool = False) -> MariadbTransaction:
        resilient = ResilientLink(self.pool, link)
        return MariadbTransaction(
            resilient, self._clock, self.random, self._salt, self.tokens, is_reading, self.is_cluster
        )

    def give_back(self, link: PooledLink) -> None:
        """Return a connection whose transaction is to be undone."""
        if link.is_used:
            try:
                link.execute([SQL.undo])
            except _FAILURES:
                self.pool.drop(link)
                return
        self.pool.give_back(link)

    @contextmanager
    def caller_write(self, connection: object) -> Iterator[MariadbTransaction]:
        """A savepoint on the caller's own connection to the store's database."""
        own = caller_transaction.check_connection(connection)
        try:
            transaction = MariadbTransaction(CallerLink(own), self._clock, self.random, self._salt, self.tokens)
            caller_transaction.check_database(transaction, self.location.database)
            transaction.run("savepoint", {"depth": 0})
            try:
                yield transaction
                transaction.run("release", {"depth": 0})
                transaction.flush_waiting()
            except BaseException as error:
                transaction.discard()
                # A deadlock has rolled back the whole transaction, and its savepoints with it.
                if errors.code_of(error) not in errors.DEADLOCKS:
                    transaction.roll_back_to(0)
                    transaction.flush_waiting()
                raise
        except Exception as error:
            if not caller_transaction.is_driver_error(error):
                raise
            found = self.translate(error)
            if isinstance(found, errors.UndoneTransaction):
                raise StoreUnavailable(f"{self.name}: {found}; the transaction was rolled back: repeat it") from error
            raise found from error

    def run_block(
        self, block: Template | PreparedBlock, bindings: dict[str, Any], can_repeat: bool, awaits_commit: bool
    ) -> list[list[ResultRow]] | None:
        """The result sets of a compound statement that begins and ends its own transaction. None when it was not sent:
        there was no connection for it. With `can_repeat`, also when the connection has ended. Without `awaits_commit`,
        the server still has to answer the commit: the next user of the connection reads that."""
        packet = block.render(bindings)
        link = self.pool.take_alive()
        if link is None:
            return None
        try:
            answers = link.run_block(block, packet, awaits_commit)
        except _FAILURES as error:
            self.pool.drop(link)
            if not errors.is_lost(error):
                raise self.translate(error) from error
            if can_repeat:
                return None
            raise errors.lost(error, self.name) from error
        except BaseException:
            self.pool.drop(link)
            raise
        self.pool.give_back(link)
        return None if answers is None else [rows for rows, _ in answers if rows is not None]

    def current(self) -> MariadbTransaction | None:
        """The write of this thread."""
        found: MariadbTransaction | None = getattr(self._local, "transaction", None)
        return found

    def set_current(self, transaction: MariadbTransaction | None, link: PooledLink | None = None) -> None:
        self._local.link = link
        self._local.transaction = transaction

    def end_interrupted(self) -> None:
        """An interrupted write is still the one of its thread, and holds its queue; what the server has still to answer
        on its connection is not known."""
        link: PooledLink | None = getattr(self._local, "link", None)
        self.set_current(None)
        if link is not None:
            self.pool.drop(link)

    def translate(self, error: BaseException) -> Exception:
        return errors.translate(error, self.name, self.busy_seconds)

    def close(self) -> None:
        self.pool.close()


def lock(transaction: MariadbTransaction, queue: str) -> None:
    """Be the only writer of a queue until the transaction ends; messages of senders that have committed come first."""
    transaction.lock(queue, lambda: arrivals.place(transaction, queue))


class ResilientLink:
    """A connection of the pool that is replaced when the server had ended it before the transaction began."""

    def __init__(self, pool: LinkPool, link: PooledLink) -> None:
        self._pool = pool
        self._link = link

    def execute(self, statements: Sequence[str]) -> Results:
        if self._link.is_used:
            return self._link.execute(statements)
        try:
            return self._link.execute(statements)
        except _FAILURES as error:
            if not errors.is_lost(error):
                raise
            abandon(self._link.connection)
            fresh = self._pool.open()
            self._link.become(fresh)
            return self._link.execute(statements)

    def run_block(self, block: Template | PreparedBlock, packet: str) -> Results | None:
        return self._link.run_block(block, packet)


class MariadbWrite:
    """A write transaction as a `with` block."""

    def __init__(
        self, database: MariadbDatabase, queue: str | None, silent: bool = False, patient: bool = True
    ) -> None:
        self._database = database
        self._patient = patient
        self._queue = queue
        self._silent = silent
        self._link: PooledLink | None = None

    def __enter__(self) -> MariadbTransaction:
        database = self._database
        current = database.current()
        if current is None:
            self._link = database.pool.take()
            current = database.begin(self._link)
            current.run("begin_write")
            if not self._patient:
                current.run("set_patience", {"seconds": IMPATIENT_SECONDS})
            database.set_current(current, self._link)
        else:
            current.depth += 1
            current.run("savepoint", {"depth": current.depth})
        if self._queue is not None:
            lock(current, self._queue)
        self._transaction = current
        self._deaths = len(current.deaths)
        return current

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._link is None:
            self._end_part(error)
        elif error is None:
            self._commit(self._link)
        else:
            self._roll_back(self._link, error)

    def _end_part(self, error: BaseException | None) -> None:
        transaction = self._transaction
        depth = {"depth": transaction.depth}
        transaction.depth -= 1
        if error is None:
            transaction.run("release", depth)
        elif not isinstance(error, (*_FAILURES, errors.UndoneTransaction)):
            transaction.roll_back_to(depth["depth"])
            del transaction.deaths[self._deaths :]

    def _commit(self, link: PooledLink) -> None:
        database, transaction = self._database, self._transaction
        database.set_current(None)
        if not link.is_used and not transaction.has_changed:
            transaction.discard()
            database.pool.give_back(link)
            return
        try:
            # On a cluster a lock is a change: undone, it need not be sent to the other nodes.
            transaction.run("end_write" if transaction.has_changed else "undo")
            if not self._patient:
                transaction.run("set_patience", {"seconds": database.lock_seconds})
            transaction.flush()
        except _FAILURES as failure:
            database.pool.drop(link)
            if errors.is_lost(failure):
                raise errors.lost(failure, database.name) from failure
            raise database.translate(failure) from failure
        except BaseException:
            database.pool.drop(link)
            raise
        database.pool.give_back(link)
        if transaction.has_changed and not self._silent:
            for death in transaction.deaths:
                logger.warning(death)
            database.on_commit()

    def _roll_back(self, link: PooledLink, error: BaseException) -> None:
        database = self._database
        database.set_current(None)
        if isinstance(error, _FAILURES):
            database.pool.drop(link)
            raise database.translate(error) from error
        if self._patient and isinstance(error, PenstockError):
            database.give_back(link)
        else:
            # Of a signal handler: what the server has still to answer is not known.
            database.pool.drop(link)
