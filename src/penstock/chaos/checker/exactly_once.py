"""Law 9: batches end exactly once, after their last member, and each tick of a schedule is sent exactly once."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from penstock.chaos.checker.timeline import PRIMARY, Timeline, Violation
from penstock.chaos.history import Event


@dataclass
class BatchRun:
    """The calls on one batch. A cancel surely happened when its reply says so. A restore may have removed the end and
    abort messages of a batch that was opened before it."""

    name: str
    queue: str
    end: str
    abort: str
    members: list[str] = field(default_factory=list)
    started: str = "no"
    cancelled: str = "no"
    may_lack_end: bool = False


def batches_end_once(timeline: Timeline) -> Iterator[Violation]:
    for batch in _batches(timeline).values():
        ended, aborted = _seen(timeline, batch.queue, batch.end), _seen(timeline, batch.queue, batch.abort)
        subjects = (batch.end, batch.abort, *batch.members)
        if ended and aborted:
            yield Violation("law 9: end or abort, not both", f"batch {batch.name} ended and was aborted", subjects)
        if batch.cancelled == "no" and aborted:
            yield Violation("law 9: abort after a cancel", f"batch {batch.name} was aborted by nobody", subjects)
        if batch.cancelled == "ok" and ended:
            yield Violation("law 9: no end after a cancel", f"batch {batch.name} was cancelled and ended", subjects)
        yield from _missing(timeline, batch, ended, aborted)
        yield from _too_early(timeline, batch)


def _missing(timeline: Timeline, batch: BatchRun, ended: bool, aborted: bool) -> Iterator[Violation]:
    if not any(event["queue"] == batch.queue for event in timeline.others["drained"]):
        return
    due = (batch.started == "ok" or batch.cancelled == "ok") and not batch.may_lack_end
    # A call concurrent with the copy or the restore may count: a message that has ended is not delivered again.
    seen = any(any(timeline.possible_ends((batch.queue, PRIMARY, last))) for last in (batch.end, batch.abort))
    if due and not ended and not aborted and not seen:
        text = f"batch {batch.name} sent neither its end nor its abort message"
        yield Violation("law 9: a batch ends", text, (batch.end, batch.abort, *batch.members))


def _too_early(timeline: Timeline, batch: BatchRun) -> Iterator[Violation]:
    """A member that is delivered after the end message existed had not finished."""
    for last in (batch.end, batch.abort):
        told = [one.at for _, several in timeline.of(batch.queue, last) for one in several if not one.is_void]
        for member in batch.members if told else ():
            for _, several in timeline.of(batch.queue, member):
                if any(one.asked > min(told) for one in several):
                    text = f"batch {batch.name}: {member} was handed out after {last}"
                    yield Violation("law 9: a batch ends after its last member", text, (last, member))


def _seen(timeline: Timeline, queue: str, message: str) -> bool:
    """Whether the message was delivered. Deliveries that a restore undid do not count: they must happen again."""
    return any(not one.is_void for _, several in timeline.of(queue, message) for one in several)


def _batches(timeline: Timeline) -> dict[str, BatchRun]:
    found: dict[str, BatchRun] = {}
    verbs: dict[tuple[str, int], Event] = {}
    for event in timeline.others["batch"]:
        if event["type"] == "invoke":
            verbs[event["process"], event["call"]] = event
            batch = found.setdefault(event["batch"], _batch_run(event))
            batch.started = "unknown" if event["verb"] == "start" and batch.started == "no" else batch.started
            batch.cancelled = "unknown" if event["verb"] == "cancel" and batch.cancelled == "no" else batch.cancelled
        elif event["type"] == "ok":
            asked = verbs[event["process"], event["call"]]
            batch = found[asked["batch"]]
            if timeline.is_void(asked["t"], event["t"]):
                batch.may_lack_end = batch.may_lack_end or asked["verb"] == "open"
                continue
            if asked["verb"] == "start":
                batch.started = "ok"
            elif event.get("state") in ("cancelling", "cancelled"):
                batch.cancelled = "ok"
        else:
            asked = verbs[event["process"], event["call"]]
            if asked["verb"] == "cancel" and event["type"] == "fail" and found[asked["batch"]].cancelled != "ok":
                found[asked["batch"]].cancelled = "no"
    for sent in timeline.sent.values():
        if sent.batch in found and not sent.conditional:
            found[sent.batch].members.append(sent.message)
    return found


def _batch_run(event: Event) -> BatchRun:
    return BatchRun(event["batch"], event["queue"], event["end"], event["abort"])


def ticks_are_sent_once(timeline: Timeline) -> Iterator[Violation]:
    """Check the ticks of a schedule, one each second; `message` is the tick that a delivery belongs to. A tick whose
    delivery a restore may have undone is delivered again, unless it may have been acked in the copy or after the
    restore."""
    for schedule in timeline.others["schedule"]:
        queue = schedule["queue"]
        ids: dict[str, set[str]] = defaultdict(set)
        for delivered in timeline.deliveries():
            if delivered.place[0] == queue and not delivered.is_void:
                ids[delivered.place[2]].add(delivered.id)
        for tick, several in ids.items():
            if len(several) > 1:
                text = f"tick {tick} was sent {len(several)} times"
                yield Violation("law 9: a tick is sent once", text, (tick,))
        missing = [tick for tick in _between(ids) if not any(timeline.possible_ends((queue, PRIMARY, tick)))]
        if missing:
            text = f"{len(missing)} ticks from {min(ids)} to {max(ids)} were not sent: {', '.join(missing[:10])}"
            yield Violation("law 9: a tick is sent once", text, (*sorted(ids), *missing))


def _between(ticks: Iterable[str]) -> Iterator[str]:
    """The seconds between the first and the last tick that have none."""
    times = sorted(datetime.fromisoformat(tick) for tick in ticks)
    for first, second in itertools.pairwise(times):
        for seconds in range(1, round((second - first).total_seconds())):
            yield (first + timedelta(seconds=seconds)).isoformat()
