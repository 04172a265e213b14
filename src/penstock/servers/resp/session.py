"""The state of a client without its socket: user, settings, transaction; and the start of its commands."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.aio.call import Operation, Phase
from penstock.domain.errors import PenstockError, StoreError
from penstock.servers.access import DEFAULT, Right, User
from penstock.servers.logins import TooManyLogins
from penstock.servers.reply_size import MAX_BYTES
from penstock.servers.resp.encoder import RESP2, Encoded, Reply, Simple, encode
from penstock.servers.resp.errors import CommandError, unknown_command
from penstock.servers.resp.message_leases import NAMELESS, Holder
from penstock.servers.resp.pending import BlockingCall, Pending
from penstock.servers.resp.table import Command, Order

if TYPE_CHECKING:
    from penstock.servers.resp.server import Server

Begun = Reply | Pending | BlockingCall | Coroutine[Any, Any, Reply]
QUEUED = Simple("QUEUED")
# Memory of a queued command, and of each of its words, besides their bytes.
QUEUED_OVERHEAD = 100
# Once the replies of a transaction exceed this, EXEC runs no further command that returns messages. Replies without
# messages, such as lists of keys, have a limit of the same size of their own.
EXEC_BYTES = 4 * MAX_BYTES
# Cached rights of one client.
MAX_CACHED_RIGHTS = 1024
_ids = itertools.count(1)


class ClientSession:
    def __init__(self, server: Server, address: str, is_local: bool) -> None:
        self.server = server
        self.backend = server.backend
        self.id = next(_ids)
        self.address = address
        self.peer = self.local = ""  # addresses with ports
        self.is_local = is_local
        self.connected_at = time.time()
        self.wants_close = False
        self.on_authenticated: Any = lambda known: None
        self.write: Callable[[bytes], Awaitable[None]]  # for a command that writes its reply in parts
        self._granted: set[tuple[int, Right, str]] = set()
        self.holder = Holder(None)
        self.reset()

    def reset(self) -> None:
        """Reset to the state of a new connection, as RESET does."""
        self.protocol = RESP2
        self.rename("")
        self.library = ""
        self.library_version = ""
        self._become(None if self.server.users.need_password else DEFAULT)
        self.registered: list[str] = []
        self.queued: list[tuple[Command, list[Any], dict[str, Any]]] | None = None
        self.queued_bytes = 0
        self.is_aborted = False
        self.is_executing = False  # commands do not block inside EXEC
        self.is_waiting = False
        self.when_unblocked: Reply = None
        self.on_authenticated(self.user_name is not None)

    def _become(self, user_name: str | None) -> None:
        """Leases held as another user stay with that user."""
        self.user_name = user_name
        self._granted.clear()
        if self.holder.user_name != user_name:
            self.leave()
            self.holder = Holder(user_name)

    def leave(self) -> None:
        """The connection is closed: later connections of the user may settle its messages."""
        self.holder.is_open = False

    # -- user and rights -------------------------------------------------------------------------------------------

    @property
    def user(self) -> User | None:
        """Looked up each time, so that revoked rights are gone at once."""
        return None if self.user_name is None else self.server.users.find(self.user_name)

    @property
    def is_plain(self) -> bool:
        """Authenticated and not inside MULTI."""
        return self.user_name is not None and self.queued is None

    def rename(self, name: str) -> None:
        """Set the name of the connection, and so the consumer of commands that name none."""
        self.name = name
        self.consumer = name or NAMELESS

    def may_settle(self, consumer: str, holder: Holder | None) -> bool:
        """Whether it may settle by id a message that `consumer` received by `holder`, or by another server."""
        if holder is self.holder:
            return True
        if holder is not None and holder.user_name != self.user_name:
            return False
        return consumer == self.consumer and (consumer != NAMELESS or holder is None or not holder.is_open)

    def may(self, right: Right, queue: str | None = None) -> bool:
        user = self.user
        return user is not None and user.may(right, queue)

    def check(self, right: Right, *queues: str) -> None:
        """The error is the same for a queue that does not exist: a client must not learn names of other queues."""
        if right is not Right.NOTHING and not self.may(right):
            raise CommandError(f"NOPERM User {self.user_name} has no permission to {right.value}")
        for queue in queues:
            if not self.may(right, queue):
                raise CommandError(f"NOPERM User {self.user_name} has no permission to {right.value} on this queue")

    def check_everywhere(self, right: Right) -> None:
        """For commands that concern every queue, or other clients."""
        user = self.user
        if user is None or not user.may_everywhere(right):
            raise CommandError(f"NOPERM User {self.user_name} has no permission to {right.value} on every queue")

    async def log_in(self, name: str, password: bytes) -> None:
        try:
            user = await self.server.logins.by_password(self.address, name, password)
        except TooManyLogins as error:
            raise CommandError(f"ERR {error}") from None
        if user is None:
            raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
        self.server.check_user_limit(name)
        self._become(name)
        self.on_authenticated(True)

    @contextlib.contextmanager
    def waiting(self, empty: Reply) -> Iterator[None]:
        """While a command blocks by itself, without a wait list; `empty` is its reply after the timeout."""
        self.is_waiting = True
        self.when_unblocked = empty
        try:
            yield
        finally:
            self.is_waiting = False

    # -- commands --------------------------------------------------------------------------------------------------

    def begin(self, command: Command | None, calls: list[list[bytes]], resumes: bool = False) -> Begun:
        """Run a command, or several joined into one call, or queue it inside MULTI unless it `resumes`."""
        is_queued = self.queued is not None and not resumes and (command is None or command.in_multi)
        try:
            if command is None:
                raise unknown_command(calls[0])
            if self.user_name is None and not command.is_open:
                raise CommandError("NOAUTH Authentication required.")
            values, options = command.signature.bind(calls[0][1:])
            if command.needs_one_queue:
                self.check_one(command.right, values[command.queue_at])  # type: ignore[index]  # it has one
            else:
                self._check_call(command, values)
            if command.common is not None:
                options["calls"] = calls
            if is_queued:
                return self._queue(command, values, options, calls[0])
            return command.run(self, *values, **options)
        except PenstockError as error:
            if is_queued:
                # The transaction will not run: drop the queued commands.
                self.is_aborted = True
                self.queued = []
            return error

    def _queue(self, command: Command, values: list[Any], options: dict[str, Any], arguments: list[bytes]) -> Reply:
        assert self.queued is not None
        if command.order is Order.ALONE and asyncio.iscoroutinefunction(command.run):
            raise CommandError(f"ERR {command.name} is not allowed inside MULTI")
        self._count_queued(arguments)
        if not self.is_aborted:
            self.queued.append((command, values, options))
        return QUEUED

    def _count_queued(self, arguments: list[bytes]) -> None:
        """Count the memory that a command takes until EXEC."""
        self.queued_bytes += sum(map(len, arguments)) + QUEUED_OVERHEAD * (1 + len(arguments))
        most = self.server.limits.transaction_bytes
        if self.queued_bytes > most:
            raise CommandError(
                f"ERR the commands of a transaction may take {most} bytes (transaction_bytes): send fewer at a time"
            )

    def _check_call(self, command: Command, values: list[Any]) -> None:
        if command.right is Right.NOTHING:
            return
        if len(command.rights) > 1:
            if not any(map(self.may, command.rights)):
                self.check(command.right)
            return
        self.check(command.right, *command.queues(values))

    def check_one(self, right: Right, queue: str) -> None:
        """As `check`, cached until users change."""
        grant = (self.server.users.version, right, queue)
        if grant not in self._granted:
            self.check(right, queue)
            if len(self._granted) >= MAX_CACHED_RIGHTS:
                self._granted.clear()
            self._granted.add(grant)

    def execute(self) -> Begun:
        """EXEC: run all queued commands in one transaction."""
        queued, spoilt = self.queued, self.is_aborted
        self.queued, self.is_aborted = None, False
        if queued is None:
            raise CommandError("ERR EXEC without MULTI")
        if spoilt:
            raise CommandError("EXECABORT Transaction discarded because of previous errors.")
        self.is_executing = True
        replies = _ExecReplies(self.protocol, len(queued))
        try:
            begun = [(one[0], one[0].brings_messages(one[1]), self._begin_queued(*one)) for one in queued]
        finally:
            self.is_executing = False

        def operation() -> list[Any]:
            parts = [partial(replies.run, place, *one) for place, one in enumerate(begun)]
            together: list[Any] = self.backend.engine.together(parts)
            return together

        return Pending(Operation(operation, Phase.ALONE), None, list)

    def _begin_queued(self, command: Command, values: list[Any], options: dict[str, Any]) -> Any:
        try:
            self._check_call(command, values)
            return command.run(self, *values, **options)
        except PenstockError as error:
            return error


class _ExecReplies:
    """The replies of a transaction, encoded at once so that their size is known. `run` is called on the thread, inside
    the transaction, and again for all commands if the transaction is repeated."""

    def __init__(self, protocol: int, count: int) -> None:
        self._protocol = protocol
        # For each command, the bytes of all replies before it, and of those before it without messages.
        self._used = [(0, 0)] * (count + 1)

    def run(self, place: int, command: Command, brings_messages: bool, begun: Any) -> Encoded:
        total, others = self._used[place]
        if brings_messages and total > EXEC_BYTES:
            reply = _too_large(command, total, "nothing was received by it; ")
        elif not brings_messages and command.may_be_long and others > EXEC_BYTES:
            reply = _too_large(command, others)
        else:
            reply = _finished(begun)
        data = Encoded(encode(reply, self._protocol))
        self._used[place + 1] = total + len(data), others + (0 if brings_messages else len(data))
        return data


def _too_large(command: Command, used: int, effect: str = "") -> Reply:
    return CommandError(
        f"ERR the replies of this transaction have {used} bytes already: {command.name} was not run; {effect}"
        "ask again after EXEC"
    )


def _finished(begun: Any) -> Reply:
    """Run on the thread, inside the transaction, where nothing blocks."""
    pending = begun.first if isinstance(begun, BlockingCall) else begun
    if not isinstance(pending, Pending):
        return pending
    try:
        return pending.run()
    except StoreError:
        raise
    except PenstockError as error:
        return error
