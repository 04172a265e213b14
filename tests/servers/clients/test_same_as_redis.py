"""The same commands get the same replies from Redis and from Penstock, type for type, except as written here."""

from __future__ import annotations

import pytest

from tests.servers.clients.processes import PenstockServer, RedisServer
from tests.servers.clients.stream_scripts import SCRIPTS, run_script

# (script, number of the line from 1): why Penstock answers otherwise. An entry that is no longer true fails.
DIFFERENCES: dict[tuple[str, int], str] = {}


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("script", SCRIPTS)
def test_replies_are_the_same(
    script: str, protocol: int, shared_server: PenstockServer, redis_server: RedisServer
) -> None:
    ours = run_script(shared_server.port, protocol, script)
    theirs = run_script(redis_server.port, protocol, script)
    unexpected, stale = [], []
    for number, (line, our, their) in enumerate(zip(SCRIPTS[script], ours, theirs, strict=True), 1):
        expected = (script, number) in DIFFERENCES
        if our != their and not expected:
            unexpected.append(f"{number}. {line}\n   penstock {our}\n   redis    {their}")
        if our == their and expected:
            stale.append(f"{number}. {line}: is the same now")
    assert not unexpected + stale, "\n".join(unexpected + stale)
