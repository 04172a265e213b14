"""The table of operations: every one is a decorated function, documented by its signature and docstring.

    @operation("POST", "/queues/{queue}/messages", Needs.SEND, "messages", status=201)
    async def send(call: ApiCall, queue: QueueName, body: NewMessage) -> Sent: ...

Parameters named in the path come from it, `body` from the body, keyword-only ones from the query. The OpenAPI document
is generated from this table.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response

from penstock.client.aio.queue import AsyncQueue
from penstock.client.aio.store import AsyncStore
from penstock.domain.refusals import no_queue
from penstock.domain.validation import check_name, nearest, shown
from penstock.servers.access import Right
from penstock.servers.http.api.decoder import Body, QueryValue
from penstock.servers.http.api.inputs import Nothing
from penstock.servers.http.auth import SCOPE_KEY as IDENTITY_KEY
from penstock.servers.http.auth import Identity, check_right
from penstock.servers.http.bodies import JSON
from penstock.servers.http.problems import Problem
from penstock.servers.http.request import HttpRequest
from penstock.servers.http.router import Route
from penstock.servers.http.state import SCOPE_KEY as STATE_KEY
from penstock.servers.http.state import HttpState

PREFIX = "/api/v1"
_encode = msgspec.json.Encoder().encode
MAX_PARAMETERS = 100
NO_BODY = Body(Nothing)
# How long a queue that was seen is assumed to exist: others may delete it.
SEEN_SECONDS = 1.0


class ApiCall(msgspec.Struct, eq=False):
    """One request, as an operation sees it."""

    request: HttpRequest
    state: HttpState
    identity: Identity

    @property
    def store(self) -> AsyncStore:
        return self.state.store

    def queue(self, name: str) -> AsyncQueue:
        """A queue that need not exist yet."""
        return AsyncQueue(self.store, name)

    async def known(self, name: str) -> AsyncQueue:
        """A queue that must exist: a mistyped name must not look like an empty queue."""
        queue = self.queue(name)
        seen, now = self.state.queues_seen, time.monotonic()
        if now - seen.get(name, -math.inf) > SEEN_SECONDS:
            check_name("queue", name)
            if not await queue.executor.read(lambda: queue.engine.has(name)):
                seen.pop(name, None)
                names = [info.name for info in await self.store.queues()]
                yours = [one for one in names if self.identity.may(Right.LOOK, one)]
                raise no_queue(name, yours)
            seen[name] = now
        return queue

    def check(self, right: Right, queue: str) -> None:
        """Check the right to a queue that is not in the path."""
        check_right(self.identity, right, queue)

    def is_still_allowed(self, right: Right, queue: str) -> bool:
        """Check again after a wait: users may have changed."""
        if self.identity.via == "host":
            return True
        user = self.state.users.find(self.identity.name)
        return user is not None and user.may(right, queue)


class ApiOperation(Route):
    """A row of the table, and the decorator that adds it. `media_type` is that of the body; a success has `status` or
    one of `also`."""

    __slots__ = (
        "_run",
        "also",
        "body",
        "description",
        "media_type",
        "name",
        "query",
        "returns",
        "status",
        "tag",
        "takes_nothing",
        "values",
    )

    def __init__(
        self,
        method: str,
        pattern: str,
        right: Right,
        tag: str,
        *,
        status: int = 200,
        media_type: str = JSON,
        is_streamed: bool = False,
        also: tuple[int, ...] = (),
    ) -> None:
        super().__init__(method, PREFIX + pattern, self.handle, right, is_streamed=is_streamed)
        self.tag = tag
        self.status = status
        self.media_type = media_type
        self.also = also

    def __call__(self, run: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        self._run = run
        self.name = run.__name__
        self.description = inspect.cleandoc(run.__doc__ or "")
        hints = get_type_hints(run, include_extras=True)
        parameters = inspect.signature(run).parameters
        named = {segment[1:-1] for segment in self.segments if segment.startswith("{")}
        self.values = {name: hints[name] for name in parameters if name in named}
        assert set(self.values) == named, f"{self} takes {sorted(self.values)}"
        self.body = Body(hints["body"]) if "body" in parameters else None
        self.takes_nothing = self.body is None and self.method != "GET" and self.media_type == JSON
        self.query = {
            name: QueryValue(name, hints[name], one.default)
            for name, one in parameters.items()
            if one.kind is inspect.Parameter.KEYWORD_ONLY
        }
        self.returns = hints["return"]
        OPERATIONS.append(self)
        return run

    async def handle(self, request: HttpRequest, **values: Any) -> Response:
        scope = request.scope
        if self.query or scope["query_string"]:
            values |= self._read_query(scope["query_string"])
        if self.body is not None:
            values["body"] = await self.body.read(request)
        elif self.takes_nothing:
            await NO_BODY.read(request)
        outcome = await self._run(ApiCall(request, scope[STATE_KEY], scope[IDENTITY_KEY]), **values)
        if isinstance(outcome, Response):
            return outcome
        return Response(_encode(outcome), self.status, media_type=JSON)

    def _read_query(self, text: bytes) -> dict[str, Any]:
        if not text:
            given: dict[str, str] = {}
        else:
            given = _parse(text)
            for name in given:
                if name not in self.query:
                    raise Problem(400, f"unknown parameter {shown(name)}{nearest(name, self.query)}", "UnknownField")
        return {name: one.read(given.get(name)) for name, one in self.query.items()}


def _parse(text: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise Problem(400, f"the query {shown(text)} is not percent-encoded UTF-8", "InvalidQuery") from None
    given = dict(pairs)
    if len(given) != len(pairs):
        raise Problem(400, f"the query {shown(text)} has a parameter twice", "InvalidQuery")
    return given


OPERATIONS: list[ApiOperation] = []
operation = ApiOperation
