"""The command table: every command is a decorated function, and its signature is its documentation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, NamedTuple

from penstock.servers.access import Right
from penstock.servers.resp.arguments import Arities, Signature

SINCE = "0.1.0"


class Order(Enum):
    """Which commands of one connection may be under way together: its client must see them happen in order."""

    HERE = "answered at once, without the store"
    SEND = "merged with others; a receive may follow"
    RECEIVE = "merged with others, after sends and settlements; only receives may follow"
    TURN = "takes its turn among all calls"
    ALONE = "nothing else of this connection meanwhile"


class Several(NamedTuple):
    """The quick way for the plain form of a command that comes again and again: one call for those of many clients."""

    key: Callable[[Any, list[bytes]], Hashable]
    """Given the session and the words: what calls have in common that can be one. None leaves it to the usual way, as
    does an error, which is told there."""
    begin: Callable[[Any, list[Any]], Any]
    """Given the door and the slots of all clients: the work, whose end gives an answer for each slot."""


class Command:
    def __init__(
        self,
        name: str,
        run: Callable[..., Any],
        order: Order,
        right: Right,
        family: str,
        *,
        is_open: bool,
        in_multi: bool,
        usage: str | None,
        least: int,
        subcommands: Arities | None,
    ) -> None:
        self.name = name
        self.run = run
        self.order = order
        self.right = right
        self.family = family
        self.is_open = is_open
        self.in_multi = in_multi
        self.signature = Signature(name, run, least, subcommands)
        self.several: Several | None = None
        self.usage = usage or self.signature.usage
        self.has_usage = usage is not None
        self.summary = (run.__doc__ or "").strip().splitlines()[0]
        kinds = [one.kind for one in self.signature.positional]
        self.queue_at = next((place for place, kind in enumerate(kinds) if kind.is_queue), None)
        self.takes_queues = self.signature.rest is not None and self.signature.rest.kind.is_queue

    def bind(self, arguments: list[bytes]) -> tuple[list[Any], dict[str, Any]]:
        return self.signature.bind(arguments)

    def queues(self, values: list[Any]) -> list[str]:
        """The queues that a call names where its signature says so; others check for themselves."""
        named = [] if self.queue_at is None else [values[self.queue_at]]
        return named + values[len(self.signature.positional)] if self.takes_queues else named


TABLE: dict[bytes, Command] = {}


def command(
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
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put a function into the table. `is_open` works before AUTH; `usage` is for grammars of their own, `least` and
    `subcommands` say how many words those have, which is known before a command runs."""

    def put(run: Callable[..., Any]) -> Callable[..., Any]:
        TABLE[name.encode()] = Command(
            name,
            run,
            order,
            right,
            family,
            is_open=is_open,
            in_multi=in_multi,
            usage=usage,
            least=least,
            subcommands=subcommands,
        )
        return run

    return put


Begin = Callable[[Any, list[Any]], Any]


def several(name: str, key: Callable[[Any, list[bytes]], Hashable]) -> Callable[[Begin], Begin]:
    def put(begin: Begin) -> Begin:
        TABLE[name.encode()].several = Several(key, begin)
        return begin

    return put


def find(name: bytes) -> Command | None:
    return TABLE.get(name) or TABLE.get(name.upper())
