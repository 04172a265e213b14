"""Several processes make the same call at once, and exactly one takes effect."""

from __future__ import annotations

import json
import time
from typing import Any

import penstock
from penstock import State
from tests.faults.concurrent_call import CHOSEN_ID, MINUTE
from tests.faults.processes import END_SECONDS, Processes, await_ready

ROUNDS = 3


def race(processes: Processes, what: str, arguments: list[Any], ahead_minutes: int = 0) -> list[Any]:
    """Make one call per argument at once, each in a process of its own; return their results."""
    call = ("tests.faults.concurrent_call", what, processes.url, str(ahead_minutes))
    callers = [processes.run(*call, json.dumps(one)) for one in arguments]
    for caller in callers:
        await_ready(caller)
    for caller in callers:
        caller.stdin.write("go\n")
        caller.stdin.flush()
    said = []
    for caller in callers:
        output = caller.communicate(timeout=END_SECONDS)
        assert caller.returncode == 0, processes.said(caller)
        said.append(json.loads(output))
    return said


def test_one_id_sent_by_eight_processes_is_one_message(processes: Processes) -> None:
    assert race(processes, "same_id", [None] * 8) == [CHOSEN_ID] * 8
    with penstock.connect(processes.url) as store:
        assert store.queue("race").stats("default").total == 1
        assert [one.id for one in store.queue("race").receive(limit=10)] == [CHOSEN_ID]


def test_one_address_sent_by_eight_processes_has_one_winner(processes: Processes) -> None:
    said = race(processes, "same_address", [None] * 8)
    assert said.count("DuplicateAddress") == 7
    winner = next(one for one in said if one != "DuplicateAddress")
    with penstock.connect(processes.url) as store:
        assert [one.id for one in store.queue("race").receive(limit=10)] == [winner]


def test_each_message_goes_to_one_of_eight_receivers(processes: Processes) -> None:
    with penstock.connect(processes.url) as store:
        ids = store.queue("race").send_many([f"{number}".encode() for number in range(20)])
    got = [message_id for said in race(processes, "receive_one", [None] * 8) for message_id in said]
    assert sorted(got) == sorted(ids)


def test_a_batch_whose_last_members_are_acked_at_once_ends_once(processes: Processes) -> None:
    for number in range(ROUNDS):
        with penstock.connect(processes.url) as store:
            batch = store.queue("race").batch(f"b{number}")
            batch.set_end(f"end {number}".encode())
            batch.send_many([b"1", b"2"])
            batch.start()
            handles = [_handle(one) for one in store.queue("race").receive(limit=2)]
        assert len(handles) == 2
        assert race(processes, "last_acks", [[handles[0]], [handles[1]]]) == [[True], [True]]
        with penstock.connect(processes.url) as store:
            assert batch_end(store, f"end {number}") == 1
            assert store.queue("race").batch(f"b{number}").state == "finished"


def test_one_delivery_acked_by_four_processes_ends_its_batch_once(processes: Processes) -> None:
    with penstock.connect(processes.url) as store:
        batch = store.queue("race").batch("b")
        batch.set_end(b"end")
        batch.send(b"1")
        batch.start()
        handle = _handle(store.queue("race").receive()[0])
    # A repeated settlement with the same token is harmless, by any process.
    assert race(processes, "last_acks", [[handle]] * 4) == [[True]] * 4
    with penstock.connect(processes.url) as store:
        assert batch_end(store, "end") == 1
        assert store.queue("race").stats("default").outcomes[State.SUCCEEDED] == 2


def batch_end(store: penstock.Store, payload: str) -> int:
    """Receive all end messages; returns how many."""
    got = store.queue("race").receive(limit=100)
    store.queue("race").ack_many(got)
    return sum(one.payload == payload.encode() for one in got)


def _handle(delivery: penstock.Delivery) -> dict[str, Any]:
    return {"id": delivery.id, "token": delivery.token, "group": delivery.group, "position": delivery.position}


def test_four_processes_that_sweep_at_once_send_each_tick_once(processes: Processes) -> None:
    now = time.time_ns() // 1000
    with penstock.connect(processes.url, clock=lambda: now) as store:
        first = store.schedule("every minute", "* * * * *", "race", b"tick", catch_up="all").next_at
    assert first is not None
    fired = race(processes, "sweep", [None] * 4, ahead_minutes=5)
    fired += race(processes, "sweep", [None] * 4, ahead_minutes=9)
    with penstock.connect(processes.url, clock=lambda: now + 20 * MINUTE) as store:
        schedule = store.schedules()[0]
        assert schedule.last_at is not None
        ticks = round((schedule.last_at - first).total_seconds() / 60) + 1
        assert ticks in (8, 9, 10)
        assert sum(fired) == ticks
        assert len(store.queue("race").receive(limit=100)) == ticks
