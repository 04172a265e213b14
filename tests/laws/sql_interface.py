"""PostgreSQL's functions, called as any program would call them, for law 10."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tests.laws.interfaces import COUNTS, FIELDS, Got, Refusal, Settling, compact_json

STATES = {
    "PN100": "InvalidInput",
    "PN200": "Refused",
    "PN201": "LeaseLost",
    "PN202": "DuplicateAddress",
    "PN203": "BatchClosed",
    "PN205": "ConsumerRemoved",
    "PN207": "OutOfOrder",
    "PN300": "NotFound",
}


class SqlInterface:
    """`clock` is the injected clock of a store of tests, in microseconds."""

    forgets_ack_reasons = False

    def __init__(self, url: str, clock: Callable[[], int] | None = None) -> None:
        self.clock = clock
        self.connection = psycopg.connect(url, autocommit=True)

    def _call(self, function: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
        words = [sql.SQL("{} => %s").format(sql.Identifier(name)) for name in named]
        places = sql.SQL(", ").join([*[sql.Placeholder()] * len(values), *words])
        query = sql.SQL("select * from penstock.{}({})").format(sql.Identifier(function), places)
        return self._query(query, [*values, *named.values()])

    def _query(self, query: sql.SQL | sql.Composed, values: Sequence[Any], **options: Any) -> list[Any]:
        with self.connection.cursor(**options) as cursor:
            if self.clock is not None:
                cursor.execute("select set_config('penstock.now', %s, false)", [str(self.clock())])
            try:
                rows: list[Any] = cursor.execute(query, values).fetchall()
            except psycopg.Error as error:
                if error.sqlstate not in STATES:
                    raise
                raise Refusal(STATES[error.sqlstate]) from error
            return rows

    def declare(self, queue: str, **policy: Any) -> None:
        self._call("declare", queue, Jsonb(policy))

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        """The bytes that Python would send: PostgreSQL formats JSON differently."""
        if "headers" in options:
            options["headers"] = Jsonb(options["headers"])
        ((sent,),) = self._call("send_bytes", queue, compact_json(payload).encode(), "application/json", **options)
        return str(sent)

    def send_many(self, queue: str, items: Sequence[dict[str, Any]]) -> list[str]:
        """The function for several takes no options: they are sent in one transaction."""
        with self.connection.transaction():
            return [self.send(queue, **item) for item in items]

    def receive(self, queue: str, limit: int, group: str | None, **options: Any) -> list[Got]:
        wish = {"consumer": "c1", "limit": limit, "group": group, **options}
        words = [sql.SQL("{} => %s").format(sql.Identifier(name)) for name in wish]
        query = sql.SQL("select * from penstock.receive(%s, {})").format(sql.SQL(", ").join(words))
        rows = self._query(query, [queue, *wish.values()], row_factory=dict_row)
        return [
            Got(
                json.loads(row["payload"]),
                row["attempt"],
                (row["group_name"], row["id"], row["token"]),
                {name: row[name] for name in FIELDS},
            )
            for row in rows
        ]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        try:
            self._settle(queue, Settling(verb, got, options))
        except Refusal as refusal:
            return str(refusal)
        return "ok"

    def settle_many(self, queue: str, items: Sequence[Settling]) -> list[str]:
        """There is no function for several: they are settled one after the other, in one transaction."""
        results: list[str] = []
        with self.connection.transaction():
            for one in items:
                with suppress(Refusal), self.connection.transaction():
                    results.append("")
                    try:
                        results[-1] = self._settle(queue, one)
                    except Refusal as refusal:
                        results[-1] = str(refusal)
                        raise
        return results

    def _settle(self, queue: str, item: Settling) -> str:
        group, id, token = item.got.handle
        ((state,),) = self._call(item.verb, queue, id, token, group=group, **item.options)
        return str(state)

    def extend(self, queue: str, got: Got, seconds: float) -> datetime:
        group, id, token = got.handle
        ((ends,),) = self._call("extend", queue, id, token, seconds, group=group)
        assert isinstance(ends, datetime)
        return ends

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        if verb == "send":
            self.send(queue, payload, batch=name)
        elif payload is None:
            self._call(f"batch_{verb}", queue, name)
        else:
            self._call(f"batch_{verb}", queue, name, Jsonb(payload))

    def redrive(self, queue: str) -> int:
        ((count,),) = self._call("redrive", queue)
        return int(count)

    def purge(self, queue: str) -> int:
        ((count,),) = self._call("purge", queue)
        return int(count)

    def seek(self, queue: str, group: str, target: str | datetime) -> None:
        if isinstance(target, str):
            self._call("seek", queue, group, target)
        else:
            query = sql.SQL("select penstock.seek(%s, %s, penstock.from_time(%s)::text, is_time => true)")
            self._query(query, [queue, group, target])

    def pause(self, queue: str) -> None:
        self._call("pause", queue)

    def resume(self, queue: str) -> None:
        self._call("resume", queue)

    def flush(self, queue: str) -> None:
        self._call("flush", queue)

    def stats(self, queue: str) -> dict[str, Any] | None:
        rows = self._query(sql.SQL("select * from penstock.stats(%s)"), [queue], row_factory=dict_row)
        return {row["group_name"]: {name: row[name] for name in COUNTS} for row in rows}

    def peek(self, queue: str, group: str) -> list[Any]:
        query = sql.SQL('select payload from penstock.peek(%s, 1000, "group" => %s)')
        return [json.loads(payload) for (payload,) in self._query(query, [queue, group])]

    def letters(self, queue: str, group: str) -> list[Any]:
        query = sql.SQL(
            "select payload, outcome, reason, attempts, died_at from penstock.dead_letters "
            "where queue = %s and group_name = %s order by died_at desc, position desc"
        )
        return [(json.loads(payload), *rest) for payload, *rest in self._query(query, [queue, group])]

    def trail(self, queue: str, id: str) -> list[Any]:
        return [(*row[:-1], row[-1] or None) for row in self._call("audit", queue, id)]

    def sweep(self) -> None:
        self._call("sweep")

    def close(self) -> None:
        self.connection.close()
