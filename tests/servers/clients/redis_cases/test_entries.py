"""Redis' cases of adding and trimming entries; docs/seeds.md says which test runs which case."""

from __future__ import annotations

import pytest

from tests.servers.clients.redis_cases.case import Case, ids, values
from tests.servers.clients.wire import Argument

LAST_ID = "18446744073709551615-18446744073709551615"


def test_xadd_needs_an_id_and_pairs(case: Case) -> None:
    for words in ((), ("*",), ("*", "field")):
        assert case.error("XADD", case.key(), *words) == "ERR wrong number of arguments for 'xadd' command"


def test_what_was_added_is_fetched(case: Case) -> None:
    case("XADD", case.key(), "*", "item", 1, "value", "a")
    case("XADD", case.key(), "*", "item", 2, "value", "b")
    assert case("XLEN", case.key()) == 2
    assert [fields for _, fields in case.range()] == [
        [b"item", b"1", b"value", b"a"],
        [b"item", b"2", b"value", b"b"],
    ]


def number(entry: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in entry.split(b"-"))


def test_ids_grow(case: Case) -> None:
    added = case.add(3)
    assert sorted(added, key=number) == added
    assert len(set(added)) == 3


def test_ids_grow_inside_a_transaction(case: Case) -> None:
    commands = [("XADD", case.key(), "*", "item", one) for one in range(3)]
    added = case.pipeline(("MULTI",), *commands, ("EXEC",))[-1]
    assert sorted(added, key=number) == added
    assert ids(case.range()) == added


@pytest.mark.parametrize("entry", ["123-456", "123-*", "0-*", "1-18446744073709551615", LAST_ID, "2577343934890-1"])
def test_chosen_ids_are_refused(ours: Case, entry: str) -> None:
    assert "Only * is supported" in ours.error("XADD", ours.key(), entry, "a", "b")
    assert ours("EXISTS", ours.key()) == 0


@pytest.mark.parametrize("sign", [[], ["="]], ids=["plain", "equal"])
def test_maxlen_keeps_the_newest(case: Case, sign: list[str]) -> None:
    words: list[Argument] = ["XADD", case.key(), "MAXLEN", *sign, 5, "*", "item"]
    case.pipeline(*((*words, one) for one in range(60)))
    assert values(case.range()) == [b"%d" % one for one in range(55, 60)]


def test_a_rough_maxlen_lets_whole_nodes_go(case: Case) -> None:
    case.pipeline(*(("XADD", case.key(), "MAXLEN", "~", 155, "*", "item", one) for one in range(300)))
    assert case("XLEN", case.key()) == 200


def test_nomkstream_makes_no_stream(case: Case) -> None:
    assert case("XADD", case.key(), "NOMKSTREAM", "*", "item", 1) is None
    assert case("EXISTS", case.key()) == 0
    case("XADD", case.key(), "*", "item", 1)
    case("XADD", case.key(), "NOMKSTREAM", "*", "item", 2)
    assert values(case.range()) == [b"1", b"2"]


def test_minid_lets_older_entries_go(case: Case) -> None:
    added = case.add(10)
    last = case("XADD", case.key(), "MINID", added[5], "*", "n", 10)
    assert ids(case.range()) == [*added[5:], last]


def test_xtrim_by_minid(case: Case) -> None:
    added = case.add(5)
    assert case("XTRIM", case.key(), "MINID", "=", added[2]) == 2
    assert ids(case.range()) == added[2:]


def test_many_are_added_at_once(case: Case) -> None:
    plain, other = ["XADD", case.key(), "*", "item"], ["other", "foo"]
    commands = [(*plain, str(one), *(other if one % 9 == 0 else [])) for one in range(1000)]
    case.pipeline(("MULTI",), *commands, ("EXEC",))
    assert values(case.range()) == [b"%d" % one for one in range(1000)]
    assert case("XLEN", case.key()) == 1000


def test_the_id_zero_adds_nothing(case: Case) -> None:
    assert case.error("XADD", case.key(), "0-0", "k", "v").startswith("ERR")
    assert case("EXISTS", case.key()) == 0


def test_limit_lets_no_more_go(case: Case) -> None:
    case.add(3)
    case("XADD", case.key(), "MAXLEN", "~", 0, "LIMIT", 1, "*", "n", 3)
    assert case("XLEN", case.key()) == 4


def test_xtrim_keeps_exactly_what_it_was_told(case: Case) -> None:
    case.add(300)
    assert case("XTRIM", case.key(), "MAXLEN", 266) == 34
    assert case("XTRIM", case.key(), "MAXLEN", "=", 255) == 11
    assert case("XLEN", case.key()) == 255


def test_a_rough_xtrim_keeps_up_to_a_node_more(ours: Case) -> None:
    """Redis lets nodes go as they were filled, Penstock hundreds as they are counted."""
    ours.add(300)
    ours("XTRIM", ours.key(), "MAXLEN", 255)
    assert ours("XTRIM", ours.key(), "MAXLEN", "~", 144) == 100
    assert ours("XTRIM", ours.key(), "MAXLEN", "~", 144) == 0
    assert 144 <= ours("XLEN", ours.key()) < 244


def test_xtrim_without_a_tilde_is_not_limited(case: Case) -> None:
    case.add(102)
    assert case("XTRIM", case.key(), "MAXLEN", 1) == 101
    assert case("XLEN", case.key()) == 1


def test_limit_needs_a_tilde(case: Case) -> None:
    case.add(2)
    assert case.error("XTRIM", case.key(), "MAXLEN", 1, "LIMIT", 30).startswith("ERR")


def test_a_limited_xtrim_lets_whole_nodes_go(case: Case) -> None:
    case.add(300)
    assert case("XTRIM", case.key(), "MAXLEN", "~", 0, "LIMIT", 99) == 0
    assert case("XTRIM", case.key(), "MAXLEN", "~", 0, "LIMIT", 100) == 100
    last = case.range()[-1][0]
    assert case("XTRIM", case.key(), "MINID", "~", last, "LIMIT", 150) == 100
    assert case("XLEN", case.key()) == 100


def test_an_emptied_stream_without_groups_is_gone(ours: Case) -> None:
    """Redis keeps the key of an empty stream."""
    ours("XADD", ours.key(), "MAXLEN", 0, "*", "a", "b")
    assert ours("XLEN", ours.key()) == 0
    assert ours.error("XINFO", "STREAM", ours.key()) == "ERR no such key"


def test_xdel_removes_one(case: Case) -> None:
    added = case.add(3)
    assert case("XDEL", case.key(), added[1]) == 1
    assert case("XLEN", case.key()) == 2
    assert values(case.range()) == [b"0", b"2"]


def test_xdel_removes_several(case: Case) -> None:
    added = case.add(5)
    assert case("XDEL", case.key(), added[0], added[3], added[4], "2-1") == 3
    assert ids(case.range()) == added[1:3]


def test_entries_are_removed_in_any_order(case: Case) -> None:
    added = case.add(120)
    for place in range(120):
        entry = added[place * 77 % 120]
        assert case("XDEL", case.key(), entry) == 1
        if place % 40 == 0:
            assert len(case.range()) == case("XLEN", case.key()) == 119 - place
    assert case("XLEN", case.key()) == 0
