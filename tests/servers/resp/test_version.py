"""The version that HELLO and INFO claim, and what clients choose by it: every form of a stream, key or connection
command that Redis has up to that version is understood."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from tests.servers.resp.client import Client

pytestmark = pytest.mark.anyio

# By the version of Redis that brought it. {first} and {last} are entries of the stream s, {id} is this connection.
CHOSEN: dict[str, list[str]] = {
    "1.0": ["EXISTS s", "TYPE s", "KEYS s*", "DEL none", "TTL s", "EXPIRE none 10", "RENAME s s", "DBSIZE"],
    "2.0": ["PERSIST s", "CLIENT LIST", "INFO server", "MULTI", "DISCARD"],
    "2.6": ["PTTL s", "PEXPIRE none 10", "PEXPIREAT none 10", "SCRIPT EXISTS 00", "TIME", "OBJECT ENCODING s"],
    "2.8": ["SCAN 0 MATCH s* COUNT 5", "COMMAND COUNT", "CLIENT KILL ID 999 SKIPME yes", "CLIENT GETNAME"],
    "4.0": ["UNLINK none", "FLUSHDB ASYNC"],
    "5.0": [
        "XADD s MAXLEN ~ 100 * a 1",
        "XRANGE s - + COUNT 1",
        "XREVRANGE s + -",
        "XLEN s",
        "XREAD COUNT 1 BLOCK 5 STREAMS s $",
        "XGROUP CREATE s h $ MKSTREAM",
        "XGROUP SETID s g 0",
        "XREADGROUP GROUP g c COUNT 1 BLOCK 5 NOACK STREAMS s >",
        "XACK s g {first}",
        "XPENDING s g - + 10 c",
        "XCLAIM s g c 0 {first} IDLE 1 RETRYCOUNT 1 FORCE JUSTID LASTID {first}",
        "XINFO GROUPS s",
        "XINFO CONSUMERS s g",
        "XTRIM s MAXLEN 100",
        "XDEL s 1-1",
        "XSETID s {last}",
        "XGROUP DELCONSUMER s g nobody",
        "XGROUP DESTROY s nobody",
        "CLIENT UNBLOCK 999 ERROR",
        "CLIENT ID",
    ],
    "6.0": ["HELLO 2 SETNAME me", "SCAN 0 TYPE stream", "XINFO STREAM s FULL COUNT 1", "CLIENT KILL USER nobody"],
    "6.2": [
        "XADD s NOMKSTREAM MINID = 0-1 * a 1",
        "XADD s MAXLEN ~ 100 LIMIT 100 * a 1",
        "XTRIM s MINID ~ 0-1 LIMIT 100",
        "XRANGE s ({first} +",
        "XPENDING s g IDLE 1 - + 10",
        "XAUTOCLAIM s g c 60000 - COUNT 1 JUSTID",
        "XGROUP CREATECONSUMER s g d",
        "CLIENT LIST ID {id}",
        "CLIENT INFO",
        "CLIENT KILL LADDR 1.2.3.4:5",
        "FLUSHDB SYNC",
        "RESET",
    ],
    "7.0": [
        "XGROUP CREATE s i 0 ENTRIESREAD 0",
        "XGROUP SETID s g 0 ENTRIESREAD 0",
        "XINFO HELP",
        "XGROUP HELP",
        "EXPIRE none 10 NX",
        "EXPIRETIME s",
        "PEXPIRETIME s",
        "COMMAND LIST",
        "COMMAND DOCS xadd",
        "INFO server clients",
        "CLIENT NO-EVICT on",
    ],
    "7.2": ["CLIENT SETINFO LIB-NAME mine", "CLIENT SETINFO LIB-VER 1.0", "CLIENT NO-TOUCH on"],
    "7.4": ["XREAD STREAMS s +", "CLIENT KILL MAXAGE 100000"],
}


@pytest.mark.parametrize("version", CHOSEN)
async def test_what_belongs_to_a_version_is_understood(version: str, client: Client) -> None:
    number = await client("CLIENT", "ID")
    refused = []
    for line in CHOSEN[version]:
        if "s" in line.split():
            await client("DEL", "s")
            first, last = [await client("XADD", "s", "*", "a", "1") for _ in range(2)]
            await client("XGROUP", "CREATE", "s", "g", "0")
            await client("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s", ">")
            line = line.format(first=first.decode(), last=last.decode())
        reply: Any = await client(*line.format(id=number).split())
        if isinstance(reply, hiredis.ReplyError):
            refused.append(f"{line}: {reply}")
    assert not refused, "\n".join(refused)


async def test_the_claimed_version_is_the_last_of_these(client: Client) -> None:
    greeting = await client("HELLO", "3")
    newest = list(CHOSEN)[-1]
    assert greeting[b"version"].decode().startswith(f"{newest}.")
    assert f"redis_version:{newest}.".encode() in await client("INFO")


@pytest.mark.parametrize("words", [("GETKEYS", "XADD", "s"), ("LIST", "FILTERBY", "PATTERN", "x*"), ("COUNT", "more")])
async def test_what_command_cannot_do_is_refused(words: tuple[str, ...], client: Client) -> None:
    assert (await client.error("COMMAND", *words)).startswith("ERR")
