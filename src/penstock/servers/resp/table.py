"""The command table: every command is a decorated function, documented by its signature and docstring."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any

from penstock.servers.access import Right
from penstock.servers.resp.arguments import Arities, Signature

SINCE = "0.1.0"


class Order(Enum):
    """Which commands of one connection may run concurrently: the client must see their effects in order."""

    HERE = "answered at once, without the store"
    SEND = "merged with others, not while a receive or a turn is under way; a receive may follow"
    RECEIVE = "merged with others, after sends and settlements; only receives may follow"
    TURN = "takes its turn among all calls, not while a receive is under way"
    ALONE = "nothing else of this connection meanwhile"


BringsMessages = bool | Callable[[list[Any]], bool]


# Returns the words that consecutive commands must have in common to be joined into one call, or None. The function of
# the command then runs once for all of them, gets the words of each as `calls`, and ends with `Replies`.
Common = Callable[[list[bytes]], Hashable | list[bytes] | None]


class Command:
    """A row of the table, and the decorator that adds it.

    `is_open` works before AUTH. `usage` is for a command that parses its own words, and `least` and `subcommands` give
    their number, which is checked before it runs. `brings_messages` is for a command whose reply has payloads, or
    decides by the bound values. `also` are rights that allow other forms of the command, which checks them itself.
    """

    def __init__(
        self,
        name: str,
        order: Order,
        right: Right,
        family: str,
        *,
        is_open: bool = False,
        in_multi: bool = True,
        usage: str | None = None,
        least: int = 0,
        subcommands: Arities | None = None,
        brings_messages: BringsMessages = False,
        also: tuple[Right, ...] = (),
        common: Common | None = None,
    ) -> None:
        self.name = name
        self.order = order
        self.right = right
        self.rights = (right, *also)
        self.family = family
        self.is_open = is_open
        self.in_multi = in_multi
        self.common = common
        self.has_usage = usage is not None
        self.usage = usage or ""
        self._least = least
        self._subcommands = subcommands
        self._brings_messages = brings_messages
        # Whether the size of its reply depends on the store, not only on its arguments.
        self.may_be_long = brings_messages is not False or order is Order.ALONE

    def __call__(self, run: Callable[..., Any]) -> Callable[..., Any]:
        self.run = run
        self.summary = (run.__doc__ or "").strip().splitlines()[0]
        self.signature = Signature(self.name, run, self._least, self._subcommands)
        self.usage = self.usage or self.signature.usage
        kinds = [one.kind for one in self.signature.positional]
        self.queue_at = next((place for place, kind in enumerate(kinds) if kind.is_queue), None)
        self.takes_queues = self.signature.rest is not None and self.signature.rest.kind.is_queue
        # Whether it needs one right on one queue, as most commands do.
        self.needs_one_queue = (
            self.right is not Right.NOTHING
            and len(self.rights) == 1
            and self.queue_at is not None
            and not self.takes_queues
        )
        TABLE[self.name.encode()] = self
        return run

    def brings_messages(self, values: list[Any]) -> bool:
        """Whether the reply to this call has payloads."""
        brings = self._brings_messages
        return brings if isinstance(brings, bool) else brings(values)

    def queues(self, values: list[Any]) -> list[str]:
        """The queues in the arguments, by the signature; other commands check rights themselves."""
        named = [] if self.queue_at is None else [values[self.queue_at]]
        return named + values[len(self.signature.positional)] if self.takes_queues else named


TABLE: dict[bytes, Command] = {}
command = Command


def find(name: bytes) -> Command | None:
    return TABLE.get(name) or TABLE.get(name.upper())
