"""Stack traces of last errors, stored with the retry or the dead letter and deleted with it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engines.positional import inspection, queues
from penstock.engines.positional.database import Transaction


def keep(transaction: Transaction, name: str, group_name: str, traces: Sequence[tuple[int, str]]) -> None:
    queue = queues.get(transaction, name)
    group = queues.get_group(transaction, queue, group_name)
    for position, trace in traces:
        bindings = {"group_id": group.group_id, "position": position, "trace": trace}
        transaction.run("keep_retry_trace", bindings)
        transaction.run("keep_dead_trace", bindings)


def find(transaction: Transaction, name: str, message_id: str, group_name: str) -> str | None:
    queue = queues.get(transaction, name)
    place = inspection.place(transaction, queue, message_id)
    group = queues.find_group(transaction, queue, group_name)
    if group is None:
        return None
    trace: str | None = transaction.value("error_trace", {"group_id": group.group_id, "position": place.position})
    return trace
