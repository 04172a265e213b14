"""Schedules: cron rules with a time zone, and their ticks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal, TypedDict
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from penstock.domain.errors import InvalidInput, InvalidSchedule
from penstock.domain.timestamps import EPOCH, to_time
from penstock.domain.validation import from_time, shown

CatchUp = Literal["skip", "one", "all"]
CATCH_UPS = ("skip", "one", "all")
# A tick counts as missed when it is later than this: sweeps run every second, and a busy machine may stall.
PROMPT_SECONDS = 60
# One pass sends at most this many missed ticks of one schedule; the next passes send the rest.
MAX_CATCH_UP = 1000


class ScheduleOptions(TypedDict, total=False):
    """The keywords of `store.schedule`."""

    timezone: str
    catch_up: CatchUp
    priority: int
    headers: Mapping[str, str] | None
    ttl_seconds: float | None
    key: str | None
    content_type: str | None


class Schedule(msgspec.Struct, frozen=True):
    """A cron rule that sends a message. `next_at` is None while it is paused or when the rule has no more ticks."""

    name: str
    cron: str
    timezone: str
    queue: str
    payload: bytes
    content_type: str
    headers: dict[str, str]
    priority: int
    catch_up: CatchUp
    paused: bool
    next_at: datetime | None
    last_at: datetime | None
    ttl_seconds: float | None = None
    key: str | None = None


def check_cron(cron: object, timezone: object) -> None:
    """Check that the rule parses and has at least one tick."""
    if not isinstance(cron, str) or len(cron) > 200:
        raise InvalidSchedule(f"cron must be a rule such as '*/5 * * * *', not {shown(cron)}")
    if not isinstance(timezone, str):
        raise InvalidSchedule(f"timezone must be a name such as 'Europe/Berlin', not {shown(timezone)}")
    next_tick(cron, timezone, from_time("now", EPOCH))


def check_catch_up(value: object) -> CatchUp:
    if value not in CATCH_UPS:
        raise InvalidInput(f"catch_up must be one of {', '.join(CATCH_UPS)}, not {shown(value)}")
    return value  # type: ignore[return-value]  # narrowed by the test above


def next_tick(cron: str, timezone: str, after: int) -> int:
    """The first tick later than `after`."""
    return next(ticks(cron, timezone, after))


def ticks(cron: str, timezone: str, after: int) -> Iterator[int]:
    """Ticks later than `after`, in order. Days with a clock change follow Debian's cron, as `cronsim` does."""
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise InvalidSchedule(f"timezone {shown(timezone)} is unknown: use a name such as 'Europe/Berlin'") from None
    try:
        for tick in CronSim(cron, to_time(after).astimezone(zone)):
            yield from_time("tick", tick.astimezone(UTC))
    except CronSimError as error:
        raise InvalidSchedule(
            f"cron {shown(cron)} does not parse ({error}): use a rule such as '*/5 * * * *'"
        ) from None
    raise InvalidSchedule(f"cron {shown(cron)} has no tick within 50 years")


def due_ticks(cron: str, timezone: str, next_at: int, now: int, catch_up: CatchUp) -> tuple[list[int], int]:
    """The ticks to send now, and the tick after them. The pending tick is `next_at`, which has come."""
    due = [next_at]
    upcoming = ticks(cron, timezone, next_at)
    following = next(upcoming)
    if catch_up == "all":
        while following <= now and len(due) < MAX_CATCH_UP:
            due.append(following)
            following = next(upcoming)
        return due, following
    # Long gaps are crossed by jumping to now, not by counting every tick that was missed.
    if following <= now:
        following = next_tick(cron, timezone, now)
        due = [last_tick(cron, timezone, next_at, now)]
    if catch_up == "skip":
        due = [tick for tick in due if now - tick <= PROMPT_SECONDS * 1_000_000]
    return due, following


def last_tick(cron: str, timezone: str, earliest: int, now: int) -> int:
    """The latest tick that is not later than now, known to be `earliest` or later."""
    start = to_time(now + 1).astimezone(ZoneInfo(timezone))
    tick = next(iter(CronSim(cron, start, reverse=True)), None)
    return earliest if tick is None else max(earliest, from_time("tick", tick.astimezone(UTC)))
