"""What newer versions of Redis added to streams: XACKDEL, XDELEX, XNACK, idempotent XADD, XREAD with +, activity."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import AsyncStore
from penstock.servers.access import make_user
from penstock.servers.resp.commands import idempotence
from penstock.servers.resp.server import Server
from tests.servers.hashes import older_hash
from tests.servers.resp.client import Client, Talk

pytestmark = pytest.mark.anyio


async def added(client: Client, count: int, *groups: str) -> list[bytes]:
    """Ids of entries in the stream s, with groups that begin at its start."""
    for group in groups:
        await client("XGROUP", "CREATE", "s", group, "0", "MKSTREAM")
    return [await client("XADD", "s", "*", "n", number) for number in range(count)]


async def read(client: Client, group: str, *words: Any) -> list[bytes]:
    found = await client("XREADGROUP", "GROUP", group, "c", *words, "STREAMS", "s", ">")
    return [] if found is None else [entry[0] for entry in found[0][1]]


# -- XACKDEL and XDELEX -----------------------------------------------------------------------------------------------


async def test_xackdel_acknowledges_and_deletes(client: Client) -> None:
    first, second, third = await added(client, 3, "g")
    await read(client, "g", "COUNT", 2)
    assert await client("XACKDEL", "s", "g", "IDS", 3, first, second, third) == [1, 1, -1]
    assert await client("XLEN", "s") == 1
    assert await client("XPENDING", "s", "g") == [0, None, None, None]
    assert await client("XACKDEL", "s", "g", "DELREF", "IDS", 1, first) == [-1]
    assert await client("XACKDEL", "missing", "g", "IDS", 2, "1-1", "2-2") == [-1, -1]
    assert await client("XACKDEL", "s", "nobody", "IDS", 1, third) == [-1]


async def test_with_acked_an_entry_stays_until_every_group_is_done_with_it(client: Client) -> None:
    first, second = await added(client, 2, "g", "h")
    await read(client, "g")
    assert await client("XACKDEL", "s", "g", "ACKED", "IDS", 1, first) == [2]
    assert await client("XLEN", "s") == 2
    await read(client, "h")
    assert await client("XDELEX", "s", "ACKED", "IDS", 2, first, second) == [2, 2]
    assert await client("XACKDEL", "s", "h", "ACKED", "IDS", 2, first, second) == [1, 2]
    assert await client("XACKDEL", "s", "g", "ACKED", "IDS", 1, second) == [1]
    assert await client("XLEN", "s") == 0


async def test_with_acked_an_entry_that_was_given_back_stays_and_one_that_was_passed_goes(client: Client) -> None:
    [passed] = await added(client, 1)
    await client("XGROUP", "CREATE", "s", "g", "$")
    [given_back] = await added(client, 1)
    await read(client, "g")
    assert await client("XDELEX", "s", "ACKED", "IDS", 2, passed, given_back) == [1, 2]
    await client("XNACK", "s", "g", "SILENT", "IDS", 1, given_back)
    assert await client("XDELEX", "s", "ACKED", "IDS", 1, given_back) == [2]
    assert await read(client, "g") == [given_back]
    await client("XACK", "s", "g", given_back)
    assert await client("XDELEX", "s", "ACKED", "IDS", 1, given_back) == [1]


async def test_xdelex_deletes_for_all_groups_unless_acked_is_asked_for(client: Client) -> None:
    first, second, third = await added(client, 3, "g")
    await read(client, "g", "COUNT", 1)
    assert await client("XDELEX", "s", "IDS", 2, first, "1-1") == [1, -1]
    assert await client("XDELEX", "s", "KEEPREF", "IDS", 1, second) == [1]
    assert await client("XPENDING", "s", "g") == [0, None, None, None]
    assert await read(client, "g") == [third]
    assert await client("XDELEX", "missing", "IDS", 1, "1-1") == [-1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("XDELEX", "s", "IDS", "0", "1-1"), "positive integer"),
        (("XDELEX", "s", "IDS", "x", "1-1"), "positive integer"),
        (("XDELEX", "s", "IDS", "2", "1-1"), "must match"),
        (("XDELEX", "s", "IDS", "1", "1-1", "2-2"), "syntax error"),
        (("XDELEX", "s", "ACKED", "KEEPREF", "IDS", "1", "1-1"), "syntax error"),
        (("XACKDEL", "s", "g", "IDS", "1", "nonsense"), "Invalid stream ID"),
        (("XACKDEL", "s", "g", "KEEPREF", "DELREF", "ACKED"), "syntax error"),
        (("XNACK", "s", "g", "LOUD", "IDS", "1", "1-1"), "none of SILENT"),
        (("XNACK", "s", "g", "FAIL", "IDS", "1", "1-1", "RETRYCOUNT", "3"), "counts the attempts itself"),
        (("XNACK", "s", "g", "FAIL", "IDS", "1", "1-1", "FORCE"), "not possible"),
        (("XNACK", "s", "g", "FAIL", "1", "1-1", "2-2"), "IDS numids"),
        (("XTRIM", "s", "MAXLEN", "1", "ACKED"), "not possible when trimming"),
        (("XADD", "s", "IDMP", "p", "*", "a", "1"), "Only *"),
        (("XADD", "s", "IDMP", "p", "", "*", "a", "1"), "syntax error"),
        (("XADD", "s", "IDMP", "p", "i", "1-1", "a", "1"), "Only *"),
    ],
)
async def test_wrong_words_are_refused(client: Client, words: tuple[str, ...], told: str) -> None:
    assert told in await client.error(*words)


# -- XNACK ------------------------------------------------------------------------------------------------------------


async def test_xnack_gives_entries_back_at_once(client: Client, store: AsyncStore) -> None:
    first, second, third = await added(client, 3, "g")
    await read(client, "g")
    assert await client("XNACK", "s", "g", "SILENT", "IDS", 2, first, first) == 1
    assert await client("XNACK", "s", "g", "FAIL", "IDS", 2, second, "1-1") == 1
    assert await client("XNACK", "s", "g", "FATAL", "IDS", 1, third) == 1
    assert await client("XPENDING", "s", "g") == [0, None, None, None]
    assert sorted(await read(client, "g")) == [first, second]
    pending = await client("XPENDING", "s", "g", "-", "+", 10)
    assert [(entry, deliveries) for entry, _, _, deliveries in pending] == [(first, 1), (second, 2)]
    [dead] = await (await store.queue("s")).dead_letters(group="g")
    assert (dead.outcome, dead.reason) == ("rejected", "XNACK FATAL")


async def test_xnack_wakes_a_client_that_waits(client: Client, talk: Talk, server: Server) -> None:
    [entry] = await added(client, 1, "g")
    await read(client, "g")
    waiting = await talk()
    waiting.send("XREADGROUP", "GROUP", "g", "other", "BLOCK", 0, "STREAMS", "s", ">")
    while server.blocked_clients == 0:
        await client("PING")
    assert await client("XNACK", "s", "g", "SILENT", "IDS", 1, entry) == 1
    assert (await waiting.reply())[0][1][0][0] == entry


async def test_xnack_needs_the_group(client: Client) -> None:
    assert (await client.error("XNACK", "s", "g", "FAIL", "IDS", 1, "1-1")).startswith("NOGROUP")


async def test_deleting_needs_the_right_to_manage(server: Server, client: Client, talk: Talk) -> None:
    [entry] = await added(client, 1, "g")
    await read(client, "g")
    server.users.replace([make_user("worker", older_hash("pw"), ["s"], ["receive", "look", "send"])])
    worker = await talk()
    await worker("AUTH", "worker", "pw")
    assert (await worker.error("XACKDEL", "s", "g", "IDS", 1, entry)).startswith("NOPERM")
    assert (await worker.error("XDELEX", "s", "IDS", 1, entry)).startswith("NOPERM")
    assert (await worker.error("XSETID", "s", "1-1")).startswith("NOPERM")
    assert await worker("XNACK", "s", "g", "FAIL", "IDS", 1, entry) == 1


# -- idempotent XADD --------------------------------------------------------------------------------------------------


async def test_an_entry_that_is_sent_again_is_added_once(client: Client, talk: Talk) -> None:
    first = await client("XADD", "s", "IDMP", "p1", "i1", "*", "a", "1")
    assert await client("XADD", "s", "IDMP", "p1", "i1", "*", "a", "1") == first
    assert await (await talk())("XADD", "s", "NOMKSTREAM", "IDMP", "p1", "i1", "MAXLEN", 10, "*", "a", "2") == first
    other = await client("XADD", "s", "IDMP", "p2", "i1", "*", "a", "1")
    another = await client("XADD", "s", "IDMP", "p1", "i2", "*", "a", "1")
    assert await client("XRANGE", "s", "-", "+") == [[one, [b"a", b"1"]] for one in (first, other, another)]
    await client("XGROUP", "CREATE", "s", "g", "0")
    assert await read(client, "g") == [first, other, another]
    assert await client("XACK", "s", "g", first, other) == 2


async def test_an_entry_that_was_removed_is_added_again(client: Client) -> None:
    first = await client("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    await client("XTRIM", "s", "MAXLEN", 0)
    second = await client("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    assert second != first
    await client("XDEL", "s", second)
    assert await client("XADD", "s", "IDMP", "p", "i", "*", "a", "1") not in (first, second)


async def test_the_same_fields_are_the_same_entry_for_a_while(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await client("XADD", "s", "IDMPAUTO", "p", "*", "a", "1", "b", "2")
    assert await client("XADD", "s", "IDMPAUTO", "p", "*", "a", "1", "b", "2") == first
    assert await client("XADD", "s", "IDMPAUTO", "p", "*", "a", "1", "b", "3") != first
    assert await client("XADD", "s", "IDMPAUTO", "q", "*", "a", "1", "b", "2") != first
    assert await client("XLEN", "s") == 3
    monkeypatch.setattr(idempotence, "WINDOW_SECONDS", 1e-6)  # the next stretch is another one, and the first is over
    assert await client("XADD", "s", "IDMPAUTO", "p", "*", "a", "1", "b", "2") != first


async def test_a_stretch_that_has_just_ended_still_counts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await client("XADD", "s", "IDMPAUTO", "p", "*", "a", "1")
    sent = int(first.split(b"-")[0])
    # As if a stretch had begun between the two.
    monkeypatch.setattr(idempotence, "_stretch", lambda now: sent // (1000 * idempotence.WINDOW_SECONDS) + 1)
    assert await client("XADD", "s", "IDMPAUTO", "p", "*", "a", "1") == first


# -- reading and looking ----------------------------------------------------------------------------------------------


async def test_a_stream_that_is_named_twice_is_read_twice(client: Client) -> None:
    first, second = await added(client, 2)
    found = await client("XREAD", "STREAMS", "s", "s", "0", first)
    assert [[entry[0] for entry in entries] for _, entries in found] == [[first, second], [second]]


async def test_plus_reads_the_last_entry(client: Client, talk: Talk, server: Server) -> None:
    assert await client("XREAD", "STREAMS", "s", "+") is None
    _, last = await added(client, 2)
    found = await client("XREAD", "COUNT", 5, "BLOCK", 0, "STREAMS", "s", "none", "+", "+")
    assert [[entry[0] for entry in entries] for _, entries in found] == [[last]]
    waiting = await talk()
    waiting.send("XREAD", "BLOCK", 0, "STREAMS", "later", "+")
    while server.blocked_clients == 0:
        await client("PING")
    entry = await client("XADD", "later", "*", "a", "1")
    assert (await waiting.reply())[0][1][0][0] == entry


async def test_setid_takes_the_ends_of_a_stream(client: Client) -> None:
    ids = await added(client, 3, "g")
    assert await read(client, "g") == ids
    await client("XACK", "s", "g", *ids)
    assert await client("XGROUP", "SETID", "s", "g", "-") == b"OK"
    assert await read(client, "g", "COUNT", 1) == ids[:1]
    assert await client("XGROUP", "SETID", "s", "g", "+") == b"OK"
    assert await read(client, "g") == []
    assert "Invalid stream ID" in await client.error("XGROUP", "CREATE", "s", "h", "-")


async def test_entries_read_is_what_was_said_and_grows(client: Client, talk: Talk) -> None:
    await added(client, 4)

    async def shown(group: str) -> Any:
        rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in await client("XINFO", "GROUPS", "s")]
        return next(row[b"entries-read"] for row in rows if row[b"name"] == group.encode())

    assert "must be positive or -1" in await client.error("XGROUP", "CREATE", "s", "g", "$", "ENTRIESREAD", -3)
    for group, count in (("zero", 0), ("three", 3), ("unsaid", -1)):
        await client("XGROUP", "CREATE", "s", group, "$", "ENTRIESREAD", count)
    assert [await shown(group) for group in ("zero", "three", "unsaid")] == [0, 3, None]
    await client("XADD", "s", "*", "n", 5)
    await read(client, "three")
    assert await shown("three") == 4
    await client("XGROUP", "SETID", "s", "three", "0", "ENTRIESREAD", 1)
    assert await shown("three") == 1
    await client("XGROUP", "DESTROY", "s", "three")
    await client("XGROUP", "CREATE", "s", "three", "$")
    assert await shown("three") is None
    assert "syntax error" in await client.error("XGROUP", "SETID", "s", "three", "0", "MKSTREAM")


async def test_xsetid_is_checked_and_changes_nothing(client: Client) -> None:
    assert await client.error("XSETID", "s", "1-1") == "ERR no such key"
    _, last = await added(client, 2)
    assert await client("XSETID", "s", last) == b"OK"
    assert "top item" in await client.error("XSETID", "s", "1-1")
    assert "cannot change" in await client.error("XSETID", "s", "99999999999999-1")
    assert "must be positive" in await client.error("XSETID", "s", last, "ENTRIESADDED", -1, "MAXDELETEDID", "0-0")
    assert "target stream length" in await client.error("XSETID", "s", last, "ENTRIESADDED", 1, "MAXDELETEDID", "0-0")
    assert "max_deleted" in await client.error("XSETID", "s", "1-0", "ENTRIESADDED", 9, "MAXDELETEDID", "2-0")
    assert "syntax error" in await client.error("XSETID", "s", last, 0)


async def test_a_consumer_is_active_when_it_was_given_entries(client: Client) -> None:
    await client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")

    async def inactive() -> int:
        [row] = await client("XINFO", "CONSUMERS", "s", "g")
        return int(dict(zip(row[::2], row[1::2], strict=True))[b"inactive"])

    assert await read(client, "g") == []
    assert await inactive() == -1
    [entry] = await added(client, 1)
    await read(client, "g", "NOACK")
    assert await inactive() >= 0
    full = await client("XINFO", "STREAM", "s", "FULL")
    group = full[full.index(b"groups") + 1][0]
    consumer = group[group.index(b"consumers") + 1][0]
    assert consumer[consumer.index(b"active-time") + 1] >= int(entry.split(b"-")[0]) - 1000


async def test_help_takes_nothing(client: Client) -> None:
    for name in ("XINFO", "XGROUP"):
        assert len(await client(name, "HELP")) > 3
        assert f"'{name.lower()}|HELP'".lower() in (await client.error(name, "HELP", "xxx")).lower()
