"""Schedules: one message per tick, however many processes sweep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import InvalidInput, InvalidName, InvalidSchedule, NotFound, Store
from tests.conformance.assertions import payloads, take, take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock


def at(hour: int, minute: int, second: int = 0, day: int = 5) -> datetime:
    return datetime(2026, 3, day, hour, minute, second, tzinfo=UTC)


def test_a_schedule_sends_its_message_at_its_tick_and_not_before(store: Store, clock: Clock) -> None:
    schedule = store.schedule("report", "15 * * * *", "orders", {"kind": "report"}, headers={"a": "b"}, priority=3)
    assert schedule.next_at == at(7, 15)
    clock.move_to(at(7, 14, 59))
    assert store.sweep().fired == 0
    clock.move_to(at(7, 15, 1))
    assert store.sweep().fired == 1
    delivery = take(store.queue("orders"))
    assert (delivery.json(), delivery.priority) == ({"kind": "report"}, 3)
    assert delivery.headers.items() >= {"a": "b"}.items()
    assert "report" in delivery.created_by


def test_one_tick_is_one_message_however_often_it_is_swept(store: Store, clock: Clock, open_store: Opener) -> None:
    store.schedule("report", "15 * * * *", "orders", 1)
    others = [open_store() for _ in range(3)]
    clock.move_to(at(7, 15, 1))
    assert sum(one.sweep().fired for one in [store, *others, store]) == 1
    clock.move_to(at(8, 15, 1))
    assert sum(one.sweep().fired for one in [*others, store]) == 1
    assert len(take_all(store.queue("orders"))) == 2


def test_a_schedule_shows_its_last_and_its_next_tick(store: Store, clock: Clock) -> None:
    store.schedule("report", "*/20 * * * *", "orders", 1)
    clock.move_to(at(7, 20, 3))
    store.sweep()
    [schedule] = store.schedules()
    assert (schedule.last_at, schedule.next_at) == (at(7, 20), at(7, 40))


def test_a_schedule_shows_everything_it_was_made_with(store: Store) -> None:
    made = store.schedule(
        "report",
        "0 9 * * 1-5",
        "orders",
        b"raw",
        timezone="Europe/Berlin",
        catch_up="one",
        headers={"a": "b"},
        priority=4,
    )
    assert store.schedules() == [made]
    assert (made.name, made.cron, made.timezone, made.queue) == ("report", "0 9 * * 1-5", "Europe/Berlin", "orders")
    assert (made.payload, made.catch_up, made.headers, made.priority) == (b"raw", "one", {"a": "b"}, 4)
    assert (made.paused, made.last_at) == (False, None)
    assert made.next_at == at(8, 0)


def test_schedules_are_listed_by_name(store: Store) -> None:
    for name in ("b", "c", "a"):
        store.schedule(name, "15 * * * *", "orders", 1)
    assert [schedule.name for schedule in store.schedules()] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("catch_up", "sent"),
    [("skip", 0), ("one", 1), ("all", 4)],
)
def test_missed_ticks_are_caught_up_as_the_schedule_says(store: Store, clock: Clock, catch_up: Any, sent: int) -> None:
    store.schedule("report", "*/20 * * * *", "orders", 1, catch_up=catch_up)
    clock.move_to(at(8, 31))  # 7:20, 7:40, 8:00 and 8:20 were missed
    assert store.sweep().fired == sent
    assert store.schedules()[0].next_at == at(8, 40)
    assert store.sweep().fired == 0
    assert len(take_all(store.queue("orders"))) == sent


@pytest.mark.parametrize(
    ("catch_up", "sent"),
    [("skip", 1), ("one", 1), ("all", 4)],
)
def test_a_tick_that_is_only_just_past_is_never_missed(store: Store, clock: Clock, catch_up: Any, sent: int) -> None:
    store.schedule("report", "*/20 * * * *", "orders", 1, catch_up=catch_up)
    clock.move_to(at(8, 20, 7))
    assert store.sweep().fired == sent
    assert store.schedules()[0].next_at == at(8, 40)


@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
def test_a_sweep_at_the_very_moment_of_a_tick_sends_it_once(store: Store, clock: Clock, catch_up: Any) -> None:
    store.schedule("report", "*/20 * * * *", "orders", 1, catch_up=catch_up)
    for hour, minute in ((7, 20), (7, 40), (8, 0)):
        clock.move_to(at(hour, minute))
        assert store.sweep().fired == 1
        assert store.schedules()[0].last_at == at(hour, minute)
    assert len(take_all(store.queue("orders"))) == 3


@pytest.mark.parametrize("catch_up", ["skip", "one"])
def test_after_a_gap_a_sweep_at_the_very_moment_of_a_tick_sends_that_tick(
    store: Store, clock: Clock, catch_up: Any
) -> None:
    store.schedule("report", "*/20 * * * *", "orders", 1, catch_up=catch_up)
    clock.move_to(at(8, 20))
    assert store.sweep().fired == 1
    [schedule] = store.schedules()
    assert (schedule.last_at, schedule.next_at) == (at(8, 20), at(8, 40))


def test_a_year_of_missed_minutes_is_crossed_in_a_moment(store: Store, clock: Clock) -> None:
    store.schedule("report", "* * * * *", "orders", 1, catch_up="one")
    clock.advance(seconds=365 * 86_400)
    assert store.sweep().fired == 1


def test_a_paused_schedule_sends_nothing_and_does_not_catch_up(store: Store, clock: Clock) -> None:
    store.schedule("report", "*/20 * * * *", "orders", 1, catch_up="all")
    paused = store.pause_schedule("report")
    assert (paused.paused, paused.next_at) == (True, None)
    clock.move_to(at(8, 31))
    assert store.sweep().fired == 0
    resumed = store.resume_schedule("report")
    assert (resumed.paused, resumed.next_at) == (False, at(8, 40))
    assert store.sweep().fired == 0
    clock.move_to(at(8, 40, 1))
    assert store.sweep().fired == 1


def test_an_unscheduled_rule_sends_nothing_more_and_what_it_sent_stays(store: Store, clock: Clock) -> None:
    store.schedule("report", "*/20 * * * *", "orders", 1)
    clock.move_to(at(7, 20, 1))
    store.sweep()
    store.unschedule("report")
    clock.move_to(at(7, 40, 1))
    assert store.sweep().fired == 0
    assert store.schedules() == []
    assert payloads(take_all(store.queue("orders"))) == [1]


def test_a_schedule_of_the_same_name_is_replaced(store: Store, clock: Clock) -> None:
    store.schedule("report", "*/20 * * * *", "orders", "old")
    assert store.schedule("report", "30 * * * *", "orders", "new").next_at == at(7, 30)
    clock.move_to(at(7, 30, 1))
    assert store.sweep().fired == 1
    assert payloads(take_all(store.queue("orders"))) == ["new"]


def test_declaring_the_same_rule_again_loses_no_tick(store: Store, clock: Clock) -> None:
    store.schedule("report", "*/20 * * * *", "orders", "old")
    clock.move_to(at(7, 20, 5))
    store.schedule("report", "*/20 * * * *", "orders", "new")
    assert store.sweep().fired == 1
    assert payloads(take_all(store.queue("orders"))) == ["new"]


def test_a_rule_follows_the_wall_clock_of_its_time_zone(store: Store, clock: Clock) -> None:
    store.schedule("open", "0 9 * * *", "orders", 1, timezone="Europe/Berlin")
    clock.move_to(at(0, 0, day=28))
    store.sweep()
    ticks = []
    for _ in range(3):
        [schedule] = store.schedules()
        assert schedule.next_at is not None
        ticks.append(schedule.next_at)
        clock.move_to(schedule.next_at + timedelta(seconds=1))
        assert store.sweep().fired == 1
    # The clocks go forward on 29 March 2026: 9 o'clock in Berlin is 8:00 UTC before, 7:00 UTC from then on.
    assert ticks == [at(8, 0, day=28), at(7, 0, day=29), at(7, 0, day=30)]


@pytest.mark.parametrize(
    "night", [datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)], ids=["spring", "autumn"]
)
def test_a_rule_in_the_hour_that_a_clock_change_skips_or_repeats_ticks_once_that_night(
    store: Store, clock: Clock, night: datetime
) -> None:
    clock.move_to(night)
    store.schedule("nightly", "30 2 * * *", "orders", 1, timezone="Europe/Berlin", catch_up="all")
    fired = 0
    for _ in range(24):
        clock.advance(seconds=3_600)
        fired += store.sweep().fired
    assert fired == 1


def test_the_message_of_a_schedule_expires_by_its_ttl(store: Store, clock: Clock) -> None:
    store.schedule("report", "15 * * * *", "orders", 1, ttl_seconds=613, key="reports")
    clock.move_to(at(7, 15, 1))
    store.sweep()
    [message] = store.queue("orders").peek()
    assert (message.expires_at, message.key) == (clock.now + timedelta(seconds=613), "reports")


def test_a_schedule_whose_message_became_too_large_does_not_stop_the_sweep(store: Store, clock: Clock) -> None:
    store.schedule("large", "15 * * * *", "orders", b"x" * 20)
    store.schedule("small", "15 * * * *", "invoices", b"x")
    store.queue("orders", max_payload_bytes=8)
    clock.move_to(at(7, 15, 1))
    store.sweep()
    assert len(take_all(store.queue("invoices"))) == 1


def test_several_schedules_fire_in_one_sweep(store: Store, clock: Clock) -> None:
    store.schedule("first", "15 * * * *", "orders", 1)
    store.schedule("second", "15 * * * *", "invoices", 2)
    clock.move_to(at(7, 15, 1))
    assert store.sweep().fired == 2
    assert payloads(take_all(store.queue("orders"))) == [1]
    assert payloads(take_all(store.queue("invoices"))) == [2]


def test_the_longest_name_is_a_name_for_a_schedule(store: Store) -> None:
    name = "ü" * 127
    store.schedule(name, "15 * * * *", "orders", 1)
    assert store.schedules()[0].name == name


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"cron": "every day"}, InvalidSchedule),
        ({"cron": "61 * * * *"}, InvalidSchedule),
        ({"cron": "* * * *"}, InvalidSchedule),
        ({"cron": ""}, InvalidSchedule),
        ({"cron": "0 0 30 2 *"}, InvalidSchedule),
        ({"cron": None}, InvalidSchedule),
        ({"timezone": "Mars/Olympus"}, InvalidSchedule),
        ({"timezone": "../etc/passwd"}, InvalidSchedule),
        ({"timezone": ""}, InvalidSchedule),
        ({"timezone": None}, InvalidSchedule),
        ({"catch_up": "some"}, InvalidInput),
        ({"name": ""}, InvalidName),
        ({"queue": "a\nb"}, InvalidName),
        ({"priority": -1}, InvalidInput),
        ({"payload": 1j}, InvalidInput),
    ],
    ids=str,
)
def test_a_bad_schedule_is_refused_and_nothing_is_scheduled(
    store: Store, options: dict[str, Any], error: type[Exception]
) -> None:
    given = {"name": "report", "cron": "15 * * * *", "queue": "orders", "payload": 1, **options}
    with pytest.raises(error):
        store.schedule(**given)
    assert store.schedules() == []


@pytest.mark.parametrize("verb", ["pause_schedule", "resume_schedule", "unschedule"])
def test_an_unknown_schedule_is_not_found(store: Store, verb: str) -> None:
    with pytest.raises(NotFound, match="report"):
        getattr(store, verb)("report")


@pytest.mark.parametrize("paused", [False, True])
def test_a_schedule_can_be_run_now(store: Store, clock: Clock, paused: bool) -> None:
    store.schedule("report", "15 * * * *", "orders", {"kind": "report"}, headers={"a": "b"}, priority=3, key="k")
    if paused:
        store.pause_schedule("report")
    before = store.schedules()
    message_id = store.run_schedule("report")
    assert store.schedules() == before, "its ticks stay"
    delivery = take(store.queue("orders"))
    assert (delivery.id, delivery.json(), delivery.priority, delivery.key) == (message_id, {"kind": "report"}, 3, "k")
    assert delivery.headers["penstock-schedule"] == "report"
    assert delivery.headers["a"] == "b"
    clock.move_to(at(7, 15, 1))
    assert store.sweep().fired == (0 if paused else 1)


def test_an_unknown_schedule_cannot_be_run(store: Store) -> None:
    store.schedule("report", "15 * * * *", "orders", 1)
    with pytest.raises(NotFound, match="there is no schedule 'reprot'; did you mean 'report'"):
        store.run_schedule("reprot")


def test_a_schedule_shows_all_that_it_was_made_with(store: Store) -> None:
    made = store.schedule("report", "15 * * * *", "orders", 1, ttl_seconds=90, key="k")
    assert (made.ttl_seconds, made.key) == (90, "k")
    assert store.schedules() == [made]
