"""Laws 5 and 6: attempts without gaps and within bounds, and at_most_once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from penstock.chaos.checker.timeline import Delivered, Rules, Timeline, Violation


def attempts_grow(timeline: Timeline) -> Iterator[Violation]:
    """A later delivery has a higher attempt, unless the message was rescheduled, redriven or read again after a seek. A
    server crash may lose the receive of an at_least_once queue with its attempt, and a restore that of any queue.
    Ordered queues and stopping workers release messages without counting the attempt."""
    for (queue, _, message), several in timeline.delivered.items():
        for first, second in itertools.pairwise(several):
            if second.asked <= first.at or second.token == first.token:
                continue
            # By any client: the reply to the first receive may have arrived after another client had received the
            # message.
            if any(one.settled("reschedule") and one.asked < second.at for one in several):
                continue
            if timeline.revivals(first.place, before=second.at):
                continue
            forgets = not timeline.rule(queue).at_most_once and timeline.crashed_between(first.asked, second.at)
            forgets = forgets or first.is_void
            least = first.attempt + (0 if _gives_back(timeline.rule(queue)) else 1)
            if second.attempt < least and not forgets:
                text = f"{message}: attempt {second.attempt} after attempt {first.attempt}"
                yield Violation("law 5: attempts have no gaps", text, (message,))


def _gives_back(rules: Rules) -> bool:
    return rules.ordered or rules.has_workers


def attempts_have_no_gaps(timeline: Timeline) -> Iterator[Violation]:
    """An attempt that no client saw belongs to a receive whose reply was lost. Workers receive ahead of their handlers,
    so queues with workers are not checked."""
    for (queue, group, message), several in timeline.delivered.items():
        if timeline.rule(queue).has_workers or any(one.settled("reschedule") for one in several):
            continue
        if timeline.revivals((queue, group, message)):
            continue
        seen = {one.attempt for one in several}
        missing = [number for number in range(1, max(seen) + 1) if number not in seen]
        if missing and len(missing) > _lost_receives(timeline, queue, group, several[-1].at):
            text = f"{message}: attempts {missing} in group {group} were never handed out"
            yield Violation("law 5: attempts have no gaps", text, (message,))


def _lost_receives(timeline: Timeline, queue: str, group: str, before: int) -> int:
    return sum(
        one.answered is None and (one.queue, one.group) == (queue, group) and one.asked < before
        for one in timeline.receives.values()
    )


def retries_are_bounded(timeline: Timeline) -> Iterator[Violation]:
    for (queue, group, message), several in timeline.delivered.items():
        most = timeline.rule(queue).max_retries
        highest = max(one.attempt for one in several)
        if most is not None and highest > most + 1:
            text = f"{message} had attempt {highest} in group {group}, with max_retries {most}"
            yield Violation("law 5: retries are bounded", text, (message,))


def at_most_once_is_not_redelivered(timeline: Timeline) -> Iterator[Violation]:
    """Report second deliveries without a possible nak, reschedule or redrive. An extend or a lost ack does not make a
    message ready again."""
    for (queue, group, message), several in timeline.delivered.items():
        if not timeline.rule(queue).at_most_once:
            continue
        for first, second in itertools.pairwise(_distinct(several)):
            # Of two concurrent calls either may have come first.
            together = [first, second] if second.asked <= first.at else [first]
            is_asked = any(one.settled("nak", "reschedule") for one in together)
            since = min(one.asked for one in together)
            if not is_asked and not timeline.revivals(first.place, since, second.at) and not first.is_void:
                text = f"{message} was handed to {first.process} and {second.process} in group {group} without a nak"
                yield Violation("law 6: at_most_once is not redelivered without a nak", text, (message,))


def _distinct(several: list[Delivered]) -> list[Delivered]:
    return list({one.token: one for one in several}.values())
