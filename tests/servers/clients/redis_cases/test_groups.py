"""Redis' cases of reading as a group and of XACK and XPENDING; docs/seeds.md says which test runs which case."""

from __future__ import annotations

import time
from pathlib import Path

from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.queue_status import until
from tests.servers.clients.redis_cases.case import Case, entries, ids, pairs, values
from tests.servers.clients.redis_cases.test_entries import number
from tests.servers.clients.wire import Wire


def test_a_group_is_made_once(case: Case) -> None:
    case.add(1)
    assert case("XGROUP", "CREATE", case.key(), "g", "$") == b"OK"
    assert case.error("XGROUP", "CREATE", case.key(), "g", "$").startswith("BUSYGROUP")


def test_a_group_may_be_said_to_have_read_entries(case: Case) -> None:
    case.add(4)
    refusal = case.error("XGROUP", "CREATE", case.key(), "g", "$", "ENTRIESREAD", -3)
    assert "value for ENTRIESREAD must be positive or -1" in refusal
    case("XGROUP", "CREATE", case.key(), "zero", "$", "ENTRIESREAD", 0)
    case("XGROUP", "CREATE", case.key(), "three", "$", "ENTRIESREAD", 3)
    assert {name: row["entries-read"] for name, row in case.groups().items()} == {"zero": 0, "three": 3}


def test_a_group_needs_its_stream(case: Case) -> None:
    assert case.error("XGROUP", "CREATE", case.key(), "g", "$").startswith("ERR")
    assert case("XGROUP", "CREATE", case.key(), "g", "$", "MKSTREAM") == b"OK"


def test_a_group_reads_what_is_new(case: Case) -> None:
    case.add(1)
    case.group("$")
    case("XADD", case.key(), "*", "a", 1)
    case("XADD", case.key(), "*", "b", 2)
    assert [fields for _, fields in case.read()] == [[b"a", b"1"], [b"b", b"2"]]


def test_a_consumer_reads_again_what_it_holds(case: Case) -> None:
    case.group()
    case.add(2)
    first = case.read(consumer="one")
    case.add(2)
    second = case.read(consumer="two")
    assert case.read("COUNT", 10, consumer="one", start="0") == first
    assert case.read("COUNT", 10, consumer="two", start="0") == second


def held_by_two(case: Case) -> list[bytes]:
    """Four entries: the first two are held by one, the others by two."""
    case.group()
    added = case.add(4)
    case.read("COUNT", 2, consumer="one")
    case.read("COUNT", 2, consumer="two")
    return added


def test_xpending_lists_what_is_held(case: Case) -> None:
    added = held_by_two(case)
    assert [row[:2] for row in case.pending()] == [
        [entry, owner] for entry, owner in zip(added, [b"one", b"one", b"two", b"two"], strict=True)
    ]
    assert len(case.pending("-", "+", 10, "one")) == 2
    assert case("XPENDING", case.key(), "g") == [4, added[0], added[3], [[b"one", b"2"], [b"two", b"2"]]]


def test_xpending_by_idle_time(case: Case) -> None:
    held_by_two(case)
    case.pass_milliseconds(20)
    for consumer, count in (["one"], 2), ([], 4):
        assert case.pending("IDLE", 99999999, "-", "+", 10, *consumer) == []
        assert len(case.pending("IDLE", 1, "-", "+", 10, *consumer)) == count


def test_xpending_may_leave_its_ends_out(case: Case) -> None:
    added = held_by_two(case)
    found = case.pending(f"({added[0].decode()}", f"({added[3].decode()}", 10)
    assert [row[0] for row in found] == added[1:3]


def test_xack_removes_from_what_is_held(case: Case) -> None:
    added = held_by_two(case)
    assert case("XACK", case.key(), "g", added[0]) == 1
    assert [row[0] for row in case.pending("-", "+", 10, "one")] == [added[1]]
    assert len(case.pending()) == 3
    assert case("XACK", case.key(), "g", added[0]) == 0
    assert case("XACK", case.key(), "g", added[0], added[1]) == 1


def test_xack_with_a_wrong_id_does_nothing(case: Case) -> None:
    case.group()
    [entry] = case.add(1)
    case.read()
    assert "Invalid stream ID specified" in case.error("XACK", case.key(), "g", entry, "invalid-id")
    assert case("XACK", case.key(), "g", entry) == 1


def test_a_group_that_is_moved_back_leaves_what_is_held(ours: Case) -> None:
    """Redis gives an entry that is held to a second consumer; here an entry has one holder."""
    before = ours.add(4)
    ours.group("$")
    [held] = ours.add(1)
    assert ids(ours.read(consumer="one")) == [held]
    assert ours("XGROUP", "SETID", ours.key(), "g", "-") == b"OK"
    assert ids(ours.read(consumer="two")) == before
    assert [row[0] for row in ours.pending("-", "+", 10, "one")] == [held]


def test_nothing_held_is_an_empty_history(case: Case) -> None:
    added = case.add(3)
    case.group()
    assert case.pending() == []
    assert case.read("COUNT", 3, start="0") == []
    assert ids(case.read("COUNT", 3)) == added
    assert ids(case.read("COUNT", 3, start="0")) == added


def test_what_was_removed_is_no_longer_held(ours: Case) -> None:
    """Redis shows a removed entry in the history, without its fields."""
    ours.group()
    ours.add(1)
    ours.read()
    last = ours("XADD", ours.key(), "MAXLEN", 1, "*", "n", "B")
    ours.read()
    assert ours.read(start="0-1") == [(last, [b"n", b"B"])]


def test_a_group_that_finds_nothing_is_told_nil(case: Case) -> None:
    case.group("$")
    [entry] = case.add(1)
    assert ids(case.read("BLOCK", 10)) == [entry]
    [gone] = case.add(1)
    case("XDEL", case.key(), gone)
    assert case("XREADGROUP", "GROUP", "g", "c", "BLOCK", 10, "STREAMS", case.key(), ">") is None


def waiting_group(case: Case) -> Wire:
    case.add(1)
    case.group("$")
    return case.block("XREADGROUP", "GROUP", "g", "Alice", "BLOCK", 0, "STREAMS", case.key(), ">")


def test_a_deleted_key_ends_the_wait(case: Case) -> None:
    case.needs(7, 2)
    waiting = waiting_group(case)
    case("DEL", case.key())
    assert waiting.read().value.startswith(b"NOGROUP")


def test_a_flushed_database_ends_the_wait(case: Case) -> None:
    case.needs(7, 2)
    waiting = waiting_group(case)
    case("FLUSHDB")
    assert waiting.read().value.startswith(b"NOGROUP")


def test_a_destroyed_group_ends_the_wait(case: Case) -> None:
    waiting = waiting_group(case)
    assert case("XGROUP", "DESTROY", case.key(), "g") == 1
    assert waiting.read().value.startswith(b"NOGROUP")


def test_rename_is_refused(ours: Case) -> None:
    """In Redis a stream that is renamed to the key of a waiting client ends its wait."""
    ours.group("$")
    ours.add(1, ours.key("t"))
    assert "cannot be renamed" in ours.error("RENAME", ours.key("t"), ours.key())
    assert ours("EXISTS", ours.key(), ours.key("t")) == 2


def test_a_group_waits_for_a_stream_that_ran_dry(case: Case) -> None:
    case.group("$")
    [entry] = case.add(1)
    case("XDEL", case.key(), entry)
    assert case("XREADGROUP", "GROUP", "g", "c", "BLOCK", 10, "STREAMS", case.key(), ">") is None
    waiting = case.block("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", case.key(), ">")
    [new] = case.add(1)
    assert ids(entries(waiting.read().plain)) == [new]


def test_reading_what_is_held_does_not_wait(case: Case) -> None:
    case.group("$")

    def held_after(*starts: str) -> list[list[bytes]]:
        return [ids(case.read("BLOCK", 0, start=start)) for start in starts]

    assert held_after("0", "600", "99999999999999") == [[], [], []]
    [entry] = case.add(1)
    time_of, own = str(number(entry)[0] - 1), entry.decode()
    assert held_after("0", time_of, own) == [[], [], []]
    assert ids(case.read("BLOCK", 0)) == [entry]
    assert held_after("0", "600", time_of) == [[entry]] * 3
    assert held_after(own, "99999999999999") == [[], []]
    case("XACK", case.key(), "g", entry)
    assert held_after("0", "600", own) == [[], [], []]


def test_one_entry_wakes_one_of_many(case: Case) -> None:
    case.group("$")
    words = ("XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "BLOCK", 10000, "STREAMS", case.key(), ">")
    waiting = [case.block(*words) for _ in range(3)]
    case("XADD", case.key(), "MAXLEN", 5000, "*", "a", 1, "b", 2)
    until(lambda: case.blocked() == 2)
    for one in waiting:
        one.close()
    until(lambda: case.blocked() == 0)
    assert case("PING") == b"PONG"
    assert len(case.pending()) == 1


def test_an_entry_for_another_does_not_prolong_the_wait(case: Case) -> None:
    case.group("$")
    case.block("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", case.key(), ">")
    began = time.monotonic()
    second = case.block("XREADGROUP", "GROUP", "g", "c", "BLOCK", 400, "STREAMS", case.key(), ">")
    case.pass_milliseconds(100)
    case.add(1)
    assert second.read().plain is None
    assert 0.39 <= time.monotonic() - began < 30


def test_history_is_read_inside_a_transaction(case: Case) -> None:
    case("XADD", case.key(), "*", "a", "b", "c", "d")
    case.group()
    held = case.read("COUNT", 1)
    words = ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", case.key(), "0")
    [reply] = case.pipeline(("MULTI",), words, ("EXEC",))[-1]
    assert entries(reply) == held


def test_consumers_are_made_by_name(case: Case) -> None:
    case.group("$")
    case.add(1)
    assert case.groups()["g"]["consumers"] == 0
    case.read("COUNT", 1, consumer="Alice")
    assert case.groups()["g"]["consumers"] == 1
    assert case("XGROUP", "CREATECONSUMER", case.key(), "g", "Alice") == 0
    assert case("XGROUP", "CREATECONSUMER", case.key(), "g", "Bob") == 1
    assert case.groups()["g"]["consumers"] == 2
    assert [row["name"] for row in case.consumers()] == [b"Alice", b"Bob"]


def test_a_consumer_needs_its_group(case: Case) -> None:
    case.add(1)
    assert case.error("XGROUP", "CREATECONSUMER", case.key(), "g", "c").startswith("NOGROUP")


def test_noack_makes_consumers_too(case: Case) -> None:
    case.group("$")
    case.add(1)
    assert values(case.read("NOACK", consumer="Alice")) == [b"0"]
    words = ("XREADGROUP", "GROUP", "g", "Bob", "BLOCK", 0, "NOACK", "STREAMS", case.key(), ">")
    waiting = case.block(*words)
    case.add(1)
    assert values(entries(waiting.read().plain)) == [b"0"]
    assert [row["name"] for row in case.consumers()] == [b"Alice", b"Bob"]
    assert case.pending() == []


def test_an_idle_consumer_is_forgotten_when_the_server_restarts(tmp_path: Path) -> None:
    """Redis writes down every consumer, Penstock those that hold something."""
    with PenstockServer(tmp_path) as server:
        server.start()
        with Wire(server.port) as wire:
            wire.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
            wire.call("XADD", "s", "*", "a", "1")
            wire.call("XREADGROUP", "GROUP", "g", "Alice", "STREAMS", "s", ">")
            wire.call("XGROUP", "CREATECONSUMER", "s", "g", "Charlie")
        server.stop()
        server.start()
        with Wire(server.port) as wire:
            assert [pairs(row)["name"] for row in wire.call("XINFO", "CONSUMERS", "s", "g")] == [b"Alice"]
