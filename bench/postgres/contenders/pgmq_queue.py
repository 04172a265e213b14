"""pgmq: send_batch, read, archive (which keeps finished messages, as the others here do)."""

from __future__ import annotations

from importlib import resources
from typing import Any, cast

import psycopg

from bench.plan import payload


def prepare(url: str) -> None:
    script = (resources.files("pgmq") / "sql" / "pgmq.sql").read_text(encoding="utf-8")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema if not exists pgmq")
        connection.execute(cast(Any, script))
        connection.execute("select pgmq.create('bench')")


class PgmqSession:
    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)

    def send(self, count: int) -> None:
        if count == 1:
            self.connection.execute("select pgmq.send('bench', %s::jsonb)", (_document(0),))
        else:
            documents = [_document(number) for number in range(count)]
            self.connection.execute("select pgmq.send_batch('bench', %s::jsonb[])", (documents,))

    def take(self, count: int) -> int:
        rows = self.connection.execute("select msg_id, message from pgmq.read('bench', 3600, %s)", (count,)).fetchall()
        if rows:
            self.connection.execute("select pgmq.archive('bench', %s::bigint[])", ([row[0] for row in rows],))
        return len(rows)

    def close(self) -> None:
        self.connection.close()


def _document(number: int) -> str:
    return '{"p": "' + payload(number).decode() + '"}'
