"""Windows: how Spark reads. A range of the log or the audit that, once before the horizon, always holds the same rows.

Marks (`marks`) name the last row before them: a position for messages, the number of an audit entry for events. Both
become visible in order, so nothing can appear later before the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

from penstock.domain import refusals
from penstock.domain.errors import InvalidInput
from penstock.domain.results import Part
from penstock.engines import marked_rows, window_plan
from penstock.engines.contract import Mark, Table
from penstock.engines.marked_rows import MarkedRow
from penstock.engines.positional import marks, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue


def last_position(transaction: Transaction, name: str) -> int:
    """The last position of a queue; before its first message, the last one of the store."""
    queue = queues.find(transaction, name)
    position: int = transaction.value("last_position", {"queue_id": None if queue is None else queue.queue_id})
    return position


def epoch(transaction: Transaction) -> str:
    return format(transaction.value("fact", {"name": "epoch"}), "016x")


def horizon(transaction: Transaction, name: str, table: Table) -> Mark:
    queue = queues.find(transaction, name)
    if queue is None or table == "dead_letters":
        return marked_rows.BEGINNING.mark
    end = transaction.value("last_position" if table == "messages" else "last_entry", {"queue_id": queue.queue_id})
    return marks.last_row(transaction, queue, table, end).mark


def earliest(transaction: Transaction, name: str, table: Table) -> Mark:
    queue = queues.find(transaction, name)
    if queue is None or table == "dead_letters":
        return marked_rows.BEGINNING.mark
    return marks.trimmed(transaction, queue, table).mark


def mark_at(transaction: Transaction, name: str, position: int) -> Mark:
    """The mark after the last message of the queue up to a position."""
    queue = queues.find(transaction, name)
    return (
        marked_rows.BEGINNING.mark if queue is None else marks.last_row(transaction, queue, "messages", position).mark
    )


# -- cutting a window short ----------------------------------------------------------------------------------------


def cut(
    transaction: Transaction, name: str, start: Mark, end: Mark, rows: int | None, size: int | None, table: Table
) -> Mark:
    queue = queues.get(transaction, name)
    first, last = marked_rows.parse(start).number, marked_rows.parse(end).number
    if size is not None and table != "messages":
        raise refusals.no_size(table)
    if table == "dead_letters":
        return end
    upto = last
    if rows is not None:
        if table == "messages":
            upto = window_plan.end_of_rows(_ranges(transaction, queue, first, last), rows, last)
        else:
            bindings = {"queue_id": queue.queue_id, "start": first, "end": last, "ended": table == "archive"}
            upto = window_plan.end_of_weight(transaction.stream("entries_between", bindings), rows, last)
    if size is not None:
        upto = window_plan.end_of_weight(_sizes(transaction, queue, first, upto), size, upto)
    return end if upto == last else marks.at_number(transaction, queue, table, upto).mark


def _sizes(transaction: Transaction, queue: StoredQueue, start: int, end: int) -> Iterator[tuple[int, int]]:
    for first, last in _ranges(transaction, queue, start, end):
        yield from transaction.stream("payload_sizes", {"first": first, "last": last})


def _ranges(transaction: Transaction, queue: StoredQueue, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges of a queue in order, read lazily: a backlog may have many."""
    bounds = {"start": start, "end": end}
    lanes = transaction.rows("queue_lanes", {"queue_id": queue.queue_id})
    return merge(*(transaction.stream("lane_ranges", {**bounds, "lane_id": lane_id}) for (lane_id,) in lanes))


# -- windows and their parts ---------------------------------------------------------------------------------------


def window(transaction: Transaction, name: str, start: Mark, end: Mark, parts: int, table: Table) -> list[Part]:
    queue = queues.get(transaction, name)
    if table == "dead_letters":
        return _dead_letters(transaction, queue, parts)
    first, last = marked_rows.parse(start), marked_rows.parse(end)
    _check(transaction, queue, table, first, last)
    asked = _Window(queue, table, first.number, last.number, max(1, parts))
    if asked.end <= asked.start:
        return []
    return _messages(transaction, asked) if table == "messages" else _entries(transaction, asked)


class _Window(NamedTuple):
    queue: StoredQueue
    table: Table
    start: int
    end: int
    parts: int

    def part(self, ranges: list[tuple[int, int]], count: int) -> Part:
        return Part(self.queue.name, tuple(ranges), count, self.table, self.start, self.end)


def _check(transaction: Transaction, queue: StoredQueue, table: Table, start: MarkedRow, end: MarkedRow) -> None:
    marks.check(transaction, queue, table, start)
    marks.check(transaction, queue, table, end)
    begins = marks.trimmed(transaction, queue, table).number
    marked_rows.check_untrimmed(queue.name, table, start, end, begins)


def _messages(transaction: Transaction, asked: _Window) -> list[Part]:
    bindings = {"queue_id": asked.queue.queue_id, "start": asked.start, "end": asked.end}
    ranges = transaction.rows("queue_ranges", bindings)
    return [asked.part(piece, count) for piece, count in window_plan.parts(ranges, asked.parts)]


def _entries(transaction: Transaction, asked: _Window) -> list[Part]:
    bindings = {
        "queue_id": asked.queue.queue_id,
        "start": asked.start,
        "end": asked.end,
        "ended": asked.table == "archive",
        "parts": asked.parts,
    }
    return [asked.part([(first, last)], count) for first, last, count in transaction.rows("entry_parts", bindings)]


def _dead_letters(transaction: Transaction, queue: StoredQueue, parts: int) -> list[Part]:
    bindings = {"queue_id": queue.queue_id, "parts": max(1, parts)}
    return [
        Part(queue.name, ((first, last),), count, "dead_letters")
        for first, last, count in transaction.rows("dead_letter_parts", bindings)
    ]


# -- stream groups -------------------------------------------------------------------------------------------------


def stream_position(transaction: Transaction, name: str, group_name: str) -> Mark | None:
    """A cursor that the store keeps was restored with it, so its mark needs no time."""
    queue = queues.find(transaction, name)
    group = None if queue is None else queues.find_group(transaction, queue, group_name)
    if queue is None or group is None or group.stream_position is None:
        return None
    table: Table = "messages" if group.stream_table == "messages" else "audit"
    return marks.at_number(transaction, queue, table, group.stream_position).mark


def advance(transaction: Transaction, name: str, group_name: str, mark: Mark, table: Table) -> None:
    if table == "dead_letters":
        raise InvalidInput("dead_letters are read as they are: a group has no place in them")
    queue = queues.ensure(transaction, name)
    group = queues.ensure_group(transaction, queue, group_name)
    reached, followed = marked_rows.parse(mark), marked_rows.kind_of(table)
    marks.check(transaction, queue, table, reached)
    if group.stream_position is None:
        if _is_leased(transaction, group, queue.policy.primary_group):
            raise refusals.leasing_group(name, group_name)
        transaction.run("begin_stream", {"group_id": group.group_id, "table": followed})
    elif group.stream_table != followed:
        raise refusals.other_stream(name, group_name, group.stream_table or "", table)
    place(transaction, group, max(reached.number, group.stream_position or 0))


def _is_leased(transaction: Transaction, group: Group, primary: str | None) -> bool:
    return group.name == primary or bool(transaction.value("has_leased", {"group_id": group.group_id}))


def place(transaction: Transaction, group: Group, position: int) -> None:
    bindings = {"group_id": group.group_id, "position": position, "now": transaction.now}
    transaction.run("place_stream", bindings)
