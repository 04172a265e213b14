"""Names are data: any UTF-8 of 1 to 255 bytes without control characters, everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import InvalidName, Store
from tests.conformance.assertions import payloads, take, take_all

GOOD = {
    "one letter": "x",
    "space": " ",
    "spaces around": "  orders  ",
    "quotes": "o'rd\"ers`",
    "sql": "x'); drop table penstock_queue; --",
    "wildcards": "%_*?[a-z]",
    "format": "{0} %s $1 :name ?1 @name",
    "path": "../../etc/passwd",
    "slashes": "a/b\\c",
    "html": "<script>alert(1)</script>",
    "umlauts": "Bücher für Käthe",
    "chinese": "订单队列",
    "emoji": "📦🚚",
    "right to left": "שלום",
    "zero width": "a\u200db",
    "255 bytes": "x" * 255,
    "255 bytes of umlauts": "ü" * 127 + "x",
    "number": "007",
    "null": "NULL",
}
BAD: dict[str, Any] = {
    "empty": "",
    "256 bytes": "x" * 256,
    "256 bytes of umlauts": "ü" * 128,
    "nul": "a\x00b",
    "newline": "a\nb",
    "tab": "a\tb",
    "escape": "\x1b[31mred",
    "delete": "a\x7fb",
    "next line": "a\x85b",
    "lone surrogate": "a\ud800b",
    "bytes": b"orders",
    "number": 7,
    "none": None,
    "list": ["orders"],
}


@pytest.mark.parametrize("name", GOOD.values(), ids=list(GOOD))
def test_a_good_name_is_good_for_everything_that_has_a_name(store: Store, name: str) -> None:
    queue = store.queue(name, lease_seconds=29)
    queue.send(1, address=name, key=name, created_by=name)
    queue.batch(name).send(2)
    queue.batch(name).start()
    queue.register(name, group=name)
    first, second = take_all(queue, group=name, consumer=name)
    assert (first.queue, first.group, first.consumer) == (name, name, name)
    assert (first.address, first.key, first.created_by, second.batch) == (name, name, name, name)
    first.ack()
    second.reject(name)
    assert [info.name for info in store.queues()] == [name]
    assert name in queue.groups()
    assert queue.stats(name).done == 1
    assert [(info.name, info.group) for info in queue.consumers()] == [(name, name)]
    assert [info.name for info in queue.batches()] == [name]
    assert [(dead.group, dead.reason) for dead in queue.dead_letters()] == [(name, name)]
    assert queue.audit(first.id)[-1].by == name


@pytest.mark.parametrize("name", GOOD.values(), ids=list(GOOD))
def test_a_good_name_is_good_for_a_schedule(store: Store, name: str) -> None:
    store.schedule(name, "15 * * * *", name, 1)
    assert [(schedule.name, schedule.queue) for schedule in store.schedules()] == [(name, name)]
    store.unschedule(name)


@pytest.mark.parametrize("name", BAD.values(), ids=list(BAD))
def test_a_bad_name_for_a_queue_is_refused(store: Store, name: Any) -> None:
    with pytest.raises(InvalidName, match="queue"):
        store.queue(name)
    assert store.queues() == []


@pytest.mark.parametrize(
    "pair",
    [("orders", "Orders"), ("orders", "orders "), ("caf\u00e9", "cafe\u0301"), ("straße", "strasse"), ("1", "01")],
    ids=str,
)
def test_names_that_only_look_alike_are_different_names(store: Store, pair: tuple[str, str]) -> None:
    first, second = (store.queue(name) for name in pair)
    first.send("first")
    assert second.receive() == []
    take(first, group=pair[0]).ack()
    assert take(first, group=pair[1]).attempt == 1


def test_an_error_shows_a_long_or_odd_name_briefly_and_escaped(store: Store) -> None:
    with pytest.raises(InvalidName) as caught:
        store.queue("\x1b[31m" + "x" * 5_000)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_payloads_and_reasons_are_data_too(store: Store) -> None:
    queue = store.queue("orders")
    nasty = "'; delete from penstock_log; --"
    queue.send(nasty, headers={nasty: nasty})
    delivery = take(queue)
    assert (delivery.json(), delivery.headers) == (nasty, {nasty: nasty})
    delivery.nak(nasty, delay_seconds=0)
    assert payloads(take_all(queue)) == [nasty]
