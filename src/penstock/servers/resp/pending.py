"""Calls of commands to the store: an operation for the executor, and the conversion of its outcome to a reply.

Commands do not call the store themselves. So the same command can run coalesced with those of other connections, inside
MULTI, or repeatedly while its client is blocked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.client.aio.call import Operation
from penstock.engines.contract import Receipt
from penstock.servers.resp.encoder import Reply

Finish = Callable[[Any], "Reply | Pending"]


def as_reply(outcome: Any) -> Reply:
    """The `finish` of an operation that returns its reply."""
    return outcome


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
        """The same call, with `finish` applied to its reply."""

        def both(outcome: Any) -> Reply | Pending:
            reply = self.finish(outcome)
            return reply.then(finish) if type(reply) is Pending else finish(reply)

        return Pending(self.operation, self.items, both, self.weight)

    def call(self) -> Any:
        """Run the operation here."""
        return self.operation.run() if self.items is None else self.operation.run(self.items)

    def run(self) -> Reply:
        """Run the whole call here, on a thread that is inside a transaction already."""
        reply: Any = self
        while type(reply) is Pending:
            reply = reply.finish(reply.call())
        return reply


class BlockingCall(msgspec.Struct, eq=False):
    """A call that blocks its client if the reply to `first`, the first attempt, is `empty`.

    `receive` makes the call that receives from a queue for this client, and `deal` converts its receipts to the reply
    and remembers their leases. Without `receive` the client only wants a notification: `deal` gets the queue's name.
    With `needs_group` the client is unblocked at once when the group is removed.
    """

    first: Pending
    queues: Sequence[str]
    group: str | None
    seconds: float | None
    empty: Reply
    receive: Callable[[str], Pending] | None
    deal: Callable[[str, list[Receipt] | None], Reply | Pending]
    needs_group: bool = False
