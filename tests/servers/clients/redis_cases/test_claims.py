"""Redis' cases of XCLAIM and XAUTOCLAIM; docs/seeds.md says which test runs which case."""

from __future__ import annotations

from tests.servers.clients.redis_cases.case import Case, ids


def owners(case: Case) -> list[bytes]:
    return [row[1] for row in case.pending()]


def claimed(case: Case, consumer: str, *words: bytes | str) -> list[bytes]:
    found = case("XCLAIM", case.key(), "g", consumer, 10, *words)
    return [one if isinstance(one, bytes) else one[0] for one in found]


def held(case: Case, count: int) -> list[bytes]:
    """So many entries, all of them held by alice for a while."""
    added = case.add(count)
    case.group()
    assert ids(case.read(consumer="alice")) == added
    case.pass_milliseconds(30)
    return added


def test_xclaim_takes_from_another_consumer(case: Case) -> None:
    first, second, third = case.add(3)
    case.group()
    case.read("COUNT", 1, consumer="one")
    assert owners(case) == [b"one"]
    case.pass_milliseconds(30)
    assert claimed(case, "two", first) == [first]
    assert owners(case) == [b"two"]
    case.read("COUNT", 2, consumer="one")
    case.pass_milliseconds(30)
    for entry in (second, third):
        case("XDEL", case.key(), entry)
        assert claimed(case, "two", entry) == []


def test_xclaim_counts_a_delivery_unless_it_wants_ids_only(case: Case) -> None:
    [first] = case.add(1)
    case.group()
    case.read(consumer="one")
    case.pass_milliseconds(30)
    assert claimed(case, "two", first) == [first]
    assert [row[3] for row in case.pending()] == [2]
    case.pass_milliseconds(30)
    assert claimed(case, "three", first, "JUSTID") == [first]
    assert [row[3] for row in case.pending()] == [2]


def test_xclaim_of_what_one_holds(case: Case) -> None:
    [first] = case.add(1)
    case.group()
    case.read(consumer="one")
    case.pass_milliseconds(30)
    assert claimed(case, "one", first) == [first]
    assert owners(case) == [b"one"]


def test_xclaim_leaves_out_what_was_removed(case: Case) -> None:
    first, second, third = held(case, 3)
    case("XDEL", case.key(), second)
    assert claimed(case, "bob", first, second, third) == [first, third]
    assert case.pending("-", "+", 10, "alice") == []


def test_xclaim_leaves_out_what_was_trimmed(case: Case) -> None:
    first, second, third = held(case, 3)
    case("XTRIM", case.key(), "MAXLEN", 1)
    assert claimed(case, "bob", first, second, third) == [third]
    assert case.pending("-", "+", 10, "alice") == []


def test_xautoclaim_takes_from_another_consumer(case: Case) -> None:
    [first] = held(case, 1)
    cursor, found, gone = case("XAUTOCLAIM", case.key(), "g", "bob", 10, "-", "COUNT", 1)
    assert (cursor, found, gone) == (b"0-0", [[first, [b"n", b"0"]]], [])
    case.pass_milliseconds(30)
    assert case("XAUTOCLAIM", case.key(), "g", "carol", 10, "-", "JUSTID") == [b"0-0", [first], []]


def test_xautoclaim_goes_through_what_is_held(case: Case) -> None:
    added = held(case, 5)
    found, cursor, steps = [], b"-", []
    for count in (2, 2, 1):
        cursor, part, _ = case("XAUTOCLAIM", case.key(), "g", "bob", 10, cursor, "COUNT", count)
        found += [one for one, _ in part]
        steps.append(cursor)
    assert found == added
    assert steps == [added[2], added[4], b"0-0"]


def test_xautoclaim_needs_a_count_above_zero(case: Case) -> None:
    for count in (0, 8070450532247928833):
        assert case.error("XAUTOCLAIM", case.key(), "g", "c", 1, 1, "COUNT", count) == "ERR COUNT must be > 0"


def test_xautoclaim_does_not_tell_what_was_removed(ours: Case) -> None:
    """Redis keeps removed entries pending, and names them when it clears them."""
    first, second, third, fourth = held(ours, 4)
    ours("XDEL", ours.key(), second)
    ours("XTRIM", ours.key(), "MINID", second)
    cursor, found, gone = ours("XAUTOCLAIM", ours.key(), "g", "bob", 0, "0-0", "COUNT", 1)
    assert (cursor, [one for one, _ in found], gone) == (fourth, [third], [])
    assert [row[0] for row in ours.pending()] == [third, fourth]
    assert ours("XACK", ours.key(), "g", first, second) == 0
