"""Law 7, as clients see it: a message ends once in each group, and a dead letter has a cause."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.chaos.checker.timeline import FINAL, Delivered, Letter, SentMessage, SettleCall, Timeline, Violation


def one_ending(timeline: Timeline) -> Iterator[Violation]:
    for (_, group, message), several in timeline.delivered.items():
        ends = {(one.token, settling.verb) for one in several for settling in one.settlings if _ends(settling)}
        if len(ends) > 1:
            text = f"{message} ended {len(ends)} times in group {group}"
            yield Violation("law 7: one ending per group", text, (message,))


def nothing_returns_after_its_end(timeline: Timeline) -> Iterator[Violation]:
    for (_, group, message), several in timeline.delivered.items():
        ended = [one.answered for each in several for one in each.settlings if _ends(one) and one.answered]
        if ended and any(one.asked > min(ended) for one in several):
            text = f"{message} was handed out in group {group} after it had ended"
            yield Violation("law 7: what has ended does not come back", text, (message,))


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
    for (_, group, message), letters in timeline.letters.items():
        if len(letters) > 1:
            text = f"{message} has {len(letters)} dead letters in group {group}"
            yield Violation("law 5: one dead letter", text, (message,))
    drained = {(event["queue"], event["group"]) for event in timeline.others["drained"]}
    for (queue, group, message), several in timeline.delivered.items():
        rejected = any(one.settled("reject", surely=True) for one in several)
        if rejected and (queue, group) in drained and not timeline.letters.get(several[0].place):
            text = f"{message} was rejected in group {group} and has no dead letter"
            yield Violation("law 5: one dead letter", text, (message,))


def _ends(settling: SettleCall) -> bool:
    return settling.state == "ok" and (settling.outcome in FINAL or settling.verb in ("ack", "reject"))


def _unfounded(timeline: Timeline, sent: SentMessage, several: list[Delivered], letter: Letter) -> str | None:
    """What speaks against a dead letter."""
    rules = timeline.rule(sent.queue)
    if any(one.settled("ack", surely=True) for one in several):
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
