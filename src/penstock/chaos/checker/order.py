"""Order: ordered queues process each key strictly in sequence, and better priorities come first."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from penstock.chaos.checker.timeline import SECOND, SLACK, Delivered, Receive, SentMessage, Timeline, Violation

UNANSWERED = 30 * SECOND


def keys_are_in_order(timeline: Timeline) -> Iterator[Violation]:
    """A message whose send was acknowledged before another one of its key was sent is processed first, retries
    included: it is not delivered after the other one, and two leases never hold both at a time. With different
    priorities, the one that was delivered first is processed first."""
    for (queue, _), several in _keys(timeline).items():
        for first, second in _successors(several):
            for group in timeline.rule(queue).groups:
                earlier = timeline.delivered.get((queue, group, first.message), [])
                later = timeline.delivered.get((queue, group, second.message), [])
                pair: tuple[list[Delivered], list[Delivered]] | None = (earlier, later)
                if first.priority != second.priority and earlier and later:
                    is_better = first.priority < second.priority
                    pair = _by_handing_out(timeline, *((earlier, later) if is_better else (later, earlier)))
                if pair is not None:
                    yield from _disorder(timeline, *pair)


def _keys(timeline: Timeline) -> dict[tuple[str, str], list[SentMessage]]:
    keys: dict[tuple[str, str], list[SentMessage]] = defaultdict(list)
    for sent in timeline.sent.values():
        if sent.is_ok and sent.key is not None and timeline.rule(sent.queue).ordered:
            keys[sent.queue, sent.key].append(sent)
    return keys


def _successors(several: list[SentMessage]) -> Iterator[tuple[SentMessage, SentMessage]]:
    """Pairs of each message with the next few that were surely sent after it; order is transitive."""
    several.sort(key=lambda one: one.asked)
    for place, first in enumerate(several):
        after = (one for one in several[place + 1 :] if first.answered is not None and one.asked > first.answered)
        for second in itertools.islice(after, 3):
            yield first, second


def _disorder(timeline: Timeline, earlier: list[Delivered], later: list[Delivered]) -> Iterator[Violation]:
    """Violations by two messages of one key. One lease may hold both messages; then the later one is released with the
    earlier one, unless it has ended. A client that gets the reply after its lease has ended does not hold the message,
    and another client may have received the earlier one."""
    tokens = {one.token for one in earlier}
    for first, second in itertools.product(earlier, later):
        names = (first.place[2], second.place[2])
        passed = second.at if second.token not in tokens else _ended_at(second)
        if passed is not None and first.asked > passed and not timeline.crashed_between(second.asked, first.at):
            text = f"{names[0]} was handed out after {names[1]}, which comes behind it with the same key"
            yield Violation("order: a key is processed in order", text, names)
        elif first.token != second.token and first.at <= second.at < min(first.released_at, second.released_at) - SLACK:
            text = (
                f"{names[1]} was handed out while {names[0]}, which comes before it with the same key, was still held"
            )
            yield Violation("order: a key has one lease at a time", text, names)


def _by_handing_out(
    timeline: Timeline, better: list[Delivered], worse: list[Delivered]
) -> tuple[list[Delivered], list[Delivered]] | None:
    """Return which of two messages with different priorities was delivered first; None if that is uncertain or a crash
    may have lost it."""
    times = [one for several in (better, worse) for one in (several[0].asked, several[0].at)]
    if timeline.crashed_between(min(times), max(times)):
        return None
    if better[0].receive == worse[0].receive or better[0].at < min(one.asked for one in worse):
        return better, worse
    return (worse, better) if worse[0].at < min(one.asked for one in better) else None


def _ended_at(delivered: Delivered) -> int | None:
    ends = [one.answered for one in delivered.settlings if one.state == "ok" and one.verb in ("ack", "reject")]
    return min((end for end in ends if end is not None), default=None)


def priorities_are_kept(timeline: Timeline) -> Iterator[Violation]:
    """A receive does not return a worse priority while a better one was ready before it began. Only receives that no
    other receive of the group overlaps are checked: a concurrent one may be taking the better message."""
    receives: dict[tuple[str, str], list[Receive]] = defaultdict(list)
    for one in timeline.receives.values():
        receives[one.queue, one.group].append(one)
    for (queue, group), several in receives.items():
        rules = timeline.rule(queue)
        if rules.ordered or rules.has_workers or timeline.is_sought(queue, group):
            continue
        ready = _untouched(timeline, queue, group)
        for receive in _alone(several):
            yield from _inversions(timeline, receive, ready)


def _untouched(timeline: Timeline, queue: str, group: str) -> list[tuple[SentMessage, int]]:
    """Messages without a delay, with the time until which they were surely ready: that of their first receive."""
    found = []
    for sent in timeline.sent.values():
        several = timeline.delivered.get((queue, group, sent.message)) if sent.queue == queue else None
        plain = sent.is_ok and not sent.delay and sent.ttl is None and sent.batch is None
        if several and (timeline.revivals(several[0].place) or timeline.removal(queue, sent.message)):
            continue
        if several and plain and several[0].attempt == 1 and sent.answered is not None:
            found.append((sent, several[0].asked))
    return found


def _alone(several: list[Receive]) -> Iterator[Receive]:
    """Receives that no other receive of the group overlaps. One without a reply may take messages much later, when its
    request waits in a server, and release them when its client disconnects: receives are not checked for a while after
    it."""
    several.sort(key=lambda one: one.asked)
    busy_until = 0
    for place, one in enumerate(several):
        answered = one.asked + UNANSWERED if one.answered is None else one.answered
        following = several[place + 1].asked if place + 1 < len(several) else answered + 1
        if one.asked > busy_until and following > answered and one.answered is not None:
            yield one
        busy_until = max(busy_until, answered)


def _inversions(timeline: Timeline, receive: Receive, ready: list[tuple[SentMessage, int]]) -> Iterator[Violation]:
    worst = max((_priority(timeline, one) for one in receive.taken), default=0)
    if not worst or receive.answered is None or timeline.is_void(receive.asked, receive.answered):
        return  # calls that the restore undid may have taken what was ready then
    for sent, until in ready:
        was_ready = sent.answered is not None and sent.answered < receive.asked and until > receive.answered
        if was_ready and sent.priority < worst:
            other = next(one for one in receive.taken if _priority(timeline, one) == worst)
            names = (sent.message, other.place[2])
            text = f"{names[1]} with priority {worst} was handed out while {names[0]} with {sent.priority} was ready"
            yield Violation("order: better priorities first", text, names)


def _priority(timeline: Timeline, delivered: Delivered) -> int:
    sent = timeline.sent.get(delivered.place[2])
    return 0 if sent is None else sent.priority
