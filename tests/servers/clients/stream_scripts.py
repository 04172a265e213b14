"""Scripts of commands that Redis and Penstock are both given, reply compared with reply.

`@1` stands for the first id that an XADD of the script got, `@2` for the second, and so on.
"""

from __future__ import annotations

import re
from typing import Any

from tests.servers.clients.edge_scripts import EDGE_SCRIPTS
from tests.servers.clients.normalisation import Names
from tests.servers.clients.wire import Reply, Wire

# In Redis these tell how its memory is laid out, or how long ago something was: no two runs agree on them.
# What the versions that Penstock follows (7.2 and newer) tell besides.
NEWER_FIELDS = [b"inactive", b"active-time"]
MASKED_FIELDS = [b"idle", b"radix-tree-keys", b"radix-tree-nodes", b"seen-time"]

SCRIPTS: dict[str, list[str]] = {
    **EDGE_SCRIPTS,
    "adding": [
        "XADD s NOMKSTREAM * a 1",
        "XADD s * a 1",
        "XADD s * a 1 b 2",
        "XADD s NOMKSTREAM * a 3",
        "XADD s MAXLEN ~ 1000 * a 4",
        "XADD s MAXLEN = 1000 * a 5",
        "XADD s MINID 0-1 * a 6",
        "XLEN s",
        "XLEN missing",
        "XADD s *",
        "XADD s * a",
        "XADD s * a 1 b",
        "XADD s 0-0 a 1",
        "XADD s nonsense a 1",
        "XADD s MAXLEN many * a 1",
        "XADD s MAXLEN 2 * a 7",
        "XLEN s",
    ],
    "ranges": [
        "XRANGE missing - +",
        "XADD s * a 1",
        "XADD s * a 2",
        "XADD s * a 3",
        "XRANGE s - +",
        "XRANGE s - + COUNT 2",
        "XRANGE s @2 +",
        "XRANGE s (@2 +",
        "XRANGE s - @2",
        "XRANGE s - (@2",
        "XRANGE s @2 @2",
        "XRANGE s @3 @1",
        "XRANGE s - + COUNT 0",
        "XRANGE s - + COUNT x",
        "XRANGE s - + LIMIT 1",
        "XRANGE s bad +",
        "XRANGE s -",
    ],
    "groups": [
        "XGROUP CREATE s g 0",
        "XGROUP CREATE s g $ MKSTREAM",
        "XGROUP CREATE s g $",
        "XGROUP CREATE s other 0",
        "XGROUP CREATE s bad nonsense",
        "XGROUP CREATECONSUMER s g alice",
        "XGROUP CREATECONSUMER s g alice",
        "XGROUP CREATECONSUMER s nobody alice",
        "XGROUP CREATECONSUMER missing g alice",
        "XGROUP DELCONSUMER s g alice",
        "XGROUP DELCONSUMER s g alice",
        "XADD s * a 1",
        "XADD s * a 2",
        "XGROUP CREATE s late $",
        "XREADGROUP GROUP late c STREAMS s >",
        "XREADGROUP GROUP g c STREAMS s >",
        "XGROUP SETID s late 0",
        "XREADGROUP GROUP late c STREAMS s >",
        "XGROUP SETID s nobody 0",
        "XGROUP DESTROY s late",
        "XGROUP DESTROY s late",
        "XGROUP DESTROY missing g",
        "XGROUP NOSUCH s g",
        "XGROUP CREATE s",
    ],
    "reading": [
        "XGROUP CREATE s g 0 MKSTREAM",
        "XGROUP CREATE t g 0 MKSTREAM",
        "XREADGROUP GROUP g c STREAMS s >",
        "XREADGROUP GROUP g c BLOCK 10 STREAMS s >",
        "XADD s * a 1",
        "XADD s * a 2",
        "XADD s * a 3",
        # A while later, so that the id cannot be one of the other stream's.
        "XREADGROUP GROUP g c BLOCK 10 STREAMS t >",
        "XADD t * b 1",
        "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
        "XREADGROUP GROUP g c COUNT 10 STREAMS s t > >",
        "XREADGROUP GROUP g c STREAMS s >",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XREADGROUP GROUP g c STREAMS s t 0 >",
        "XREADGROUP GROUP g c COUNT 1 STREAMS s @1",
        "XREADGROUP GROUP g other STREAMS s 0",
        # As before: the other stream got its id just now.
        "XREADGROUP GROUP g other BLOCK 10 STREAMS s >",
        "XADD s * a 4",
        "XREADGROUP GROUP g c NOACK STREAMS s >",
        "XPENDING s g",
        "XREADGROUP GROUP nobody c STREAMS s >",
        "XREADGROUP GROUP g c STREAMS missing >",
        "XREADGROUP GROUP g c STREAMS s t >",
        "XREADGROUP GROUP g c STREAMS s",
        "XREADGROUP GROUP g c COUNT x STREAMS s >",
        "XREADGROUP GROUP g c BLOCK x STREAMS s >",
        "XREADGROUP GROUP g c BLOCK -1 STREAMS s >",
        "XREADGROUP GROUP g c NOSUCH STREAMS s >",
        "XREADGROUP GROUP g c STREAMS s nonsense",
        "XREADGROUP STREAMS s >",
    ],
    "settling": [
        "XGROUP CREATE s g 0 MKSTREAM",
        "XGROUP CREATE s h 0",
        "XADD s * a 1",
        "XADD s * a 2",
        "XADD s * a 3",
        "XACK s g @1",
        "XREADGROUP GROUP g c STREAMS s >",
        "XREADGROUP GROUP h c COUNT 1 STREAMS s >",
        "XPENDING s g",
        "XACK s g @1",
        "XACK s g @1",
        "XACK s g @1 @2 @3",
        "XACK s g 1-1",
        "XACK s g nonsense",
        "XACK s nobody @1",
        "XACK missing g @1",
        "XACK s g",
        "XPENDING s g",
        "XPENDING s h",
        "XLEN s",
    ],
    "pending": [
        "XGROUP CREATE s g 0 MKSTREAM",
        "XPENDING s g",
        "XPENDING s g - + 10",
        "XADD s * a 1",
        "XADD s * a 2",
        "XADD s * a 3",
        "XREADGROUP GROUP g alice COUNT 2 STREAMS s >",
        "XREADGROUP GROUP g bob COUNT 1 STREAMS s >",
        "XPENDING s g",
        "XPENDING s g - + 10",
        "XPENDING s g - + 1",
        "XPENDING s g (@1 + 10",
        "XPENDING s g @2 @2 10",
        "XPENDING s g - + 10 bob",
        "XPENDING s g - + 10 nobody",
        "XPENDING s g IDLE 60000 - + 10",
        "XPENDING s g IDLE 0 - + 10 alice",
        "XPENDING s nobody",
        "XPENDING missing g",
        "XPENDING s g - +",
        "XPENDING s g - + x",
    ],
    "claiming": [
        "XGROUP CREATE s g 0 MKSTREAM",
        "XADD s * a 1",
        "XADD s * a 2",
        "XADD s * a 3",
        "XADD s * a 4",
        "XREADGROUP GROUP g alice COUNT 3 STREAMS s >",
        "XCLAIM s g bob 60000 @1",
        "XCLAIM s g bob 0 @1",
        "XCLAIM s g bob 0 @2 JUSTID",
        "XPENDING s g - + 10",
        "XCLAIM s g bob 0 @4",
        "XCLAIM s g bob 0 @4 FORCE",
        "XCLAIM s g bob 0 1-1",
        "XCLAIM s g bob 0 @3 RETRYCOUNT 5 JUSTID",
        "XCLAIM s nobody bob 0 @1",
        "XCLAIM missing g bob 0 @1",
        "XCLAIM s g bob x @1",
        "XCLAIM s g bob 0 @1 NOSUCH",
        "XAUTOCLAIM s g carol 60000 0-0",
        "XAUTOCLAIM s g carol 0 0-0 COUNT 1",
        "XAUTOCLAIM s g carol 0 @2 COUNT 10 JUSTID",
        "XAUTOCLAIM s g carol 0 -",
        "XAUTOCLAIM s nobody carol 0 0-0",
        "XAUTOCLAIM missing g carol 0 0-0",
        "XAUTOCLAIM s g carol 0",
        "XACK s g @1 @2 @3",
        "XAUTOCLAIM s g carol 0 0-0 COUNT 0",
    ],
    "looking": [
        "XINFO STREAM missing",
        "XINFO GROUPS missing",
        "XGROUP CREATE s g 0 MKSTREAM",
        "XINFO STREAM s",
        "XINFO GROUPS s",
        "XINFO CONSUMERS s g",
        "XADD s * a 1",
        "XADD s * a 2",
        "XREADGROUP GROUP g alice COUNT 1 STREAMS s >",
        "XINFO STREAM s",
        "XINFO GROUPS s",
        "XINFO CONSUMERS s g",
        "XACK s g @1",
        "XINFO GROUPS s",
        "XINFO CONSUMERS s g",
        "XINFO CONSUMERS s nobody",
        "XINFO NOSUCH s",
        "XINFO STREAM",
    ],
    "removing": [
        "XADD s * a 1",
        "XADD s * a 2",
        "XADD s * a 3",
        "XADD s * a 4",
        "XDEL s @2",
        "XDEL s @2",
        "XDEL s 1-1",
        "XDEL s nonsense",
        "XDEL s",
        "XDEL missing @1",
        "XLEN s",
        "XRANGE s - +",
        "XTRIM s MAXLEN 2",
        "XRANGE s - +",
        "XTRIM s MAXLEN = 2",
        "XTRIM s MINID @4",
        "XTRIM s MAXLEN x",
        "XTRIM s NOSUCH 1",
        "XTRIM s MAXLEN",
        "XTRIM missing MAXLEN 1",
        "XTRIM s MAXLEN 0",
        "XLEN s",
    ],
    "trimming": [
        *(f"XADD s * n {number}" for number in range(9)),
        "XADD s MAXLEN = 8 * n 9",
        "XLEN s",
        "XADD s MAXLEN ~ 2 * n 10",
        "XLEN s",
        "XTRIM s MAXLEN ~ 2",
        "XTRIM s MAXLEN ~ 2 LIMIT 1",
        "XTRIM s MAXLEN 4 LIMIT 1",
        "XTRIM s MAXLEN = 4 LIMIT 1",
        "XTRIM s MAXLEN -1",
        "XTRIM s MAXLEN ~ 4 LIMIT -1",
        "XTRIM s MINID ~ @9",
        "XADD s MINID @9 * n 11",
        "XRANGE s - +",
        "XADD s MAXLEN 2 MINID @9 * n 12",
        "XADD s NOMKSTREAM MAXLEN 1 * n 12",
        "XRANGE s - +",
        "XADD missing NOMKSTREAM MAXLEN 1 * n 12",
        "XGROUP CREATE s g 0",
        "XADD s * n 13",
        "XDEL s @9 @9",
        "XREADGROUP GROUP g c STREAMS s >",
        "XADD s MAXLEN 0 * n 14",
        "XLEN s",
        "XREADGROUP GROUP g c STREAMS s >",
        "XTRIM s",
        "XDEL s 0-0",
        "XDEL s 5",
        "XREVRANGE s + -",
    ],
    "removed while pending": [
        "XGROUP CREATE s g 0 MKSTREAM",
        "XADD s * a 1",
        "XADD s * a 2",
        "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
        "XDEL s @1",
        "XINFO STREAM s",
        "XPENDING s g",
        "XACK s g @1",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XREADGROUP GROUP g c STREAMS s >",
        "XADD s 1-1 a 3",
        "XADD s 99999999999999-1 a 3",
        "XADD s 99999999999999-* a 3",
    ],
    "following": [
        "XREAD STREAMS missing 0",
        "XADD s * a 1",
        "XADD s * a 2",
        "XADD s * a 3",
        # A while later, so that the id cannot be one of the other stream's.
        "XREAD BLOCK 10 STREAMS t $",
        "XADD t * b 1",
        "XREAD STREAMS s 0",
        "XREAD COUNT 2 STREAMS s 0",
        "XREAD COUNT 1 STREAMS s t 0 0",
        "XREAD STREAMS s @1",
        "XREAD STREAMS s @3",
        "XREAD STREAMS s $",
        "XREAD BLOCK 10 STREAMS s $",
        "XREAD BLOCK 10 STREAMS s @2",
        "XREAD COUNT 0 STREAMS s @2",
        "XREAD BLOCK 10 STREAMS s missing $ $",
        "XREAD STREAMS s 99999999999999",
        "XDEL s @2",
        "XREAD STREAMS s @2",
        "XREAD STREAMS s @1",
        "XREAD STREAMS s >",
        "XREAD STREAMS s",
        "XREAD STREAMS s t 0",
        "XREAD COUNT x STREAMS s 0",
        "XREAD BLOCK -1 STREAMS s 0",
        "XREAD NOSUCH STREAMS s 0",
        "XREAD STREAMS s nonsense",
        "MULTI",
        "XREAD BLOCK 0 STREAMS s $",
        "EXEC",
    ],
    "claims": [
        "XGROUP CREATE s g 0 MKSTREAM",
        "XADD s * a 1",
        "XADD s * a 2",
        "XADD s * a 3",
        "XREADGROUP GROUP g alice COUNT 1 STREAMS s >",
        "XCLAIM s g bob 0 @1 IDLE 60000",
        "XPENDING s g IDLE 50000 - + 10",
        "XCLAIM s g carol 50000 @1",
        "XPENDING s g IDLE 50000 - + 10",
        "XPENDING s g - + 10",
        "XCLAIM s g bob 0 @1 TIME 1000 RETRYCOUNT 7",
        "XPENDING s g IDLE 50000 - + 10",
        "XCLAIM s g bob 0 @1 JUSTID",
        "XPENDING s g - + 10",
        "XCLAIM s g bob 0 @1",
        "XPENDING s g - + 10",
        "XCLAIM s g bob 0 @3 FORCE JUSTID",
        "XPENDING s g - + 10",
        "XACK s g @1 @3",
        "XCLAIM s g bob 0 @1",
        "XCLAIM s g bob 0 @1 FORCE",
        "XACK s g @1",
        "XCLAIM s g bob 0 @1 LASTID @2",
        "XINFO GROUPS s",
        "XCLAIM s g bob 0 @1 LASTID @1",
        "XADD s * a 4",
        "XCLAIM s g bob 0 1-1 @1 FORCE JUSTID",
        "XCLAIM s g bob 0 @1 IDLE x",
        "XCLAIM s g bob 0 @1 RETRYCOUNT",
        "XCLAIM s g bob 0 @1 LASTID nonsense",
        "XINFO STREAM s FULL COUNT 1",
        "XINFO STREAM s FULL COUNT x",
        "XINFO STREAM s HALF",
    ],
    "transactions": [
        "EXEC",
        "DISCARD",
        "MULTI",
        "MULTI",
        "XADD s * a 1",
        "XLEN s",
        "EXEC",
        "MULTI",
        "XADD s * a 2",
        "DISCARD",
        "XLEN s",
        "MULTI",
        "XLEN",
        "XADD s * a 3",
        "EXEC",
        "MULTI",
        "NOSUCH",
        "EXEC",
        "MULTI",
        "XRANGE s bad +",
        "XLEN s",
        "EXEC",
        "MULTI",
        "EXEC",
        "XLEN s",
    ],
    "connection": [
        "PING",
        "PING hello",
        "ECHO hello",
        "ECHO",
        "SELECT 0",
        "SELECT x",
        "CLIENT SETNAME me",
        "CLIENT GETNAME",
        "CLIENT SETNAME bad\x01name",
        "CLIENT NOSUCH",
        "HELLO 4",
        "HELLO x",
        "NOSUCH",
        "NOSUCH a b",
        "PING a b",
        "ping",
        "RESET",
        "QUIT",
    ],
}


def run_script(port: int, protocol: int, name: str, run: str) -> list[Any]:
    """The reply to each line, with what may differ from run to run taken out. Streams carry the names of script and
    run, so that one server serves all of them."""
    ids: list[bytes] = []
    names = Names()
    told = []
    with Wire(port, protocol) as wire:
        for line in SCRIPTS[name]:
            words = [_word(word, f"{name}-{run}", ids) for word in line.split(" ")]
            reply = wire.ask(*words)
            if words[0] == "XADD" and reply.kind == "$" and reply.value is not None:
                ids.append(reply.value)
            # Ids are named as they were made, even if a reply does not tell them.
            names.of([one.decode() for one in ids])
            told.append(names.of(_masked(line, reply)))
    return told


def _word(word: str, suffix: str, ids: list[bytes]) -> str:
    if word in ("s", "t", "missing"):
        return f"{word}-{suffix}"
    return re.sub(r"@(\d)", lambda found: ids[int(found[1]) - 1].decode(), word)


def _masked(line: str, reply: Reply) -> Reply:
    if "FULL" in line:
        return _without_times(_without_fields(reply))
    if line.startswith("XPENDING") and line.count(" ") > 2:
        return _without_idle(reply)
    return _without_fields(reply)


def _without_times(reply: Reply) -> Reply:
    """Numbers as large as only milliseconds are."""
    if reply.kind == ":" and isinstance(reply.value, int) and reply.value > 10**12:
        return Reply(":", "?")
    return Reply(reply.kind, [_without_times(item) for item in reply.value]) if isinstance(reply.value, list) else reply


def _without_idle(reply: Reply) -> Reply:
    """Rows of id, consumer, idle, deliveries."""
    if not isinstance(reply.value, list):
        return _without_fields(reply)
    rows = [Reply(row.kind, [*row.value[:2], Reply(row.value[2].kind, "?"), *row.value[3:]]) for row in reply.value]
    return Reply(reply.kind, rows)


def _without_fields(reply: Reply) -> Reply:
    if reply.kind == "-":
        # The code is what programs look at. The words behind it may say more than Redis does.
        return Reply("-", reply.value.split(b" ")[0])
    if not isinstance(reply.value, list):
        return reply
    items = [_without_fields(item) for item in _without_newer(reply.value)]
    for place in range(len(items) - 1):
        if items[place].value in MASKED_FIELDS and items[place + 1].kind == ":":
            items[place + 1] = Reply(":", "?")
    return Reply(reply.kind, items)


def _without_newer(items: list[Reply]) -> list[Reply]:
    left = list(items)
    for place in reversed(range(len(left) - 1)):
        if left[place].value in NEWER_FIELDS:
            del left[place : place + 2]
    return left
