"""Arguments of handlers, and the settlement that follows from their result: on threads, on an event loop, in
processes."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import AsyncDelivery, Delivery, InvalidInput
from tests.workers import process_handlers
from tests.workers.conftest import await_until, events


@dataclasses.dataclass
class Order:
    number: int
    customer: str = "nobody"


def run_once(store: penstock.Store, handlers: Any, **options: Any) -> penstock.Worker:
    worker = penstock.Worker(store, handlers, **options)
    worker.run(once=True)
    return worker


def fate(queue: penstock.Queue, message_id: str) -> tuple[str, str, str | None]:
    last = queue.audit(message_id)[-1]
    return str(last.event), str(last.state), last.reason


# -- what it does --------------------------------------------------------------------------------------------------


def fail() -> None:
    raise ValueError("no such customer")


def reject() -> None:
    raise penstock.Reject("never again")


def reject_from_error() -> None:
    try:
        fail()
    except ValueError as error:
        raise penstock.Reject from error


def reschedule() -> None:
    raise penstock.Reschedule(60, "not today")


def retry() -> None:
    raise penstock.Retry(90, "busy")


def retry_at_once() -> None:
    raise penstock.Retry(0)


def leave() -> None:
    raise SystemExit(3)


DEEDS: list[tuple[Callable[[], None], tuple[str, str, str | None]]] = [
    (lambda: None, ("ack", "succeeded", None)),
    (fail, ("nak", "held", "ValueError: no such customer")),
    (reject, ("reject", "rejected", "never again")),
    (reject_from_error, ("reject", "rejected", "ValueError: no such customer")),
    (reschedule, ("reschedule", "held", "not today")),
    (retry, ("nak", "held", "busy")),
    (leave, ("nak", "held", "SystemExit: 3")),
]


@pytest.mark.parametrize(("deed", "expected"), DEEDS, ids=[deed.__name__ for deed, _ in DEEDS])
@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_the_result_of_a_handler_settles_its_message(
    store: penstock.Store, kind: str, deed: Callable[[], None], expected: tuple[str, str, str | None]
) -> None:
    orders = store.queue("orders")
    order = orders.send({"number": 7})

    def handle(delivery: Delivery) -> None:
        deed()

    async def handle_async(delivery: AsyncDelivery) -> None:
        deed()

    run_once(store, {"orders": handle if kind == "thread" else handle_async})
    assert fate(orders, order) == expected


def test_a_retry_at_once_is_run_again_until_it_fails(store: penstock.Store) -> None:
    orders = store.queue("orders", max_retries=2)
    order = orders.send(b"x")
    run_once(store, {"orders": lambda delivery: retry_at_once()})
    assert orders.dead_letters()[0].attempts == 3
    assert events(orders, order) == ["send", "receive", "nak", "receive", "nak", "receive", "nak"]


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_handler_may_settle_its_own_delivery(store: penstock.Store, kind: str) -> None:
    orders = store.queue("orders")
    ids = orders.send_many([{"verb": verb} for verb in ("ack", "nak", "reject", "reschedule")])

    def handle(delivery: Delivery) -> None:
        getattr(delivery, delivery.json()["verb"])(reason="by hand")

    async def handle_async(delivery: AsyncDelivery) -> None:
        await getattr(delivery, delivery.json()["verb"])(reason="by hand")

    worker = run_once(store, {"orders": handle if kind == "thread" else handle_async})
    assert [fate(orders, one)[::2] for one in ids] == [
        (verb, "by hand") for verb in ("ack", "nak", "reject", "reschedule")
    ]
    assert worker.status()[0].done == {"ack": 1, "nak": 1, "reject": 1, "reschedule": 1}


def test_a_returned_coroutine_is_a_nak(store: penstock.Store) -> None:
    async def handle_async(delivery: AsyncDelivery) -> None:
        """Never awaited."""

    orders = store.queue("orders")
    order = orders.send(b"x")
    run_once(store, {"orders": lambda delivery: handle_async(delivery)})
    assert "async def" in (fate(orders, order)[2] or "")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (concurrent.futures.Future, "Future that nobody waits for"),
        (lambda: (number for number in range(3)), "generator that nobody runs"),
    ],
    ids=["future", "generator"],
)
def test_a_returned_future_or_generator_is_a_nak(store: penstock.Store, make: Callable[[], Any], told: str) -> None:
    orders = store.queue("orders")
    order = orders.send(b"x")
    run_once(store, {"orders": lambda delivery: make()})
    assert fate(orders, order)[0] == "nak"
    assert told in (fate(orders, order)[2] or "")


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_an_error_after_the_handlers_own_settlement_is_only_logged(
    store: penstock.Store, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    orders = store.queue("orders")
    order = orders.send(b"x")

    def handle(delivery: Delivery) -> None:
        delivery.ack()
        raise ValueError("the second half failed")

    async def handle_async(delivery: AsyncDelivery) -> None:
        await delivery.ack()
        raise ValueError("the second half failed")

    with caplog.at_level(logging.WARNING, "penstock.worker"):
        run_once(store, {"orders": handle if kind == "thread" else handle_async})
    assert events(orders, order) == ["send", "receive", "ack"]
    (record,) = [record for record in caplog.records if "the second half failed" in record.getMessage()]
    assert getattr(record, "message_id", None) == order
    assert record.exc_info is not None


# -- what it gets --------------------------------------------------------------------------------------------------


def test_the_first_parameter_decides_what_a_handler_gets(store: penstock.Store) -> None:
    got: dict[str, Any] = {}
    app = penstock.App()

    @app.handler("delivery")
    def take_delivery(message):  # type: ignore[no-untyped-def]  # without an annotation on purpose
        got["delivery"] = message.json()

    @app.handler("named")
    def take_named(payload):  # type: ignore[no-untyped-def]  # without an annotation on purpose
        got["named"] = payload

    @app.handler("typed")
    def take_order(order: Order) -> None:
        got["typed"] = order

    @app.handler("raw")
    def take_raw(body: bytes) -> None:
        got["raw"] = body

    @app.handler("both")
    async def take_both(order: Order, delivery: AsyncDelivery) -> None:
        got["both"] = order, delivery.attempt

    for queue in ("delivery", "named", "typed", "raw", "both"):
        store.queue(queue).send({"number": 7})
    run_once(store, app)
    assert got == {
        "delivery": {"number": 7},
        "named": {"number": 7},
        "typed": Order(7),
        "raw": b'{"number":7}',
        "both": (Order(7), 1),
    }
    assert take_order(Order(1)) is None, "the function stays callable"


def test_a_payload_that_does_not_fit_is_rejected_and_says_why(store: penstock.Store) -> None:
    orders = store.queue("orders")
    wrong, right = orders.send_many([{"number": "seven"}, {"number": 8}])

    def handle(order: Order) -> None: ...

    run_once(store, {"orders": handle})
    assert fate(orders, right)[0] == "ack"
    event, _, reason = fate(orders, wrong)
    assert (event, "does not fit Order" in (reason or "")) == ("reject", True)


WRONG: list[tuple[Any, str]] = [
    ("not a function", "must be a function"),
    (lambda: None, "takes nothing"),
    (lambda one, two, three: None, "takes one, two, three"),
    (lambda one, two: None, "takes two arguments"),
    (lambda one, *, key: None, "needs key"),
    (lambda one: (yield one), "is a generator"),
]


@pytest.mark.parametrize(("function", "told"), WRONG, ids=[told for _, told in WRONG])
def test_a_wrong_signature_is_refused_and_names_the_queue(store: penstock.Store, function: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as caught:
        penstock.Worker(store, {"orders": function})
    assert "'orders'" in str(caught.value)


def test_wrong_options_are_refused_and_the_nearest_is_named() -> None:
    app = penstock.App()
    for options, told in (
        ({"concurency": 4}, "did you mean 'concurrency'"),
        ({"lease_second": 4}, "did you mean 'lease_seconds'"),
        ({"lease_seconds": -4}, "lease_seconds"),
        ({"concurrency": 0}, "concurrency"),
        ({"run": "fiber"}, "'thread' or 'process'"),
        ({"run": "process"}, "cannot run in another process"),
        ({"batch_seconds": 4}, "batch_size"),
        ({"max_seconds": 0}, "max_seconds"),
    ):
        with pytest.raises(InvalidInput, match=told):
            app.handler("orders", **options)(lambda delivery: None)
    app.add("orders", lambda delivery: None)
    with pytest.raises(InvalidInput, match="already"):
        app.add("orders", lambda delivery: None)


def test_the_options_of_a_handler_set_the_policy_of_its_queue(store: penstock.Store) -> None:
    app = penstock.App()
    app.add("orders", lambda delivery: None, lease_seconds=41, max_retries=2)
    run_once(store, app)
    assert (store.queue("orders").policy().lease_seconds, store.queue("orders").policy().max_retries) == (41, 2)


# -- batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_batch_is_handled_in_one_call_with_an_outcome_for_each(store: penstock.Store, kind: str) -> None:
    orders = store.queue("orders")
    ids = orders.send_many([{"number": number} for number in range(5)])
    sizes: list[int] = []

    def judge(several: list[Any]) -> list[Any]:
        sizes.append(len(several))
        one, two, _, four, five = several
        # The third has no settlement: it is not assumed to have succeeded.
        return [
            penstock.Ack(one),
            penstock.Nak(two, "again", 60),
            penstock.Reject(four, "never"),
            penstock.Reschedule(five, 9),
        ]

    def handle(several: list[Delivery]) -> list[Any]:
        return judge(several)

    async def handle_async(several: list[AsyncDelivery]) -> list[Any]:
        return judge(several)

    app = penstock.App()
    app.add("orders", handle if kind == "thread" else handle_async, batch_size=5, prefetch=10)
    run_once(store, app, concurrency=1)
    assert sizes == [5]
    assert [fate(orders, one)[0] for one in ids] == ["ack", "nak", "nak", "reject", "reschedule"]
    assert "no outcome" in (fate(orders, ids[2])[2] or "")


def test_a_batch_handler_returns_results_in_order_and_an_invalid_payload_is_settled_alone(
    store: penstock.Store,
) -> None:
    orders = store.queue("orders")
    ids = orders.send_many([{"number": 1}, {"number": "x"}, {"number": 3}, {"number": 4}])

    def handle(several: list[Order]) -> list[BaseException | None]:
        return [None if order.number != 3 else penstock.Reject("three") for order in several]

    app = penstock.App()
    app.add("orders", handle, batch_size=10)
    run_once(store, app)
    assert [fate(orders, one)[0] for one in ids] == ["ack", "reject", "reject", "ack"]
    assert fate(orders, ids[2])[2] == "three"


@pytest.mark.parametrize("result", [[None], "ok", 5, []])
def test_a_batch_result_of_the_wrong_length_naks_all_messages(store: penstock.Store, result: Any) -> None:
    orders = store.queue("orders")
    ids = orders.send_many([b"1", b"2"])
    app = penstock.App()
    app.add("orders", lambda several: result, batch_size=2)
    run_once(store, app)
    assert [fate(orders, one)[0] for one in ids] == ["nak", "nak"]
    assert "batch of 2" in (fate(orders, ids[0])[2] or "")


def test_a_batch_waits_at_most_batch_seconds(store: penstock.Store, start: Any) -> None:
    orders = store.queue("orders")
    sizes: list[int] = []
    app = penstock.App()
    app.add("orders", lambda several: sizes.append(len(several)), batch_size=3, batch_seconds=0.5)
    start(app)
    orders.send(b"1")
    orders.send(b"2")
    await_until(lambda: sum(sizes) == 2)
    orders.send_many([b"3", b"4", b"5"])
    await_until(lambda: sum(sizes) == 5)
    assert sizes == [2, 3]


# -- processes -----------------------------------------------------------------------------------------------------


def test_a_handler_in_a_process_settles_like_any_other(store: penstock.Store) -> None:
    queue = store.queue("work", max_retries=3)
    ids = queue.send_many([{"do": what} for what in ("return", "raise", "reject", "retry", "ack", "extend", "pid")])
    app = penstock.App()
    app.add("work", process_handlers.handle, run="process", concurrency=1)
    run_once(store, app)
    fates = [fate(queue, one) for one in ids]
    assert [one[0] for one in fates] == ["ack", "nak", "reject", "nak", "ack", "ack", "reject"]
    assert [fates[1][2], fates[2][2], fates[3][2], fates[4][2]] == [
        "KeyError: 'in the child'",
        "no",
        "later",
        "by hand",
    ]
    assert fates[6][2] != str(threading.get_native_id()), "it ran in this process"


def test_a_settlement_by_a_process_handler_stands(store: penstock.Store) -> None:
    queue = store.queue("work", max_retries=3)
    ids = queue.send_many([{"do": "settle", "how": how} for how in ("ack", "nak", "reject", "reschedule")])
    app = penstock.App()
    app.add("work", process_handlers.handle, run="process", concurrency=1)
    worker = run_once(store, app)
    assert [fate(queue, one)[::2] for one in ids] == [
        (how, "by hand") for how in ("ack", "nak", "reject", "reschedule")
    ]
    assert worker.status()[0].done == {"ack": 1, "nak": 1, "reject": 1, "reschedule": 1}


def test_order_is_kept_when_a_handler_in_a_process_naks_by_itself(store: penstock.Store, tmp_path: Any) -> None:
    queue = store.queue("work", ordered=True)
    path = tmp_path / "order"
    queue.send_many([penstock.Outgoing(payload={"do": "order", "path": str(path)}, key="k") for _ in range(4)])
    app = penstock.App()
    app.add("work", process_handlers.handle, run="process", concurrency=1, prefetch=10)
    run_once(store, app)
    positions = path.read_text().split()
    assert positions == sorted(positions, key=int)
    assert len(positions) == 4


def test_a_dying_child_affects_only_its_own_message(store: penstock.Store) -> None:
    queue = store.queue("work")
    ids = queue.send_many([{"do": "die"}, {"do": "return"}])
    app = penstock.App()
    app.add("work", process_handlers.handle, run="process", concurrency=1)
    run_once(store, app)
    assert fate(queue, ids[0]) == ("nak", "held", "the handler's process died (SIGKILL)")
    assert fate(queue, ids[1])[0] == "ack"


def test_an_at_most_once_message_whose_child_died_is_a_dead_letter_that_says_so(store: penstock.Store) -> None:
    queue = store.queue("once", delivery="at_most_once")
    queue.send({"do": "die"})
    app = penstock.App()
    app.add("once", process_handlers.handle, run="process", concurrency=1)
    run_once(store, app)
    (letter,) = queue.dead_letters()
    assert (letter.attempts, letter.reason) == (1, "the handler's process died (SIGKILL)")


def test_a_batch_in_a_process(store: penstock.Store) -> None:
    queue = store.queue("work")
    ids = queue.send_many([{"number": number} for number in range(3)])
    app = penstock.App()
    app.add("work", process_handlers.handle_batch, run="process", batch_size=3)
    run_once(store, app)
    assert [fate(queue, one)[0] for one in ids] == ["ack", "reject", "ack"]


def test_many_messages_are_all_handled_once(store: penstock.Store) -> None:
    queue = store.queue("work")
    sent = queue.send_many([str(number).encode() for number in range(3_000)])
    seen: list[str] = []
    began = time.monotonic()
    worker = run_once(store, {"work": lambda delivery: seen.append(delivery.id)})
    assert sorted(seen) == sorted(sent), f"in {time.monotonic() - began:.1f} s"
    assert worker.status()[0].done == {"ack": 3_000}
    assert queue.stats("default").done == 3_000


@pytest.mark.parametrize(
    ("words", "options", "told"),
    [
        (("", "0 3 * * *", "orders"), {}, "schedule is empty"),
        (("nightly", "0 3 * *", "orders"), {}, "cron '0 3 \\* \\*'"),
        (("nightly", "0 3 * * *", "orders"), {"timezone": "Mars/Olympus"}, "Mars/Olympus"),
        (("nightly", "0 3 * * *", "orders"), {"catchup": "one"}, "did you mean 'catch_up'"),
    ],
)
def test_an_invalid_schedule_is_refused_where_it_is_declared(
    words: tuple[str, str, str], options: dict[str, Any], told: str
) -> None:
    app = penstock.App()
    with pytest.raises(InvalidInput, match=told):
        app.schedule(*words, {"report": "sales"}, **options)
    assert app.schedules == {}


def test_an_error_with_bytes_that_are_not_utf8_is_stored_as_the_reason(store: penstock.Store) -> None:
    """File names that are not UTF-8 reach Python as lone surrogates. Only in a process: the log of a thread would have
    the surrogate, which pytest-xdist cannot encode."""
    queue = store.queue("work", max_retries=0)
    queue.send({"do": "surrogate"})
    app = penstock.App()
    app.add("work", process_handlers.handle, run="process")
    penstock.Worker(store, app).run(once=True)
    assert [letter.reason for letter in queue.dead_letters()] == ["ValueError: no such file: \\udc80"]
