"""Flaws of earlier versions, reproduced in a file."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from penstock import Queue, Store
from penstock.engines.contract import Table
from tests.conformance.assertions import take, take_all

pytest.importorskip("pyarrow", reason="windows are read as Arrow: needs pyarrow")


def run(url: str, *statements: str) -> None:
    own = apsw.Connection(str(Path(url.removeprefix("sqlite:///"))))
    own.set_busy_timeout(5_000)
    for statement in statements:
        own.execute(statement).fetchall()
    own.close()


def troubles(store: Store) -> list[str]:
    return [check.name for check in store.doctor() if check.level != "ok"]


def rows(queue: Queue, table: Table) -> list[tuple[str, str]]:
    engine = queue.engine
    window = engine.window("orders", 0, engine.horizon("orders", table), 2, table)
    found = [row for part in window for batch in engine.read(part) for row in batch.to_pylist()]
    return [(row["id"], row["event"]) for row in found]


def test_a_trail_that_a_removal_made_begin_late_is_whole_again(queue: Queue, store: Store, url: str) -> None:
    ids = queue.send_many(list(range(5)))
    queue.ack_many(take_all(queue))
    queue.remove([ids[2]])
    left = rows(queue, "audit")
    # The removal wrote down no position, and moved the beginning to the last entry that it had touched.
    run(
        url,
        "delete from penstock_removed",
        "delete from penstock_audit where last_position = 0",
        "insert into penstock_trimmed select 1, 'audit', max(entry_id), 0 from penstock_audit",
    )
    assert troubles(store) == ["trail"]
    with pytest.raises(Exception, match="past retention"):
        rows(queue, "audit")
    assert [one.done for one in store.repair(dry_run=True)] == [False]
    assert troubles(store) == ["trail"]
    assert [one.done for one in store.repair()] == [True]
    assert rows(queue, "audit") == left
    assert troubles(store) == []
    assert store.repair() == []


@pytest.mark.parametrize("reader", ["group", "lake"])
def test_numbers_that_were_read_are_not_given_out_again(queue: Queue, store: Store, url: str, reader: str) -> None:
    queue.send_many([1, 2])
    take(queue).ack()
    engine = queue.engine
    engine.advance("orders", "follower", engine.horizon("orders", "audit"), "audit")
    if reader == "lake":
        engine.record("lake", {"f00d/mark/orders": '{"audit":2,"messages":2}'})
        run(url, "update penstock_group set stream_position = 0 where stream_position is not null")
    # Removing the first message deleted its entries, which were the last ones.
    run(url, "delete from penstock_audit", "update penstock_store set value = 0 where name = 'last_entry'")
    assert "numbers" in troubles(store)
    [done] = store.repair()
    assert (done.name, done.done) == ("numbers", True)
    assert "numbers" not in troubles(store)
    take(queue).ack()
    window = engine.window("orders", 2, engine.horizon("orders", "audit"), 1, "audit")
    assert sum(part.count for part in window) == 2
