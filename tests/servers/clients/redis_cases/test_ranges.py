"""Redis' cases of XRANGE, XREVRANGE and XREAD; docs/seeds.md says which test runs which case."""

from __future__ import annotations

import random

from tests.servers.clients.redis_cases.case import Case, entries, ids, values
from tests.servers.clients.redis_cases.test_entries import LAST_ID, number


def test_count_bounds_a_range(case: Case) -> None:
    added = case.add(30)
    assert [one for one, _ in case("XRANGE", case.key(), "-", "+", "COUNT", 10)] == added[:10]
    assert [one for one, _ in case("XREVRANGE", case.key(), "+", "-", "COUNT", 10)] == added[:-11:-1]


def test_a_stream_is_gone_through_range_by_range(case: Case) -> None:
    added, found = case.add(250), []
    start = "-"
    while part := case("XRANGE", case.key(), start, "+", "COUNT", 100):
        found += [one for one, _ in part]
        milliseconds, sequence = number(part[-1][0])
        start = f"{milliseconds}-{sequence + 1}"
    assert found == added


def test_xrevrange_is_the_reverse(case: Case) -> None:
    case.add(50)
    assert case("XREVRANGE", case.key(), "+", "-") == case("XRANGE", case.key(), "-", "+")[::-1]


def test_ranges_may_leave_their_ends_out(case: Case) -> None:
    added = case.add(5)

    def between(start: str, end: str) -> list[bytes]:
        return [one for one, _ in case("XRANGE", case.key(), start, end)]

    first, second, fourth, last = (added[place].decode() for place in (0, 1, 3, 4))
    assert between(f"({first}", "+") == added[1:]
    assert between("-", f"({last}") == added[:-1]
    assert between(f"({second}", f"({fourth}") == added[2:3]
    for start, end in (("(-", "+"), ("-", "(+"), (f"({LAST_ID}", "+"), ("-", "(0-0")):
        assert case.error("XRANGE", case.key(), start, end).startswith("ERR")


def test_any_range_is_what_lies_between_its_ids(case: Case) -> None:
    added = []
    for _ in range(8):
        added += case.add(3)
        case.pass_milliseconds(2)
    rng = random.Random(7)
    low, high = number(added[0])[0] - 2, number(added[-1])[0] + 2
    sequences = [0, 1, *(number(one)[1] for one in added), 10**6]
    for _ in range(60):
        start, end = ((rng.randint(low, high), rng.choice(sequences)) for _ in range(2))
        found = case("XRANGE", case.key(), f"{start[0]}-{start[1]}", f"{end[0]}-{end[1]}")
        assert [one for one, _ in found] == [one for one in added if start <= number(one) <= end]


def test_a_range_backwards_may_end_at_a_time(case: Case) -> None:
    added = []
    for _ in range(3):
        added += case.add(1)
        case.pass_milliseconds()
    between = number(added[2])[0] - 1
    assert [one for one, _ in case("XREVRANGE", case.key(), between, "-")] == added[1::-1]


# -- XREAD -------------------------------------------------------------------------------------------------------------


def test_xread_reads_a_stream_from_its_beginning(case: Case) -> None:
    case.add(2)
    assert values(entries(case("XREAD", "COUNT", 1, "STREAMS", case.key(), "0-0"))) == [b"0"]


def test_xread_of_empty_streams_is_nothing(case: Case) -> None:
    assert case("XREAD", "STREAMS", case.key(), case.key("t"), "0-0", "0-0") is None


def test_xread_skips_streams_without_entries(case: Case) -> None:
    case.add(2)
    [[name, found]] = case("XREAD", "COUNT", 1, "STREAMS", case.key("none"), case.key(), "0-0", "0-0")
    assert name.decode() == case.key()
    assert found[0][1] == [b"n", b"0"]


def test_xread_waits_for_what_is_new(case: Case) -> None:
    keys = [case.key(name) for name in ("a", "b", "c")]
    case("XADD", keys[1], "*", "old", "abcd1234")
    waiting = case.block("XREAD", "BLOCK", 20000, "STREAMS", *keys, "$", "$", "$")
    case("XADD", keys[1], "*", "new", "abcd1234")
    [[name, found]] = waiting.read().plain
    assert (name.decode(), found[0][1]) == (keys[1], [b"new", b"abcd1234"])


def test_xread_does_not_wait_for_what_is_there(case: Case) -> None:
    keys = [case.key(name) for name in ("a", "b", "c")]
    case("XADD", keys[1], "*", "old", "abcd1234")
    [[name, found]] = case("XREAD", "BLOCK", 20000, "STREAMS", *keys, "$", "0-0", "$")
    assert (name.decode(), found[0][1]) == (keys[1], [b"old", b"abcd1234"])


def test_xread_that_finds_nothing_is_nil(case: Case) -> None:
    first, second = case.add(2)
    case("XDEL", case.key(), second)
    assert case("XREAD", "BLOCK", 10, "STREAMS", case.key(), first) is None


def test_xread_waits_for_a_stream_that_ran_dry(case: Case) -> None:
    [entry] = case.add(1)
    case("XDEL", case.key(), entry)
    before = f"{number(entry)[0] - 1}-0"
    assert case("XREAD", "BLOCK", 10, "STREAMS", case.key(), before) is None
    waiting = case.block("XREAD", "BLOCK", 0, "STREAMS", case.key(), before)
    case.pass_milliseconds()
    [new] = case.add(1)
    assert entries(waiting.read().plain) == [(new, [b"n", b"0"])]


def test_plus_is_the_last_entry(case: Case) -> None:
    case.needs(7, 4)
    added = case.add(3)
    assert ids(entries(case("XREAD", "STREAMS", case.key(), "+"))) == added[-1:]
    assert ids(entries(case("XREAD", "COUNT", 3, "STREAMS", case.key(), "+"))) == added[-1:]
    assert ids(entries(case("XREAD", "BLOCK", 1000000, "STREAMS", case.key(), "+"))) == added[-1:]


def test_plus_of_an_empty_stream_is_nothing(case: Case) -> None:
    case.needs(7, 4)
    assert case("XREAD", "STREAMS", case.key(), "+") is None
    [entry] = case.add(1)
    case("XDEL", case.key(), entry)
    assert case("XREAD", "STREAMS", case.key(), "+") is None


def test_plus_waits_for_an_empty_stream(case: Case) -> None:
    case.needs(7, 4)
    waiting = case.block("XREAD", "BLOCK", 20000, "STREAMS", case.key(), "+")
    [entry] = case.add(1)
    assert entries(waiting.read().plain) == [(entry, [b"n", b"0"])]


def test_plus_of_several_streams(case: Case) -> None:
    case.needs(7, 4)
    keys = [case.key(name) for name in ("a", "b", "none")]
    lasts = [case.add(3, key)[-1] for key in keys[:2]]
    found = case("XREAD", "STREAMS", *keys, "+", "+", "+")
    assert [(name.decode(), part[0][0]) for name, part in found] == list(zip(keys, lasts, strict=False))


def test_what_is_deleted_at_once_wakes_nobody(case: Case) -> None:
    waiting = case.block("XREAD", "BLOCK", 20000, "STREAMS", case.key(), "$")
    case.pipeline(("MULTI",), ("XADD", case.key(), "*", "old", "x"), ("DEL", case.key()), ("EXEC",))
    case("XADD", case.key(), "*", "new", "x")
    assert [fields for _, fields in entries(waiting.read().plain)] == [[b"new", b"x"]]


def test_a_stream_may_be_named_several_times(case: Case) -> None:
    case("XADD", case.key(), "*", "old", "x")
    waiting = case.block("XREAD", "BLOCK", 20000, "STREAMS", *[case.key()] * 3, "$", "$", "$")
    case("XADD", case.key(), "*", "new", "x")
    assert [fields for _, fields in entries(waiting.read().plain)] == [[b"new", b"x"]]


def test_what_a_transaction_adds_is_read_together(case: Case) -> None:
    case("XADD", case.key(), "*", "old", "x")
    waiting = case.block("XREAD", "BLOCK", 20000, "STREAMS", *[case.key()] * 3, "$", "$", "$")
    adds = [("XADD", case.key(), "*", "field", word) for word in ("one", "two", "three")]
    case.pipeline(("MULTI",), *adds, ("EXEC",))
    assert values(entries(waiting.read().plain)) == [b"one", b"two", b"three"]


def test_the_last_sequence_of_a_millisecond_is_passed(case: Case) -> None:
    [first] = case.add(1)
    edge = f"{number(first)[0]}-18446744073709551615"
    waiting = case.block("XREAD", "BLOCK", 0, "STREAMS", case.key(), edge)
    case.pass_milliseconds()
    [later] = case.add(1)
    assert ids(entries(waiting.read().plain)) == [later]
    assert ids(entries(case("XREAD", "BLOCK", 0, "STREAMS", case.key(), edge))) == [later]


def test_xread_goes_on_waiting_when_the_key_is_deleted(case: Case) -> None:
    case.add(1)
    waiting = case.block("XREAD", "BLOCK", 0, "STREAMS", case.key(), "$")
    case("DEL", case.key())
    case.pass_milliseconds()
    [entry] = case.add(1)
    assert ids(entries(waiting.read().plain)) == [entry]


def test_each_stream_needs_an_id(case: Case) -> None:
    case.needs(7, 4)
    case.group()
    assert case.error("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", case.key()) == (
        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
    )
    assert case.error("XREAD", "COUNT", 1, "STREAMS", case.key()) == (
        "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
    )
