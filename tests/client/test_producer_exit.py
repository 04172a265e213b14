"""Producers that were not closed: their messages are sent at interpreter exit, with a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import penstock

BLOCKING = """
import penstock, sys
store = penstock.connect(sys.argv[1])
producer = store.queue("q").producer(batch_size=100, linger_seconds=3600)
for number in range(30):
    producer.send(number)
"""
ASYNC = """
import asyncio, penstock, sys

async def main():
    store = await penstock.connect_async(sys.argv[1])
    producer = (await store.queue("q")).producer(batch_size=100, linger_seconds=3600)
    for number in range(30):
        await producer.send(number)

asyncio.run(main())
"""
CLOSED = """
import penstock, sys
with penstock.connect(sys.argv[1]) as store:
    producer = store.queue("q").producer(batch_size=100, linger_seconds=3600)
    for number in range(30):
        producer.send(number)
"""
ASYNC_CLOSED = """
import asyncio, penstock, sys

async def main():
    async with await penstock.connect_async(sys.argv[1]) as store:
        producer = (await store.queue("q")).producer(batch_size=100, linger_seconds=3600)
        for number in range(30):
            await producer.send(number)

asyncio.run(main())
"""
REMOVED = """
import os, penstock, sys
store = penstock.connect(sys.argv[1])
store.queue("q").producer(batch_size=100, linger_seconds=3600).send(1)
os.unlink(sys.argv[1].removeprefix("sqlite:///"))
"""


def ran(url: str, program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "default", "-c", program, url]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "program", [BLOCKING, ASYNC, CLOSED, ASYNC_CLOSED], ids=["blocking", "async", "closed", "async closed"]
)
def test_buffered_messages_are_sent_at_exit(tmp_path: Path, program: str) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    ended = ran(url, program)
    assert ended.returncode == 0, ended.stderr
    assert "ResourceWarning: a producer was not closed: its last 30 messages are sent now" in ended.stderr
    with penstock.connect(url) as store:
        assert [message.json() for message in store.queue("q").peek(100)] == list(range(30))


def test_messages_that_cannot_be_sent_at_exit_cause_a_warning(tmp_path: Path) -> None:
    ended = ran(f"sqlite:///{tmp_path}/store.db", REMOVED)
    assert "RuntimeWarning: messages of a producer that was not closed are lost" in ended.stderr


FORKED = """
import os, penstock, sys
store = penstock.connect(sys.argv[1])
producer = store.queue("q").producer(batch_size=100, linger_seconds=3600)
for number in range(30):
    producer.send(number)
if os.fork() == 0:
    sys.exit()
os.wait()
"""


def test_a_forked_child_does_not_send_its_parents_buffered_messages(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    ended = ran(url, FORKED)
    assert ended.returncode == 0, ended.stderr
    with penstock.connect(url) as store:
        assert [message.json() for message in store.queue("q").peek(100)] == list(range(30))
