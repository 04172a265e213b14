"""Why a message is not running: one answer in plain words, and what to do about it."""

from __future__ import annotations

from shlex import quote

from penstock.domain.errors import NotFound
from penstock.domain.lifecycle import OUTCOMES, State
from penstock.domain.observations import Explanation
from penstock.domain.times import SECOND, to_time
from penstock.engines.sqlite import looking, queues, tracking
from penstock.engines.sqlite.looking import SQL
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.receiving import SQL as RECEIVE
from penstock.engines.sqlite.transaction import Transaction

Finding = tuple[State, str, str | None]


def explain(transaction: Transaction, name: str, message_id: str, group_name: str) -> Explanation:
    queue = queues.get(transaction, name)
    found = looking.place(transaction, queue, message_id)
    if found.held_id is not None:
        finding = _held(transaction, queue, found.held_id)
    else:
        assert found.position is not None
        finding = _in_log(transaction, queue, group_name, found.position)
    return Explanation(message_id, name, group_name, *finding)


def _held(transaction: Transaction, queue: Queue, held_id: int) -> Finding:
    available_at, waiting, _, _, _, batch = transaction.rows(SQL.held_state, {"held_id": held_id})[0]
    if waiting:
        return (
            State.HELD,
            f"its batch {batch!r} has not started",
            f"penstock batch start {quote(queue.name)} {quote(batch)}",
        )
    if available_at <= transaction.now:
        return State.HELD, "it is due: the next receive or sweep makes it ready", None
    return State.HELD, f"it is delayed until {_at(available_at)}, {_left(transaction, available_at)} from now", None


def _in_log(transaction: Transaction, queue: Queue, group_name: str, position: int) -> Finding:
    group = queues.find_group(transaction, queue, group_name)
    if group is None:
        advice = f"penstock receive {quote(queue.name)} --group {quote(group_name)}"
        return State.READY, f"group {group_name!r} has never received from this queue", advice
    if group.stream_position is not None:
        raise NotFound(f"group {group_name!r} is read as a stream: it has no state for single messages")
    last = looking.last_entry(transaction, queue, group, position)
    if last is not None and last.state in OUTCOMES:
        return _ended(transaction, queue, group, position, last.state, last.reason)
    return (
        _tracked(transaction, queue, group, position)
        or _leased(transaction, group, position)
        or _unread(transaction, queue, group, position)
    )


def _ended(
    transaction: Transaction, queue: Queue, group: Group, position: int, state: State, reason: str | None
) -> Finding:
    because = f"it ended {state}" + (f": {reason}" if reason else "")
    kept = transaction.row(SQL.dead_letter_at, {"group_id": group.group_id, "position": position})
    if kept is None:
        return state, because, None
    message = looking.message_at(transaction, queue, position)
    return state, because, f"penstock redrive {quote(queue.name)} {message.id} --group {quote(group.name)}"


def _tracked(transaction: Transaction, queue: Queue, group: Group, position: int) -> Finding | None:
    row = transaction.row(tracking.SQL.find_tracked, {"group_id": group.group_id, "position": position})
    if row is None:
        return None
    _, _, _, state, attempt, until_at, _, _, _, _, consumer, reason = row
    last_error = f"; its last error was: {reason}" if reason else ""
    if state == State.LEASED:
        return _in_flight(transaction, consumer, until_at, attempt)
    if state == State.HELD:
        left = _left(transaction, until_at)
        return State.HELD, f"it waits for its next attempt until {_at(until_at)}, {left} from now{last_error}", None
    return _ready(transaction, queue, group, f"it is ready for attempt {attempt + 1}{last_error}")


def _leased(transaction: Transaction, group: Group, position: int) -> Finding | None:
    row = transaction.row(SQL.lease_over, {"group_id": group.group_id, "position": position})
    return None if row is None else _in_flight(transaction, row[1], row[2], 1)


def _in_flight(transaction: Transaction, consumer: str, ends_at: int, attempt: int) -> Finding:
    if ends_at <= transaction.now:
        return State.LEASED, f"the lease of {consumer!r} has ended: the next receive or sweep reclaims it", None
    left = _left(transaction, ends_at)
    return State.LEASED, f"consumer {consumer!r} has it (attempt {attempt}), with a lease for another {left}", None


def _unread(transaction: Transaction, queue: Queue, group: Group, position: int) -> Finding:
    bindings = {"group_id": group.group_id, "position": position, "trimmed_position": queue.trimmed_position}
    cursor, _, _ = transaction.rows(SQL.cursor_of, bindings)[0]
    if position <= cursor:
        advice = f"penstock seek {quote(queue.name)} {quote(group.name)} {position - 1}"
        return State.READY, "the group's cursor was moved past it by a seek", advice
    return _ready(transaction, queue, group, "it is ready and has not been received")


def _ready(transaction: Transaction, queue: Queue, group: Group, because: str) -> Finding:
    if queue.policy.paused:
        return State.READY, "the queue is paused", f"penstock resume {quote(queue.name)}"
    group_id = {"group_id": group.group_id}
    if queue.policy.ordered and transaction.rows(RECEIVE.blocked_shards, group_id):
        return State.READY, f"{because}; in its shard another message is in flight or waits for a retry", None
    stats = transaction.rows(SQL.group_counts, group_id)[0]
    ahead = f"{stats[6]} unread messages wait in the group"
    if stats[-1] == 0:
        return (
            State.READY,
            f"{because}; {ahead}, and no consumer is registered",
            f"penstock receive {quote(queue.name)} --group {quote(group.name)}",
        )
    return State.READY, f"{because}; {ahead}", None


def _at(at: int) -> str:
    return to_time(at).isoformat(timespec="seconds")


def _left(transaction: Transaction, at: int) -> str:
    return f"{max(0, at - transaction.now) / SECOND:.0f} s"
