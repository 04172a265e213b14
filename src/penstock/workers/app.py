"""Apps: handlers and schedules, registered once and run by any number of workers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Unpack

import msgspec

from penstock.client.store import Store
from penstock.domain.errors import InvalidInput
from penstock.domain.policy import Policy, PolicyFields, check_changes
from penstock.domain.recurrence import ScheduleOptions, check_cron
from penstock.domain.validation import check_integer, check_name, check_seconds, nearest, shown
from penstock.workers.signature import HandlerSignature, named, read_signature

Function = TypeVar("Function", bound=Callable[..., Any])
Run = Literal["thread", "process"]
MAX_CONCURRENCY = 10_000
MAX_BATCH = 100_000
# Default limit, so that a handler that hangs does not hold its message forever.
MAX_SECONDS = 3600.0


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """The function for one queue and group, and how to run it. Made by `app.handler(...)`."""

    queue: str
    function: Callable[..., Any]
    signature: HandlerSignature
    group: str | None = None
    concurrency: int | None = None
    run: Run = "thread"
    batch_size: int | None = None
    batch_seconds: float = 0
    max_seconds: float | None = MAX_SECONDS
    prefetch: int | None = None
    policy: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        return named(self.function)


class HandlerOptions(PolicyFields, total=False):
    """How a function is run, and the policy of its queue: see `App.handler`."""

    group: str | None
    concurrency: int
    run: Run
    batch_size: int
    batch_seconds: float
    max_seconds: float | None
    prefetch: int


class App:
    """What a worker runs: `app = penstock.App()`, then `@app.handler("orders")` on a function, which stays callable."""

    def __init__(self) -> None:
        self.handlers: dict[tuple[str, str | None], Handler] = {}
        self.schedules: dict[str, dict[str, Any]] = {}

    def handler(self, queue: str, **options: Unpack[HandlerOptions]) -> Callable[[Function], Function]:
        """Run the function for every message of the queue.

        Returning acks, raising naks with the error as reason; `raise Reject/Reschedule/Retry(...)` do what they say.
        `group`: whose messages (the primary group's); `concurrency`: how many at the same time (the worker's);
        `run`: "thread" or "process" (an `async def` runs on an event loop); `batch_size`, `batch_seconds`: call it with
        lists of up to so many, gathered for so long; `max_seconds`: give up after that (3600; None for never);
        `prefetch`: how many messages per running handler may wait here (as many as it is fast).
        All other options are the queue's policy, which a worker sets when it starts.
        """

        def register(function: Function) -> Function:
            self.add(queue, function, **options)
            return function

        return register

    def add(self, queue: str, function: Callable[..., Any], **options: Unpack[HandlerOptions]) -> Handler:
        """As `handler`, for a function that is not defined here."""
        handler = make_handler(queue, function, options)
        key = (handler.queue, handler.group)
        if key in self.handlers:
            group = "" if handler.group is None else f" in group {shown(handler.group)}"
            raise InvalidInput(f"queue {shown(queue)}{group} has the handler {self.handlers[key].name} already")
        self.handlers[key] = handler
        return handler

    def schedule(self, name: str, cron: str, queue: str, payload: Any, **options: Unpack[ScheduleOptions]) -> None:
        """A schedule that every worker of this app declares when it starts; the options are those of
        `store.schedule`."""
        _check_schedule(name, cron, queue, options)
        self.schedules[name] = {"cron": cron, "queue": queue, "payload": payload, **options}

    def __repr__(self) -> str:
        return f"<App with {len(self.handlers)} handlers>"


def _check_schedule(name: str, cron: str, queue: str, options: Mapping[str, Any]) -> None:
    """Report mistakes where the schedule is declared, not when a worker starts."""
    check_name("schedule", name)
    check_name("queue", queue)
    check_cron(cron, options.get("timezone", "UTC"))
    known = list(inspect.signature(Store.schedule).parameters)[1:]
    for option in options:
        if option not in known:
            raise InvalidInput(f"unknown option {shown(option)} of schedule {shown(name)}{nearest(option, known)}")


def as_app(handlers: App | Mapping[str, Callable[..., Any]]) -> App:
    if isinstance(handlers, App):
        app = handlers
    elif isinstance(handlers, Mapping):
        app = App()
        for queue, function in handlers.items():
            app.add(queue, function)
    else:
        raise InvalidInput(f"a worker takes an App, or a mapping from queue to function, not {shown(handlers)}")
    if not app.handlers:
        raise InvalidInput('there is no handler: write @app.handler("queue") over a function')
    return app


def make_handler(queue: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Handler:
    check_name("queue", queue)
    own = {name: _CHECKS[name](name, value) for name, value in options.items() if name in _CHECKS}
    rest = {name: value for name, value in options.items() if name not in _CHECKS}
    known = (*_CHECKS, *Policy.__struct_fields__)
    for name in rest:
        if name not in known:
            raise InvalidInput(
                f"unknown option {shown(name)} of the handler for queue {shown(queue)}{nearest(name, known)}"
            )
    where = f"the handler of queue {shown(queue)}"
    if callable(function):
        where = f"handler {named(function)} of queue {shown(queue)}"
    signature = read_signature(function, where, own.get("batch_size") is not None)
    if own.get("run") == "process":
        _check_process(function, signature, where)
    if own.get("batch_seconds") and own.get("batch_size") is None:
        raise InvalidInput(f"{where}: batch_seconds is for batches; give batch_size as well")
    return Handler(queue=queue, function=function, signature=signature, policy=check_changes(rest), **own)


def _check_process(function: Callable[..., Any], signature: HandlerSignature, where: str) -> None:
    if signature.is_async:
        raise InvalidInput(f"{where} is `async def`, which runs on an event loop: leave out run='process'")
    if "<locals>" in named(function) or "<lambda>" in named(function):
        raise InvalidInput(f"{where} cannot run in another process, which could not import it: define it in a module")


def _check_run(name: str, value: object) -> object:
    if value not in ("thread", "process"):
        raise InvalidInput(f"{name} must be 'thread' or 'process', not {shown(value)}")
    return value


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "group": lambda name, value: None if value is None else check_name(name, value),
    "concurrency": lambda name, value: check_integer(name, value, 1, MAX_CONCURRENCY),
    "run": _check_run,
    "batch_size": lambda name, value: check_integer(name, value, 1, MAX_BATCH),
    "batch_seconds": lambda name, value: check_seconds(name, value),
    "max_seconds": lambda name, value: None if value is None else check_seconds(name, value, above=True),
    "prefetch": lambda name, value: check_integer(name, value, 0, MAX_BATCH),
}
