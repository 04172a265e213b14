"""The same commands get the same replies from Redis and from Penstock, type for type, except as written here."""

from __future__ import annotations

import pytest

from tests.servers.clients.processes import PenstockServer, RedisServer
from tests.servers.clients.stream_scripts import SCRIPTS, run_script
from tests.servers.clients.wire import Wire

RETENTION = (
    "XDEL, XTRIM and MAXLEN remove nothing: entries leave by the queue's retention, when every group has read them"
)
CONSUMERS = "a consumer is known while it holds entries, and is not made or removed by itself"
OPTIONS = "XCLAIM refuses the options that would rewrite how often and how long ago an entry was delivered"
FORCE = "XCLAIM takes over what was delivered, and delivers nothing by force"
# By script and number of the line, why Penstock answers otherwise. An entry that is no longer true fails.
DIFFERENCES: dict[str, dict[int, str]] = {
    "adding": {17: RETENTION},
    "claiming": {12: FORCE, 14: OPTIONS, 21: FORCE, 22: FORCE},
    "looking": {12: CONSUMERS, 14: CONSUMERS, 15: CONSUMERS},
    "removing": {place: RETENTION for place in (5, 11, 12, 13, 14, 16, 21, 22)},
}
# What clients and people recognise by its words, not only by its code.
WORDS = {
    "NOSUCH a b": "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ",
    "XLEN": "ERR wrong number of arguments for 'xlen' command",
    "XGROUP CREATE s": "ERR wrong number of arguments for 'xgroup|create' command",
    "XGROUP NOSUCH s": "ERR unknown subcommand 'NOSUCH'. Try XGROUP HELP.",
    "CLIENT NOSUCH": "ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.",
    "HELLO 4": "NOPROTO unsupported protocol version",
    "EXEC": "ERR EXEC without MULTI",
    "XREADGROUP GROUP g c STREAMS none >": (
        "NOGROUP No such key 'none' or consumer group 'g' in XREADGROUP with GROUP option"
    ),
    "XINFO STREAM none": "ERR no such key",
}


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("script", SCRIPTS)
def test_replies_are_the_same(
    script: str, protocol: int, shared_server: PenstockServer, redis_server: RedisServer
) -> None:
    ours = run_script(shared_server.port, protocol, script)
    theirs = run_script(redis_server.port, protocol, script)
    unexpected, stale = [], []
    for number, (line, our, their) in enumerate(zip(SCRIPTS[script], ours, theirs, strict=True), 1):
        expected = number in DIFFERENCES.get(script, {})
        if our != their and not expected:
            unexpected.append(f"{number}. {line}\n   penstock {our}\n   redis    {their}")
        if our == their and expected:
            stale.append(f"{number}. {line}: is the same now")
    assert not unexpected + stale, "\n".join(unexpected + stale)


@pytest.mark.parametrize(("line", "words"), WORDS.items(), ids=WORDS)
def test_errors_that_are_known_by_their_words(
    line: str, words: str, shared_server: PenstockServer, redis_server: RedisServer
) -> None:
    for port in (redis_server.port, shared_server.port):
        with Wire(port) as wire:
            assert wire.error(*line.split()) == words
