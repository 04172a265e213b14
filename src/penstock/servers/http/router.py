"""Map method and path to a handler.

Paths are matched by their raw segments, each decoded separately: a name with a slash in it is `a%2Fb` in a path, and
reaches the handler as `a/b`. A pattern is `/queues/{queue}/messages`; `{path...}` takes all remaining segments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import msgspec

from penstock.domain.validation import shown
from penstock.servers.access import Right
from penstock.servers.http.problems import Problem

Handler = Callable[..., Awaitable[Any]]


class Route:
    """`is_open` routes need no login; the others need `right`, on the queue if the pattern has one. The body of an
    `is_streamed` route may have any length."""

    __slots__ = ("handler", "is_open", "is_streamed", "method", "pattern", "right", "segments")

    def __init__(
        self,
        method: str,
        pattern: str,
        handler: Handler,
        right: Right = Right.NOTHING,
        *,
        is_open: bool = False,
        is_streamed: bool = False,
    ) -> None:
        assert pattern.startswith("/"), pattern
        self.method = method
        self.pattern = pattern
        self.handler = handler
        self.right = right
        self.is_open = is_open
        self.is_streamed = is_streamed
        self.segments = tuple(pattern[1:].split("/"))

    def __repr__(self) -> str:
        return f"<Route {self.method} {self.pattern}>"


class Match(msgspec.Struct, frozen=True):
    """`others` are the methods of the path if it does not have this one."""

    route: Route | None
    values: dict[str, Any]
    others: tuple[str, ...] = ()


class _Node:
    __slots__ = ("literals", "methods", "value", "value_name", "whole_rest")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.value: _Node | None = None
        self.value_name = ""
        self.whole_rest = False
        self.methods: dict[str, Route] = {}


class Router:
    """A literal segment wins over a value."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.all = tuple(routes)
        self._root = _Node()
        for route in self.all:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.segments:
            if not segment.startswith("{"):
                node = node.literals.setdefault(segment, _Node())
                continue
            name = segment[1:-1]
            if node.value is None:
                node.value, node.value_name = _Node(), name.removesuffix("...")
                node.whole_rest = name.endswith("...")
            assert node.value_name == name.removesuffix("..."), f"{route}: {node.value_name} has two names"
            node = node.value
        assert route.method not in node.methods, f"{route} is there twice"
        node.methods[route.method] = route

    def find(self, method: str, segments: list[str]) -> Match | None:
        """None if there is no such path."""
        values: dict[str, Any] = {}
        node = self._root
        for place, segment in enumerate(segments):
            found = node.literals.get(segment)
            if found is not None:
                node = found
            elif node.value is None:
                return None
            else:
                values[node.value_name] = segments[place:] if node.whole_rest else segment
                is_last, node = node.whole_rest, node.value
                if is_last:
                    break
        if not node.methods:
            return None
        route = node.methods.get(method) or (node.methods.get("GET") if method == "HEAD" else None)
        return Match(route, values, () if route else _allowed(node.methods))


def _allowed(methods: Iterable[str]) -> tuple[str, ...]:
    found = set(methods)
    return tuple(sorted(found | {"HEAD"} if "GET" in found else found))


def segments_of(scope: Any) -> list[str]:
    """The decoded segments of the path below the mount point of the application."""
    raw: bytes | None = scope.get("raw_path")
    # The raw path is optional in ASGI; without it an encoded slash looks like a separator.
    path = raw.partition(b"?")[0] if raw else quote(scope["path"]).encode()
    try:
        if b"%" in path:
            segments = [unquote_to_bytes(one).decode() for one in path.split(b"/")[1:]]
        else:
            segments = path.decode().split("/")[1:]
    except UnicodeDecodeError:
        raise Problem(400, f"the path {shown(path)} is not UTF-8: percent-encode names as UTF-8") from None
    root: str = scope.get("root_path", "")
    if not root:
        return segments
    mounted_at = [one for one in root.split("/") if one]
    return segments[len(mounted_at) :] if segments[: len(mounted_at)] == mounted_at else segments


def path_to(scope: Any, *segments: str) -> str:
    """A path within the application, with every segment percent-encoded, wherever it is mounted."""
    root: str = scope.get("root_path", "").rstrip("/")
    return quote(root) + "/" + "/".join(quote(segment, safe="") for segment in segments)
