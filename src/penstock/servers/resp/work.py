"""What a command wants of the store: a call for the gatherer, and how its outcome becomes a reply.

Commands only say what they want. So the same command runs merged with those of other connections, in its turn inside
MULTI, or again and again while its client waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.client.aio.call import Call
from penstock.engines.contract import Receipt
from penstock.servers.resp.encoder import Reply

Finish = Callable[[Any], "Reply | Work"]


class Work:
    """`finish` may answer with more work, when one look at the store was not enough."""

    __slots__ = ("call", "finish", "reads")

    def __init__(self, call: Call, finish: Finish, reads: bool = False) -> None:
        self.call = call
        self.finish = finish
        self.reads = reads

    def then(self, finish: Finish) -> Work:
        """The same work with another end; its own reply is handed on."""

        def both(outcome: Any) -> Reply | Work:
            reply = self.finish(outcome)
            return reply.then(finish) if type(reply) is Work else finish(reply)

        return Work(self.call, both, self.reads)

    def run(self) -> Reply:
        """All of it, right here: for a thread that is inside a transaction already."""
        reply: Any = self
        while type(reply) is Work:
            reply = reply.finish(reply.call.run())
        return reply


class Waiting:
    """Work whose client waits when there is nothing: `work` is the first look, and its reply is `empty` then.

    `take` makes the call that receives from a queue for this client, and `deal` turns its receipts into the reply and
    remembers their leases. Without them the client only wants to hear that there is something: `deal` is given the
    queue's name. With `needs_group` the client hears at once when the group is removed.
    """

    __slots__ = ("deal", "empty", "group", "needs_group", "queues", "seconds", "take", "work")

    def __init__(
        self,
        work: Work,
        queues: Sequence[str],
        group: str | None,
        seconds: float | None,
        empty: Reply,
        take: Callable[[str], Call] | None,
        deal: Callable[[str, list[Receipt] | None], Reply | Work],
        needs_group: bool = False,
    ) -> None:
        self.work = work
        self.queues = queues
        self.group = group
        self.seconds = seconds
        self.empty = empty
        self.take = take
        self.deal = deal
        self.needs_group = needs_group
