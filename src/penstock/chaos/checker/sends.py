"""Laws 1 and 2: every sent message ends, and no other message appears."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from penstock.chaos.checker.timeline import SentMessage, Timeline, Violation


def acknowledged_sends_end(timeline: Timeline) -> Iterator[Violation]:
    """After the drain each message whose send was acknowledged was acked in every group, or has a dead letter there."""
    drained = {(event["queue"], event["group"]) for event in timeline.others["drained"]}
    for sent in timeline.sent.values():
        if not sent.is_ok:
            continue
        if timeline.removal(sent.queue, sent.message) is not None:
            continue
        for group in timeline.rule(sent.queue).groups:
            if (sent.queue, group) in drained and not _has_ended(timeline, sent, group):
                found = len(timeline.delivered.get((sent.queue, group, sent.message), ()))
                text = f"{sent.message} was acknowledged and did not end in group {group} ({found} deliveries)"
                yield Violation("law 1: no acknowledged send is lost", text, (sent.message,))


def _has_ended(timeline: Timeline, sent: SentMessage, group: str) -> bool:
    """Whether the message ended after it was last made ready. A group that was sought may have skipped it, unless it
    was moved back to the start at the end of the run."""
    place = (sent.queue, group, sent.message)
    if timeline.is_sought(sent.queue, group):
        replayed = any((one["queue"], one["group"]) == (sent.queue, group) for one in timeline.others["replayed"])
        if not replayed:
            return True
    since = max((one.asked for one in timeline.revivals(place) if one.state == "ok"), default=0)
    if any(letter.asked >= since for letter in timeline.letters.get(place, ())):
        return True
    if any(one.asked >= since for one in timeline.possible_ends(place)):
        return True
    # Only the primary group keeps dead letters of messages that expired or were cancelled before a receive.
    return group != timeline.rule(sent.queue).primary and (sent.ttl is not None or sent.batch is not None)


def drained_queues_are_empty(timeline: Timeline) -> Iterator[Violation]:
    for event in timeline.others["stuck"]:
        text = f"queue {event['queue']} still handed out messages {event['seconds']:.0f} s after the last fault"
        yield Violation("law 1: queues drain when faults stop", text, tuple(event.get("messages", ())))


def only_what_was_sent_is_seen(timeline: Timeline) -> Iterator[Violation]:
    """Report messages that nobody sent, and those of sends that certainly failed, such as rolled-back ones."""
    ticks = {event["queue"] for event in timeline.others["schedule"]}
    seen = [(queue, message) for queue, _, message in (*timeline.delivered, *timeline.letters)]
    seen += [(event["queue"], one["message"]) for event in timeline.others["follow"] for one in event["entries"]]
    for queue, message in dict.fromkeys(seen):
        sent = timeline.sent.get(message)
        if queue in ticks:
            continue
        if sent is None:
            yield Violation("law 2: nothing is delivered that was not sent", f"{message} was never sent", (message,))
        elif sent.state == "fail":
            text = f"the send of {message} was undone, and the message was seen"
            yield Violation("law 2: an undone send is never seen", text, (message,))


def a_send_is_one_message(timeline: Timeline) -> Iterator[Violation]:
    """A message has the same id wherever it appears, and it is the one that the send returned."""
    ids: dict[str, set[str]] = defaultdict(set)
    for delivered in timeline.deliveries():
        if not delivered.is_void:
            ids[delivered.place[2]].add(delivered.id)
    for message, seen in ids.items():
        sent = timeline.sent.get(message)
        known = seen | ({sent.id} if sent is not None and sent.id is not None else set())
        if len(known) > 1:
            text = f"{message} was sent once and has the ids {', '.join(sorted(known))}"
            yield Violation("law 1: a send is one message", text, (message,))


def a_call_sends_all_or_nothing(timeline: Timeline) -> Iterator[Violation]:
    """A send without a reply happened wholly or not at all. A message that was seen only before a restore may have been
    undone with the rest of its send."""
    drained = {event["queue"] for event in timeline.others["drained"]}
    calls: dict[tuple[str, int], list[SentMessage]] = defaultdict(list)
    for sent in timeline.sent.values():
        if sent.state == "unknown" and sent.queue in drained and not sent.conditional and sent.ttl is None:
            calls[sent.call].append(sent)
    for several in calls.values():
        seen = [one.message for one in several if timeline.was_seen(one, surely=True)]
        gone = [one for one in several if timeline.removal(one.queue, one.message)]
        missing = [one.message for one in several if not timeline.was_seen(one) and one not in gone]
        if seen and missing:
            text = f"of one send {seen[0]} was seen and {missing[0]} was not"
            yield Violation("law 2: a send happens wholly or not at all", text, (seen[0], missing[0]))


def contents_are_as_sent(timeline: Timeline) -> Iterator[Violation]:
    """Every delivery has the payload, headers, priority and key of the send."""
    for delivered in timeline.deliveries():
        sent = timeline.sent.get(delivered.place[2])
        if sent is not None and sent.content and delivered.content and sent.content != delivered.content:
            text = f"{sent.message} was handed out with other headers, priority, key or payload than it was sent with"
            yield Violation("law 2: a message is handed out as it was sent", text, (sent.message,))
