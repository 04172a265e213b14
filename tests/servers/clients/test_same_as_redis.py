"""The same commands get the same replies from Redis and from Penstock, type for type, except as written here."""

from __future__ import annotations

import pytest

from tests.servers.clients.processes import PenstockServer, RedisServer
from tests.servers.clients.stream_scripts import SCRIPTS, run_script
from tests.servers.clients.wire import Wire

MOVED = "a group that was moved by LASTID has so much less to read; Redis does not count that"
REMOVED = "an entry that was removed is gone, also for the consumer that holds it; Redis keeps its id pending"
ADDED = "how many were ever added, and which were removed last, is not written down"
OWN_IDS = "ids follow from time and place, and cannot be chosen"
# By script and number of the line, why Penstock answers otherwise. An entry that is no longer true fails.
DIFFERENCES: dict[str, dict[int, str]] = {
    "claims": {24: MOVED, 31: MOVED},
    "removed while pending": {6: ADDED, 7: REMOVED, 8: REMOVED, 12: OWN_IDS, 13: OWN_IDS},
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


@pytest.mark.parametrize(
    ("engine", "protocol"), [("sqlite", 2), ("sqlite", 3), ("postgres", 3)], ids=lambda one: str(one)
)
@pytest.mark.parametrize("script", SCRIPTS)
def test_replies_are_the_same(
    script: str, engine: str, protocol: int, request: pytest.FixtureRequest, redis_server: RedisServer
) -> None:
    server: PenstockServer = request.getfixturevalue("shared_server" if engine == "sqlite" else "postgres_server")
    run = f"{engine}-{protocol}"
    ours = run_script(server.port, protocol, script, run)
    theirs = run_script(redis_server.port, protocol, script, run)
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
