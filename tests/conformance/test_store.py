"""A store as a whole: closing, opening again, several queues."""

from __future__ import annotations

import pytest

from penstock import InvalidInput, Store
from tests.conformance.assertions import payloads, take, take_all
from tests.conformance.clients import Opener


def test_everything_is_there_again_when_a_store_is_opened_again(open_store: Opener) -> None:
    first = open_store()
    queue = first.queue("orders", lease_seconds=29)
    sent = queue.send_many([1, 2, 3])
    take(queue).ack()
    first.schedule("report", "15 * * * *", "orders", 1)
    queue.register("zoe")
    audit = queue.audit(sent[0])
    first.close()
    again = open_store()
    queue = again.queue("orders")
    assert queue.policy().lease_seconds == 29
    assert queue.audit(sent[0]) == audit
    assert payloads(take_all(queue)) == [2, 3]
    assert [schedule.name for schedule in again.schedules()] == ["report"]
    assert [consumer.name for consumer in again.consumers()] == ["zoe"]


def test_an_unknown_setting_is_told_with_the_nearest(open_store: Opener) -> None:
    with pytest.raises(InvalidInput, match=r"unknown setting 'busy_second'.*did you mean 'busy_seconds'"):
        open_store(busy_second=3)


def test_closing_one_opening_leaves_the_others_open(store: Store, open_store: Opener) -> None:
    other = open_store()
    other.queue("orders").send(1)
    other.close()
    assert payloads(take_all(store.queue("orders"))) == [1]


def test_closing_twice_is_closing_once(open_store: Opener) -> None:
    store = open_store()
    store.close()
    store.close()


def test_a_store_may_be_used_in_a_with_block(open_store: Opener) -> None:
    with open_store() as store:
        store.queue("orders").send(1)


def test_an_up_to_date_store_has_nothing_to_migrate(store: Store) -> None:
    assert store.migrate() == []


def test_queues_are_listed_by_name(store: Store) -> None:
    for name in ("c", "a", "ä", "b"):
        store.queue(name).send(1)
    assert [info.name for info in store.queues()] == ["a", "b", "c", "ä"]
