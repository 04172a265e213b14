"""bench"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from penstock.cli.format import table
from penstock.cli.options import count_option, seconds_option
from penstock.cli.session import CliSession
from penstock.client.connection import SQLITE_PREFIX, connect
from penstock.client.queue import Queue
from penstock.domain.errors import InvalidInput, Refused, StoreUnavailable
from penstock.domain.validation import check_integer, check_seconds

QUEUE = "penstock-bench"
BATCHES = [1, 10, 100, 1000]
COLUMNS = ("batch", "send", "receive", "ack", "all three")
LONGEST_SECONDS = 60
MAX_BATCH = 100_000
# Limits of one call and of one row of the result: a measurement must not fill the disk.
MAX_CALL_BYTES = 64 * 1024 * 1024
MAX_BYTES = 256 * 1024 * 1024
# Approximate size of a stored message without its payload.
OVERHEAD_BYTES = 100


class Rate(msgspec.Struct):
    """Messages per second, by verb and for the three together."""

    batch: int
    messages: int
    send: float
    receive: float
    ack: float
    all: float


def bench(
    session: CliSession,
    batch: Annotated[
        list[int] | None, count_option("--batch", "So many messages in a call; may be given several times.")
    ] = None,
    seconds: Annotated[float, seconds_option("--seconds", "Measure each for so long.")] = 1,
    payload_bytes: Annotated[int, count_option("--payload-bytes", "The length of each payload.")] = 200,
) -> None:
    """Measure how many messages a second this store can send, receive and ack, from one process.

    A SQLite store is measured in a file of its own on the same disk, another one in a queue that is emptied afterwards.

    Example: penstock bench --batch 1 --batch 1000
    """
    batches = batch or BATCHES
    _check(batches, seconds, payload_bytes)
    with _scratch(session.settings().url) as queue:
        rates = [_measure(queue, one, seconds, os.urandom(payload_bytes)) for one in batches]
    page = table(*COLUMNS, title="Messages per second", numbers=COLUMNS)
    for rate in rates:
        page.add_row(*(f"{value:,.0f}" for value in (rate.batch, rate.send, rate.receive, rate.ack, rate.all)))
    session.answer(rates, page)


def _check(batches: list[int], seconds: float, payload_bytes: int) -> None:
    check_seconds("seconds", seconds, above=True)
    if seconds > LONGEST_SECONDS:
        raise InvalidInput(f"seconds must be at most {LONGEST_SECONDS}, not {seconds:g}")
    check_integer("payload_bytes", payload_bytes, 0, MAX_CALL_BYTES)
    for one in batches:
        check_integer("batch", one, 1, MAX_BATCH)
        if one * payload_bytes > MAX_CALL_BYTES:
            raise InvalidInput(
                f"a call of {one:,} payloads with {payload_bytes:,} bytes each is too large: "
                f"at most {MAX_CALL_BYTES:,} bytes together"
            )


@contextmanager
def _scratch(url: str) -> Iterator[Queue]:
    """A queue for the measurement, removed or emptied afterwards."""
    path = url.removeprefix(SQLITE_PREFIX)
    if path in (url, ":memory:"):
        with connect(url) as store:
            queue = store.queue(QUEUE)
            if queue.engine.unread(QUEUE):
                raise Refused(
                    f"queue {QUEUE!r} is not empty: somebody measures this store just now, or was cut off; "
                    f"`penstock flush {QUEUE}` empties it"
                )
            try:
                yield queue
            finally:
                queue.flush()
        return
    with _folder_beside(Path(path)) as folder, connect(f"{SQLITE_PREFIX}{folder}/bench.db") as store:
        yield store.queue(QUEUE)


def _folder_beside(path: Path) -> tempfile.TemporaryDirectory[str]:
    beside = path.absolute().parent
    try:
        return tempfile.TemporaryDirectory(prefix=".penstock-bench-", dir=beside)
    except OSError as error:
        raise StoreUnavailable(
            f"{beside}: no file can be made there to measure with ({error.strerror}); name another place with --url"
        ) from None


def _measure(queue: Queue, batch: int, seconds: float, payload: bytes) -> Rate:
    payloads = [payload] * batch
    most = max(MAX_BYTES // (len(payload) + OVERHEAD_BYTES), batch)
    _cycle(queue, payloads)
    sending = receiving = acking = 0.0
    messages = 0
    began = now = time.perf_counter()
    while not messages or (now - began < seconds and messages < most):
        sent, received, acked = _cycle(queue, payloads)
        sending, receiving, acking = sending + sent - now, receiving + received - sent, acking + acked - received
        messages += batch
        now = time.perf_counter()
    whole = sending + receiving + acking
    return Rate(batch, messages, messages / sending, messages / receiving, messages / acking, messages / whole)


def _cycle(queue: Queue, payloads: list[bytes]) -> tuple[float, float, float]:
    """The times at which the messages were sent, received and acked."""
    if len(payloads) == 1:
        queue.send(payloads[0])
    else:
        queue.send_many(payloads)
    sent = time.perf_counter()
    deliveries = queue.receive(limit=len(payloads))
    received = time.perf_counter()
    queue.ack_many(deliveries)
    return sent, received, time.perf_counter()
