"""The checker finds what it is there to find: each planted bug is flagged under its own name, and a good run is not."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.faults.checker import Dump, Entry, Fate, check
from tests.faults.history import Step

A, B = "id-a", "id-b"
OUTCOMES = {"succeeded": 1, "failed": 1}


def good() -> tuple[list[Step], Dump]:
    """One message sent, held by c1 until its lease ended, then acked by c2; and a poison one that failed."""
    history = [
        step(1, "send", "invoke", "s", payloads=["plain-1", "poison-1"]),
        step(5, "send", "ok", "s", payloads=["plain-1", "poison-1"], ids=[A, B]),
        delivery(12, A, "plain-1", token=1, attempt=1, ends=50, process="c1"),
        delivery(62, A, "plain-1", token=2, attempt=2, ends=100, process="c2", asked_at=60),
        settle(70, "invoke", A, "ack", token=2, ends=100, process="c2"),
        settle(71, "ok", A, "ack", token=2, ends=100, process="c2", state="succeeded"),
        settle(72, "invoke", A, "ack", token=1, ends=50, process="c1"),
        settle(73, "refused", A, "ack", token=1, ends=50, process="c1"),
        delivery(75, B, "poison-1", token=3, attempt=1, ends=120, process="c2"),
        settle(76, "invoke", B, "nak", token=3, ends=120, process="c2", call=2),
        settle(77, "ok", B, "nak", token=3, ends=120, process="c2", call=2, state="failed"),
        step(80, "stats", "ok", "w", asked_at=79, group="default", stats=stats()),
    ]
    first = [
        Entry(3, "send", "ready", None, 0),
        Entry(11, "receive", "leased", "default", 1),
        Entry(50, "lease_end", "ready", "default", 1),
        Entry(61, "receive", "leased", "default", 2),
        Entry(70, "ack", "succeeded", "default", 2),
    ]
    second = [
        Entry(3, "send", "ready", None, 0),
        Entry(74, "receive", "leased", "default", 1),
        Entry(76, "nak", "failed", "default", 1),
    ]
    return history, Dump({A: Fate("plain-1", first), B: Fate("poison-1", second, letters=1)}, {"default": stats()}, 1)


def step(t: int, op: str, type: str, process: str, **fields: object) -> Step:
    return {"t": t, "op": op, "type": type, "process": process, "n": t, "queue": "work", **fields}


def delivery(
    t: int, id: str, payload: str, token: int, attempt: int, ends: int, process: str, asked_at: int | None = None
) -> Step:
    return step(
        t,
        "delivery",
        "ok",
        process,
        id=id,
        payload=payload,
        token=token,
        attempt=attempt,
        group="default",
        asked_at=t - 2 if asked_at is None else asked_at,
        lease_ends_at=ends,
        available_at=None,
        expires_at=None,
    )


def settle(
    t: int, type: str, id: str, verb: str, token: int, ends: int, process: str, state: str | None = None, call: int = 1
) -> Step:
    return step(
        t,
        "settle",
        type,
        process,
        id=id,
        verb=verb,
        token=token,
        group="default",
        call=call,
        lease_ends_at=ends,
        state=state,
    )


def stats() -> dict[str, object]:
    return {"held": 0, "available": 0, "redo": 0, "in_progress": 0, "outcomes": dict(OUTCOMES)}


def lose_a_message(history: list[Step], dump: Dump) -> None:
    del dump.fates[B]


def deliver_what_nobody_sent(history: list[Step], dump: Dump) -> None:
    history.append(delivery(75, "ghost", "plain-99", token=9, attempt=1, ends=76, process="c1"))


def write_half_a_send(history: list[Step], dump: Dump) -> None:
    dump.fates = {A: dump.fates[A]}
    history[:] = [one for one in history if one["op"] != "send" or one["type"] == "invoke"]


def send_again_under_a_new_id(history: list[Step], dump: Dump) -> None:
    dump.fates["other"] = copy.deepcopy(dump.fates[A])


def lease_twice(history: list[Step], dump: Dump) -> None:
    history.append(delivery(30, A, "plain-1", token=5, attempt=2, ends=90, process="c3"))


def give_a_lower_token(history: list[Step], dump: Dump) -> None:
    for one in history:
        if one.get("id") == A and one.get("token") == 2:
            one["token"] = 0


def give_a_lower_token_to_a_receive_that_overlapped(history: list[Step], dump: Dump) -> None:
    history.append(delivery(78, B, "poison-1", token=2, attempt=2, ends=120, process="c1", asked_at=70))
    history.append(settle(79, "invoke", B, "nak", token=2, ends=120, process="c1", call=2))
    history.append(settle(80, "ok", B, "nak", token=2, ends=120, process="c1", call=2, state="failed"))


def accept_a_stale_token(history: list[Step], dump: Dump) -> None:
    next(one for one in history if one["type"] == "refused").update(type="ok", state="ready", repeat=False)


def accept_after_the_end(history: list[Step], dump: Dump) -> None:
    for one in history:
        if one["op"] == "settle" and one["id"] == B:
            one["lease_ends_at"] = 76


def settle_for_good_twice(history: list[Step], dump: Dump) -> None:
    next(one for one in history if one["type"] == "refused").update(type="ok", state="succeeded", repeat=True)


def skip_an_attempt(history: list[Step], dump: Dump) -> None:
    trail = dump.fates[A].trail
    trail[3] = trail[3]._replace(attempt=3)


def retry_for_ever(history: list[Step], dump: Dump) -> None:
    dump.max_retries = 0


def forgive_poison(history: list[Step], dump: Dump) -> None:
    dump.fates[B].trail[-1] = Entry(76, "ack", "succeeded", "default", 1)
    dump.fates[B].letters = 0


def bury_twice(history: list[Step], dump: Dump) -> None:
    dump.fates[B].letters = 2


def end_twice(history: list[Step], dump: Dump) -> None:
    dump.fates[A].trail.append(Entry(90, "ack", "succeeded", "default", 2))


def miscount(history: list[Step], dump: Dump) -> None:
    dump.stats["default"]["outcomes"]["succeeded"] = 2


def miscount_on_the_way(history: list[Step], dump: Dump) -> None:
    history[-1]["stats"]["in_progress"] = 1


def jump_in_the_trail(history: list[Step], dump: Dump) -> None:
    del dump.fates[A].trail[2]


def leave_a_delivery_out_of_the_trail(history: list[Step], dump: Dump) -> None:
    del dump.fates[A].trail[1:3]


def leave_a_message_live(history: list[Step], dump: Dump) -> None:
    dump.fates[B].trail.pop()


def go_back_in_time(history: list[Step], dump: Dump) -> None:
    trail = dump.fates[A].trail
    trail[4] = trail[4]._replace(at=2)


def redeliver_at_most_once(history: list[Step], dump: Dump) -> None:
    dump.fates[A].payload = "once-1"
    history[0]["payloads"][0] = history[1]["payloads"][0] = "once-1"


def deliver_early(history: list[Step], dump: Dump) -> None:
    history[2]["available_at"] = 40


def deliver_late(history: list[Step], dump: Dump) -> None:
    history[3]["expires_at"] = 60


def change_a_payload(history: list[Step], dump: Dump) -> None:
    history[1]["payloads"] = ["plain-2", "poison-1"]
    history[0]["payloads"] = ["plain-1", "plain-2", "poison-1"]


def end_a_batch_twice(history: list[Step], dump: Dump) -> None:
    dump.batches["b"] = (["poison-1"], "plain-1")
    dump.fates["other"] = copy.deepcopy(dump.fates[A])


def end_a_batch_too_early(history: list[Step], dump: Dump) -> None:
    dump.batches["b"] = (["poison-1"], "plain-1")


def fire_a_tick_twice(history: list[Step], dump: Dump) -> None:
    dump.ticks_expected = 1
    dump.fates[A].payload = dump.fates[B].payload = "tick"


PLANTED: list[tuple[str, Callable[[list[Step], Dump], None]]] = [
    ("I01", lose_a_message),
    ("I02", deliver_what_nobody_sent),
    ("I03", write_half_a_send),
    ("I04", send_again_under_a_new_id),
    ("I06", lease_twice),
    ("I07", give_a_lower_token),
    ("I07", give_a_lower_token_to_a_receive_that_overlapped),
    ("I08", accept_a_stale_token),
    ("I08", accept_after_the_end),
    ("I09", settle_for_good_twice),
    ("I12", redeliver_at_most_once),
    ("I13", deliver_late),
    ("I14", deliver_early),
    ("I15", skip_an_attempt),
    ("I16", retry_for_ever),
    ("I16", forgive_poison),
    ("I18", miscount),
    ("I18", miscount_on_the_way),
    ("I19", bury_twice),
    ("I19", end_twice),
    ("I20", jump_in_the_trail),
    ("I20", leave_a_delivery_out_of_the_trail),
    ("I20", leave_a_message_live),
    ("I20", go_back_in_time),
    ("I22", change_a_payload),
    ("I29", end_a_batch_twice),
    ("I29", end_a_batch_too_early),
    ("I30", fire_a_tick_twice),
]


def test_a_good_run_has_no_violations() -> None:
    assert check(*good()) == []


@pytest.mark.parametrize(("invariant", "plant"), PLANTED, ids=[plant.__name__ for _, plant in PLANTED])
def test_a_planted_bug_is_flagged(invariant: str, plant: Callable[[list[Step], Dump], None]) -> None:
    history, dump = good()
    plant(history, dump)
    assert invariant in {violation.invariant for violation in check(history, dump)}
