"""A client connection: reads commands, starts them in order, and writes replies in order.

A command starts before earlier ones have finished if its client cannot observe the difference. A reply waits for those
before it. Nothing is written before its commit.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import deque
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from penstock.domain.errors import PenstockError
from penstock.servers.resp.blocking import Waiter
from penstock.servers.resp.encoder import Replies, Reply, encode
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.parser import Parser
from penstock.servers.resp.pending import BlockingCall, Pending
from penstock.servers.resp.reply_slot import ReplySlot
from penstock.servers.resp.session import ClientSession
from penstock.servers.resp.table import TABLE, Command, Common, Order, find

if TYPE_CHECKING:
    from penstock.servers.resp.server import Server

logger = logging.getLogger("penstock.resp")
# Bytes of unread replies beyond which no further commands of the client are started.
HIGH_WATER = 256 * 1024
# Bytes of unanswered commands beyond which reading pauses; one command may be larger.
MAX_BACKLOG = 1024 * 1024
# Commands of one connection that become one call.
MAX_JOINED = 256
# Concurrent receives of one connection: each may return as much as a reply may hold.
MAX_RECEIVES = 8
# Timeout of a client that does not read and is over its limit of unread replies; others have request_seconds.
SLOW_SECONDS = 10.0
# After a protocol error: for how long, and how many bytes, input is discarded, so that the client can read the error.
DISCARD_SECONDS = 5.0
DISCARD_BYTES = 64 * 1024 * 1024


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        self.transport: asyncio.Transport
        self.session: ClientSession
        self._executor = server.store.executor
        self._parser = Parser(server.limits)
        self._commands: deque[list[bytes]] = deque()
        self._slots: deque[ReplySlot | bytes] = deque()
        self._under_way = 0
        self._receives = 0
        self._turns = 0
        self._may_be_cut = 0
        self._is_alone = False
        self._waiter: Waiter | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unblocked: Reply | None = None
        self._is_reading = True
        self._can_write = True
        self._flush_is_due = False
        self._backlog = 0
        self._written = self._read_upto = 0
        self._drained: asyncio.Future[None] | None = None
        self._has_ended = False  # EOF received
        self._discards_until: float | None = None  # after a protocol error
        self._discarded = 0
        self.made_at = self.received_at = self.stalled_at = self._begun_at = self.loop.time()

    # -- connect and disconnect -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER)
        self._socket: Any = transport.get_extra_info("socket")
        peer = transport.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else "local"
        self.session = ClientSession(self.server, address, _is_local(address))
        self.session.peer, self.session.local = _shown(peer), _shown(transport.get_extra_info("sockname"))
        self.session.on_authenticated = self._apply_limits
        self.session.write = self.write_piece
        self._apply_limits(self.session.user_name is not None)
        refusal = self.server.admit(self)
        if refusal is not None:
            self._write_and_close(encode(CommandError(refusal), 2))

    def _apply_limits(self, known: bool) -> None:
        """Apply the limits of a client that is authenticated, or not."""
        self._parser.trust(known)
        self.schedule_check(self.loop.time())

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self.session.leave()
        self._commands.clear()
        if self._waiter is not None:
            self._waiter.leave()
        for task in self._tasks:
            task.cancel()
        self.server.dismiss(self)

    def eof_received(self) -> bool:
        """EOF: the client may still read its replies, but is no longer blocked."""
        self._has_ended = True
        return self._waiter is None and not self.session.is_waiting and bool(self._slots)

    def is_connected(self) -> bool:
        """Peek at the socket, because the client's FIN may be unread."""
        if self.is_closed or self._has_ended or self.transport.is_closing():
            return False
        try:
            return bool(_peek(self._socket))
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False

    def retire(self) -> None:
        """The server stops: finish running commands, start no more."""
        self._commands.clear()
        self.session.wants_close = True
        if self._waiter is not None:
            self._waiter.answer(self._waiter.call.empty)
        elif self.session.is_waiting:
            self.unblock(None)
        elif self._tasks or not self._slots:
            for task in self._tasks:
                task.cancel()
            self.transport.close()

    @property
    def is_blocked(self) -> bool:
        return self._waiter is not None or self.session.is_waiting

    def unblock(self, error: CommandError | None) -> bool:
        """Unblock the client as by its timeout, or with an error, and return whether it was blocked."""
        if not self.is_blocked:
            return False
        if self._waiter is not None:
            if error is not None:
                self._waiter.call.empty = error
            self._waiter.time_out()
        else:
            self._unblocked = error or self.session.when_unblocked
            for task in self._tasks:
                task.cancel()
        return True

    # -- bytes in --------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.received_at = self.loop.time()
        if self._discards_until is not None:
            self._discard(data)
            return
        parser, slots = self._parser, self._slots
        was_midway = bool(parser.buffer)
        commands = parser.feed(data)
        if commands or not was_midway:
            self._begun_at = self.received_at
        self._backlog += len(data)
        self._commands.extend(commands)
        self._begin_commands()
        if not slots or type(slots[0]) is bytes or len(slots) > 1 or self._backlog > HIGH_WATER:
            self._flush()

    def _begin_commands(self) -> None:
        commands, session = self._commands, self.session
        while commands and not self._is_alone and self._can_write and not session.wants_close:
            command = TABLE.get(commands[0][0]) or find(commands[0][0])
            if command is None or (session.queued is not None and command.in_multi):
                order = Order.HERE  # no call to the store: unknown, or queued
            else:
                order = command.order
            if self._under_way and not self._may_begin(order):
                break
            calls = [commands.popleft()]
            if commands and command is not None and command.common is not None and session.is_plain:
                self._join(calls, command.common)
            self._begin(command, calls, order)
        if not commands and self._parser.error is not None and not session.wants_close:
            self._slots.append(encode(CommandError(f"ERR Protocol error: {self._parser.error}"), session.protocol))
            session.wants_close = True

    def _may_begin(self, order: Order) -> bool:
        if order is Order.HERE:
            return True
        if order is Order.ALONE:
            return False
        if order is Order.RECEIVE:
            # A later receive must not take messages that were left for earlier ones.
            return not self._may_be_cut and self._receives < MAX_RECEIVES
        # A group commit runs settlements first and receives last, so neither may overtake a call of its connection.
        return not self._receives and (order is Order.TURN or not self._turns)

    def _join(self, calls: list[list[bytes]], common: Common) -> None:
        """Add following commands that can be joined into one call with the first."""
        commands, first = self._commands, calls[0]
        shared = common(first)
        while shared is not None and commands and len(calls) < MAX_JOINED:
            other = commands[0]
            if other[0] != first[0] or common(other) != shared:
                return
            calls.append(commands.popleft())

    def _begin(self, command: Command | None, calls: list[list[bytes]], order: Order) -> None:
        session = self.session
        protocol = session.protocol
        try:
            begun: Any = session.begin(command, calls)
        except Exception as error:
            logger.exception("command %r failed", calls[0][0][:32])
            begun = error
        kind = type(begun)
        if kind is not Pending and kind is not BlockingCall and kind is not CoroutineType:
            self._slots.append(encode(begun, session.protocol) * (1 if kind is Replies else len(calls)))
            return
        slot = ReplySlot(self, order, protocol, calls, order is Order.RECEIVE and len(calls) > 1)
        self._slots.append(slot)
        self._under_way += 1
        self._receives += order is Order.RECEIVE
        self._turns += order is Order.TURN
        self._may_be_cut += slot.may_be_cut
        self._is_alone = order is Order.ALONE
        if kind is CoroutineType:
            self._run(slot, begun)
            return
        if kind is BlockingCall:
            slot.blocking = begun
            self._is_alone = True
            begun = begun.first
        slot.finish = begun.finish
        try:
            self._executor.submit(begun.operation, begun.items, slot, begun.weight)
        except PenstockError as error:
            slot.set_exception(error)

    def submit(self, slot: ReplySlot, pending: Pending) -> None:
        slot.finish = pending.finish
        try:
            self._executor.submit(pending.operation, pending.items, slot, pending.weight)
        except PenstockError as error:
            slot.set_exception(error)

    def block(self, slot: ReplySlot, call: BlockingCall) -> None:
        if self._has_ended or call.seconds == 0:
            slot.answer(call.empty)
        else:
            slot.blocking = None
            most = self.server.max_block_seconds
            if most and (call.seconds is None or call.seconds > most):
                call.seconds = most
            self._waiter = self.server.blocked.block(slot, call)

    def _run(self, slot: ReplySlot, coroutine: Any) -> None:
        async def run() -> None:
            try:
                slot.protocol, reply = await _with_protocol(coroutine, self.session)
            except asyncio.CancelledError:
                if self._unblocked is None:
                    raise
                reply, self._unblocked = self._unblocked, None
                slot.answer(reply)
            except Exception as error:
                slot.set_exception(error)
            else:
                slot.answer(reply)

        task = self.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- bytes out -------------------------------------------------------------------------------------------------

    def filled(self, slot: ReplySlot) -> None:
        self._under_way -= 1
        self._receives -= slot.order is Order.RECEIVE
        self._turns -= slot.order is Order.TURN
        self._may_be_cut -= slot.may_be_cut
        self._is_alone = False
        self._waiter = None
        if self._flush_is_due:
            return
        if (
            len(self._slots) == 1
            and not self._commands
            and self._is_reading
            and not self._has_ended
            and not self.is_closed
            and not self.session.wants_close
            and self._parser.error is None
        ):
            # The usual case: nothing else is pending for this client.
            assert slot.data is not None
            self._slots.clear()
            self._backlog = 0
            self._write(slot.data)
        else:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Flush once for all replies of a commit."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self.server.flush_soon(self)

    def go_on(self) -> None:
        self._flush_is_due = False
        if not self.is_closed:
            if self._commands or self._parser.error is not None:
                self._begin_commands()
            self._flush()

    def _flush(self) -> None:
        slots = self._slots
        ready: list[bytes] = []
        while slots:
            first = slots[0]
            data = first if type(first) is bytes else cast(ReplySlot, first).data
            if data is None:
                ready += self._part_of(cast(ReplySlot, first))
                break
            ready.append(data)
            slots.popleft()
        if ready:
            self._write(ready[0] if len(ready) == 1 else b"".join(ready))
        if slots and self._can_write and type(slots[0]) is ReplySlot and slots[0].is_paused:
            self._run_rest(slots[0])
        if not slots and (self.session.wants_close or (self._has_ended and not self._commands)):
            self._end()
        self._regulate()

    def _end(self) -> None:
        """Close after the last reply. After a protocol error the client may still be sending, and closing a socket with
        unread data resets the connection, which can take the error away from the client: send EOF, and read on."""
        if self._parser.error is None or self._has_ended or self.server.is_closing:
            self.transport.close()
        elif self._discards_until is None:
            self._discards_until = self.loop.time() + DISCARD_SECONDS
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.schedule_check(self.loop.time())

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > DISCARD_BYTES:
            self.transport.close()

    def _part_of(self, slot: ReplySlot) -> list[bytes]:
        """Take the first part of a reply that is sent in parts."""
        if slot.part is None:
            return []
        part, slot.part, slot.is_paused = slot.part, None, True
        return [part]

    def _run_rest(self, slot: ReplySlot) -> None:
        """The client has read the first part: run the remaining calls."""
        slot.is_paused = False
        command = find(slot.calls[0][0])
        assert command is not None
        begun = self.session.begin(command, slot.calls, resumes=True)
        if type(begun) is Pending:
            self.submit(slot, begun)
        else:
            slot.set_exception(CommandError("NOPERM the rights of this user have changed"))

    async def write_piece(self, data: bytes) -> None:
        """Write a part of the reply to a command that runs alone, and wait until the client has read enough."""
        self._flush()
        self._write(data)
        if not self._can_write:
            self._drained = self.loop.create_future()
            await self._drained

    def _write(self, data: bytes) -> None:
        self.transport.write(data)
        self._written += len(data)
        if self.session.user_name is None:
            unread = self.transport.get_write_buffer_size()
            if unread > self.server.limits.unauthenticated_output_bytes:
                logger.warning(
                    "unauthenticated client %d at %s does not read: closed", self.session.id, self.session.address
                )
                self.transport.abort()

    def _write_and_close(self, data: bytes) -> None:
        self.session.wants_close = True
        self.transport.write(data)
        self.transport.close()

    def pause_writing(self) -> None:
        self._can_write = False
        self.stalled_at = self.loop.time()
        self._read_upto = self._written - self.transport.get_write_buffer_size()
        self._regulate()
        self.schedule_check(self.stalled_at)

    def resume_writing(self) -> None:
        self._can_write = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self.go_on()

    def _regulate(self) -> None:
        """Pause or resume reading, by the backlog of the client."""
        waiting = len(self._commands) + len(self._slots)
        if not waiting:
            self._backlog = 0
        has_room = not waiting or (waiting < self.server.limits.pipelined and self._backlog < MAX_BACKLOG)
        is_discarding = self._discards_until is not None
        wanted = is_discarding or (has_room and self._can_write and not self.session.wants_close)
        if wanted != self._is_reading and not self.transport.is_closing():
            self._is_reading = wanted
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    # -- timeouts --------------------------------------------------------------------------------------------------

    def schedule_check(self, now: float) -> None:
        """Schedule the next check of timeouts, at the earliest time at which one can expire."""
        if self.is_closed:
            return
        limits = self.server.limits
        soonest = min(limits.request_seconds or math.inf, limits.idle_seconds or math.inf)
        self.server.timeouts.schedule(self, min(self.times_out_at(), now + soonest))

    def times_out_at(self) -> float:
        """When the first timeout expires if the client stays idle."""
        limits = self.server.limits
        if self._discards_until is not None:
            return self._discards_until
        if self.session.user_name is None and limits.handshake_seconds:
            return self.made_at + limits.handshake_seconds
        ends = math.inf
        if limits.request_seconds and self._parser.is_midway:
            # From the first byte of the command: sending slowly does not extend it.
            ends = self._begun_at + limits.request_seconds
        if not self._can_write:
            ends = min(ends, self._stall_times_out_at())
        if limits.idle_seconds and not self._slots:
            ends = min(ends, self.received_at + limits.idle_seconds)
        return ends

    def _stall_times_out_at(self) -> float:
        """When a client that does not read is disconnected, from its last progress."""
        unread = self.transport.get_write_buffer_size()
        if self._written - unread > self._read_upto:
            self._read_upto = self._written - unread
            self.stalled_at = self.loop.time()
        seconds = self.server.limits.request_seconds or math.inf
        if unread > self.server.limits.output_bytes:
            seconds = min(seconds, SLOW_SECONDS)
        return self.stalled_at + seconds


async def _with_protocol(coroutine: Any, session: ClientSession) -> tuple[int, Reply]:
    """Encode in the protocol version in force when the reply is ready: HELLO answers in the new one."""
    reply = await coroutine
    return session.protocol, reply


def _peek(sock: Any) -> bytes:
    raw = socket.socket(fileno=sock.fileno())
    try:
        return raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    finally:
        raw.detach()


def _shown(name: Any) -> str:
    """One end of a connection, as CLIENT LIST shows it."""
    if not isinstance(name, tuple):
        return f"{name or 'local'}:0"
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"


def _is_local(address: str) -> bool:
    return address in ("local", "::1", "localhost") or address.startswith(("127.", "::ffff:127."))
