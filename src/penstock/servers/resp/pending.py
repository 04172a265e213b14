"""What a command wants of the store: an operation for the executor, and how its outcome becomes a reply.

Commands do not call the store themselves. So the same command runs coalesced with those of other connections, inside
MULTI, or again and again while its client is blocked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.client.aio.call import Operation
from penstock.engines.contract import Receipt
from penstock.servers.resp.encoder import Reply

Finish = Callable[[Any], "Reply | Pending"]


class Pending(msgspec.Struct):
    """`finish` turns the outcome into the reply, or into another operation that is needed first.

    With `items` the operation is coalesced, and its outcome is a list of one result per item. `weight` is the number of
    messages.
    """

    operation: Operation
    items: list[Any] | None
    finish: Any  # a Finish
    weight: int = 1

    def then(self, finish: Finish) -> Pending:
        """The same with another end, which is given the reply."""

        def both(outcome: Any) -> Reply | Pending:
            reply = self.finish(outcome)
            return reply.then(finish) if type(reply) is Pending else finish(reply)

        return Pending(self.operation, self.items, both, self.weight)

    def call(self) -> Any:
        """Run the operation here."""
        return self.operation.run() if self.items is None else self.operation.run(self.items)

    def run(self) -> Reply:
        """Run all of it here, on a thread that is inside a transaction already."""
        reply: Any = self
        while type(reply) is Pending:
            reply = reply.finish(reply.call())
        return reply


class BlockingCall:
    """A call whose client blocks when there is nothing: `first` is the first attempt, and its reply is `empty` then.

    `receive` makes the call that receives from a queue for this client, and `deal` turns its receipts into the reply
    and remembers their leases. Without them the client only wants to be notified: `deal` is given the queue's name.
    With `needs_group` the client is unblocked at once when the group is removed.
    """

    __slots__ = ("deal", "empty", "first", "group", "needs_group", "queues", "receive", "seconds")

    def __init__(
        self,
        first: Pending,
        queues: Sequence[str],
        group: str | None,
        seconds: float | None,
        empty: Reply,
        receive: Callable[[str], Pending] | None,
        deal: Callable[[str, list[Receipt] | None], Reply | Pending],
        needs_group: bool = False,
    ) -> None:
        self.first = first
        self.queues = queues
        self.group = group
        self.seconds = seconds
        self.empty = empty
        self.receive = receive
        self.deal = deal
        self.needs_group = needs_group
