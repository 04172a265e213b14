"""Cuts the n-th statement of a call short: SQLite by an interrupt, PostgreSQL by a cancel, by a lock timeout or by a
statement timeout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol

import apsw
import psycopg
from psycopg import sql
from psycopg_pool import ConnectionPool

# Instructions of SQLite's virtual machine between two points at which a call can be interrupted.
STRIDE = 40
HANDLER = "cut"


class Cutter(Protocol):
    """Counts the points of each call; at number `at` it cuts the call. None counts only."""

    def ways(self, at: int) -> tuple[str, ...]: ...

    def arm(self, at: int | None, way: str) -> None: ...

    def reached(self) -> int: ...

    def be_patient(self) -> bool:
        """Whether to make a call again that failed before it had reached the point."""

    def content(self) -> Any:
        """Every row of the store, except the times at which it was last read or swept."""


class Interrupts:
    """Of every SQLite connection that is opened while it is in use."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.at: int | None = None
        self.count = 0

    def ways(self, at: int) -> tuple[str, ...]:
        return ("interrupt",)

    def be_patient(self) -> bool:
        return False

    def arm(self, at: int | None, way: str = "interrupt") -> None:
        self.at, self.count = at, 0

    def reached(self) -> int:
        return self.count

    def watch(self, connection: apsw.Connection) -> None:
        connection.set_progress_handler(self._step, STRIDE, id=HANDLER)

    def _step(self) -> bool:
        self.count += 1
        return self.count == self.at

    def content(self) -> dict[str, list[Any]]:
        connection = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_progress_handler(None, id=HANDLER)
            names = connection.execute("select name from sqlite_schema where type = 'table' order by name").fetchall()
            quoted = [str(name).replace('"', '""') for (name,) in names]
            return {name: sorted(connection.execute(f'select * from "{name}"'), key=repr) for name in quoted}
        finally:
            connection.close()


@contextmanager
def interrupts(url: str) -> Iterator[Interrupts]:
    found = Interrupts(url.removeprefix("sqlite:///"))
    apsw.connection_hooks.append(found.watch)
    try:
        yield found
    finally:
        apsw.connection_hooks.remove(found.watch)


# A cancel comes as a signal to the session and is noticed in the sleep, and so does the server's own statement timeout.
# A lock timeout raises another error, which some functions expect and catch: the point waits for a lock that the test
# holds.
#
# Sequences keep their value when a transaction is undone, so they can count and be told across transactions. A trigger
# runs before and after each statement that writes: a cut call has done what came before, and nothing after.
TRIGGERS = """
create schema cut;
create sequence cut.step;
create sequence cut.at minvalue 0;
create sequence cut.way minvalue 0;
create function cut.point() returns trigger language plpgsql as $$
declare way integer := (select last_value from cut.way);
begin
    if nextval('cut.step') <> (select last_value from cut.at) then
        return null;
    elsif way = 1 then
        perform pg_advisory_xact_lock(4711, 1);
    elsif way = 0 then
        perform pg_cancel_backend(pg_backend_pid());
    end if;
    perform pg_sleep(60);
    return null;
end $$;
do $$
declare name text;
begin
    for name in
        select c.oid::regclass::text from pg_class as c
        where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'p') and c.relpersistence <> 't'
    loop
        execute format('create trigger cut_before before insert or update or delete or truncate on %s
                        for each statement execute function cut.point()', name);
        execute format('create trigger cut_after after insert or update or delete or truncate on %s
                        for each statement execute function cut.point()', name);
    end loop;
end $$;
"""
NOTES = ("used_at", "counted")
TABLES = """
select c.relname from pg_class as c where c.relnamespace = 'penstock'::regnamespace
and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> 'decided_position' order by c.relname
"""


WAYS = ("cancel", "lock timeout", "statement timeout")
# Each costs its time. Between two of these points the others, which raise the same error, cut every statement.
STRIDE_OF_STATEMENT_TIMEOUTS = 5
# Settings of the store's connections while a call is to be cut.
TIMEOUTS = {"lock timeout": "lock_timeout", "statement timeout": "statement_timeout"}


class CutTriggers:
    """`pool` has the connections of the store: statement timeouts are set on them."""

    def __init__(self, connection: psycopg.Connection, pool: ConnectionPool[Any]) -> None:
        self.connection = connection
        self.pool = pool
        self.patience_seconds = 0.03
        connection.execute(TRIGGERS)
        connection.execute("select pg_advisory_lock(4711, 1)")
        self._content = self._query()

    def ways(self, at: int) -> tuple[str, ...]:
        return WAYS if at % STRIDE_OF_STATEMENT_TIMEOUTS == 1 else WAYS[:2]

    def arm(self, at: int | None, way: str = "cancel") -> None:
        self.connection.execute(
            "select setval('cut.step', 1, false), setval('cut.at', %s), setval('cut.way', %s)",
            [at or 0, WAYS.index(way)],
        )
        if way in TIMEOUTS:
            seconds = 0.0 if at is None else self.patience_seconds if way == "statement timeout" else 0.001
            self.set_on_connections(TIMEOUTS[way], seconds)

    def set_on_connections(self, setting: str, seconds: float) -> None:
        with ExitStack() as stack:
            for _ in range(max(1, self.pool.get_stats().get("pool_size", 0))):
                connection = stack.enter_context(self.pool.connection())
                _set(connection, setting, f"{seconds * 1000:.0f}ms")

    def be_patient(self) -> bool:
        """After a statement timeout before the point, on a busy machine."""
        self.patience_seconds *= 2
        return self.patience_seconds < 60

    def reached(self) -> int:
        row = self.connection.execute("select last_value - case when is_called then 0 else 1 end from cut.step")
        return int(row.fetchone()[0])  # type: ignore[index]

    def content(self) -> list[Any]:
        return self.connection.execute(self._content).fetchall()

    def _query(self) -> sql.Composed:
        """A digest of each table, in one statement."""
        notes = sql.SQL("").join(sql.SQL(" - {}").format(sql.Literal(note)) for note in NOTES)
        one = sql.SQL(
            "select {name}, md5(coalesce(string_agg(body, ',' order by body), '')) "
            "from (select (to_jsonb(t){notes})::text as body from penstock.{table} as t) as rows"
        )
        names = [name for (name,) in self.connection.execute(TABLES).fetchall()]
        parts = [one.format(name=sql.Literal(name), notes=notes, table=sql.Identifier(name)) for name in names]
        return sql.SQL("{} order by 1").format(sql.SQL(" union all ").join(parts))


@contextmanager
def cut_triggers(url: str, pool: ConnectionPool[Any]) -> Iterator[CutTriggers]:
    with psycopg.connect(url, autocommit=True) as connection:
        cutter = CutTriggers(connection, pool)
        try:
            yield cutter
        finally:
            for setting in TIMEOUTS.values():
                cutter.set_on_connections(setting, 0.0)
            connection.execute("drop schema cut cascade")


def _set(connection: psycopg.Connection, setting: str, value: str) -> None:
    """The timeout that is replaced counts for this statement as well, and may end it on a busy machine."""
    while True:
        with suppress(psycopg.errors.QueryCanceled):
            connection.execute("select set_config(%s, %s, false)", [setting, value])
            return
        connection.rollback()
