"""Law 7, as clients see it: a message ends once in each group, and a dead letter has a cause."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.chaos.checker.streams import followed
from penstock.chaos.checker.timeline import (
    FINAL,
    FOREVER,
    Delivered,
    Letter,
    SentMessage,
    SettleCall,
    Timeline,
    Violation,
    asked_at,
)


def one_ending(timeline: Timeline) -> Iterator[Violation]:
    """One end, and one more for each possible redrive or seek."""
    for place, several in timeline.delivered.items():
        _, group, message = place
        ends = {(one.token, settling.verb) for one in several for settling in one.settlings if _ends(settling)}
        if len(ends) > 1 + len(timeline.revivals(place)):
            text = f"{message} ended {len(ends)} times in group {group}"
            yield Violation("law 7: one ending per group", text, (message,))


def nothing_returns_after_its_end(timeline: Timeline) -> Iterator[Violation]:
    """Report messages delivered after their ack, unless they were redriven (impossible after an ack) or read again
    after a seek."""
    for (_, group, message), several in timeline.delivered.items():
        for end in [one for each in several for one in each.settlings if _ends(one)]:
            if any(_returns(timeline, end, one) for one in several):
                text = f"{message} was handed out in group {group} after it had ended"
                yield Violation("law 7: what has ended does not come back", text, (message,))
                break


def _returns(timeline: Timeline, end: SettleCall, later: Delivered) -> bool:
    if end.answered is None or later.asked <= end.answered:
        return False
    revivals = timeline.revivals(later.place, end.asked, later.at)
    return not any(one.op == "seek" or end.verb != "ack" for one in revivals)


def removed_messages_are_gone(timeline: Timeline) -> Iterator[Violation]:
    """No client receives or settles a message, or finds its dead letter or its entry, after it was surely removed."""
    follows = [(one, entry["message"]) for one in followed(timeline) for entry in one["entries"]]
    for removal in (one for one in timeline.interventions if one.op == "remove"):
        gone = removal.answered if removal.state == "ok" and removal.answered else FOREVER
        for message in removal.messages if gone < FOREVER else ():
            seen = [asked_at(event) for event, read in follows if read == message]
            for group in timeline.rule(removal.queue).groups:
                place = (removal.queue, group, message)
                seen += [letter.asked for letter in timeline.letters.get(place, ())]
                for one in timeline.delivered.get(place, ()):
                    seen += [one.asked, *(each.asked for each in one.settlings[:1] if each.state == "ok")]
            if any(asked > gone for asked in seen):
                text = f"{message} was seen in queue {removal.queue} after it had been removed"
                yield Violation("law 7: what was removed is gone", text, (message,))


def dead_letters_have_a_cause(timeline: Timeline) -> Iterator[Violation]:
    for (queue, group, message), letters in timeline.letters.items():
        sent = timeline.sent.get(message)
        if sent is None:
            continue
        several = timeline.delivered.get((queue, group, message), [])
        for letter in letters:
            wrong = _unfounded(timeline, sent, several, letter)
            if wrong:
                text = f"{message} has a dead letter {letter.outcome} in group {group}, but {wrong}"
                yield Violation("law 7: a dead letter has a cause", text, (message,))


def one_dead_letter(timeline: Timeline) -> Iterator[Violation]:
    for (queue, group, message), letters in timeline.letters.items():
        if len(letters) > 1 + len(timeline.revivals((queue, group, message))):
            text = f"{message} has {len(letters)} dead letters in group {group}"
            yield Violation("law 5: one dead letter", text, (message,))
    drained = {(event["queue"], event["group"]) for event in timeline.others["drained"]}
    for (queue, group, message), several in timeline.delivered.items():
        rejected = any(one.settled("reject", surely=True) for one in several)
        if timeline.revivals(several[0].place) or timeline.removal(queue, message):
            continue
        if rejected and (queue, group) in drained and not timeline.letters.get(several[0].place):
            text = f"{message} was rejected in group {group} and has no dead letter"
            yield Violation("law 5: one dead letter", text, (message,))


def _ends(settling: SettleCall) -> bool:
    return settling.state == "ok" and (settling.outcome in FINAL or settling.verb in ("ack", "reject"))


def _was_sought(timeline: Timeline, one: Delivered, ack: SettleCall, letter: Letter) -> bool:
    return any(each.op == "seek" for each in timeline.revivals(one.place, ack.asked, letter.at))


def _unfounded(timeline: Timeline, sent: SentMessage, several: list[Delivered], letter: Letter) -> str | None:
    """Return the reason why a dead letter is impossible, or None."""
    rules = timeline.rule(sent.queue)
    acks = [one for each in several for one in each.settlings if one.verb == "ack" and one.state == "ok"]
    if any((one.answered or 0) < letter.asked and not _was_sought(timeline, several[0], one, letter) for one in acks):
        return "it was acked"
    if letter.outcome == "succeeded":
        return "succeeded is no reason to keep one"
    if letter.outcome == "rejected" and not any(one.settled("reject") for one in several):
        return "nobody rejected it"
    if letter.outcome == "expired" and sent.ttl is None:
        return "it does not expire"
    if letter.outcome == "lease_expired" and not rules.at_most_once:
        return "the queue is at_least_once"
    if letter.outcome == "cancelled" and sent.batch is None:
        return "it was in no batch"
    if letter.outcome == "failed" and rules.max_retries is not None and letter.attempts != rules.max_retries + 1:
        return f"it had {letter.attempts} attempts of {rules.max_retries + 1}"
    return None
