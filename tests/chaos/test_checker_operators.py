"""The checker accepts every effect that operators and a restore may have, and reports all others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.chaos.checker import check
from tests.chaos.histories import Script


def rejected(script: Script) -> None:
    script.send(1, "x")
    script.receive(2, ("x", 1, 1))
    script.settle(2.1, "x", 1, "reject", state="rejected")


def redriven() -> Script:
    """A rejected message is redriven and delivered from its first attempt."""
    script = Script()
    rejected(script)
    script.act(3, "redrive", "x")
    script.receive(4, ("x", 2, 1), by="c2")
    script.settle(4.1, "x", 2, by="c2", state="succeeded")
    script.drained()
    return script


def sought() -> Script:
    """An acked message is delivered again after a seek to the start."""
    script = Script()
    script.send(1, "x")
    script.receive(2, ("x", 1, 1))
    script.settle(2.1, "x", 1, state="succeeded")
    script.act(3, "seek")
    script.receive(4, ("x", 2, 1), by="c2")
    script.settle(4.1, "x", 2, by="c2", state="succeeded")
    script.drained()
    script.note("replayed", 99, queue="work", group="default")
    return script


def removed() -> Script:
    script = Script()
    script.send(1, "x")
    script.receive(2, ("x", 1, 1))
    script.act(2.2, "remove", "x")
    script.settle(2.4, "x", 1, kind="fail")
    script.drained()
    return script


def restored() -> Script:
    """The copy of second 3 is restored at second 6: what happened in between is undone, and happens again."""
    script = Script()
    script.send(1, "before")
    script.send(1.1, "read before")
    script.receive(2, ("read before", 1, 1))
    script.settle(2.1, "read before", 1, state="succeeded")
    script.send(4, "between")
    script.receive(4.1, ("before", 2, 1), ("between", 2, 1), lease=5)
    script.settle(4.2, "before", 2, state="succeeded")
    script.note("restore", 6, since=3_000_000, copied=3_300_000)
    script.receive(7, ("before", 3, 1), by="c2")
    script.settle(7.1, "before", 3, by="c2", state="succeeded")
    script.drained()
    return script


@pytest.mark.parametrize("make", [redriven, sought, removed, restored], ids=lambda make: make.__name__)
def test_what_operators_and_restores_do_is_no_violation(make: Callable[[], Script]) -> None:
    assert check(make().sorted()) == []


def follow(script: Script, at: float, id: str, message: str) -> None:
    entries = [{"id": id, "message": message}]
    script.note("follow", at, "f", queue="stream", asked=round((at - 0.1) * 1_000_000), entries=entries)


def test_a_follower_does_not_read_again_what_it_read_between_the_copy_and_the_restore() -> None:
    """Seed 403 on PostgreSQL. Positions begin again where the copy ended."""
    script = restored()
    script.queue("stream", groups=[], primary=None)
    script.send(2, "early", queue="stream")
    script.send(4, "undone", queue="stream")
    script.send(8, "late", queue="stream")
    follow(script, 4.1, "1-1", "early")
    follow(script, 4.2, "4-2", "undone")
    follow(script, 8.1, "8-2", "late")
    script.note("followed", 9, "f", queue="stream")
    assert check(script.sorted()) == []
    script.events = [one for one in script.events if one["op"] != "follow" or one["entries"][0]["message"] != "late"]
    assert {one.law for one in check(script.sorted())} == {"law 8: a follower misses nothing"}


def test_priorities_are_not_judged_between_the_copy_and_the_restore() -> None:
    """Seeds 420 and 450 on PostgreSQL: the better message was taken, or removed, and the restore has undone that."""
    script = Script()
    script.send(1, "better")
    script.send(1.1, "worse", priority=2)
    script.note("restore", 6, since=3_000_000, copied=3_300_000)
    script.receive(5, ("worse", 2, 1))
    script.receive(7, ("better", 3, 1))
    assert check(script.sorted()) == []
    script.events = [one for one in script.events if one["op"] != "restore"]
    assert {one.law for one in check(script.sorted())} == {"order: better priorities first"}


def test_a_receive_without_an_answer_may_hold_a_better_priority_much_later() -> None:
    """Seed 906 on PostgreSQL, on a machine so busy that HTTP requests were answered after their client had gone."""
    script = Script()
    script.receive(1, by="c9", kind="unknown")
    script.send(1.1, "better")
    script.send(1.2, "worse", priority=2)
    script.receive(10, ("worse", 9, 1))
    script.receive(11, ("better", 10, 1))
    assert check(script.sorted()) == []
    script.events = [one for one in script.events if one["process"] != "c9"]
    assert {one.law for one in check(script.sorted())} == {"order: better priorities first"}


def test_the_last_message_of_a_batch_may_be_read_while_the_copy_is_made() -> None:
    """Seed 412 on PostgreSQL."""
    script = restored()
    script.send(1, "end-n", "abort-n", kind="killed", batch="n", conditional=True)
    script.batch(2, "start", "n", state="running")
    assert {one.law for one in check(script.sorted())} == {"law 9: a batch ends"}
    script.receive(3.1, ("end-n", 9, 1))
    assert {one.law for one in check(script.sorted())} == {"law 9: a batch ends"}
    script.settle(3.2, "end-n", 9)
    assert check(script.sorted()) == []


def test_a_tick_may_be_acked_while_the_copy_is_made_or_by_a_call_that_waited_for_the_restored_server() -> None:
    """Seeds 701 and 709 on PostgreSQL: a client received seven ticks just before the dump began, and acked them just
    before its snapshot."""
    script = ticking()
    assert {one.law for one in check(script.sorted())} == {"law 9: a tick is sent once"}
    read_tick(script, 2.995, 2)
    waiting = script.begin_receive(5.5, queue="ticks")
    script.end_receive(6.5, waiting, (tick(3), 13, 1))
    script.settle(6.6, tick(3), 13, queue="ticks")
    assert check(script.sorted()) == []


def test_a_tick_that_was_not_acked_in_the_copy_comes_again() -> None:
    script = ticking()
    script.receive(2.995, (tick(2), 12, 1), queue="ticks")
    script.settle(3.4, tick(2), 12, queue="ticks")
    read_tick(script, 8.5, 3)
    (found,) = check(script.sorted())
    assert found.text.endswith(f"were not sent: {tick(2)}")


def ticking() -> Script:
    """Ticks 2 and 3 of four were read by nobody, or by those who say so."""
    script = restored()
    script.queue("ticks")
    script.note("schedule", 1, queue="ticks")
    read_tick(script, 2, 1)
    read_tick(script, 8, 4)
    return script


def read_tick(script: Script, at: float, second: int) -> None:
    script.receive(at, (tick(second), 10 + second, 1), queue="ticks")
    script.settle(at + 0.2, tick(second), 10 + second, queue="ticks")


def tick(second: int) -> str:
    return f"2026-01-01T00:00:0{second}+00:00"


def test_a_send_without_an_answer_may_be_undone_by_the_restore_after_half_of_it_was_read() -> None:
    script = restored()
    script.send(4, "one", "two", kind="killed")
    script.receive(4.5, ("one", 9, 1))
    script.settle(4.6, "one", 9)
    assert check(script.sorted()) == []
    script.receive(8, ("one", 10, 1))
    script.settle(8.1, "one", 10)
    assert {one.law for one in check(script.sorted())} == {"law 2: a send happens wholly or not at all"}


def test_a_batch_that_was_opened_before_the_restore_may_lack_its_end_message() -> None:
    """Seed 415 on PostgreSQL: its members were sent afterwards, and made a batch without one."""
    script = restored()
    script.send(4, "end-n", "abort-n", kind="killed", batch="n", conditional=True)
    script.batch(8, "start", "n", state="running")
    assert {one.law for one in check(script.sorted())} == {"law 9: a batch ends"}
    script.batch(4.1, "open", "n")
    assert check(script.sorted()) == []


def test_the_reply_of_a_receive_may_come_after_its_message_was_redriven_and_handed_out_again() -> None:
    """The process was frozen for longer than its lease between the receive and its reply."""
    script = Script(at_most_once=True)
    script.send(1, "x")
    late = script.begin_receive(2, by="c2")
    script.act(4, "redrive", "x")
    script.receive(4.1, ("x", 2, 1))
    script.end_receive(4.5, late, ("x", 1, 1), by="c2")
    assert check(script.sorted()) == []
    script.events = [one for one in script.events if one["op"] != "redrive"]
    assert {one.law[:5] for one in check(script.sorted())} == {"law 6"}


def redrive_what_was_acked() -> Script:
    script = redriven()
    for event in script.events:
        if event.get("verb") == "reject":
            event["verb"] = "ack"
    return script


def redrive_nothing() -> Script:
    script = Script()
    rejected(script)
    script.act(3, "redrive", "x", kind="fail")
    script.receive(4, ("x", 2, 1), by="c2")
    script.settle(4.1, "x", 2, by="c2", state="succeeded")
    return script


def lose_what_was_redriven() -> Script:
    script = Script()
    rejected(script)
    script.act(3, "redrive", "x")
    script.drained()
    return script


def end_twice_after_one_redrive() -> Script:
    script = redriven()
    script.receive(5, ("x", 3, 1), by="c3")
    script.settle(5.1, "x", 3, "reject", by="c3", state="rejected")
    return script


def bury_twice_after_one_redrive() -> Script:
    script = Script()
    rejected(script)
    script.dead("x", "rejected", 1, at=2.5)
    script.act(3, "redrive", "x")
    script.receive(4, ("x", 2, 1))
    script.settle(4.1, "x", 2, "reject", state="rejected")
    script.dead("x", "rejected", 1)
    script.dead("x", "rejected", 1)
    return script


def redeliver_at_most_once_without_a_redrive() -> Script:
    script = Script(at_most_once=True)
    script.send(1, "x")
    script.receive(2, ("x", 1, 1), lease=0.5)
    script.act(3, "redrive", "x", kind="fail")
    script.receive(4, ("x", 2, 1), by="c2")
    script.settle(4.1, "x", 2, by="c2")
    return script


def seek_past_a_message() -> Script:
    script = sought()
    script.send(1.5, "passed by")
    return script


def hand_out_a_lease_again_by_a_seek() -> Script:
    """Open leases stay as they are."""
    script = Script()
    script.send(1, "x")
    script.receive(2, ("x", 1, 1), lease=9)
    script.act(3, "seek")
    script.receive(4, ("x", 2, 1), by="c2")
    return script


def deliver_what_was_removed() -> Script:
    script = removed()
    script.receive(4, ("x", 2, 2), by="c2")
    return script


def settle_what_was_removed() -> Script:
    script = Script()
    script.send(1, "x")
    script.receive(2, ("x", 1, 1), lease=5)
    script.act(2.2, "remove", "x")
    script.settle(2.4, "x", 1, state="succeeded")
    return script


def bury_what_was_removed() -> Script:
    script = removed()
    script.dead("x", "rejected", 1)
    return script


def lose_what_was_there_before_the_copy() -> Script:
    script = restored()
    script.send(2.5, "lost")
    return script


def lose_what_was_sent_after_the_restore() -> Script:
    script = restored()
    script.send(8, "lost")
    return script


def lose_what_was_acked_between_the_copy_and_the_restore() -> Script:
    script = restored()
    script.events = [one for one in script.events if one["t"] < 7_000_000]
    script.drained()
    return script


def undo_an_ack_from_before_the_copy() -> Script:
    script = restored()
    script.receive(8, ("read before", 4, 2), by="c3")
    return script


PLANTED: list[tuple[str, Callable[[], Script]]] = [
    ("law 7: what has ended", redrive_what_was_acked),
    ("law 7: what has ended", redrive_nothing),
    ("law 1: no acknowledged send is lost", lose_what_was_redriven),
    ("law 7: one ending", end_twice_after_one_redrive),
    ("law 5: one dead letter", bury_twice_after_one_redrive),
    ("law 6", redeliver_at_most_once_without_a_redrive),
    ("law 1: no acknowledged send is lost", seek_past_a_message),
    ("law 3: at most one live lease", hand_out_a_lease_again_by_a_seek),
    ("law 7: what was removed is gone", deliver_what_was_removed),
    ("law 7: what was removed is gone", settle_what_was_removed),
    ("law 7: what was removed is gone", bury_what_was_removed),
    ("law 1: no acknowledged send is lost", lose_what_was_there_before_the_copy),
    ("law 1: no acknowledged send is lost", lose_what_was_sent_after_the_restore),
    ("law 1: no acknowledged send is lost", lose_what_was_acked_between_the_copy_and_the_restore),
    ("law 7: what has ended", undo_an_ack_from_before_the_copy),
]


@pytest.mark.parametrize(("law", "make"), PLANTED, ids=[make.__name__ for _, make in PLANTED])
def test_a_planted_violation_is_found_under_its_law(law: str, make: Callable[[], Script]) -> None:
    assert any(one.law.startswith(law) for one in check(make().sorted()))
