"""The interfaces that law 10 compares, with the same few verbs: both Python clients and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from typer.testing import CliRunner

from penstock import Ack, Batch, Nak, Outgoing, PenstockError, Reject, Reschedule, Store
from penstock.cli.program import app

# What an interface shows of a delivery beside payload and attempt.
FIELDS = (
    "priority", "headers", "content_type", "key", "address", "batch", "created_at", "created_by", "expires_at",
    "deadline_at", "lease_ends_at",
)  # fmt: skip
COUNTS = ("total", "in_progress", "redo", "done", "available", "held", "dead", "lag")


class Got(NamedTuple):
    """A delivery with the fields that all interfaces return; `handle` is what this interface settles it with."""

    payload: Any
    attempt: int
    handle: Any
    fields: dict[str, Any] | None = None


class Settling(NamedTuple):
    """One item of a settlement of many."""

    verb: str
    got: Got
    options: dict[str, Any]


class Refusal(Exception):
    """An error of an interface, by the name of its class in Python."""


class Interface(Protocol):
    """Some interfaces have no reason for an ack. Settlements return "ok" or the name of the error."""

    forgets_ack_reasons: bool

    def declare(self, queue: str, **policy: Any) -> None: ...
    def send(self, queue: str, payload: Any, **options: Any) -> str: ...
    def receive(self, queue: str, limit: int, group: str | None, **options: Any) -> list[Got]: ...
    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str: ...
    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None: ...
    def redrive(self, queue: str) -> int: ...
    def sweep(self) -> None: ...
    def close(self) -> None: ...


class WalkedInterface(Interface, Protocol):
    """An interface with every verb of a random walk. Calls raise Refusal; what cannot be asked returns None."""

    def send_many(self, queue: str, items: Sequence[dict[str, Any]]) -> list[str]: ...
    def settle_many(self, queue: str, items: Sequence[Settling]) -> list[str]: ...
    def extend(self, queue: str, got: Got, seconds: float) -> datetime: ...
    def purge(self, queue: str) -> int: ...
    def seek(self, queue: str, group: str, target: str | datetime) -> None: ...
    def pause(self, queue: str) -> None: ...
    def resume(self, queue: str) -> None: ...
    def flush(self, queue: str) -> None: ...
    def stats(self, queue: str) -> dict[str, Any] | None: ...
    def peek(self, queue: str, group: str) -> list[Any]: ...
    def letters(self, queue: str, group: str) -> list[Any]: ...
    def trail(self, queue: str, id: str) -> list[Any]: ...


class PythonInterface:
    """Through either client. The other interfaces name a batch: a `Batch` object stands for the name until a call opens
    a batch."""

    forgets_ack_reasons = False

    def __init__(self, store: Store) -> None:
        self.store = store
        self._batches: dict[tuple[str, str], Batch] = {}

    def declare(self, queue: str, **policy: Any) -> None:
        self.store.queue(queue, **policy)

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        batch = options.pop("batch", None)
        place = self._batch(queue, batch) if batch else self.store.queue(queue)
        sent: str = refusing(lambda: place.send(payload, **options))
        return sent

    def send_many(self, queue: str, items: Sequence[dict[str, Any]]) -> list[str]:
        sent: list[str] = refusing(lambda: self.store.queue(queue).send_many([Outgoing(**item) for item in items]))
        return sent

    def receive(self, queue: str, limit: int, group: str | None, **options: Any) -> list[Got]:
        wish = {"consumer": "c1", **options}
        return [python_got(one) for one in self.store.queue(queue).receive(limit=limit, group=group, **wish)]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        return outcome(lambda: getattr(got.handle, verb)(**options))

    def settle_many(self, queue: str, items: Sequence[Settling]) -> list[str]:
        return [settled_name(one) for one in self.store.queue(queue).settle([python_settlement(one) for one in items])]

    def extend(self, queue: str, got: Got, seconds: float) -> datetime:
        ends: datetime = refusing(lambda: got.handle.extend(seconds))
        return ends

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        if verb in ("open", "set_end", "set_abort"):
            self._batches.pop((queue, name), None)
        if verb != "open":
            act = getattr(self._batch(queue, name), verb)
            refusing(lambda: act() if payload is None else act(payload))

    def _batch(self, queue: str, name: str) -> Batch:
        return self._batches.setdefault((queue, name), self.store.queue(queue).batch(name))

    def redrive(self, queue: str) -> int:
        return self.store.queue(queue).redrive()

    def purge(self, queue: str) -> int:
        return self.store.queue(queue).purge()

    def seek(self, queue: str, group: str, target: str | datetime) -> None:
        self.store.queue(queue).seek(group, target)

    def pause(self, queue: str) -> None:
        self.store.queue(queue).pause()

    def resume(self, queue: str) -> None:
        self.store.queue(queue).resume()

    def flush(self, queue: str) -> None:
        self.store.queue(queue).flush()

    def stats(self, queue: str) -> dict[str, Any] | None:
        return {group: counts(stats) for group, stats in self.store.queue(queue).stats().items()}

    def peek(self, queue: str, group: str) -> list[Any]:
        return [one.json() for one in self.store.queue(queue).peek(1000, group)]

    def letters(self, queue: str, group: str) -> list[Any]:
        found = self.store.queue(queue).dead_letters(limit=1000, group=group)
        return [(one.json(), str(one.outcome), one.reason, one.attempts, one.died_at) for one in found]

    def trail(self, queue: str, id: str) -> list[Any]:
        return python_trail(self.store.queue(queue).audit(id))

    def sweep(self) -> None:
        self.store.sweep()

    def close(self) -> None:
        self.store.close()


class CliInterface:
    forgets_ack_reasons = False

    def __init__(self, url: str) -> None:
        self.url = url

    def _run(self, *words: str) -> Any:
        result = CliRunner().invoke(app, [*words, "--url", self.url, "--json"])
        if result.exit_code != 0:
            raise RuntimeError(result.stderr)
        return json.loads(result.stdout)

    def declare(self, queue: str, **policy: Any) -> None:
        self._run("queues", "declare", queue, *(f"{name}={json.dumps(value)}" for name, value in policy.items()))

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        sent: str = self._run("send", queue, compact_json(payload), *_flags(options))["id"]
        return sent

    def receive(self, queue: str, limit: int, group: str | None, **options: Any) -> list[Got]:
        wish = {"limit": limit, "consumer": "c1", **({} if group is None else {"group": group}), **options}
        return [Got(one["payload"], one["attempt"], one) for one in self._run("receive", queue, *_flags(wish))]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        handle = got.handle
        words = [verb, queue, handle["id"], "--token", str(handle["token"]), "--group", handle["group"]]
        try:
            self._run(*words, *_flags(options))
        except RuntimeError as error:
            if "LeaseLost" not in str(error):
                raise
            return "LeaseLost"
        return "ok"

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        if verb == "send":
            self._run("send", queue, compact_json(payload), "--batch", name)
        else:
            said = [] if payload is None else [compact_json(payload)]
            self._run("batch", verb.replace("_", "-"), queue, name, *said)

    def redrive(self, queue: str) -> int:
        count: int = self._run("redrive", queue)["redriven"]
        return count

    def sweep(self) -> None:
        self._run("sweep")

    def close(self) -> None:
        """Every command opened and closed the store by itself."""


def refusing(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except PenstockError as error:
        raise Refusal(type(error).__name__) from error


def outcome(call: Callable[[], object]) -> str:
    """Of a settlement."""
    try:
        refusing(call)
    except Refusal as refusal:
        return str(refusal)
    return "ok"


def python_got(one: Any) -> Got:
    return Got(one.json(), one.attempt, one, {name: getattr(one, name) for name in FIELDS})


def python_settlement(one: Settling) -> Ack | Nak | Reject | Reschedule:
    kinds: dict[str, Any] = {"ack": Ack, "nak": Nak, "reject": Reject, "reschedule": Reschedule}
    made: Ack | Nak | Reject | Reschedule = kinds[one.verb](one.got.handle, **one.options)
    return made


def settled_name(result: Any) -> str:
    return str(result.state) if result.error is None else type(result.error).__name__


def python_trail(entries: Sequence[Any]) -> list[Any]:
    return [
        (one.at, str(one.event), str(one.state), one.by, one.group, one.reason, one.attempt or None) for one in entries
    ]


def counts(stats: Any) -> dict[str, Any]:
    return {name: getattr(stats, name) for name in COUNTS}


def compact_json(payload: Any) -> str:
    """Formatted as Python's interface formats JSON: the other interfaces keep the bytes."""
    return json.dumps(payload, separators=(",", ":"))


def _flags(options: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in options.items():
        if name == "headers":
            flags += [word for header, text in value.items() for word in ("--header", f"{header}={text}")]
        else:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return flags
