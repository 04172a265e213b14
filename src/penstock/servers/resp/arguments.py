"""Kinds of command arguments: how to decode each, and its type in COMMAND DOCS.

A command is a function whose parameters are annotated with these kinds. A parameter without default is positional. One
with a default is an option, named in capitals (`EX seconds`), or a flag if it is a `Flag`. `Words` and the other kinds
with `is_rest` take all remaining arguments.
"""

from __future__ import annotations

import inspect
import math
import operator
import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from penstock.domain.errors import InvalidInput
from penstock.domain.identity import check_id
from penstock.domain.validation import check_name
from penstock.servers.resp.encoder import Tags
from penstock.servers.resp.errors import CommandError, printable, quoted, syntax_error, wrong_arity


class Kind(NamedTuple):
    """The decoder of an argument, and its type in COMMAND DOCS."""

    read: Callable[[bytes], Any]
    type: str = "string"
    is_queue: bool = False
    is_flag: bool = False
    is_rest: bool = False


@lru_cache(maxsize=64)
def read_name(kind: str) -> Callable[[bytes], str]:
    """Valid names are cached."""

    @lru_cache(maxsize=4096)
    def read(data: bytes) -> str:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise InvalidInput(
                f"{kind} {quoted(data)} is not valid UTF-8: names are text in this store, contents may be any bytes"
            ) from None
        return check_name(kind, text)

    return read


def read_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{quoted(data)} is not valid UTF-8") from None


def read_integer(data: bytes) -> int:
    digits = data[1:] if data[:1] == b"-" else data
    if not digits.isdigit() or len(digits) > 18:
        raise CommandError(f"ERR value {quoted(data)} is not an integer or out of range")
    return int(data)


def read_count(data: bytes) -> int:
    value = read_integer(data)
    if value < 0:
        raise CommandError(f"ERR value {quoted(data)} is out of range, must be positive")
    return value


def read_token(data: bytes) -> int:
    value = read_count(data)
    if value == 0:
        raise CommandError(f"ERR {quoted(data)} is not the token of a lease")
    return value


@lru_cache(maxsize=1024)
def read_seconds(data: bytes) -> float:
    """A decimal number; stricter than `float`, which accepts `nan` and `1_0`."""
    try:
        value = float(data) if len(data) <= 32 and b"_" not in data else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CommandError(f"ERR {quoted(data)} is not a number of seconds")
    return value


def read_id(data: bytes) -> str:
    return check_id(read_text(data))


def read_flag(data: bytes) -> bool:
    return True


QueueName = Annotated[str, Kind(read_name("queue"), "key", is_queue=True)]
GroupName = Annotated[str, Kind(read_name("group"))]
Name = Annotated[str, Kind(read_name("name"))]
MessageId = Annotated[str, Kind(read_id)]
Text = Annotated[str, Kind(read_text)]
Blob = Annotated[bytes, Kind(bytes)]
Token = Annotated[int, Kind(read_token, "integer")]
Count = Annotated[int, Kind(read_count, "integer")]
Seconds = Annotated[float, Kind(read_seconds, "double")]
Flag = Annotated[bool, Kind(read_flag, "pure-token", is_flag=True)]
Words = Annotated[list[bytes], Kind(bytes, is_rest=True)]
QueueNames = Annotated[list[str], Kind(read_name("queue"), "key", is_queue=True, is_rest=True)]
MessageIds = Annotated[list[str], Kind(read_id, is_rest=True)]


# The least and the largest number of words after each subcommand.
Arities = dict[str, tuple[int, int | None]]


class Parameter(NamedTuple):
    name: str
    kind: Kind
    token: str | None  # None for positional ones

    def documented(self) -> dict[str, Any]:
        """The entry of COMMAND DOCS."""
        document: dict[str, Any] = {"name": self.name, "type": self.kind.type, "display_text": self.name}
        if self.token is not None:
            document["token"] = self.token
            document["flags"] = Tags("optional")
        elif self.kind.is_rest:
            document["flags"] = Tags("optional", "multiple")
        return document

    def usage(self) -> str:
        if self.token is not None:
            return f"[{self.token}]" if self.kind.is_flag else f"[{self.token} {self.name}]"
        return f"[{self.name} ...]" if self.kind.is_rest else self.name


class Signature:
    """The arguments of a command, from the signature of its function."""

    def __init__(self, name: str, run: Callable[..., Any], least: int = 0, subcommands: Arities | None = None) -> None:
        """`least` is the number of words required after the positional ones; with `subcommands` it depends on the first
        word."""
        self.name = name
        self._least = least
        self._subcommands = subcommands
        hints = typing.get_type_hints(run, include_extras=True)
        own = list(inspect.signature(run).parameters.values())[1:]
        # `calls` is not an argument of the client: it holds the words of all commands joined into this call.
        parameters = [_parameter(one, hints[one.name]) for one in own if one.name != "calls"]
        self.positional = [one for one in parameters if one.token is None and not one.kind.is_rest]
        self.options = {one.token.encode(): one for one in parameters if one.token is not None}
        self.rest = next((one for one in parameters if one.kind.is_rest), None)
        self.parameters = parameters
        self._readers = [one.kind.read for one in self.positional]
        self._count = len(self.positional)

    @property
    def usage(self) -> str:
        return " ".join([self.name, *(one.usage() for one in self.parameters)])

    @property
    def arity(self) -> int:
        """As in COMMAND: includes the name, and is negative for a minimum."""
        return -(self._count + self._least + 1) if self.options or self.rest else self._count + 1

    def bind(self, arguments: list[bytes]) -> tuple[list[Any], dict[str, Any]]:
        """Decode the words after the command name into arguments of the function."""
        count = self._count
        if len(arguments) < count + self._least or (len(arguments) > count and not self.options and self.rest is None):
            raise wrong_arity(self.name)
        if self._subcommands is not None:
            self._check_subcommand(arguments)
        values = list(map(operator.call, self._readers, arguments))
        more = arguments[count:]
        if more and self.options:
            return self._bind_options(values, more)
        if self.rest is not None:
            values.append(list(map(self.rest.kind.read, more)))
        return values, {}

    def _check_subcommand(self, arguments: list[bytes]) -> None:
        assert self._subcommands is not None
        least, most = self._subcommands.get(arguments[0].decode(errors="replace").upper(), (0, None))
        count = len(arguments) - 1
        if count < least or (most is not None and count > most):
            raise wrong_arity(f"{self.name}|{printable(arguments[0])}")

    def _bind_options(self, values: list[Any], more: list[bytes]) -> tuple[list[Any], dict[str, Any]]:
        options: dict[str, Any] = {}
        rest: list[Any] = []
        words = iter(more)
        for word in words:
            option = self.options.get(word.upper())
            if option is None or option.name in options:
                if self.rest is None or options:
                    raise syntax_error(self.name, word, self.usage)
                rest.append(self.rest.kind.read(word))
            elif option.kind.is_flag:
                options[option.name] = True
            else:
                value = next(words, None)
                if value is None:
                    raise CommandError(f"ERR syntax error: {option.token} needs a value (usage: {self.usage})")
                options[option.name] = option.kind.read(value)
        if self.rest is not None:
            values.append(rest)
        return values, options


def _parameter(parameter: inspect.Parameter, hint: Any) -> Parameter:
    kind = _kind(hint)
    is_option = parameter.default is not inspect.Parameter.empty
    token = parameter.name.removesuffix("_").replace("_", "-").upper() if is_option else None
    return Parameter(parameter.name, kind, token)


def _kind(hint: Any) -> Kind:
    """Also finds the kind in `Seconds | None`."""
    for candidate in (hint, *typing.get_args(hint)):
        for extra in getattr(candidate, "__metadata__", ()):
            if isinstance(extra, Kind):
                return extra
    raise TypeError(f"{hint} is no kind of argument")
