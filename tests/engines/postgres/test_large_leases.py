"""Leases that lapse in great numbers or with large messages: reclaiming is bounded for a receive, goes on in sweeps,
and holds no more than one message at a time."""

from __future__ import annotations

import re
import time
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock import Store

FUNCTIONS = Path(penstock.__file__).parent / "engines" / "postgres" / "functions"


def test_a_receive_reclaims_a_part_and_the_rest_is_not_forgotten(store: Store, watcher: psycopg.Connection) -> None:
    queue = store.queue("orders", backoff_base_seconds=0, backoff_jitter_seconds=0)
    ids = queue.send_many([b"x"] * 2_500)
    queue.receive(limit=2_500, lease_seconds=0.001)
    await_end_of_leases(watcher)
    received = [delivery for _ in range(5) for delivery in queue.receive(limit=500)]
    assert [delivery.id for delivery in received] == ids
    assert {delivery.attempt for delivery in received} == {2}
    assert queue.receive() == []


def test_what_is_reclaimed_is_bounded_by_its_size(store: Store, watcher: psycopg.Connection) -> None:
    queue = store.queue("orders")
    queue.send_many([bytes(8 * 1024 * 1024)] * 7)
    queue.receive(limit=7, lease_seconds=0.001)
    await_end_of_leases(watcher)
    assert [delivery.attempt for delivery in queue.receive()] == [2]
    assert copies(watcher) == 2
    assert [delivery.attempt for delivery in queue.receive(limit=4)] == [2] * 4
    assert copies(watcher) == 6
    assert queue.engine.sweep().reclaimed == 1


def test_many_lapsed_leases_do_not_keep_a_receive_waiting(store: Store, watcher: psycopg.Connection) -> None:
    """Each lease costs the same: when each was copied once for every other one, 500 of 20 kB took half a minute."""
    store.queue("orders").send_many([bytes(20_000)] * 500)
    take = "penstock.receive_messages('orders', null, 'gone', 1, 60)"
    watcher.execute(f"do $$ begin for one in 1..500 loop perform from {take}; end loop; end $$")
    watcher.execute("select set_config('penstock.now', (penstock.now_us() + 120000000)::text, false)")
    begun = time.monotonic()
    assert watcher.execute(f"select attempt from {take}").fetchone() == (2,)
    assert time.monotonic() - begun < 15
    assert copies(watcher) == 500


@pytest.mark.parametrize("path", sorted(FUNCTIONS.rglob("*.sql")), ids=lambda path: f"{path.parent.stem}/{path.stem}")
def test_no_function_gathers_messages_in_an_array(path: Path) -> None:
    """An array has at most 1 GB, and a message alone may have 512 MB: neither a variable that is an array of rows with
    a payload, nor an array of whole rows or of payloads made by a statement."""
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"penstock\.(?:message_row|log|tracked|held|dead_letter|delivery_row)\[\]", text) == []
    assert re.findall(r"array\(\s*select (\w+)\s+from\b[^;]*?\bas \1\s*\)", text) == []
    assert re.findall(r"array_agg\([^)]*payload|array\(\s*select [^;]*?\bpayload\b", text) == []


def await_end_of_leases(watcher: psycopg.Connection) -> None:
    live = "select 1 from penstock.lease where ends_at > penstock.now_us()"
    while watcher.execute(live).fetchone() is not None:
        time.sleep(0.001)


def copies(watcher: psycopg.Connection) -> int:
    """How many messages are looked after one by one, each with a copy of its payload."""
    row = watcher.execute("select count(*) from penstock.tracked").fetchone()
    assert row is not None
    return int(row[0])
