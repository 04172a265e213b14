"""Redis' cases of XINFO, XSETID and lag; docs/seeds.md says which test runs which case."""

from __future__ import annotations

import time
from typing import Any

from tests.servers.clients.redis_cases.case import Case, pairs


def test_xsetid_is_checked(case: Case) -> None:
    assert case.error("XSETID", case.key(), "1-1") == "ERR no such key"
    assert case.error("XSETID", case.key(), "1-1", 0).startswith("ERR syntax error")
    assert case.error("XSETID", case.key(), "1-1", "0-0").startswith("ERR syntax error")
    added = case("XADD", case.key(), "*", "a", "b")
    tombstone = ("ENTRIESADDED", -1, "MAXDELETEDID", "0-0")
    assert case.error("XSETID", case.key(), "1-1", *tombstone).endswith("must be positive")
    assert "smaller" in case.error("XSETID", case.key(), "1-1")
    assert "smaller" in case.error("XSETID", case.key(), "1-0", "ENTRIESADDED", 1, "MAXDELETEDID", "2-0")
    assert "smaller" in case.error("XSETID", case.key(), added, "ENTRIESADDED", 0, "MAXDELETEDID", "0-0")
    assert case("XSETID", case.key(), added) == b"OK"


def test_xsetid_changes_nothing(ours: Case) -> None:
    """In Redis it sets the last id and the counters of a stream."""
    first, last = ours.add(2)
    ours("XDEL", ours.key(), last)
    for entry in (last, "99999999999999-0"):
        assert "cannot change a stream" in ours.error("XSETID", ours.key(), entry)
    assert ours.info()["last-generated-id"] == first


def test_entries_are_counted_as_they_are_added(case: Case) -> None:
    first = case("XADD", case.key(), "*", "data", "a")
    for count in (1, 2):
        told = case.info("FULL")
        assert (told["entries-added"], told["recorded-first-entry-id"]) == (count, first)
        case("XADD", case.key(), "*", "data", "a")


def test_the_first_entry_follows_what_is_removed(case: Case) -> None:
    added = case.add(5)
    assert case.info("FULL")["entries-added"] == 5
    for words, first in (
        (("XDEL", case.key(), added[1]), added[0]),
        (("XDEL", case.key(), added[0]), added[2]),
        (("XTRIM", case.key(), "MAXLEN", "=", 2), added[3]),
    ):
        case(*words)
        assert case.info("FULL")["recorded-first-entry-id"] == first


def test_removed_entries_are_not_written_down(ours: Case) -> None:
    """Redis knows the largest id that XDEL removed, and counts what was added ever."""
    added = ours.add(3)
    ours("XDEL", ours.key(), added[1])
    told = ours.info("FULL")
    assert (told["max-deleted-entry-id"], told["entries-added"]) == (b"0-0", 2)


def test_help_takes_nothing(case: Case) -> None:
    for name in ("xgroup", "xinfo"):
        assert case.error(name, "help", "xxx") == f"ERR wrong number of arguments for '{name}|help' command"


def test_everything_of_a_stream_is_told(case: Case) -> None:
    added = case.add(5)
    for group in ("g1", "g2"):
        case.group(name=group)
    case.read("COUNT", 1, group="g1", consumer="Alice")
    case.read("COUNT", 1, group="g1", consumer="Bob")
    case.read("NOACK", "COUNT", 1, group="g1", consumer="Bob")
    case.read("COUNT", 4, group="g2", consumer="Charlie")
    case("XDEL", case.key(), added[3])
    told = case.info("FULL")
    assert (len(told), told["length"]) == (9, 4)
    assert [one for one, _ in told["entries"]] == added[:3] + added[4:]
    (name1, pending1, alice), (name2, _, charlie) = [
        (row["name"], row["pending"], pairs(row["consumers"][0])) for row in map(pairs, told["groups"])
    ]
    assert (name1, pending1[0][0], alice["name"], alice["pending"][0][0]) == (b"g1", added[0], b"Alice", added[0])
    assert (name2, charlie["name"]) == (b"g2", b"Charlie")
    assert [row[0] for row in charlie["pending"][:2]] == added[:2]
    assert [one for one, _ in case.info("FULL", "COUNT", 1)["entries"]] == added[:1]


def test_a_consumer_is_seen_and_active(case: Case) -> None:
    case.needs(7, 2)
    case.group("$")
    case.read("COUNT", 1, consumer="Alice")
    case.pass_milliseconds(100)
    [alice] = case.consumers()
    assert alice["idle"] >= 100
    assert alice["inactive"] == -1
    case.add(1)
    began = time.monotonic()
    case.read("COUNT", 1, consumer="Alice")
    [alice] = case.consumers()
    assert alice["name"] == b"Alice"
    assert max(alice["idle"], alice["inactive"]) <= (time.monotonic() - began) * 1000 + 1
    case.pass_milliseconds(100)
    case.read("COUNT", 1, consumer="Alice")
    [alice] = case.consumers()
    assert alice["idle"] < 80
    assert alice["inactive"] >= 100


# -- lag ---------------------------------------------------------------------------------------------------------------


def progress(case: Case, group: str = "g") -> tuple[Any, Any]:
    """How much the group has read, and its lag."""
    rows = {row["name"]: row for row in map(pairs, case.info("FULL")["groups"])}
    row = rows[group.encode()]
    return row["entries-read"], row["lag"]


def test_a_group_of_an_empty_stream_has_no_lag(case: Case) -> None:
    case.group()
    told = case.info("FULL")
    assert (told["max-deleted-entry-id"], told["entries-added"]) == (b"0-0", 0)
    assert progress(case) == (None, 0)
    [entry] = case.add(1)
    case("XDEL", case.key(), entry)
    assert progress(case) == (None, 0)


def test_lag_shrinks_with_what_is_read(case: Case) -> None:
    case.add(5)
    case.group()
    assert progress(case) == (None, 5)
    case.read("COUNT", 1)
    assert progress(case) == (1, 4)
    case.read("COUNT", 10, consumer="d")
    assert progress(case) == (5, 0)
    case.add(1)
    assert progress(case) == (5, 1)


def test_lag_is_counted_whatever_was_removed(ours: Case) -> None:
    """Redis cannot tell the lag while entries are missing in between; here it is what is still to be read."""
    added = ours.add(5)
    ours("XDEL", ours.key(), added[2])
    ours.group()
    ours.group(name="other")
    assert progress(ours) == (None, 4)
    for left in (3, 2, 1, 0):
        ours.read("COUNT", 1)
        assert progress(ours) == (4 - left, left)
    ours("XTRIM", ours.key(), "MINID", "=", added[4])
    assert progress(ours)[1] == 0
    assert progress(ours, "other")[1] == 1


def test_lag_after_trimming_is_what_is_left(case: Case) -> None:
    case.needs(7, 4)
    case.group("$")
    case.add(5)
    case.read("COUNT", 1)
    assert progress(case) == (1, 4)
    case("XTRIM", case.key(), "MAXLEN", 1)
    assert case.info("FULL")["max-deleted-entry-id"] == b"0-0"
    assert progress(case)[1] == 1
    case("XTRIM", case.key(), "MAXLEN", 0)
    assert progress(case)[1] == 0


def test_entries_read_forgets_what_was_trimmed(ours: Case) -> None:
    """Redis goes on counting it."""
    ours.group("$")
    ours.add(5)
    ours.read("COUNT", 2)
    ours("XACK", ours.key(), "g", ours.pending()[0][0])
    ours("XTRIM", ours.key(), "MAXLEN", 4)
    assert progress(ours) == (1, 3)
    ours("XTRIM", ours.key(), "MAXLEN", 1)
    assert progress(ours) == (0, 1)
