"""When the store fails: every client gets an answer, and none is told what is only for the log."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import SchemaMissing, StoreError, StoreFull, StoreUnavailable
from penstock.servers.resp.server import Server
from tests.servers.resp.client import Client, Talk

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("error", "code"),
    [(StoreFull, "MISCONF"), (StoreUnavailable, "TRYAGAIN"), (StoreError, "ERR"), (ZeroDivisionError, "ERR")],
)
async def test_a_failing_store_is_told_without_its_secrets(
    server: Server, client: Client, talk: Talk, monkeypatch: pytest.MonkeyPatch, error: type[Exception], code: str
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error("/secret/path.db: no such column")

    others = [await talk() for _ in range(3)]
    await client("QADD", "q", 60, "x")
    monkeypatch.setattr(server.backend.engine, "send", fail)
    for one in (client, *others):
        one.send("QADD", "q", 60, "x")
    for one in (client, *others):
        told = str(await one.reply())
        assert told.startswith(f"{code} ")
        assert "secret" not in told
        assert "column" not in told
    monkeypatch.undo()
    assert await client("QADD", "q", 60, "x"), "the connection and the server go on"


async def test_background_sends_are_bounded_and_counted(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await client("QADD", "q", 60, "x", "NOBLOCK") == b"OK"
    while server.background:
        await client("PING")
    assert (await client("QGET", "q", "g"))[1] == b"x"
    server.background = server.limits.background_sends
    assert "overloaded" in await client.error("QADD", "q", 60, "x", "NOBLOCK")
    assert await client("QADD", "q", 60, "x"), "with time to wait there is room"
    server.background = 0


async def test_nothing_is_answered_ahead_of_a_store_that_fails(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NOBLOCK does not wait; but what is known to fail is not called done."""

    def fail(*arguments: Any, **options: Any) -> Any:
        raise SchemaMissing("no schema")

    await client("QADD", "q", 60, "before")
    monkeypatch.setattr(server.backend.engine, "send", fail)
    assert await client("QADD", "q", 60, "lost", "NOBLOCK") == b"OK", "nobody could know"
    while server.background:
        await client("PING")
    assert "the store failed" in await client.error("QADD", "q", 60, "x", "NOBLOCK")
    assert "the store failed" in await client.error("QLPUSH", "q", "7", "x", "NOBLOCK")
    monkeypatch.undo()
    assert await client("QADD", "q", 60, "after", "NOBLOCK") == b"OK"
    assert [(await client("QGET", "q", "g"))[1] for _ in range(2)] == [b"before", b"after"]
    assert not server.store_fails


async def test_any_command_tells_that_the_store_fails(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise StoreUnavailable("gone")

    await client("QADD", "q", 60, "x")
    monkeypatch.setattr(server.backend.engine, "receive_each", fail)
    monkeypatch.setattr(server.backend.engine, "receive", fail)
    monkeypatch.setattr(server.backend.engine, "send", fail)
    assert "TRYAGAIN" in await client.error("QGET", "q", "g")
    assert "TRYAGAIN" in await client.error("QADD", "q", 60, "x", "NOBLOCK")
