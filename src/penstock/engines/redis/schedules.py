"""Schedules: a hash in the slot of the store. One message per tick, however many processes sweep: its id follows from
the schedule and the tick, so that sending it again is the same send."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import msgspec

from penstock.domain import refusals
from penstock.domain.message import BYTES, Draft, Options, check_size, decode_headers
from penstock.domain.recurrence import CatchUp, Schedule, due_ticks, next_tick
from penstock.domain.timestamps import to_optional_time, to_time
from penstock.engines.redis.connection import RedisDatabase, pairs_of

if TYPE_CHECKING:
    from penstock.engines.redis.engine import RedisEngine

# The name space of the ids of ticks.
_TICKS = uuid.UUID("7d0c5c0e-7f0d-5a59-9a6e-0b7f2f1f7d51")


class StoredSchedule(msgspec.Struct, frozen=True):
    cron: str
    timezone: str
    queue: str
    message: tuple[bytes, str | None, Options]
    catch_up: CatchUp
    paused: bool
    next_at: int | None
    last_at: int | None
    # Distinguishes ticks of a schedule from those of an earlier one of the same name.
    since: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StoredSchedule).decode


def _key(database: RedisDatabase) -> str:
    return f"{database.store_key}:schedules"


def _rows(database: RedisDatabase) -> dict[str, bytes]:
    found = database.command("HGETALL", _key(database))
    return {name.decode(): row for name, row in sorted(pairs_of(found))}


def _change(database: RedisDatabase, name: str, before: bytes | None, after: StoredSchedule | None) -> bool:
    expect = {name: False if before is None else before.decode()}
    puts = {} if after is None else {name: _encode(after).decode()}
    removes = [name] if after is None else []
    return bool(database.store_call("record", _key(database), puts=puts, removes=removes, expect=expect))


def every(database: RedisDatabase) -> list[Schedule]:
    return [_shown(name, _decode(row)) for name, row in _rows(database).items()]


def put(
    engine: RedisEngine, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp
) -> Schedule:
    """Create or replace a schedule. An unchanged rule keeps its next tick, so that declaring it at every start loses
    none."""
    check_size(draft[0], engine.policy(queue).max_payload_bytes)
    now = engine.now()
    while True:
        before = engine.database.command("HGET", _key(engine.database), name)
        new = StoredSchedule(cron, timezone, queue, draft, catch_up, False, next_tick(cron, timezone, now), None, now)
        if before is not None:
            old = _decode(before)
            new = msgspec.structs.replace(new, paused=old.paused, last_at=old.last_at, since=old.since)
            if (old.cron, old.timezone) == (cron, timezone) or old.paused:
                new = msgspec.structs.replace(new, next_at=old.next_at)
        if _change(engine.database, name, before, new):
            engine.database.command("HSET", engine.database.queue_key(queue), "scheduled", uuid.uuid4().hex)
            return _shown(name, new)


def mark_of(database: RedisDatabase, queue: str) -> str:
    """A text that changes with every schedule that is declared for the queue."""
    mark: bytes | None = database.command("HGET", database.queue_key(queue), "scheduled")
    return "" if mark is None else mark.decode()


def _get(database: RedisDatabase, name: str) -> bytes:
    row: bytes | None = database.command("HGET", _key(database), name)
    if row is None:
        raise refusals.no_schedule(name, list(_rows(database)))
    return row


def pause(engine: RedisEngine, name: str, paused: bool) -> Schedule:
    while True:
        before = _get(engine.database, name)
        old = _decode(before)
        next_at = old.next_at
        if old.paused != paused:
            next_at = None if paused else next_tick(old.cron, old.timezone, engine.now())
        new = msgspec.structs.replace(old, paused=paused, next_at=next_at)
        if _change(engine.database, name, before, new):
            return _shown(name, new)


def remove(database: RedisDatabase, name: str) -> None:
    before = _get(database, name)
    while not _change(database, name, before, None):
        before = _get(database, name)
    database.command("HDEL", database.queue_key(_decode(before).queue), f"tick:{name}")


def run(engine: RedisEngine, name: str) -> str:
    """Send the message now, without changing the ticks."""
    stored = _decode(_get(engine.database, name))
    (message_id,) = engine.put(stored.queue, [_stamped(stored.message, name, engine.now(), None)])
    return message_id


def fire(engine: RedisEngine) -> int:
    """Send the messages of all due ticks; return how many. Whoever advances the schedule has fired it."""
    fired = 0
    now = engine.now()
    for name, row in _rows(engine.database).items():
        stored = _decode(row)
        if stored.next_at is None or stored.next_at > now:
            continue
        due, following = due_ticks(stored.cron, stored.timezone, stored.next_at, now, stored.catch_up)
        if due:
            drafts = [_stamped(stored.message, name, tick, _tick_id(name, stored.since, tick)) for tick in due]
            engine.put(stored.queue, drafts, ticks={"schedule": name, "since": stored.since, "at": due})
        last_at = due[-1] if due else stored.last_at
        advanced = msgspec.structs.replace(stored, next_at=following, last_at=last_at)
        if _change(engine.database, name, row, advanced):
            fired += len(due)
    return fired


def _tick_id(name: str, since: int, tick: int) -> str:
    return str(uuid.uuid5(_TICKS, f"{since}/{tick}/{name}"))


def _stamped(draft: Draft, schedule: str, tick: int, message_id: str | None) -> Draft:
    """The draft with headers that name the schedule and the tick."""
    payload, content_type, options = draft
    headers = {**decode_headers(options.headers), "penstock-schedule": schedule}
    headers["penstock-tick"] = to_time(tick).isoformat()
    encoded = msgspec.json.encode(headers).decode()
    return payload, content_type, msgspec.structs.replace(options, headers=encoded, id=message_id)


def _shown(name: str, stored: StoredSchedule) -> Schedule:
    payload, content_type, options = stored.message
    return Schedule(
        name=name,
        cron=stored.cron,
        timezone=stored.timezone,
        queue=stored.queue,
        payload=payload,
        content_type=content_type or BYTES,
        headers=decode_headers(options.headers),
        priority=options.priority,
        catch_up=stored.catch_up,
        paused=stored.paused,
        next_at=to_optional_time(stored.next_at),
        last_at=to_optional_time(stored.last_at),
        ttl_seconds=options.ttl_seconds,
        key=options.key,
    )
