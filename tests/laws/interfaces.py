"""The interfaces that law 10 compares, with the same few verbs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from typer.testing import CliRunner

import penstock
from penstock import LeaseLost
from penstock.cli.program import app


class Got(NamedTuple):
    """A delivery with the fields that all interfaces return; `handle` is what this interface settles it with."""

    payload: Any
    attempt: int
    handle: Any


class Interface(Protocol):
    """`url` is the store's URL; some interfaces have no reason for an ack."""

    url: str
    forgets_ack_reasons: bool

    def declare(self, queue: str, **policy: Any) -> None: ...
    def send(self, queue: str, payload: Any, **options: Any) -> str: ...
    def receive(self, queue: str, limit: int, group: str) -> list[Got]: ...
    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str: ...
    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None: ...
    def redrive(self, queue: str) -> int: ...
    def sweep(self) -> None: ...
    def close(self) -> None: ...


class PythonInterface:
    forgets_ack_reasons = False

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.store = penstock.connect(url)

    def declare(self, queue: str, **policy: Any) -> None:
        self.store.queue(queue, **policy)

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        return self.store.queue(queue).send(payload, **options)

    def receive(self, queue: str, limit: int, group: str) -> list[Got]:
        got = self.store.queue(queue).receive(limit=limit, group=group, consumer="c1")
        return [Got(one.json(), one.attempt, one) for one in got]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        try:
            getattr(got.handle, verb)(**options)
        except LeaseLost:
            return "lost"
        return "ok"

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        act = getattr(self.store.queue(queue).batch(name), verb)
        act() if payload is None else act(payload)

    def redrive(self, queue: str) -> int:
        return self.store.queue(queue).redrive()

    def sweep(self) -> None:
        self.store.sweep()

    def close(self) -> None:
        self.store.close()


class AsyncInterface:
    forgets_ack_reasons = False

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.runner = asyncio.Runner()
        self.store = self._run(penstock.connect_async(url))

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)

    def _queue(self, name: str, **policy: Any) -> Any:
        """A queue is returned directly or awaited."""

        async def had() -> Any:
            queue = self.store.queue(name, **policy)
            return await queue if asyncio.iscoroutine(queue) else queue

        return self._run(had())

    def declare(self, queue: str, **policy: Any) -> None:
        self._queue(queue, **policy)

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        sent: str = self._run(self._queue(queue).send(payload, **options))
        return sent

    def receive(self, queue: str, limit: int, group: str) -> list[Got]:
        got = self._run(self._queue(queue).receive(limit=limit, group=group, consumer="c1"))
        return [Got(one.json(), one.attempt, one) for one in got]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        try:
            self._run(getattr(got.handle, verb)(**options))
        except LeaseLost:
            return "lost"
        return "ok"

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        act = getattr(self._queue(queue).batch(name), verb)
        self._run(act() if payload is None else act(payload))

    def redrive(self, queue: str) -> int:
        count: int = self._run(self._queue(queue).redrive())
        return count

    def sweep(self) -> None:
        self._run(self.store.sweep())

    def close(self) -> None:
        self._run(self.store.close())
        self.runner.close()


class CliInterface:
    forgets_ack_reasons = False

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url

    def _run(self, *words: str) -> Any:
        result = CliRunner().invoke(app, [*words, "--url", self.url, "--json"])
        if result.exit_code != 0:
            raise RuntimeError(result.stderr)
        return json.loads(result.stdout)

    def declare(self, queue: str, **policy: Any) -> None:
        self._run("queues", "declare", queue, *(f"{name}={json.dumps(value)}" for name, value in policy.items()))

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        sent: str = self._run("send", queue, _text(payload), *_flags(options))["id"]
        return sent

    def receive(self, queue: str, limit: int, group: str) -> list[Got]:
        got = self._run("receive", queue, "--limit", str(limit), "--group", group, "--consumer", "c1")
        return [Got(one["payload"], one["attempt"], one) for one in got]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        handle = got.handle
        words = [verb, queue, handle["id"], "--token", str(handle["token"]), "--group", handle["group"]]
        try:
            self._run(*words, *_flags(options))
        except RuntimeError as error:
            if "LeaseLost" not in str(error):
                raise
            return "lost"
        return "ok"

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        if verb == "send":
            self._run("send", queue, _text(payload), "--batch", name)
        else:
            said = [] if payload is None else [_text(payload)]
            self._run("batch", verb.replace("_", "-"), queue, name, *said)

    def redrive(self, queue: str) -> int:
        count: int = self._run("redrive", queue)["redriven"]
        return count

    def sweep(self) -> None:
        self._run("sweep")

    def close(self) -> None:
        """Every command opened and closed the store by itself."""


def _text(payload: Any) -> str:
    """Formatted as Python's interface formats JSON: the command line keeps its bytes."""
    return json.dumps(payload, separators=(",", ":"))


def _flags(options: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in options.items():
        if name == "headers":
            flags += [word for header, text in value.items() for word in ("--header", f"{header}={text}")]
        else:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return flags
