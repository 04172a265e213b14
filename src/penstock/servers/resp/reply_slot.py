"""The slot of a reply in the output order of its connection."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.errors import PenstockError, StoreError
from penstock.servers.access import Right
from penstock.servers.resp.encoder import Partial, Reply, encode
from penstock.servers.resp.pending import BlockingCall, Pending
from penstock.servers.resp.table import Order

if TYPE_CHECKING:
    from penstock.servers.resp.connection import Connection

logger = logging.getLogger("penstock.resp")


class ReplySlot(msgspec.Struct, eq=False):
    """The completion of a command, or of several that were joined into one call."""

    connection: Connection
    order: Order
    protocol: int
    calls: list[list[bytes]]  # the commands, each as its words
    # Some of several receives may have to wait until the client has read the first replies.
    may_be_cut: bool
    data: bytes | None = None
    finish: Any = None
    blocking: BlockingCall | None = None
    part: bytes | None = None  # replies to the calls that are done
    is_paused: bool = False  # until the client has read that part

    def cancelled(self) -> bool:
        """Whether the client has disconnected and its messages must be released; sends and settlements stand."""
        return self.order is Order.RECEIVE and self.connection.is_closed

    def set_result(self, outcome: Any) -> None:
        try:
            reply = self.finish(outcome)
        except Exception as error:
            self.set_exception(error)
            return
        kind = type(reply)
        if kind is Pending or kind is Partial:
            self.answer(reply)
        elif self.blocking is not None and reply is self.blocking.empty:
            self.connection.block(self, self.blocking)
        else:
            self.data = encode(reply, self.protocol)
            self.connection.filled(self)

    def set_exception(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            logger.error("the store failed: %s", error)
            self.connection.server.store_fails = True
        elif not isinstance(error, PenstockError):
            logger.error("a command failed: %r", error, exc_info=error)
        self.fill(encode(error, self.protocol) * len(self.calls))

    def answer(self, reply: Reply | Pending) -> None:
        if type(reply) is Pending:
            self.connection.submit(self, reply)
        elif type(reply) is Partial:
            # The other calls run when the client has read these replies.
            self.part = encode(reply.replies, self.protocol)
            self.calls = self.calls[len(reply.replies) :]
            self.connection.flush_soon()
        else:
            self.fill(encode(reply, self.protocol))

    def fill(self, data: bytes) -> None:
        self.data = data
        self.connection.filled(self)

    # -- as a blocked client ---------------------------------------------------------------------------------------

    def is_connected(self) -> bool:
        return self.connection.is_connected()

    def may_receive(self, queue: str) -> bool:
        return self.connection.session.may(Right.RECEIVE, queue)
