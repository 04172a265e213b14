"""A client's side of the conversation, without its socket: who it is, what it has set, and how its commands begin."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.aio.call import Call
from penstock.client.aio.grouping import ALONE
from penstock.domain.errors import PenstockError, StoreError
from penstock.servers.access import DEFAULT, Right, User
from penstock.servers.logins import TooManyLogins
from penstock.servers.resp.encoder import RESP2, Reply, Simple
from penstock.servers.resp.holdings import NAMELESS, Holder
from penstock.servers.resp.table import Command, Order
from penstock.servers.resp.words import CommandError, failure, unknown_command
from penstock.servers.resp.work import Waiting, Work

if TYPE_CHECKING:
    from penstock.servers.resp.server import Server

Begun = Reply | Work | Waiting | Coroutine[Any, Any, Reply]
QUEUED = Simple("QUEUED")
# What a queued command, and each of its words, takes besides their bytes.
QUEUED_OVERHEAD = 100
# Rights of one client that need not be looked up again.
MOST_REMEMBERED = 1024
_ids = itertools.count(1)


class Session:
    def __init__(self, server: Server, address: str, is_local: bool) -> None:
        self.server = server
        self.door = server.door
        self.id = next(_ids)
        self.address = address
        self.is_local = is_local
        self.connected_at = time.time()
        self.wants_close = False
        self.on_known: Any = lambda known: None
        self.write: Callable[[bytes], Awaitable[None]]  # for a command that answers in pieces
        self._granted: set[tuple[Right, str]] = set()
        self._granted_by: tuple[int, str | None] = (0, None)
        self.holder = Holder(None)
        self.begin_again()

    def begin_again(self) -> None:
        """As just connected; what RESET does."""
        self.protocol = RESP2
        self.name = ""
        self.library = ""
        self._become(None if self.server.users.need_password else DEFAULT)
        self.registered: list[str] = []
        self.queued: list[tuple[Command, list[Any], dict[str, Any]]] | None = None
        self.queued_bytes = 0
        self.is_spoilt = False
        self.is_executing = False  # nothing waits inside EXEC
        self.is_waiting = False
        self.on_known(self.user_name is not None)

    def _become(self, user_name: str | None) -> None:
        """What it held as another user is left to that one."""
        self.user_name = user_name
        if self.holder.user_name != user_name:
            self.leave()
            self.holder = Holder(user_name)

    def leave(self) -> None:
        """The connection is closed: what it holds may be settled by who comes after it."""
        self.holder.is_open = False

    # -- who it is -------------------------------------------------------------------------------------------------

    @property
    def user(self) -> User | None:
        """Looked up each time, so that a right taken away is gone at once."""
        return None if self.user_name is None else self.server.users.find(self.user_name)

    @property
    def is_plain(self) -> bool:
        """Known, and not inside MULTI: commands run as they come."""
        return self.user_name is not None and self.queued is None

    @property
    def consumer(self) -> str:
        """Who receives, where a command does not say."""
        return self.name or NAMELESS

    def may_settle(self, consumer: str, holder: Holder | None) -> bool:
        """Whether it may settle by its id what a consumer has received: through this server's `holder`, or at a place
        that nobody knows."""
        if holder is self.holder:
            return True
        if holder is not None and holder.user_name != self.user_name:
            return False
        return consumer == self.consumer and (consumer != NAMELESS or holder is None or not holder.is_open)

    def may(self, right: Right, queue: str | None = None) -> bool:
        user = self.user
        return user is not None and user.may(right, queue)

    def check(self, right: Right, *queues: str) -> None:
        """The same answer for a queue that is not there: names of others' queues are none of its business."""
        if right is not Right.NOTHING and not self.may(right):
            raise CommandError(f"NOPERM User {self.user_name} has no permission to {right.value}")
        for queue in queues:
            if not self.may(right, queue):
                raise CommandError(f"NOPERM User {self.user_name} has no permission to {right.value} on this queue")

    async def log_in(self, name: str, password: bytes) -> None:
        try:
            user = await self.server.logins.by_password(self.address, name, password)
        except TooManyLogins as error:
            raise CommandError(f"ERR {error}") from None
        if user is None:
            raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
        self.server.check_user_limit(name)
        self._become(name)
        self.on_known(True)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While it waits for something that no desk hands out."""
        self.is_waiting = True
        try:
            yield
        finally:
            self.is_waiting = False

    # -- what it asks ----------------------------------------------------------------------------------------------

    def order_of(self, command: Command | None) -> Order:
        """How the command goes with those before it; what cannot be run, or not yet, is answered at once."""
        if command is None or (self.queued is not None and command.in_multi):
            return Order.HERE
        return command.order

    def begin(self, command: Command | None, arguments: list[bytes]) -> Begun:
        try:
            if command is None:
                raise unknown_command(arguments)
            if self.user_name is None and not command.is_open:
                raise CommandError("NOAUTH Authentication required.")
            values, options = command.bind(arguments[1:])
            self._check_call(command, values)
            if self.queued is not None and command.in_multi:
                if command.order is Order.ALONE and asyncio.iscoroutinefunction(command.run):
                    raise CommandError(f"ERR {command.name} is not allowed inside MULTI")
                self._queue(arguments)
                if not self.is_spoilt:
                    self.queued.append((command, values, options))
                return QUEUED
            return command.run(self, *values, **options)
        except (CommandError, PenstockError) as error:
            if self.queued is not None and (command is None or command.in_multi):
                # Nothing of it will be run, so nothing is kept.
                self.is_spoilt = True
                self.queued.clear()
            return failure(error)

    def _queue(self, arguments: list[bytes]) -> None:
        """Count the room that a command takes until EXEC."""
        self.queued_bytes += sum(map(len, arguments)) + QUEUED_OVERHEAD * (1 + len(arguments))
        most = self.server.limits.transaction_bytes
        if self.queued_bytes > most:
            raise CommandError(
                f"ERR the commands of a transaction may take {most} bytes (transaction_bytes): send fewer at a time"
            )

    def _check_call(self, command: Command, values: list[Any]) -> None:
        if command.right is Right.NOTHING:
            return
        if command.queue_at is not None and not command.takes_queues:
            self.check_one(command.right, values[command.queue_at])
        else:
            self.check(command.right, *command.queues(values))

    def check_one(self, right: Right, queue: str) -> None:
        """What was found allowed is remembered until users change."""
        users = self.server.users
        if self._granted_by != (users.version, self.user_name):
            self._granted_by = users.version, self.user_name
            self._granted.clear()
        if (right, queue) not in self._granted:
            self.check(right, queue)
            if len(self._granted) < MOST_REMEMBERED:
                self._granted.add((right, queue))

    def execute(self) -> Begun:
        """EXEC: all that was queued, in one transaction."""
        queued, spoilt = self.queued, self.is_spoilt
        self.queued, self.is_spoilt = None, False
        if queued is None:
            raise CommandError("ERR EXEC without MULTI")
        if spoilt:
            raise CommandError("EXECABORT Transaction discarded because of previous errors.")
        self.is_executing = True
        try:
            begun = [self._begin_queued(*one) for one in queued]
        finally:
            self.is_executing = False

        def operation() -> list[Any]:
            together: list[Any] = self.door.engine.together([partial(_finished, one) for one in begun])
            return together

        def finish(outcomes: list[Any]) -> Reply:
            return [failure(one) if isinstance(one, BaseException) else one for one in outcomes]

        return Work(Call(operation, key=ALONE), finish)

    def _begin_queued(self, command: Command, values: list[Any], options: dict[str, Any]) -> Any:
        try:
            self._check_call(command, values)
            return command.run(self, *values, **options)
        except (CommandError, PenstockError) as error:
            return failure(error)


def _finished(begun: Any) -> Reply:
    """On the thread, inside the transaction. Nothing waits in there."""
    work = begun.work if isinstance(begun, Waiting) else begun
    if not isinstance(work, Work):
        return work
    try:
        return work.run()
    except StoreError:
        raise
    except (CommandError, PenstockError) as error:
        return failure(error)
