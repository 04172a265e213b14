"""Cuts the n-th statement of a call short: SQLite by an interrupt, PostgreSQL by a cancel or by a lock timeout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import apsw
import psycopg
from psycopg import sql

# Instructions of SQLite's virtual machine between two points at which a call can be interrupted.
STRIDE = 40
HANDLER = "cut"


class Cutter(Protocol):
    """Counts the points of each call; at number `at` it cuts the call. None counts only."""

    ways: tuple[str, ...]

    def arm(self, at: int | None, way: str) -> None: ...

    def reached(self) -> int: ...

    def content(self) -> Any:
        """Every row of the store, except the times at which it was last read or swept."""


class Interrupts:
    """Of every SQLite connection that is opened while it is in use."""

    ways: tuple[str, ...] = ("interrupt",)

    def __init__(self, path: str) -> None:
        self.path = path
        self.at: int | None = None
        self.count = 0

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


# A cancel comes as a signal to the session and is noticed in the sleep; `statement_timeout` raises the same error. A
# lock timeout raises another one, which some functions expect and catch.
#
# Sequences keep their value when a transaction is undone, so they can count and be told across transactions. A trigger
# runs before and after each statement that writes: a cut call has done what came before, and nothing after.
TRIGGERS = """
create schema cut;
create sequence cut.step;
create sequence cut.at minvalue 0;
create sequence cut.by_timeout minvalue 0;
create function cut.point() returns trigger language plpgsql as $$
begin
    if nextval('cut.step') <> (select last_value from cut.at) then
        return null;
    elsif (select last_value from cut.by_timeout) = 1 then
        raise lock_not_available using message = 'canceling statement due to lock timeout';
    end if;
    perform pg_cancel_backend(pg_backend_pid());
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


class CutTriggers:
    ways: tuple[str, ...] = ("cancel", "lock timeout")

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        connection.execute(TRIGGERS)
        self._content = self._query()

    def arm(self, at: int | None, way: str = "cancel") -> None:
        values = [at or 0, int(way == "lock timeout")]
        self.connection.execute(
            "select setval('cut.step', 1, false), setval('cut.at', %s), setval('cut.by_timeout', %s)", values
        )

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
def cut_triggers(url: str) -> Iterator[CutTriggers]:
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            yield CutTriggers(connection)
        finally:
            connection.execute("drop schema cut cascade")
