"""A reply on its way."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import PenstockError, StoreError
from penstock.servers.access import Right
from penstock.servers.resp.encoder import Encoded, Reply, encode
from penstock.servers.resp.table import Order
from penstock.servers.resp.words import failure
from penstock.servers.resp.work import Waiting, Work

if TYPE_CHECKING:
    from penstock.servers.resp.connection import Connection

logger = logging.getLogger("penstock.resp")
# Of a command that is begun the usual way, whose words nobody needs any more.
ONE_CALL: Sequence[list[bytes]] = ([],)


class Slot:
    """A reply on its way: the place it has among the others, and where the outcome of its call goes."""

    __slots__ = (
        "calls",
        "connection",
        "data",
        "finish",
        "is_paused",
        "may_be_cut",
        "order",
        "part",
        "protocol",
        "waiting",
    )

    def __init__(
        self, connection: Connection, order: Order, protocol: int, calls: Sequence[list[bytes]] = ONE_CALL
    ) -> None:
        self.connection = connection
        self.order = order
        self.protocol = protocol
        self.calls = calls  # the commands that it answers
        self.data: bytes | None = None
        self.finish: Any = None
        self.waiting: Waiting | None = None
        # Of several receives some may have to wait until the replies to the first were read.
        self.may_be_cut = order is Order.RECEIVE and len(calls) > 1
        self.part: bytes | None = None  # replies to the calls before those that are left
        self.is_paused = False  # until the client has read them

    def cancelled(self) -> bool:
        """What was received for a client that has gone is given back; what it sent stays sent."""
        return self.order is Order.RECEIVE and self.connection.is_gone

    def set_result(self, outcome: Any) -> None:
        try:
            reply = self.finish(outcome)
        except Exception as error:
            self.set_exception(error)
            return
        if type(reply) is Work:
            self.connection.submit(self, reply)
        elif self.waiting is not None and reply is self.waiting.empty:
            self.connection.wait(self, self.waiting)
        else:
            self.answer(reply)

    def set_exception(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            logger.error("the store failed: %s", error)
            self.connection.server.store_fails = True
        elif not isinstance(error, PenstockError):
            logger.error("a command failed: %r", error, exc_info=error)
        self.fill(encode(failure(error), self.protocol) * len(self.calls))

    def answer(self, reply: Reply | Work) -> None:
        if type(reply) is Work:
            self.connection.submit(self, reply)
            return
        self.fill(reply if type(reply) is Encoded else encode(reply, self.protocol))

    def fill(self, data: bytes) -> None:
        self.data = data
        self.connection.filled(self)

    def put_part(self, data: bytes, calls: Sequence[list[bytes]]) -> None:
        """Some of its calls are answered; the others are made when the client has read that."""
        self.part = data
        self.calls = calls
        self.connection.flush_soon()

    # -- as a client that waits ------------------------------------------------------------------------------------

    def is_there(self) -> bool:
        return self.connection.is_there()

    def may_receive(self, queue: str) -> bool:
        return self.connection.session.may(Right.RECEIVE, queue)
