"""Who may do what: before AUTH, with a user's rights, and when they change."""

from __future__ import annotations

import pytest

from penstock.servers.access import make_user
from penstock.servers.resp.server import PROTECTED, Server
from penstock.settings import RespSettings
from tests.servers.hashes import older_hash
from tests.servers.resp.client import Client, Talk

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings() -> RespSettings:
    return RespSettings(password="secret", clients_per_user=3, failed_logins_per_second=3)


@pytest.fixture
async def known(client: Client) -> Client:
    assert await client("AUTH", "secret") == b"OK"
    return client


async def test_before_auth_nothing_works_but_saying_who_you_are(client: Client) -> None:
    for words in (("PING",), ("QADD", "q", 60, "x"), ("COMMAND",), ("INFO",), ("CLIENT", "ID"), ("MULTI",)):
        assert (await client.error(*words)).startswith("NOAUTH")
    assert (await client.error("HELLO", 3)).startswith("NOAUTH")
    assert (await client.error("AUTH", "wrong")).startswith("WRONGPASS")
    assert (await client.error("HELLO", 3, "AUTH", "default", "wrong")).startswith("WRONGPASS")
    greeting = await client("HELLO", 2, "SETNAME", "me", "AUTH", "default", "secret")
    assert greeting[:6] == [b"server", b"penstock", b"version", b"7.4.0", b"proto", 2]
    assert await client("CLIENT", "GETNAME") == b"me"
    assert await client("RESET") == b"RESET"
    assert (await client.error("PING")).startswith("NOAUTH")


async def test_guesses_are_refused_after_a_few(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.servers.login_rate_limit.WINDOW_SECONDS", 60)
    told = [await client.error("AUTH", f"guess {number}") for number in range(4)]
    assert [one.split()[0] for one in told[:3]] == ["WRONGPASS"] * 3
    assert "too many failed attempts" in told[3]


async def test_a_user_has_its_rights_on_its_queues_only(server: Server, known: Client, talk: Talk) -> None:
    await known("QADD", "secret", 60, "x")
    await known("QADD", "orders-1", 60, "x")
    server.users.replace([make_user("clerk", older_hash("pw"), ["orders-*"], ["send", "look"])])
    clerk = await talk()
    assert await clerk("AUTH", "clerk", "pw") == b"OK"
    assert await clerk("QADD", "orders-7", 60, "x")
    refused = await clerk.error("QADD", "secret", 60, "x")
    assert refused.startswith("NOPERM")
    assert refused == await clerk.error("QADD", "nowhere", 60, "x"), "a queue that is not there looks the same"
    assert (await clerk.error("QGET", "orders-7", "g")).startswith("NOPERM")
    assert (await clerk.error("QNOTIFY", "g", 0, "orders-7")).startswith("NOPERM")
    assert (await clerk.error("XREADGROUP", "GROUP", "g", "c", "STREAMS", "orders-7", ">")).startswith("NOPERM")
    assert (await clerk.error("XGROUP", "CREATE", "orders-7", "g", "0")).startswith("NOPERM")
    assert (await clerk.error("QSTATUS", "secret")).startswith("NOPERM")
    assert [row[0] for row in await clerk("QSTATUS")] == [b"orders-1", b"orders-7"]
    names = await clerk("COMMAND", "LIST")
    assert b"qadd" in names
    assert b"qget" not in names
    assert len((await clerk("CLIENT", "LIST")).splitlines()) == 1
    await clerk("MULTI")
    assert (await clerk.error("QFLUSH", "orders-7")).startswith("NOPERM")
    assert (await clerk.error("EXEC")).startswith("EXECABORT")


async def test_a_right_taken_away_is_gone_with_the_next_command(server: Server, known: Client) -> None:
    assert await known("QADD", "q", 60, "x")
    server.users.replace([make_user("default", older_hash("secret"), ["other"], ["send"])])
    assert (await known.error("QADD", "q", 60, "x")).startswith("NOPERM")
    server.users.replace([])
    assert (await known.error("QADD", "other", 60, "x")).startswith("NOPERM")


async def test_connections_per_user_are_limited(known: Client, talk: Talk) -> None:
    for _ in range(2):
        assert await (await talk())("AUTH", "secret") == b"OK"
    assert "max number of clients" in await (await talk()).error("AUTH", "secret")


async def test_without_a_password_strangers_from_elsewhere_are_turned_away(server: Server, talk: Talk) -> None:
    server.users.replace([make_user("default", None, ["*"], ["send", "receive", "look", "manage"])])
    client = await talk()
    assert await client("PING") == b"PONG"
    [connection] = [one for one in server.connections if one.session.user_name]
    connection.session.is_local = False
    assert server.admit(connection) == PROTECTED


async def test_joining_the_batch_of_another_queue_needs_the_right_to_send_there(
    server: Server, known: Client, talk: Talk
) -> None:
    server.users.replace([make_user("clerk", older_hash("pw"), ["orders-*"], ["send", "look"])])
    clerk = await talk()
    await clerk("AUTH", "clerk", "pw")
    refused = await clerk.error("QSEND", "orders-1", "1", "BATCH", "nightly", "BATCHQUEUE", "secret")
    assert refused.startswith("NOPERM")
    assert await clerk("QSEND", "orders-1", "1", "BATCH", "nightly", "BATCHQUEUE", "orders-2")
