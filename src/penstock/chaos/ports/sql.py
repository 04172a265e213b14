"""The SQL functions of PostgreSQL, called through psycopg."""

from __future__ import annotations

import json
import random
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from penstock.chaos.ports.port import Denied, Item, Lost, Taken, content_of, message_of

# Codes of Penstock's own errors, and of a cancelled statement, which is undone.
REFUSED = ("PN", "57014")
CANCELLED_SHARE = 0.1


class SqlPort:
    """With `cancels` a statement is sometimes cancelled after a few milliseconds by its timeout."""

    def __init__(self, url: str, cancels: bool = False, seed: int = 0) -> None:
        self._url = url
        self._random = random.Random(seed) if cancels else None
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def send(self, queue: str, items: list[Item]) -> list[str]:
        if len(items) == 1:
            return [str(self._call(*_sending(queue, items[0]))[0][0])]
        connection = self._open()
        try:
            with connection.transaction():
                return [str(connection.execute(*_sending(queue, item)).fetchall()[0][0]) for item in items]
        except psycopg.Error as error:
            raise self._judged(error) from error

    def receive(self, queue: str, group: str, consumer: str, limit: int, lease_seconds: float) -> list[Taken]:
        words = (
            "select id, payload, headers, token, attempt, priority, key from penstock.receive("
            '%s, %s, consumer => %s, "limit" => %s, lease_seconds => %s)'
        )
        rows = self._call(words, [queue, group, consumer, limit, lease_seconds])
        return [
            Taken(
                str(id),
                message_of(payload, headers),
                token,
                tries,
                content=content_of(json.loads(payload), headers, priority, key),
            )
            for id, payload, headers, token, tries, priority, key in rows
        ]

    def settle(self, queue: str, group: str, taken: Taken, verb: str, delay: float | None) -> str | None:
        delays = verb in ("nak", "reschedule") and delay is not None
        words = f'select penstock.{verb}(%s, %s, %s, "group" => %s{", delay_seconds => %s" if delays else ""})'
        values = [queue, taken.id, taken.token, group, *([delay] if delays else [])]
        return str(self._call(words, values)[0][0])

    def extend(self, queue: str, group: str, taken: Taken, seconds: float) -> None:
        words = 'select penstock.extend(%s, %s, %s, %s, "group" => %s)'
        self._call(words, [queue, taken.id, taken.token, seconds, group])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(self, words: str | bytes, values: list[Any]) -> list[tuple[Any, ...]]:
        connection = self._open()
        try:
            if self._random is not None:
                short = self._random.random() < CANCELLED_SHARE
                limit = self._random.randint(1, 8) if short else 0
                connection.execute("select set_config('statement_timeout', %s, false)", [str(limit)])
            return connection.execute(words.encode() if isinstance(words, str) else words, values).fetchall()
        except psycopg.Error as error:
            raise self._judged(error) from error

    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(
                    self._url, autocommit=True, connect_timeout=5, prepare_threshold=None
                )
            except psycopg.Error as error:
                raise Lost(str(error)) from error
        return self._connection

    def _judged(self, error: psycopg.Error) -> Exception:
        if error.sqlstate is not None and error.sqlstate.startswith(REFUSED):
            return Denied(str(error))
        self.close()
        return Lost(str(error))


def _sending(queue: str, item: Item) -> tuple[bytes, list[Any]]:
    options = item.options
    named = "".join(f", {name} => %s" for name in options)
    words = f"select penstock.send_bytes(%s, %s, 'application/json'{named})"
    return words.encode(), [queue, json.dumps(item.payload).encode(), *map(_value, options.values())]


def _value(option: Any) -> Any:
    return Jsonb(option) if isinstance(option, dict) else option
