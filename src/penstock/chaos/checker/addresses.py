"""Addresses: at most one live message each, in the primary group; a send to a free address is not refused."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from penstock.chaos.checker.timeline import FOREVER, Delivered, SentMessage, Timeline, Violation


def an_address_has_one_live_message(timeline: Timeline) -> Iterator[Violation]:
    """A message that is delivered or settled after another send to its address succeeded was live during that send."""
    for several in _by_address(timeline):
        for first, second in itertools.permutations((one for one in several if one.is_ok), 2):
            if first.answered is None or second.answered is None or first.answered > second.asked:
                continue
            live = [one for one in _deliveries(timeline, first) if one.asked > second.answered and not one.is_void]
            if live:
                text = f"{second.message} was sent to {first.address} while {first.message} was live"
                yield Violation("address: one live message", text, (first.message, second.message))


def a_free_address_is_not_refused(timeline: Timeline) -> Iterator[Violation]:
    """Report sends that were refused for their address while every other message of it had surely ended or was not sent
    yet."""
    for several in _by_address(timeline):
        for refused in several:
            if refused.state != "fail" or "address" not in (refused.refusal or "").lower():
                continue
            begun, answered = refused.asked, refused.answered or FOREVER
            others = [one for one in several if one is not refused and one.state != "fail" and one.asked < answered]
            if not any(_may_live(timeline, one, begun) for one in others):
                text = f"{refused.message} was refused, and no other message of {refused.address} was live"
                yield Violation("address: a free one is not refused", text, (refused.message,))


def _by_address(timeline: Timeline) -> list[list[SentMessage]]:
    found: dict[tuple[str, str], list[SentMessage]] = defaultdict(list)
    for sent in timeline.sent.values():
        if sent.address is not None:
            found[sent.queue, sent.address].append(sent)
    return list(found.values())


def _may_live(timeline: Timeline, sent: SentMessage, after: int) -> bool:
    """Whether no ack or reject in the primary group was answered before."""
    for delivered in _deliveries(timeline, sent):
        for one in delivered.settlings:
            is_end = one.state == "ok" and one.verb in ("ack", "reject")
            if is_end and one.answered is not None and one.answered < after:
                return False
    return True


def _deliveries(timeline: Timeline, sent: SentMessage) -> list[Delivered]:
    return timeline.delivered.get((sent.queue, timeline.rule(sent.queue).primary or "", sent.message), [])
