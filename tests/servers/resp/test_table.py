"""Every command says what it takes, and refuses what it does not."""

from __future__ import annotations

import pytest

from penstock.domain.errors import InvalidInput
from penstock.servers.access import Right
from penstock.servers.resp import commands
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.table import TABLE, find

SEED = "QADD QGET QACK QNOTIFY QFLUSH QSTATUS QINFO QLPUSH QRPUSH QLPEEK QRPEEK QRPOP QREGISTER"
STREAMS = "XADD XLEN XRANGE XGROUP XREADGROUP XACK XPENDING XCLAIM XAUTOCLAIM XINFO XTRIM XDEL"
KEYS = "DEL UNLINK EXISTS TYPE TTL EXPIRE PERSIST KEYS SCAN RENAME FLUSHDB OBJECT SCRIPT"
CONNECTION = "HELLO CLIENT COMMAND INFO SELECT PING ECHO RESET QUIT MULTI EXEC DISCARD AUTH"
FORBIDDEN = "EVAL FUNCTION DEBUG MODULE SLAVEOF REPLICAOF SHUTDOWN FLUSHALL ACL MONITOR"


def test_everything_promised_is_there_and_nothing_dangerous() -> None:
    assert commands.__all__
    names = {name.decode() for name in TABLE}
    assert {*SEED.split(), *STREAMS.split(), *KEYS.split(), *CONNECTION.split()} <= names
    assert not {*FORBIDDEN.split()} & names


@pytest.mark.parametrize("name", [name.decode() for name in TABLE])
def test_every_command_is_documented(name: str) -> None:
    one = TABLE[name.encode()]
    assert one.summary.endswith((".", "…")) or ":" in one.summary
    assert one.usage.startswith(name)
    assert find(name.lower().encode()) is one
    if name[0] in "QX" and name != "QUIT":
        assert one.right is not Right.NOTHING, "a command that touches queues needs a right"


def test_options_are_read_in_any_order_and_case() -> None:
    add, send = TABLE[b"QADD"], TABLE[b"QSEND"]
    assert add.signature.bind([b"q", b"1.5", b"x"]) == (["q", 1.5, b"x"], {})
    assert add.signature.bind([b"q", b"1", b"x", b"noblock"]) == (["q", 1.0, b"x"], {"noblock": True})
    values, options = send.signature.bind([b"q", b"x", b"key", b"k", b"PRIORITY", b"3"])
    assert (values, options) == (["q", b"x"], {"key": "k", "priority": 3})
    assert TABLE[b"QREDRIVE"].signature.bind([b"q"]) == (["q", []], {})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([b"QADD", b"q", b"1"], "wrong number of arguments for 'qadd' command"),
        ([b"QADD", b"q", b"1", b"x", b"NOBLOC"], "unknown option 'NOBLOC' for 'qadd'"),
        ([b"QADD", b"q", b"1", b"x", b"NOBLOCK", b"NOBLOCK"], "unknown option 'NOBLOCK'"),
        ([b"QADD", b"q", b"soon", b"x"], "'soon' is not a number of seconds"),
        ([b"QADD", b"q", b"nan", b"x"], "'nan' is not a number of seconds"),
        ([b"QADD", b"q", b"1_0", b"x"], "'1_0' is not a number of seconds"),
        ([b"QADD", b"", b"1", b"x"], "queue is empty"),
        ([b"QADD", b"a\nb", b"1", b"x"], "control character"),
        ([b"QADD", b"\xff", b"1", b"x"], "not valid UTF-8"),
        ([b"QADD", b"q" * 256, b"1", b"x"], "at most 255"),
        ([b"QGET", b"q", b"g", b"EX"], "EX needs a value"),
        ([b"QSEND", b"q", b"x", b"PRIORITY", b"1.5"], "'1.5' is not an integer"),
        ([b"QSEND", b"q", b"x", b"PRIORITY", b"-1"], "out of range"),
        ([b"QFIND", b"q", b"7"], "UUID"),
        ([b"QPAUSE", b"q", b"r"], "wrong number of arguments"),
    ],
)
def test_wrong_arguments_are_named(words: list[bytes], told: str) -> None:
    with pytest.raises((CommandError, InvalidInput)) as raised:
        TABLE[words[0]].signature.bind(words[1:])
    assert told in str(raised.value)
