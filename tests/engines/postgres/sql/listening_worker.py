"""A worker as the LISTEN/NOTIFY conventions draw it, with asyncpg and times without time zone.

`python listening_worker.py URL` processes `new_message`; with `dead` as a second argument it follows `dead_message`.
Each message that it has finished is a line of JSON. It is a program of its own: only the URL ties it to Penstock.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

LOCK_DURATION = timedelta(seconds=1)
LOCK = """
    UPDATE messages.message
    SET lock_expires_at = CURRENT_TIMESTAMP + $2
    WHERE id = $1 AND (lock_expires_at IS NULL OR lock_expires_at < CURRENT_TIMESTAMP)
    RETURNING *
"""
ARCHIVE = """
    INSERT INTO messages.message_archive (created_at, message, result, handled_by, details)
    VALUES ($1, $2, $3, $4, $5)
    RETURNING *
"""


async def main(url: str, channel: str = "new") -> None:
    connection = await asyncpg.connect(url)
    work = {"new": process, "dead": report}[channel]
    turns: asyncio.Queue[str] = asyncio.Queue()
    await connection.add_listener(f"{channel}_message", lambda *heard: turns.put_nowait(heard[3]))
    say({"listening": channel})
    while True:
        await work(connection, int(await turns.get()))


async def process(connection: Any, number: int) -> None:
    async with connection.transaction():
        await connection.fetchrow("SELECT 1 FROM messages.message WHERE id = $1 FOR UPDATE NOWAIT", number)
        message = await connection.fetchrow(LOCK, number, LOCK_DURATION)
    if message is None:
        return
    remaining = message["lock_expires_at"] - datetime.now(UTC).replace(tzinfo=None)
    try:
        async with asyncio.timeout(remaining.total_seconds()):
            result, details = await perform(json.loads(message["message"]))
    except TimeoutError:
        result, details = "lock_expired", "timed out"
    except Exception as error:
        result, details = "failed", f"unhandled exception: {error}"
    async with connection.transaction():
        await connection.execute("DELETE FROM messages.message WHERE id = $1", number)
        row = await connection.fetchrow(ARCHIVE, message["created_at"], message["message"], result, "worker", details)
    say({"id": row["id"], "message": json.loads(row["message"]), "result": row["result"]})


async def perform(message: Any) -> tuple[str, str]:
    if not isinstance(message, list):
        return "rejected", "invalid message format"
    match message[0]:
        case "fail":
            return "failed", "told to fail"
        case "raise":
            raise ValueError("told to raise")
        case "timeout":
            await asyncio.sleep(60)
    return "success", "done"


async def report(connection: Any, number: int) -> None:
    row = await connection.fetchrow("SELECT * FROM messages.message_archive WHERE id = $1", number)
    say({"id": row["id"], "message": json.loads(row["message"]), "result": row["result"]})


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
