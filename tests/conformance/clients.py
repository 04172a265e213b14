"""The synchronous and the asynchronous client, both with one calling style: a test calls
`queue.send(...)` and need not know whether its store comes from `penstock.connect` or `penstock.connect_async`.

`BlockingClient` wraps one asynchronous object. Its coroutines run on an event loop in a thread of its own; asynchronous
objects in results (deliveries, batches, ...) are wrapped as well.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Any, cast

import msgspec

import penstock
from penstock import Ack, Nak, Reject, Reschedule, Store

# Longer than any test may take: a hanging call fails with a stack trace before the run is killed.
PATIENCE_SECONDS = 90


def open_sync(url: str, **settings: Any) -> Store:
    return penstock.connect(url, **settings)


def open_async(url: str, **settings: Any) -> Store:
    async def connect() -> Any:
        return await penstock.connect_async(url, **settings)

    return cast(Store, outward(run(connect)))


Opener = Callable[..., Store]
CLIENTS: dict[str, Opener] = {"sync": open_sync, "async": open_async}


class BlockingClient:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if inspect.isawaitable(value):
            return outward(run(lambda: value))
        if inspect.ismethod(value):
            return lambda *args, **kwargs: self._call(value, args, kwargs)
        return outward(value)

    def _call(self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = [inward(arg) for arg in args]
        named = {name: inward(arg) for name, arg in kwargs.items()}
        return outward(run(lambda: method(*given, **named)))

    def __enter__(self) -> BlockingClient:
        run(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(lambda: self._inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._inner)


def outward(value: Any) -> Any:
    """Wrap the asynchronous objects of a result."""
    if isinstance(value, list):
        return [outward(item) for item in value]
    if type(value).__module__.startswith("penstock.client.aio"):
        return BlockingClient(value)
    return value


def inward(value: Any) -> Any:
    """Unwrap the asynchronous objects of arguments."""
    return [_inner(item) for item in value] if isinstance(value, list) else _inner(value)


def _inner(value: Any) -> Any:
    if isinstance(value, BlockingClient):
        return value._inner
    if isinstance(value, Ack | Nak):
        return msgspec.structs.replace(value, delivery=_inner(value.delivery))
    if isinstance(value, Reject):
        return Reject(_inner(value.delivery), value.reason, code=value.code)
    if isinstance(value, Reschedule):
        return Reschedule(_inner(value.delivery), value.delay_seconds, value.reason)
    return value


def run(call: Callable[[], Any]) -> Any:
    """Make the call on the event loop, await its result if it is awaitable, and return it."""

    async def on_loop() -> Any:
        result = call()
        return await result if inspect.isawaitable(result) else result

    return asyncio.run_coroutine_threadsafe(on_loop(), _loop()).result(PATIENCE_SECONDS)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="async-client", daemon=True).start()
    return loop
