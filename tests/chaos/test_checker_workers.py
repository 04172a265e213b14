"""The checker knows how long a worker surely holds a message."""

from __future__ import annotations

from typing import Any

from penstock.chaos.checker import check
from tests.chaos.histories import Script


def jobs() -> Script:
    script = Script()
    script.queue("jobs", has_workers=True)
    script.send(6, "x", queue="jobs")
    return script


def handled(script: Script, at: float, token: int, by: str, attempt: int = 1) -> None:
    """A worker's handler was called, with 1.4 s left of a lease of 1.5 s."""
    about: dict[str, Any] = {"queue": "jobs", "group": "default", "id": "id-x", "message": "x", "token": token}
    script.note("handle", at, by, left=1_400_000, lease=1.5, attempt=attempt, **about)


def test_a_worker_that_stops_gives_back_what_its_handlers_run_on() -> None:
    """Seed 304 on PostgreSQL: the handler ran on after the grace period, and another worker had the message."""
    script = jobs()
    handled(script, 7, 9, "worker-1")
    script.note("leave", 7.2, "worker-1")
    handled(script, 8.3, 10, "worker-2")
    script.settle(8.31, "x", 10, by="worker-2", queue="jobs")
    assert check(script.sorted()) == []
    script.events = [event for event in script.events if event["op"] != "leave"]
    assert {one.law for one in check(script.sorted())} == {"law 3: at most one live lease"}


def test_a_crash_between_a_receive_and_its_handler_may_forget_the_lease() -> None:
    """Seed 310 on PostgreSQL."""
    script = jobs()
    script.note("crash", 6.95)
    handled(script, 7, 9, "worker-1")
    handled(script, 7.5, 10, "worker-2")
    script.settle(7.6, "x", 10, by="worker-2", queue="jobs")
    assert check(script.sorted()) == []
    script.events = [event for event in script.events if event["op"] != "crash"]
    assert {one.law for one in check(script.sorted())} == {"law 3: at most one live lease"}


def test_a_worker_that_stops_also_gives_back_what_a_handler_began_on_meanwhile() -> None:
    """Seeds 709 on PostgreSQL and 719 on SQLite: the worker waited for its last receive, a handler began on what that
    brought, and the grace period ended a second before the lease."""
    script = jobs()
    script.note("leave", 6.9, "worker-1")
    handled(script, 7, 9, "worker-1")
    script.note("left", 7.95, "worker-1")
    handled(script, 8, 10, "worker-2")
    script.settle(8.01, "x", 10, by="worker-2", queue="jobs")
    assert check(script.sorted()) == []


def test_a_worker_that_starts_after_another_one_of_its_process_has_stopped_is_judged() -> None:
    script = jobs()
    script.note("leave", 6.1, "worker-1")
    script.note("left", 6.2, "worker-1")
    handled(script, 7, 9, "worker-1")
    handled(script, 8, 10, "worker-2")
    script.settle(8.01, "x", 10, by="worker-2", queue="jobs")
    assert {one.law for one in check(script.sorted())} == {"law 3: at most one live lease"}


def test_a_restored_store_may_remove_a_worker_whose_heartbeats_it_has_lost() -> None:
    script = jobs()
    script.note("join", 1, "worker-1")
    script.note("restore", 5, since=2_000_000, copied=2_300_000)
    handled(script, 7, 9, "worker-1")
    handled(script, 7.5, 10, "worker-2")
    script.settle(7.6, "x", 10, by="worker-2", queue="jobs")
    assert check(script.sorted()) == []
    for event in script.events:
        event["t"] = 5_500_000 if event["op"] == "join" else event["t"]
    assert {one.law for one in check(script.sorted())} == {"law 3: at most one live lease"}


def test_a_history_may_lack_the_beginning_of_a_stop() -> None:
    """The smallest history is looked for by leaving out events one by one."""
    script = jobs()
    handled(script, 7, 9, "worker-1")
    script.settle(7.1, "x", 9, by="worker-1", queue="jobs")
    script.note("left", 7.2, "worker-1")
    assert check(script.sorted()) == []
