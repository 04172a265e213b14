"""Law 8: a reader that has moved past a position has missed nothing before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from penstock.chaos.checker.timeline import Timeline, Violation, asked_at
from penstock.chaos.history import Event


def positions_grow(timeline: Timeline) -> Iterator[Violation]:
    last: dict[str, tuple[int, str]] = {}
    for event in followed(timeline):
        for one in event["entries"]:
            position = int(one["id"].rpartition("-")[2])
            before = last.get(event["process"])
            if before is not None and position <= before[0]:
                text = f"{one['message']} at position {position} was read after position {before[0]}"
                yield Violation("law 8: positions grow", text, (before[1], one["message"]))
            last[event["process"]] = (position, one["message"])


def followed(timeline: Timeline) -> list[Event]:
    """The reads of followers, without those that preceded a restore to an earlier copy."""
    return [one for one in timeline.others["follow"] if not timeline.is_void(asked_at(one), one["t"])]


def followers_miss_nothing(timeline: Timeline) -> Iterator[Violation]:
    """Every message whose send was acknowledged was read by the follower, which never goes back and reads to the end
    after the last send. It does not read again what it read before a restore."""
    read: dict[str, set[str]] = defaultdict(set)
    for event in timeline.others["follow"]:
        read[event["queue"]] |= {one["message"] for one in event["entries"]}
    finished = {event["queue"] for event in timeline.others["followed"]}
    for sent in timeline.sent.values():
        if sent.queue not in finished or timeline.removal(sent.queue, sent.message):
            continue
        if sent.is_ok and sent.message not in read[sent.queue]:
            text = f"{sent.message} was acknowledged, and the follower of {sent.queue} passed it by"
            yield Violation("law 8: a follower misses nothing", text, (sent.message,))
