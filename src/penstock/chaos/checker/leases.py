"""Law 3: at most one live lease per group and message, and only its token settles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from penstock.chaos.checker.timeline import SLACK, Delivered, Timeline, Violation


def one_live_lease(timeline: Timeline) -> Iterator[Violation]:
    """Two clients never hold a message at the same time. A client surely holds it from the reply to its receive until
    it starts to settle, or until the lease may have ended, counted from the request."""
    for (_, group, message), several in timeline.delivered.items():
        held = [one for one in several if one.released_at > one.at]
        for first, second in itertools.pairwise(held):
            if first.token != second.token and second.at < first.released_at - SLACK:
                left = (first.released_at - second.at) / 1_000_000
                text = (
                    f"{message} was handed to {second.process} in group {group} while {first.process} "
                    f"held it for {left:.3f} s more"
                )
                yield Violation("law 3: at most one live lease", text, (message,))


def stale_tokens_are_refused(timeline: Timeline) -> Iterator[Violation]:
    """No settlement succeeds after the message was delivered to another client."""
    for (_, _, message), several in timeline.delivered.items():
        for one in several:
            later = [other for other in several if _is_later(other, one) and not other.is_void]
            for settling in one.settlings:
                if settling.state != "ok" or _is_repeat(one, settling.asked):
                    continue
                if any(other.at < settling.asked for other in later):
                    text = f"{settling.verb} of {message} by {one.process} was accepted after it was handed out again"
                    yield Violation("law 3: a stale token changes nothing", text, (message,))


def a_lease_ends(timeline: Timeline) -> Iterator[Violation]:
    """No settlement succeeds after the lease has surely ended."""
    for one in timeline.deliveries():
        for settling in one.settlings:
            if settling.state == "ok" and settling.asked > one.over + SLACK and not _is_repeat(one, settling.asked):
                late = (settling.asked - one.over) / 1_000_000
                text = f"{settling.verb} of {one.place[2]} was accepted {late:.3f} s after its lease had ended"
                yield Violation("law 3: a lease ends", text, (one.place[2],))


def _is_later(other: Delivered, one: Delivered) -> bool:
    return other.token != one.token and other.asked > one.at


def _is_repeat(one: Delivered, asked: int) -> bool:
    """Repeating a settlement is allowed: it returns the same state."""
    return any(earlier.asked < asked and earlier.state in ("ok", "unknown") for earlier in one.settlings)
