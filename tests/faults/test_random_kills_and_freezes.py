"""Eight processes on one store for a while, killed, frozen and started again at random; then every law is checked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest

import penstock
from tests.faults.actor import LEASE_SECONDS
from tests.faults.checker import Dump, check
from tests.faults.history import Step
from tests.faults.processes import Processes, await_ready, drain, dump, read_history

# A run lasts at least so long, and until it has seen enough; a busy machine may take longer to show as much.
SECONDS = 5
LONGEST_SECONDS = 60
# What a run must have seen at least: one in which nothing happened proves nothing.
WANTED = {
    "kills": 30,
    "sends": 100,
    "ended leases": 20,
    "refused settles": 3,
    "dead letters": 3,
    "ended batches": 3,
}
ONCE_KILLS = 10
GROUPS = ("default", "audit")
ROLES = ["sender"] * 3 + ["consumer"] * 3 + ["reader", "sweeper"]


def test_every_law_holds_under_kills_and_freezes(processes: Processes) -> None:
    run(processes, "work", ROLES, lambda: has_seen_enough(processes))
    history = read_history(processes, "work")
    with penstock.connect(processes.url) as store:
        start_what_was_left_open(store)
        drain(store, "work", GROUPS)
        found = dump(store, "work", GROUPS)
        found.batches = dict(batches(history, store))
        violations = check(history, found)
        assert all(one.level != "error" for one in store.doctor())
    assert not violations, "\n".join(f"{one.invariant} {one.text}" for one in violations[:20])
    check_enough(history, found, processes)


def test_at_most_once_is_never_redelivered_without_a_nak(processes: Processes) -> None:
    with penstock.connect(processes.url) as store:
        store.queue("once", delivery="at_most_once", max_retries=3)
    run(processes, "once", ["sender", "consumer", "consumer", "sweeper"], lambda: processes.kills >= ONCE_KILLS)
    with penstock.connect(processes.url) as store:
        for batch in store.queue("once").batches():
            store.queue("once").batch(batch.name).start()
        drain(store, "once", ("default",))
        found = dump(store, "once")
        violations = check(read_history(processes, "once"), found)
    assert not violations, "\n".join(f"{one.invariant} {one.text}" for one in violations[:20])
    assert found.stats["default"]["outcomes"].get("lease_expired"), "unknown: no lease ended"


def run(processes: Processes, queue: str, roles: list[str], saw_enough: Callable[[], bool]) -> None:
    """Ten times a second one process is killed and replaced, or frozen for longer than its lease."""
    dice = random.Random(processes.seed)
    members = [(role, processes.start(role, queue)) for role in roles]
    for _, member in members:
        await_ready(member)
    began = time.monotonic()
    thaw_at: dict[int, float] = {}
    while (took := time.monotonic() - began) < SECONDS or (took < LONGEST_SECONDS and not saw_enough()):
        time.sleep(dice.uniform(0.03, 0.15))
        place = dice.randrange(len(members))
        role, member = members[place]
        if place not in thaw_at and role == "consumer" and dice.random() < 0.7:
            processes.freeze(member)
            thaw_at[place] = time.monotonic() + 1.5 * LEASE_SECONDS
        elif place not in thaw_at:
            processes.kill(member)
            members[place] = (role, processes.start(role, queue))
        for place in [place for place, at in thaw_at.items() if at < time.monotonic()]:
            processes.thaw(members[place][1])
            del thaw_at[place]
    for place in thaw_at:
        processes.thaw(members[place][1])
    processes.finish_all()


def start_what_was_left_open(store: penstock.Store) -> None:
    """A sender killed between its last member and its start leaves an open batch."""
    for batch in store.queue("work").batches():
        store.queue("work").batch(batch.name).start()


def batches(history: list[Step], store: penstock.Store) -> Iterator[tuple[str, tuple[list[str], str]]]:
    """Each batch that exists, with the members that were surely or maybe sent into it, and its end message."""
    for batch in store.queue("work").batches():
        assert batch.state == "finished", f"{batch} should have ended"
        prefix = f"member-{batch.name}-"
        members = {payload for step in history for payload in step.get("payloads", ()) if payload.startswith(prefix)}
        yield batch.name, (sorted(members), f"end-{batch.name}")


def has_seen_enough(processes: Processes) -> bool:
    """As far as it can be told before the end."""
    seen = {"kills": processes.kills, **seen_outside(read_history(processes, "work"))}
    return all(count >= WANTED[name] for name, count in seen.items())


def seen_outside(history: list[Step]) -> dict[str, int]:
    return {
        "sends": sum(step["op"] == "send" and step["type"] == "ok" for step in history),
        "refused settles": sum(step["op"] == "settle" and step["type"] == "refused" for step in history),
    }


def check_enough(history: list[Step], found: Dump, processes: Processes) -> None:
    """Else the outcome is unknown, not good."""
    saw = {
        "kills": processes.kills,
        **seen_outside(history),
        "ended leases": sum(entry.event == "lease_end" for fate in found.fates.values() for entry in fate.trail),
        "dead letters": sum(fate.letters for fate in found.fates.values()),
        "ended batches": len(found.batches),
    }
    print(saw)
    missing = {name: count for name, count in saw.items() if count < WANTED[name]}
    if missing:
        pytest.fail(f"unknown: the run saw too little: {missing} of {saw}")
