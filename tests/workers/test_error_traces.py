"""The stack trace of a handler's last error: kept by workers on threads, on an event loop and in processes."""

from __future__ import annotations

import penstock
from tests.workers import process_handlers


def find_customer(number: int) -> None:
    raise LookupError(f"no customer {number}")


def handle(payload: dict[str, int]) -> None:
    try:
        find_customer(payload["customer"])
    except LookupError as error:
        raise RuntimeError("cannot bill") from error


async def handle_soon(payload: dict[str, int]) -> None:
    find_customer(payload["customer"])


def run_once(store: penstock.Store, handlers: object) -> None:
    penstock.Worker(store, handlers).run(once=True)  # type: ignore[arg-type]  # whatever a worker takes


def test_a_dead_letter_has_the_stack_trace_of_its_last_error(store: penstock.Store) -> None:
    queue = store.queue("bills", max_retries=0)
    message_id = queue.send({"customer": 17})
    run_once(store, {"bills": handle})
    trace = queue.explain(message_id).trace
    assert trace is not None
    lines = trace.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "RuntimeError: cannot bill"
    assert "LookupError: no customer 17" in trace
    assert "in find_customer" in trace
    assert "penstock/workers" not in trace, "frames of the worker say nothing about the handler"
    (letter,) = queue.dead_letters()
    assert letter.reason == "RuntimeError: cannot bill"


def test_a_retry_of_an_async_handler_has_the_stack_trace(store: penstock.Store) -> None:
    queue = store.queue("bills", backoff_base_seconds=3600)
    message_id = queue.send({"customer": 17})
    run_once(store, {"bills": handle_soon})
    explanation = queue.explain(message_id)
    assert str(explanation.state) == "held"
    assert explanation.trace is not None
    assert explanation.trace.splitlines()[-1] == "LookupError: no customer 17"


def test_a_process_handler_passes_its_stack_trace_to_the_worker(store: penstock.Store) -> None:
    app = penstock.App()
    app.add("work", process_handlers.handle, run="process", concurrency=1)
    queue = store.queue("work", max_retries=0)
    message_id = queue.send({"do": "raise"})
    run_once(store, app)
    trace = queue.explain(message_id).trace
    assert trace is not None
    assert "in the child" in trace


def test_reject_reschedule_and_retry_leave_no_stack_trace(store: penstock.Store) -> None:
    queue = store.queue("bills")

    def refuse(payload: object) -> None:
        raise penstock.Reject("no such customer")

    message_id = queue.send(1)
    run_once(store, {"bills": refuse})
    assert queue.explain(message_id).trace is None


def test_a_long_trace_keeps_its_end(store: penstock.Store) -> None:
    def recurse(depth: int) -> None:
        if depth:
            # Each level has its own message, because Python folds identical frames.
            try:
                recurse(depth - 1)
            except ValueError as error:
                raise ValueError(f"level {depth}: {'x' * 500}") from error
        else:
            raise ValueError("innermost")

    queue = store.queue("bills", max_retries=0)
    message_id = queue.send(1)
    run_once(store, {"bills": lambda payload: recurse(40)})
    trace = queue.explain(message_id).trace
    assert trace is not None
    assert len(trace) <= 8_010
    assert trace.startswith("…\n")
    assert "level 40" in trace.splitlines()[-1]


def test_a_stack_trace_with_lone_surrogates_is_stored_escaped(store: penstock.Store) -> None:
    def handle(payload: object) -> None:
        raise ValueError("no text: \udc80")

    queue = store.queue("bills", max_retries=0)
    message_id = queue.send(1)
    run_once(store, {"bills": handle})
    trace = queue.explain(message_id).trace
    assert trace is not None
    assert "\\udc80" in trace
