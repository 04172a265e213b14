"""`python -m bench.conventions.worker ROLE URL JOURNAL [ALONE]`: one process of the conventions' diagram.

Written from the diagram: it knows two tables and two channels, and nothing of Penstock. `whole` locks messages and ends
them with DELETE and INSERT in one transaction, `parts` in two; `dead` reads the archive when it is notified of a dead
message, and `ear` only records the notifications of new ones. Each event is one line of JSON in the journal. No worker
locks the message with the id ALONE, so it is announced until the end. SIGTERM ends a worker between two messages.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, TextIO

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

LOCK_SECONDS = 5
LOCK = """
    UPDATE messages.message
    SET lock_expires_at = CURRENT_TIMESTAMP + make_interval(secs => %s)
    WHERE id = %s AND (lock_expires_at IS NULL OR lock_expires_at < CURRENT_TIMESTAMP)
    RETURNING id, created_at, message, lock_expires_at
"""
ARCHIVE = """
    INSERT INTO messages.message_archive (created_at, message, result, handled_by, details)
    VALUES (%s, %s, %s::message_status, %s, %s)
    RETURNING id
"""

Row = dict[str, Any]


def main(role: str, url: str, journal: str, alone: str = "0") -> None:
    stop = Stop()
    with open(journal, "a", encoding="utf-8") as file, psycopg.connect(url, autocommit=True) as listening:
        listening.execute("LISTEN dead_message" if role == "dead" else "LISTEN new_message")
        write(file, "listening")
        with psycopg.connect(url, row_factory=dict_row, autocommit=True) as connection:
            for heard in listening.notifies():
                number = int(heard.payload)
                if role == "ear":
                    write(file, "heard", id=number)
                elif role == "dead":
                    report(connection, file, number)
                elif number != int(alone):
                    with stop.later():
                        process(connection, file, number, is_whole=role == "whole")


class Stop:
    """Ends the process on SIGTERM, at once or after the message that is being processed."""

    def __init__(self) -> None:
        self.is_busy = self.is_asked = False
        signal.signal(signal.SIGTERM, self._ask)

    @contextmanager
    def later(self) -> Iterator[None]:
        self.is_busy = True
        yield
        self.is_busy = False
        if self.is_asked:
            sys.exit()

    def _ask(self, *_: object) -> None:
        self.is_asked = True
        if not self.is_busy:
            sys.exit()


def process(connection: psycopg.Connection[Row], file: TextIO, number: int, is_whole: bool) -> None:
    message = connection.execute(LOCK, (LOCK_SECONDS, number)).fetchone()
    if message is None:
        write(file, "not locked", id=number)
        return
    write(file, "locked", id=number)
    result, details = perform(message)
    values = (message["created_at"], Jsonb(message["message"]), result, f"worker-{os.getpid()}", details)
    try:
        with connection.transaction() if is_whole else nullcontext():
            connection.execute("DELETE FROM messages.message WHERE id = %s", (number,))
            archived = connection.execute(ARCHIVE, values).fetchone()
    except psycopg.Error as error:
        write(file, "refused", id=number, result=result, error=str(error))
        return
    assert archived is not None
    write(file, "ended", id=number, archive_id=archived["id"], result=result)


def perform(message: Row) -> tuple[str, str]:
    match message["message"]:
        case {"do": "work"}:
            details = "done"
        case {"do": "break"}:
            return "failed", "told to break"
        case {"do": "dawdle"}:
            time.sleep(LOCK_SECONDS + 1)
            details = "too late"
        case {"do": "die"}:
            os.kill(os.getpid(), 9)
            raise AssertionError
        case _:
            return "rejected", "not a message of this worker"
    if message["lock_expires_at"] < datetime.now(UTC).replace(tzinfo=None):
        return "lock_expired", details
    return "success", details


def report(connection: psycopg.Connection[Row], file: TextIO, number: int) -> None:
    query = "SELECT id, result, handled_by FROM messages.message_archive WHERE id = %s AND result != 'success'"
    row = connection.execute(query, (number,)).fetchone()
    if row is None:
        write(file, "not found", id=number)
    else:
        write(file, "dead", **row)


def write(file: TextIO, event: str, **values: object) -> None:
    line = {"at": time.time(), "process": os.getpid(), "event": event, **values}
    file.write(json.dumps(line) + "\n")
    file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
