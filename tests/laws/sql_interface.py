"""PostgreSQL's functions, called as any program would call them, for law 10."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.laws.interfaces import Got

LEASE_LOST = "PN201"


class SqlInterface:
    forgets_ack_reasons = False

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)

    def _call(self, function: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
        words = [sql.SQL("{} => %s").format(sql.Identifier(name)) for name in named]
        places = sql.SQL(", ").join([*[sql.Placeholder()] * len(values), *words])
        query = sql.SQL("select * from penstock.{}({})").format(sql.Identifier(function), places)
        return self.connection.execute(query, [*values, *named.values()]).fetchall()

    def declare(self, queue: str, **policy: Any) -> None:
        self._call("declare", queue, Jsonb(policy))

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        """The bytes that Python would send: PostgreSQL formats JSON differently."""
        content = json.dumps(payload, separators=(",", ":")).encode()
        if "headers" in options:
            options["headers"] = Jsonb(options["headers"])
        ((sent,),) = self._call("send_bytes", queue, content, "application/json", **options)
        return str(sent)

    def receive(self, queue: str, limit: int, group: str) -> list[Got]:
        words = sql.SQL(
            "select payload, attempt, id, token from penstock.receive(%s, %s, consumer => 'c1', \"limit\" => %s)"
        )
        rows = self.connection.execute(words, [queue, group, limit]).fetchall()
        return [Got(json.loads(payload), attempt, (group, id, token)) for payload, attempt, id, token in rows]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        group, id, token = got.handle
        try:
            self._call(verb, queue, id, token, group=group, **options)
        except psycopg.Error as error:
            if error.sqlstate != LEASE_LOST:
                raise
            return "lost"
        return "ok"

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

    def sweep(self) -> None:
        self._call("sweep")

    def close(self) -> None:
        self.connection.close()
