"""Law 4: never early, never late."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from penstock.chaos.checker.timeline import FINAL, SLACK, Delivered, Timeline, Violation


def never_early(timeline: Timeline) -> Iterator[Violation]:
    """No delivery before the delay of its send has passed, counted from the request; nor before that of a successful
    nak or reschedule."""
    for (queue, _, message), several in timeline.delivered.items():
        sent = timeline.sent.get(message)
        if sent is not None and sent.delay and several[0].at < sent.asked + sent.delay - SLACK:
            early = (sent.asked + sent.delay - several[0].at) / 1_000_000
            yield Violation("law 4: never early", f"{message} was handed out {early:.3f} s early", (message,))
        for first, second in itertools.pairwise(several):
            due = _due(first, timeline.rule(queue).backoff)
            if sent is not None and sent.ttl is not None and timeline.revivals(first.place, first.asked, second.at):
                continue  # it may have expired while it waited
            if due is not None and second.asked > first.at and second.at < due - SLACK:
                early = (due - second.at) / 1_000_000
                text = f"{message} was handed out again {early:.3f} s early"
                yield Violation("law 4: never early", text, (message,))


def _due(delivered: Delivered, backoff: int) -> int | None:
    for one in delivered.settlings:
        if one.state == "ok" and one.verb in ("nak", "reschedule") and one.outcome not in FINAL:
            return one.asked + (backoff if one.delay is None else one.delay)
    return None


def never_late(timeline: Timeline) -> Iterator[Violation]:
    """No delivery by a receive that began after the message had surely expired. A reschedule or a redrive moves the
    expiry, and that of a send whose reply was lost is unknown."""
    for place, several in timeline.delivered.items():
        message = place[2]
        sent = timeline.sent.get(message)
        if sent is None or sent.ttl is None or sent.answered is None or sent.state != "ok":
            continue
        if any(one.settled("reschedule") for one in several) or timeline.revivals(place):
            continue
        for one in several:
            late = one.asked - (sent.answered + sent.ttl)
            if late > SLACK and (one.process, one.receive[1]) in timeline.receives:
                text = f"{message} was handed out {late / 1_000_000:.3f} s after it had expired"
                yield Violation("law 4: never late", text, (message,))
