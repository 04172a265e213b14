"""One connection: bytes in, commands begun in order, replies out in order.

Commands are begun as they come, as long as their effects cannot be seen in another order than that of the client; a
reply waits until those before it are there. Nothing is written before its commit.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import deque
from collections.abc import Hashable, Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from penstock.domain.errors import PenstockError
from penstock.servers.resp.desks import Waiter
from penstock.servers.resp.encoder import Failure, Reply, encode
from penstock.servers.resp.parser import Parser
from penstock.servers.resp.session import Session
from penstock.servers.resp.slot import ONE_CALL, Slot
from penstock.servers.resp.table import Command, Order, find
from penstock.servers.resp.words import CommandError, failure
from penstock.servers.resp.work import Waiting, Work

if TYPE_CHECKING:
    from penstock.servers.resp.server import Server

logger = logging.getLogger("penstock.resp")
# Beyond this the client is given time to read before more is done for it.
HIGH_WATER = 256 * 1024
# Bytes of commands that are not answered yet, beyond which no more are read; one command may be larger.
MOST_BACKLOG = 1024 * 1024
# Commands of one connection that become one call.
MOST_TOGETHER = 256
# Receives of one connection under way: each of them may bring as much as a reply may have.
MOST_RECEIVES = 8
# A client with more unread replies than it may have must go on reading within this time, others within request_seconds.
SLOW_SECONDS = 10.0


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.is_gone = False
        self.transport: asyncio.Transport
        self.session: Session
        self._parser = Parser(server.limits)
        self._commands: deque[list[bytes]] = deque()
        self._slots: deque[Slot | bytes] = deque()
        self._under_way = 0
        self._receives = 0
        self._may_be_cut = 0
        self._is_alone = False
        self._waiter: Waiter | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_reading = True
        self._can_write = True
        self._flush_is_due = False
        self._backlog = 0
        self._written = self._read_upto = 0
        self._drained: asyncio.Future[None] | None = None
        self._has_ended = False  # the client sends no more
        self.made_at = self.heard_at = self.stalled_at = self._begun_at = self.loop.time()

    # -- coming and going ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER)
        self._socket: Any = transport.get_extra_info("socket")
        peer = transport.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else "local"
        self.session = Session(self.server, address, _is_local(address))
        self.session.on_known = self._know
        self.session.write = self.write_piece
        self._know(self.session.user_name is not None)
        refusal = self.server.admit(self)
        if refusal is not None:
            self._write_and_close(encode(Failure(refusal), 2))

    def _know(self, known: bool) -> None:
        """Whether the client has said who it is."""
        self._parser.trust(known)
        self.be_looked_at(self.loop.time())

    def connection_lost(self, error: Exception | None) -> None:
        self.is_gone = True
        self.session.leave()
        self._commands.clear()
        if self._waiter is not None:
            self._waiter.leave()
        for task in self._tasks:
            task.cancel()
        self.server.dismiss(self)

    def eof_received(self) -> bool:
        """The client sends no more. It may still read what it asked for, but it does not wait any longer."""
        self._has_ended = True
        return self._waiter is None and not self.session.is_waiting and bool(self._slots)

    def is_there(self) -> bool:
        """Looks at the socket, because news of a client's end may lie there unread."""
        if self.is_gone or self._has_ended or self.transport.is_closing():
            return False
        try:
            return bool(_peek(self._socket))
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False

    def retire(self) -> None:
        """The server stops: what was begun is finished, nothing new is begun."""
        self._commands.clear()
        self.session.wants_close = True
        if self._waiter is not None:
            self._waiter.answer(self._waiter.waiting.empty)
        elif self._tasks or not self._slots:
            for task in self._tasks:
                task.cancel()
            self.transport.close()

    # -- bytes in --------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.loop.time()
        parser, slots = self._parser, self._slots
        was_midway = parser.is_midway
        commands = parser.feed(data)
        if commands or not was_midway:
            self._begun_at = self.heard_at
        self._backlog += len(data)
        is_lone = len(commands) == 1 and not slots and not self._commands and self._backlog <= HIGH_WATER
        if is_lone and self._join_alone(commands[0]):
            return
        self._commands.extend(commands)
        self._begin_commands()
        if not slots or type(slots[0]) is bytes or len(slots) > 1 or self._backlog > HIGH_WATER:
            self._flush()

    def _join_alone(self, words: list[bytes]) -> bool:
        """The short way for a client that says one plain command at a time, as most do."""
        command = find(words[0])
        if command is None or command.several is None or not self._can_write or not self.session.is_plain:
            return False
        key = self._key(command, words)
        if key is None or self.session.wants_close or self._parser.error is not None:
            return False
        slot = self._slot(command.order, self.session.protocol, [words])
        self.server.door.chorus.join(command, (command.name, key), slot)
        return True

    def _begin_commands(self) -> None:
        commands, session = self._commands, self.session
        while commands and not self._is_alone and self._can_write and not session.wants_close:
            command = find(commands[0][0])
            order = session.order_of(command)
            if self._under_way and not self._may_begin(order):
                break
            if command is None or command.several is None or not session.is_plain or not self._join(command):
                self._begin(command, commands.popleft(), order)
        if not commands and self._parser.error is not None and not session.wants_close:
            self._slots.append(encode(Failure(f"ERR Protocol error: {self._parser.error}"), session.protocol))
            session.wants_close = True

    def _may_begin(self, order: Order) -> bool:
        if order is Order.HERE:
            return True
        if order is Order.ALONE:
            return False
        if order is Order.RECEIVE:
            # A later one must not take what is left for those before it.
            return not self._may_be_cut and self._receives < MOST_RECEIVES
        return order is not Order.SEND or not self._receives

    def _join(self, command: Command) -> bool:
        """Whether the calls in front can be done the quick way, together with those of other clients."""
        commands = self._commands
        first = commands[0]
        key = self._key(command, first)
        if key is None:
            return False
        calls = [commands.popleft()]
        while commands and len(calls) < MOST_TOGETHER and self._is_alike(command, key, first, commands[0]):
            calls.append(commands.popleft())
        slot = self._slot(command.order, self.session.protocol, calls)
        self.server.door.chorus.join(command, (command.name, key), slot)
        return True

    def _key(self, command: Command, words: list[bytes]) -> Hashable:
        assert command.several is not None
        try:
            return command.several.key(self.session, words)
        except PenstockError:  # the usual way says what is wrong
            return None

    def _is_alike(self, command: Command, key: Hashable, first: list[bytes], other: list[bytes]) -> bool:
        """Whether another call belongs into the same slot; what is received there is for one consumer."""
        if other is first or other == first:
            return True
        return command.order is not Order.RECEIVE and other[0] == first[0] and self._key(command, other) == key

    def _slot(self, order: Order, protocol: int, calls: Sequence[list[bytes]] = ONE_CALL) -> Slot:
        slot = Slot(self, order, protocol, calls)
        self._slots.append(slot)
        self._under_way += 1
        self._receives += order is Order.RECEIVE
        self._may_be_cut += slot.may_be_cut
        return slot

    def _begin(self, command: Command | None, arguments: list[bytes], order: Order) -> None:
        session = self.session
        protocol = session.protocol
        if self._under_way:
            # What came before is begun before.
            self.server.door.chorus.sing()
        try:
            begun: Any = session.begin(command, arguments)
        except Exception as error:
            logger.exception("command %r failed", arguments[0][:32])
            begun = failure(error)
        kind = type(begun)
        if kind is Work or kind is Waiting or kind is CoroutineType:
            slot = self._slot(order, protocol)
            self._is_alone = order is Order.ALONE
            if kind is Work:
                self.submit(slot, begun)
            elif kind is Waiting:
                slot.waiting = begun
                self._is_alone = True
                self.submit(slot, begun.work)
            else:
                self._run(slot, begun)
        else:
            self._slots.append(encode(begun, session.protocol))

    def submit(self, slot: Slot, work: Work) -> None:
        slot.finish = work.finish
        try:
            self.server.door.submit(work, slot)
        except PenstockError as error:
            slot.set_exception(error)

    def wait(self, slot: Slot, waiting: Waiting) -> None:
        if self._has_ended or waiting.seconds == 0:
            slot.answer(waiting.empty)
        else:
            slot.waiting = None
            most = self.server.max_block_seconds
            if most and (waiting.seconds is None or waiting.seconds > most):
                waiting.seconds = most
            self._waiter = self.server.desks.wait(slot, waiting)

    def _run(self, slot: Slot, coroutine: Any) -> None:
        async def run() -> None:
            try:
                slot.protocol, reply = await _with_protocol(coroutine, self.session)
            except Exception as error:
                slot.set_exception(error)
            else:
                slot.answer(reply)

        task = self.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- bytes out -------------------------------------------------------------------------------------------------

    def filled(self, slot: Slot) -> None:
        self._under_way -= 1
        self._receives -= slot.order is Order.RECEIVE
        self._may_be_cut -= slot.may_be_cut
        self._is_alone = False
        self._waiter = None
        if self._flush_is_due:
            return
        if len(self._slots) == 1 and not self._commands and self._is_at_ease():
            assert slot.data is not None
            self._slots.clear()
            self._backlog = 0
            self._write(slot.data)
        else:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Once for all replies of a commit."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self.server.flush_soon(self)

    def _is_at_ease(self) -> bool:
        """Whether nothing but its replies is to be seen to."""
        return (
            self._is_reading
            and not self._has_ended
            and not self.is_gone
            and not self.session.wants_close
            and self._parser.error is None
        )

    def go_on(self) -> None:
        self._flush_is_due = False
        if not self.is_gone:
            if self._commands or self._parser.error is not None:
                self._begin_commands()
            self._flush()

    def _flush(self) -> None:
        slots = self._slots
        ready: list[bytes] = []
        while slots:
            first = slots[0]
            data = first if type(first) is bytes else cast(Slot, first).data
            if data is None:
                ready += self._part_of(cast(Slot, first))
                break
            ready.append(data)
            slots.popleft()
        if ready:
            self._write(ready[0] if len(ready) == 1 else b"".join(ready))
        if slots and self._can_write and type(slots[0]) is Slot and slots[0].is_paused:
            self._go_on_with(slots[0])
        if not slots and (self.session.wants_close or (self._has_ended and not self._commands)):
            self.transport.close()
        self._regulate()

    def _part_of(self, slot: Slot) -> list[bytes]:
        """What is there of a reply that comes in parts."""
        if slot.part is None:
            return []
        part, slot.part, slot.is_paused = slot.part, None, True
        return [part]

    def _go_on_with(self, slot: Slot) -> None:
        """The client has read the first part: make the calls that are left."""
        slot.is_paused = False
        command = find(slot.calls[0][0])
        key = None if command is None else self._key(command, slot.calls[0])
        if command is None or key is None:
            slot.set_exception(CommandError("NOPERM the rights of this user have changed"))
        else:
            self.server.door.chorus.join(command, (command.name, key), slot)

    async def write_piece(self, data: bytes) -> None:
        """A part of the reply to the command that runs alone, and wait until the client reads on."""
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
            if unread > self.server.limits.stranger_output_bytes:
                logger.warning("stranger %d at %s does not read: closed", self.session.id, self.session.address)
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
        self.be_looked_at(self.stalled_at)

    def resume_writing(self) -> None:
        self._can_write = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self.go_on()

    def _regulate(self) -> None:
        """Read no more than can be worked on; reading goes on when there is room again."""
        waiting = len(self._commands) + len(self._slots)
        if not waiting:
            self._backlog = 0
        has_room = not waiting or (waiting < self.server.limits.pipelined and self._backlog < MOST_BACKLOG)
        wanted = has_room and self._can_write and not self.session.wants_close
        if wanted != self._is_reading and not self.transport.is_closing():
            self._is_reading = wanted
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    # -- time passes -----------------------------------------------------------------------------------------------

    def be_looked_at(self, now: float) -> None:
        """As soon as it may have kept the server waiting for too long: for what it does now, or begins to do."""
        if self.is_gone:
            return
        limits = self.server.limits
        soonest = min(limits.request_seconds or math.inf, limits.idle_seconds or math.inf)
        self.server.patience.look_at(self, min(self.overstays_at(), now + soonest))

    def overstays_at(self) -> float:
        """From when on the client has kept the server waiting for too long, if it does nothing more."""
        limits = self.server.limits
        if self.session.user_name is None and limits.handshake_seconds:
            return self.made_at + limits.handshake_seconds
        ends = math.inf
        if limits.request_seconds and self._parser.is_midway:
            # From when the command began: a byte now and then does not buy more time.
            ends = self._begun_at + limits.request_seconds
        if not self._can_write:
            ends = min(ends, self._stalls_at())
        if limits.idle_seconds and not self._slots:
            ends = min(ends, self.heard_at + limits.idle_seconds)
        return ends

    def _stalls_at(self) -> float:
        """A client need not read fast, but it has to read on: counted from when some of its replies were last taken."""
        unread = self.transport.get_write_buffer_size()
        if self._written - unread > self._read_upto:
            self._read_upto = self._written - unread
            self.stalled_at = self.loop.time()
        seconds = self.server.limits.request_seconds or math.inf
        if unread > self.server.limits.output_bytes:
            seconds = min(seconds, SLOW_SECONDS)
        return self.stalled_at + seconds


async def _with_protocol(coroutine: Any, session: Session) -> tuple[int, Reply]:
    """A reply is told in the protocol that is in force when it is there: HELLO answers in the new one."""
    reply = await coroutine
    return session.protocol, reply


def _peek(sock: Any) -> bytes:
    raw = socket.socket(fileno=sock.fileno())
    try:
        return raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    finally:
        raw.detach()


def _is_local(address: str) -> bool:
    return address in ("local", "::1", "localhost") or address.startswith(("127.", "::ffff:127."))
