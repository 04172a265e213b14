"""Addresses in histories: planted violations, and what only looks like one."""

from __future__ import annotations

from penstock.chaos.checker import check
from tests.chaos.histories import QUEUE, Script

TAKEN = "DuplicateAddress: the address is taken"


def refused(script: Script, at: float, message: str) -> None:
    described = [{"message": message, "address": "a"}]
    call = script._add("other", "send", "invoke", at, queue=QUEUE, messages=described)
    script._add("other", "send", "fail", at + 0.01, call=call, refusal=TAKEN)


def found(script: Script) -> list[str]:
    return [one.law for one in check(script.sorted()) if one.law.startswith("address")]


def test_two_live_messages_of_an_address_are_found() -> None:
    script = Script()
    script.send(1, "m1", address="a")
    script.send(2, "m2", address="a")
    script.receive(3, ("m1", 9, 1), ("m2", 9, 1))
    assert found(script) == ["address: one live message"]


def test_the_next_message_of_an_address_follows_the_end_of_the_first() -> None:
    script = Script()
    script.send(1, "m1", address="a")
    script.receive(2, ("m1", 9, 1))
    script.settle(2.1, "m1", 9, state="succeeded")
    script.send(3, "m2", address="a")
    script.receive(4, ("m2", 10, 1))
    assert found(script) == []


def test_a_refused_send_to_a_free_address_is_found() -> None:
    script = Script()
    script.send(1, "m1", address="a")
    script.receive(2, ("m1", 9, 1))
    script.settle(2.1, "m1", 9, state="succeeded")
    refused(script, 3, "m2")
    assert found(script) == ["address: a free one is not refused"]


def test_a_send_without_a_reply_may_hold_the_address() -> None:
    script = Script()
    script.send(1, "m1", address="a", kind="killed")
    refused(script, 3, "m2")
    assert found(script) == []


def test_an_end_without_a_reply_may_have_failed() -> None:
    script = Script()
    script.send(1, "m1", address="a")
    script.receive(2, ("m1", 9, 1))
    script.settle(2.1, "m1", 9, kind="unknown")
    refused(script, 3, "m2")
    assert found(script) == []
