"""The checker finds every planted violation under the law that it breaks, and nothing in a history that keeps them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.chaos.checker import check
from penstock.chaos.checker.smallest import smallest
from penstock.chaos.history import Event
from tests.chaos.histories import Script


def good() -> Script:
    """One message whose first lease ended, one that was rejected, one that failed, one that expired, one whose reply
    was lost."""
    script = Script()
    script.send(1, "a")
    script.send(1.1, "b", "c")
    script.send(1.2, "late", ttl=2)
    script.send(1.3, "rolled back", kind="fail")
    script.send(1.4, "unknown", kind="killed")
    script.send(1.5, "held", delay=2)
    script.receive(2, ("a", 1, 1))
    script.receive(2.1, ("b", 2, 1), ("c", 2, 1), by="c2")
    script.settle(2.3, "b", 2, "reject", by="c2", state="rejected")
    script.settle(2.5, "c", 2, "nak", by="c2", delay=0, state="ready")
    script.settle(3.3, "a", 1, kind="fail")
    script.receive(3.4, ("a", 3, 2), by="c2")
    script.settle(3.5, "a", 3, by="c2", state="succeeded")
    script.settle(3.6, "a", 3, by="c2", state="succeeded")
    script.receive(3.7, ("c", 4, 2), ("held", 4, 1), by="c3")
    script.extend(3.8, "held", 4, 3)
    script.settle(3.9, "c", 4, "nak", by="c3", state="failed")
    script.settle(5.9, "held", 4, by="c3", state="succeeded")
    script.dead("b", "rejected", 1)
    script.dead("c", "failed", 2)
    script.dead("late", "expired", 0)
    script.note("stats", 6, queue="work", group="default", asked=5_950_000, count=6)
    script.drained()
    return script


def lose_a_message(script: Script) -> None:
    script.send(1, "lost")


def lose_a_dead_letter(script: Script) -> None:
    script.events = [one for one in script.events if one.get("outcome") != "rejected"]


def never_come_to_rest(script: Script) -> None:
    script.note("stuck", 95, queue="work", seconds=60)


def deliver_what_nobody_sent(script: Script) -> None:
    script.receive(7, ("ghost", 9, 1))
    script.settle(7.1, "ghost", 9)


def deliver_a_rolled_back_send(script: Script) -> None:
    script.receive(7, ("rolled back", 9, 1))
    script.settle(7.1, "rolled back", 9)


def bury_a_rolled_back_send(script: Script) -> None:
    script.dead("rolled back", "expired", 0)


def change_a_message_on_its_way(script: Script) -> None:
    script.send(6, "x", content="as sent")
    script.hand_content(7, "x", "otherwise")


def store_a_send_twice(script: Script) -> None:
    script.send(6, "twice")
    script.receive(7, ("twice", 9, 1))
    script.events[-1]["taken"][0]["id"] = "another"
    script.settle(7.1, "twice", 9)


def store_half_of_a_send(script: Script) -> None:
    script.send(6, "first half", "second half", kind="unknown")
    script.receive(7, ("first half", 9, 1))
    script.settle(7.1, "first half", 9)


def lease_twice(script: Script) -> None:
    script.send(6, "x")
    script.receive(7, ("x", 9, 1))
    script.receive(7.5, ("x", 10, 2), by="c2")
    script.settle(8.2, "x", 10, by="c2")


def lease_twice_after_an_extend(script: Script) -> None:
    script.send(6, "x")
    script.receive(7, ("x", 9, 1))
    script.extend(7.9, "x", 9, 2)
    script.receive(8.5, ("x", 10, 2), by="c2")
    script.settle(9.9, "x", 10, by="c2")


def accept_a_stale_token(script: Script) -> None:
    script.send(6, "x")
    script.receive(7, ("x", 9, 1), lease=0.2)
    script.receive(7.5, ("x", 10, 2), by="c2")
    script.settle(7.6, "x", 9, "nak", state="ready", delay=0)
    script.settle(7.7, "x", 10, by="c2")


def accept_a_settlement_after_the_lease(script: Script) -> None:
    script.send(6, "x")
    script.receive(7, ("x", 9, 1))
    script.settle(9, "x", 9)


def end_twice(script: Script) -> None:
    script.send(6, "x")
    script.receive(7, ("x", 9, 1), lease=0.1)
    script.receive(7.5, ("x", 10, 2), by="c2")
    script.settle(7.55, "x", 9, state="succeeded")
    script.settle(7.6, "x", 10, by="c2", state="succeeded")


def return_after_the_end(script: Script) -> None:
    script.receive(7, ("a", 9, 3))


def bury_what_was_acked(script: Script) -> None:
    script.dead("a", "failed", 2)


def expire_what_does_not(script: Script) -> None:
    script.send(6, "x")
    script.dead("x", "expired", 0)


def reject_what_nobody_rejected(script: Script) -> None:
    script.send(6, "x")
    script.dead("x", "rejected", 1)


def give_up_too_soon(script: Script) -> None:
    script.send(6, "x")
    script.dead("x", "failed", 1)


def end_an_at_least_once_lease_for_good(script: Script) -> None:
    script.send(6, "x")
    script.dead("x", "lease_expired", 1)


def bury_twice(script: Script) -> None:
    script.dead("b", "rejected", 1)


def deliver_early(script: Script) -> None:
    script.send(6, "x", delay=5)
    script.receive(7, ("x", 9, 1))
    script.settle(7.1, "x", 9)


def return_before_the_delay_of_a_nak(script: Script) -> None:
    script.send(6, "x")
    script.receive(7, ("x", 9, 1))
    script.settle(7.1, "x", 9, "nak", delay=3, state="held")
    script.receive(8, ("x", 10, 2), by="c2")
    script.settle(8.1, "x", 10, by="c2")


def deliver_late(script: Script) -> None:
    script.send(6, "x", ttl=1)
    script.receive(8, ("x", 9, 1))
    script.settle(8.1, "x", 9)


def repeat_an_attempt(script: Script) -> None:
    script.send(6, "x")
    script.receive(7, ("x", 9, 1), lease=0.1)
    script.receive(8, ("x", 10, 1))
    script.settle(8.1, "x", 10)


def skip_an_attempt(script: Script) -> None:
    script.send(6, "x")
    script.receive(7, ("x", 9, 2))
    script.settle(7.1, "x", 9)


def retry_for_ever(script: Script) -> None:
    script.send(6, "x")
    for number in range(1, 4):
        script.receive(6 + number, ("x", 9 + number, number), lease=0.1)
    script.settle(9.05, "x", 12)


def redeliver_at_most_once(script: Script) -> None:
    script.queue("once", at_most_once=True)
    script.send(6, "x", queue="once")
    script.receive(7, ("x", 9, 1), lease=0.1, queue="once")
    script.receive(8, ("x", 10, 2), queue="once")
    script.settle(8.1, "x", 10, queue="once")


def count_too_few(script: Script) -> None:
    script.note("stats", 7, queue="work", group="default", asked=6_900_000, count=4)


def count_too_many(script: Script) -> None:
    script.note("stats", 7, queue="work", group="default", asked=6_900_000, count=7)


TRAIL: list[Event] = [
    {"event": "send", "state": "ready", "group": None, "attempt": 0},
    {"event": "receive", "state": "leased", "group": "default", "attempt": 1},
    {"event": "lease_end", "state": "ready", "group": "default", "attempt": 1},
    {"event": "receive", "state": "leased", "group": "default", "attempt": 2},
    {"event": "ack", "state": "succeeded", "group": "default", "attempt": 2},
]


def jump_in_the_trail(script: Script) -> None:
    trail = [one for one in TRAIL if one["event"] != "lease_end"]
    script.note("audit", 95, queue="work", groups=["default"], message="a", trail=trail)


def leave_the_end_out_of_the_trail(script: Script) -> None:
    script.note("audit", 95, queue="work", groups=["default"], message="a", trail=TRAIL[:-1])


def leave_a_delivery_out_of_the_trail(script: Script) -> None:
    trail = [TRAIL[0], TRAIL[3], TRAIL[4]]
    script.note("audit", 95, queue="work", groups=["default"], message="a", trail=trail)


def follow(script: Script, *entries: tuple[str, str]) -> None:
    script.queue("stream", groups=[], primary=None)
    script.send(6, "s1", queue="stream")
    script.send(6.1, "s2", queue="stream")
    for id, message in entries:
        script.note("follow", 7, process="f", queue="stream", entries=[{"id": id, "message": message}])
    script.note("followed", 8, process="f", queue="stream")


def pass_a_message_by(script: Script) -> None:
    follow(script, ("1-2", "s2"))


def show_a_message_behind_the_mark(script: Script) -> None:
    follow(script, ("1-2", "s2"), ("1-1", "s1"))


def run_batch(script: Script, *verbs: str) -> None:
    script.send(6, "end-n", "abort-n", kind="killed", batch="n", conditional=True)
    script.send(6.1, "member", batch="n")
    for place, verb in enumerate(verbs):
        script.batch(6.2 + place / 10, verb, "n", state="cancelled" if verb == "cancel" else "running")
    script.receive(7, ("member", 9, 1))
    script.settle(7.1, "member", 9)


def end_no_batch(script: Script) -> None:
    run_batch(script, "start")


def end_and_abort_a_batch(script: Script) -> None:
    run_batch(script, "start")
    script.receive(8, ("end-n", 10, 1), ("abort-n", 10, 1))


def end_a_cancelled_batch(script: Script) -> None:
    run_batch(script, "start", "cancel")
    script.receive(8, ("end-n", 10, 1))


def abort_a_batch_that_nobody_cancelled(script: Script) -> None:
    run_batch(script, "start")
    script.receive(8, ("abort-n", 10, 1))


def end_a_batch_before_its_last_member(script: Script) -> None:
    run_batch(script, "start")
    script.receive(6.5, ("end-n", 10, 1), by="c2")
    script.settle(6.6, "end-n", 10, by="c2")


def send_a_tick_twice(script: Script) -> None:
    script.queue("ticks")
    script.note("schedule", 1, queue="ticks")
    for token, id in ((20, "one"), (21, "two")):
        script.receive(token, ("2026-01-01T00:00:01+00:00", token, 1), queue="ticks")
        script.events[-1]["taken"][0]["id"] = id


def leave_out_a_tick(script: Script) -> None:
    script.queue("ticks")
    script.note("schedule", 1, queue="ticks")
    for second in (1, 2, 4):
        script.receive(20 + second, (f"2026-01-01T00:00:0{second}+00:00", second, 1), queue="ticks")


def ordered(script: Script) -> None:
    script.queue("ordered", ordered=True)
    script.send(6, "k1", queue="ordered", key="k")
    script.send(6.1, "k2", queue="ordered", key="k")


def pass_an_earlier_message_of_the_key(script: Script) -> None:
    ordered(script)
    script.receive(7, ("k2", 9, 1), queue="ordered")
    script.receive(8, ("k1", 10, 1), queue="ordered")


def lease_a_key_twice(script: Script) -> None:
    ordered(script)
    script.receive(7, ("k1", 9, 1), queue="ordered")
    script.receive(7.5, ("k2", 10, 1), queue="ordered", by="c2")


def end_the_second_of_a_key_first(script: Script) -> None:
    ordered(script)
    script.receive(7, ("k1", 9, 1), ("k2", 9, 1), queue="ordered")
    script.settle(7.1, "k2", 9, queue="ordered")
    script.receive(8.5, ("k1", 10, 2), queue="ordered")


def return_a_worse_priority(script: Script) -> None:
    script.send(6, "better", priority=0)
    script.send(6.1, "worse", priority=2)
    script.receive(7, ("worse", 9, 1))
    script.settle(7.1, "worse", 9)
    script.receive(8, ("better", 10, 1))
    script.settle(8.1, "better", 10)


PLANTED: list[tuple[str, Callable[[Script], None]]] = [
    ("law 1: no acknowledged send is lost", lose_a_message),
    ("law 5: one dead letter", lose_a_dead_letter),
    ("law 1: queues drain", never_come_to_rest),
    ("law 2: nothing is delivered that was not sent", deliver_what_nobody_sent),
    ("law 2: an undone send is never seen", deliver_a_rolled_back_send),
    ("law 2: an undone send is never seen", bury_a_rolled_back_send),
    ("law 2: a message is handed out as it was sent", change_a_message_on_its_way),
    ("law 1: a send is one message", store_a_send_twice),
    ("law 2: a send happens wholly", store_half_of_a_send),
    ("law 3: at most one live lease", lease_twice),
    ("law 3: at most one live lease", lease_twice_after_an_extend),
    ("law 3: a stale token", accept_a_stale_token),
    ("law 3: a lease ends", accept_a_settlement_after_the_lease),
    ("law 7: one ending", end_twice),
    ("law 7: what has ended", return_after_the_end),
    ("law 7: a dead letter has a cause", bury_what_was_acked),
    ("law 7: a dead letter has a cause", expire_what_does_not),
    ("law 7: a dead letter has a cause", reject_what_nobody_rejected),
    ("law 7: a dead letter has a cause", give_up_too_soon),
    ("law 7: a dead letter has a cause", end_an_at_least_once_lease_for_good),
    ("law 5: one dead letter", bury_twice),
    ("law 4: never early", deliver_early),
    ("law 4: never early", return_before_the_delay_of_a_nak),
    ("law 4: never late", deliver_late),
    ("law 5: attempts have no gaps", repeat_an_attempt),
    ("law 5: attempts have no gaps", skip_an_attempt),
    ("law 5: retries are bounded", retry_for_ever),
    ("law 6", redeliver_at_most_once),
    ("law 7: counts conserve", count_too_few),
    ("law 7: counts conserve", count_too_many),
    ("law 7: audit trails are legal", jump_in_the_trail),
    ("law 7: audit trails are legal", leave_the_end_out_of_the_trail),
    ("law 7: audit trails are complete", leave_a_delivery_out_of_the_trail),
    ("law 8: a follower misses nothing", pass_a_message_by),
    ("law 8: positions grow", show_a_message_behind_the_mark),
    ("law 9: a batch ends", end_no_batch),
    ("law 9: end or abort", end_and_abort_a_batch),
    ("law 9: no end after a cancel", end_a_cancelled_batch),
    ("law 9: abort after a cancel", abort_a_batch_that_nobody_cancelled),
    ("law 9: a batch ends after its last member", end_a_batch_before_its_last_member),
    ("law 9: a tick is sent once", send_a_tick_twice),
    ("law 9: a tick is sent once", leave_out_a_tick),
    ("order: a key is processed in order", pass_an_earlier_message_of_the_key),
    ("order: a key has one lease", lease_a_key_twice),
    ("order: a key is processed in order", end_the_second_of_a_key_first),
    ("order: better priorities first", return_a_worse_priority),
]


def test_a_history_that_keeps_the_laws_has_no_violation() -> None:
    assert check(good().sorted()) == []


@pytest.mark.parametrize(("law", "plant"), PLANTED, ids=[plant.__name__ for _, plant in PLANTED])
def test_a_planted_violation_is_found_under_its_law(law: str, plant: Callable[[Script], None]) -> None:
    script = good()
    plant(script)
    assert any(one.law.startswith(law) for one in check(script.sorted()))


def test_a_message_that_is_handed_out_as_it_was_sent_is_no_violation() -> None:
    script = good()
    script.send(6, "x", content="as sent")
    script.hand_content(7, "x", "as sent")
    assert check(script.sorted()) == []


def test_a_lost_reply_explains_a_missing_attempt() -> None:
    script = good()
    script.send(6, "x")
    script.receive(6.5, by="c9", kind="killed")
    script.receive(8, ("x", 9, 2))
    script.settle(8.1, "x", 9)
    assert check(script.sorted()) == []


def test_a_send_whose_reply_was_lost_may_take_effect_late_and_expire_later() -> None:
    """Seed 110 on PostgreSQL: the connection was cut while the server still worked on the send."""
    script = good()
    script.send(6, "x", kind="unknown", ttl=2)
    script.receive(9, ("x", 9, 1))
    script.settle(9.1, "x", 9)
    assert check(script.sorted()) == []


def test_an_at_most_once_message_may_return_after_a_nak_whose_reply_was_lost() -> None:
    script = good()
    script.queue("once", at_most_once=True)
    script.send(6, "x", queue="once")
    script.receive(7, ("x", 9, 1), queue="once")
    script.settle(7.1, "x", 9, "nak", kind="unknown", queue="once")
    script.receive(8, ("x", 10, 2), queue="once")
    assert check(script.sorted()) == []


def test_a_crash_of_the_server_may_forget_a_lease_of_an_at_least_once_queue() -> None:
    script = good()
    script.send(6, "x")
    script.receive(7, ("x", 9, 1), lease=5)
    script.note("crash", 7.2)
    script.receive(8, ("x", 10, 1), by="c2")
    script.settle(8.1, "x", 10, by="c2")
    assert check(script.sorted()) == []


def test_attempts_start_again_after_a_reschedule_while_the_reply_of_an_earlier_receive_was_late() -> None:
    """Seed 314 on PostgreSQL: the process was frozen between the receive and its reply."""
    script = good()
    script.send(6, "x")
    late = script.begin_receive(6.5, by="c2")
    script.receive(8, ("x", 12, 2))
    script.settle(8.1, "x", 12, "reschedule", delay=0.1, state="held")
    script.end_receive(8.5, late, ("x", 11, 1), by="c2")
    script.receive(9, ("x", 13, 1))
    script.settle(9.1, "x", 13)
    assert check(script.sorted()) == []


def test_what_one_lease_of_an_ordered_queue_holds_is_taken_back_together() -> None:
    script = good()
    ordered(script)
    script.receive(7, ("k1", 9, 1), ("k2", 9, 1), queue="ordered", lease=5)
    script.settle(7.2, "k1", 9, "nak", delay=0, queue="ordered", state="ready")
    script.receive(7.5, ("k1", 10, 2), ("k2", 10, 1), queue="ordered", by="c2")
    assert check(script.sorted()) == []


def test_what_a_client_learns_of_after_its_lease_has_ended_is_with_somebody_else() -> None:
    """Seed 720 on PostgreSQL: the process was frozen for longer than its lease between the receive and its reply."""
    script = good()
    ordered(script)
    late = script.begin_receive(7, by="c2", lease=1.5, queue="ordered")
    script.receive(8.6, ("k1", 10, 2), queue="ordered", lease=1.5)
    script.end_receive(8.9, late, ("k1", 9, 1), ("k2", 9, 1), by="c2")
    script.settle(9, "k1", 10, queue="ordered", state="succeeded")
    assert check(script.sorted()) == []


def test_the_smallest_history_has_only_what_shows_the_violation() -> None:
    script = good()
    lease_twice(script)
    events = script.sorted()
    violation = check(events)[0]
    kept = smallest(events, violation)
    assert [(one["op"], one["type"]) for one in kept] == [
        ("receive", "invoke"),
        ("receive", "ok"),
        ("receive", "invoke"),
        ("receive", "ok"),
    ]
    assert len(kept) < len(events) / 4
    assert any(one.law == violation.law for one in check(kept))
