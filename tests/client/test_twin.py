"""The asynchronous client has the methods of the synchronous one, awaited."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from penstock import AsyncStore, Batch, Consumer, Delivery, Producer, Queue, Store, connect, connect_async
from penstock.client.aio.batch import AsyncBatch
from penstock.client.aio.consumer import AsyncConsumer
from penstock.client.aio.delivery import AsyncDelivery
from penstock.client.aio.producer import AsyncProducer
from penstock.client.aio.queue import AsyncQueue
from scripts import twin

PAIRS: dict[type, type] = {
    Batch: AsyncBatch,
    Consumer: AsyncConsumer,
    Delivery: AsyncDelivery,
    Producer: AsyncProducer,
    Queue: AsyncQueue,
    Store: AsyncStore,
}
pairs = pytest.mark.parametrize(("plain", "awaited"), PAIRS.items(), ids=[plain.__name__ for plain in PAIRS])

# Methods that do not call the engine.
NOT_AWAITED = {
    "Store.producer",
    "Queue.batch",
    "Queue.producer",
    "Queue.engine",
    "Consumer.name",
    "Consumer.index",
    "Delivery.json",
}


def test_twins_are_current() -> None:
    stale = twin.differences()
    assert not stale, "\n".join(["run scripts/twin.py", *(difference for _, difference in stale.values())])


def test_a_stale_twin_fails_the_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["twin.py", "--check"])
    monkeypatch.setattr(twin, "RULES", (*twin.RULES, ("under a lease. Waits", "under a lease. Sleeps")))
    assert twin.main() == 1
    assert "+        " in capsys.readouterr().out


def test_a_rule_that_matches_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin, "RULES", (*twin.RULES, ("no such words", "")))
    with pytest.raises(SystemExit, match="no such words"):
        twin.twins()


@pairs
def test_both_have_the_same_names(plain: type, awaited: type) -> None:
    assert _public(plain) == _public(awaited)


@pairs
def test_both_take_the_same_parameters(plain: type, awaited: type) -> None:
    for name in _public(plain):
        ours, theirs = getattr(plain, name), getattr(awaited, name)
        if callable(ours):
            assert _parameters(ours) == _parameters(theirs), f"{awaited.__name__}.{name}"
        else:
            assert isinstance(ours, property) is isinstance(theirs, property), name


@pairs
def test_methods_that_call_the_engine_are_awaited(plain: type, awaited: type) -> None:
    for name in set(vars(awaited)) & _public(awaited):
        member = vars(awaited)[name]
        function = member.fget if isinstance(member, property) else member
        is_awaited = f"{plain.__name__}.{name}" not in NOT_AWAITED
        if inspect.isfunction(function):
            assert inspect.iscoroutinefunction(function) is is_awaited, f"{awaited.__name__}.{name}"


def test_connecting_takes_the_same_parameters() -> None:
    assert _parameters(connect) == _parameters(connect_async)


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults; annotations differ by the names of the classes."""
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]
