"""Sends in transactions of callers.

Positions are given out under the lock of the queue. A caller may keep its transaction open for long, so its send takes
no lock: it stores the messages aside, as an arrival. After the commit, the next write to the queue, read of the store
or poll for commits appends them to the log (docs/decisions/0242). A send with an address or in a batch has to see the
live messages of the queue, and does take the lock."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import msgspec

from penstock.domain.identity import random_id
from penstock.domain.message import Draft, Options, check_size
from penstock.domain.policy import Policy
from penstock.domain.timestamps import SECOND, microseconds
from penstock.engines.mariadb.transaction import MariadbTransaction
from penstock.engines.positional import log, messages, queues

# Bytes of payloads in one row.
ROW_BYTES = 1 << 18
# Rows and bytes that are read at a time.
MOST_ROWS = 500
MOST_BYTES = 1 << 23

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[tuple[bytes, str | None, Options]]).decode
_decode_policy = msgspec.json.Decoder(Policy).decode


def can_wait(drafts: Sequence[Draft]) -> bool:
    """Whether the messages can be appended later without their sender."""
    return all(options.address is None and options.batch is None for _, _, options in drafts)


def add(transaction: MariadbTransaction, queue: str, drafts: Sequence[Draft]) -> list[str]:
    """Store the messages aside; they are sent when the caller commits."""
    encoded: str | None = transaction.value("policy_of", {"queue": queue})
    policy = Policy() if encoded is None else _decode_policy(encoded)
    check_size(max([payload for payload, _, _ in drafts], key=len), policy.max_payload_bytes)
    now = transaction.now
    fixed = [_fixed(transaction, draft, policy) for draft in drafts]
    for part in _parts(fixed):
        transaction.run("add_arrival", (queue, now, _encode(part)))
    return [str(options.id) for _, _, options in fixed]


def _fixed(transaction: MariadbTransaction, draft: Draft, policy: Policy) -> Draft:
    """The message with an id, and with the times that the policy gives it now."""
    payload, content_type, options = draft
    message_id = options.id
    if message_id is None:
        message_id = random_id(transaction.now, secrets.randbits(74))
    delay = policy.delay_seconds if options.delay_seconds is None else options.delay_seconds
    ttl = policy.ttl_seconds if options.ttl_seconds is None else options.ttl_seconds
    return payload, content_type, msgspec.structs.replace(options, id=message_id, delay_seconds=delay, ttl_seconds=ttl)


def _parts(drafts: Sequence[Draft]) -> Iterator[list[Draft]]:
    part: list[Draft] = []
    size = 0
    for draft in drafts:
        if part and size + len(draft[0]) > ROW_BYTES:
            yield part
            part, size = [], 0
        part.append(draft)
        size += len(draft[0])
    yield part


def place(transaction: MariadbTransaction, name: str) -> None:
    """Append the committed arrivals of a queue to its log. The transaction has the lock of the queue."""
    queue = queues.ensure(transaction, name)
    while rows := transaction.rows("arrivals", {"queue": name, "after": 0, "limit": MOST_ROWS}):
        taken = {"values": list(_first_of(rows))}
        sends = transaction.rows("read_arrivals", taken)
        transaction.run("remove_arrivals", taken)
        drafts = [
            (payload, content_type, _later(options, transaction.now - at))
            for at, encoded in sends
            for payload, content_type, options in _decode(encoded)
        ]
        if any(options.ttl_seconds is not None and options.ttl_seconds <= 0 for _, _, options in drafts):
            queues.recheck_expiry(transaction, queue.queue_id, None, min(at for at, _ in sends))
        messages.put(transaction, queue, drafts)
        queue = queues.by_id(transaction, queue.queue_id)


def waiting(transaction: MariadbTransaction, name: str) -> tuple[int, int]:
    """How many messages of a queue committed and are not in its log yet: those that are due, and those that are not."""
    queue = queues.get(transaction, name)
    now, after = transaction.now, 0
    ready: set[str] = set()
    held: set[str] = set()
    while rows := transaction.rows("arrivals", {"queue": name, "after": after, "limit": MOST_ROWS}):
        taken = list(_first_of(rows))
        sends = transaction.rows("read_arrivals", {"values": taken})
        delays = {
            str(options.id): microseconds(_later(options, now - at).delay_seconds or 0)
            for at, encoded in reversed(sends)
            for _, _, options in reversed(_decode(encoded))
        }
        for message_id in delays.keys() - log.existing(transaction, queue, list(delays)) - ready - held:
            (held if delays[message_id] > 0 else ready).add(message_id)
        after = taken[-1]
    return len(ready), len(held)


def _first_of(rows: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The first arrivals that together are not too large, at least one."""
    size = 0
    for arrival_id, length in rows:
        if size and size + length > MOST_BYTES:
            return
        size += length
        yield arrival_id


def _later(options: Options, passed: int) -> Options:
    """The options as they are when microseconds have passed since the send. That may be less than none: a transaction
    that took its time first sees what committed later. A message without a delay has none then either."""
    delay, ttl = options.delay_seconds, options.ttl_seconds
    if delay is not None and delay > 0:
        delay = (microseconds(delay) - passed) / SECOND
    if ttl is not None:
        ttl = (microseconds(ttl) - passed) / SECOND
    return msgspec.structs.replace(options, delay_seconds=delay, ttl_seconds=ttl)
