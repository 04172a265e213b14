"""Law 7, by the store's own account: counts within the bounds of the sends, and legal audit trails."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator

from penstock.chaos.checker.timeline import FINAL, Timeline, Violation

LIVE = ("held", "ready", "leased")
DEAD = tuple(sorted(FINAL - {"succeeded"}))
# event: which states it leaves, and to which it leads. Written down from the documented lifecycle, not imported.
STEPS: dict[str, tuple[tuple[str | None, ...], tuple[str, ...]]] = {
    "send": ((None,), ("held", "ready")),
    "due": (("held",), ("ready",)),
    "batch_start": (("held",), ("ready",)),
    "receive": (("ready",), ("leased",)),
    "ack": (("leased",), ("succeeded",)),
    "nak": (("leased",), ("held", "ready", "failed", "cancelled")),
    "reject": (("leased",), ("rejected",)),
    "reschedule": (("leased",), ("held", "ready", "cancelled")),
    "lease_end": (("leased",), ("ready", "failed", "lease_expired", "cancelled")),
    "release": (("leased",), ("ready", "cancelled")),
    "deadline": (LIVE, ("expired",)),
    "expire": (LIVE, ("expired",)),
    "batch_cancel": (("held", "ready"), ("cancelled",)),
    "redrive": (DEAD, ("ready",)),
    "seek": ((*sorted(FINAL), "ready"), ("ready", "cancelled")),
    "remove": (LIVE, ("cancelled",)),
}


def counts_conserve(timeline: Timeline) -> Iterator[Violation]:
    surely, maybe = _send_times(timeline)
    for event in timeline.others["stats"]:
        queue = event["queue"]
        if timeline.is_sought(queue, event["group"]):
            continue  # messages that a seek skipped are not counted
        least = bisect.bisect_left(surely[queue], event["asked"])
        most = bisect.bisect_right(maybe[queue], event["t"])
        if not least <= event["count"] <= most:
            text = f"queue {queue}, group {event['group']}: {event['count']} counted while {least} to {most} were sent"
            yield Violation("law 7: counts conserve", text, ())


def _send_times(timeline: Timeline) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """For each queue: when sends were acknowledged, and when all possible sends were requested."""
    surely: dict[str, list[int]] = defaultdict(list)
    maybe: dict[str, list[int]] = defaultdict(list)
    for sent in timeline.sent.values():
        if sent.is_ok and sent.answered is not None:
            surely[sent.queue].append(sent.answered)
        if sent.state != "fail":
            maybe[sent.queue].append(sent.asked)
    for times in (*surely.values(), *maybe.values()):
        times.sort()
    return surely, maybe


def trails_are_legal(timeline: Timeline) -> Iterator[Violation]:
    for event in timeline.others["audit"]:
        for group in event["groups"]:
            state: str | None = None
            entries = [one for one in event["trail"] if one["group"] in (None, group)]
            for one in entries:
                sources, targets = STEPS.get(one["event"], ((), ()))
                if state not in sources or one["state"] not in targets:
                    text = f"{event['message']} in group {group}: {state} --{one['event']}--> {one['state']}"
                    yield Violation("law 7: audit trails are legal", text, (event["message"],))
                state = one["state"]
            ends = [one["state"] for one in entries if one["state"] in FINAL]
            expected = 1 + sum(one["event"] == "redrive" for one in entries)
            if len(ends) != expected and not timeline.is_sought(event["queue"], group):
                text = f"{event['message']} in group {group} ended {len(ends)} times in its audit trail: {ends}"
                yield Violation("law 7: audit trails are legal", text, (event["message"],))


def trails_are_complete(timeline: Timeline) -> Iterator[Violation]:
    """Every delivery that a client saw is in the audit trail, unless the server lost it in a crash."""
    for event in timeline.others["audit"]:
        for group in event["groups"]:
            written = {one["attempt"] for one in event["trail"] if one["event"] == "receive" and one["group"] == group}
            for one in timeline.delivered.get((event["queue"], group, event["message"]), ()):
                if one.attempt not in written and not timeline.crashed_between(one.asked, one.over):
                    text = f"attempt {one.attempt} of {event['message']} in group {group} is not in its audit trail"
                    yield Violation("law 7: audit trails are complete", text, (event["message"],))
