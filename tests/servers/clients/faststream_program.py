"""Handlers of streams as a user of FastStream writes them: `faststream_program.py PORT STREAM`.

One reads as a group and fails once, one takes over what that left, one follows a stream without a group. It prints what
they saw as JSON, and knows nothing of Penstock.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from faststream import AckPolicy  # type: ignore[import-not-found]  # lives in a folder of its own
from faststream.redis import RedisBroker, StreamSub  # type: ignore[import-not-found]  # as faststream

PATIENCE_SECONDS = 90


async def main() -> None:
    port, stream = int(sys.argv[1]), sys.argv[2]
    broker: Any = RedisBroker(f"redis://127.0.0.1:{port}", logger=None)
    seen: dict[str, list[Any]] = {"group": [], "claimed": [], "followed": []}
    finished = asyncio.Event()

    def note(what: str, value: Any) -> None:
        seen[what].append(value)
        if [len(seen[one]) for one in ("group", "claimed", "followed")] == [3, 1, 3]:
            finished.set()

    async def work(message: dict[str, Any]) -> None:
        note("group", message["n"])
        if message["n"] == 2:
            raise ValueError("not now")

    async def take_over(message: dict[str, Any]) -> None:
        note("claimed", message["n"])

    async def follow(messages: list[dict[str, Any]]) -> None:
        for message in messages:
            note("followed", message["n"])

    group = StreamSub(stream, group="work", consumer="one")
    broker.subscriber(stream=group, ack_policy=AckPolicy.NACK_ON_ERROR)(work)
    broker.subscriber(stream=StreamSub(stream, group="work", consumer="two", min_idle_time=200))(take_over)
    broker.subscriber(stream=StreamSub(stream, last_id="0", batch=True))(follow)
    async with broker:
        await broker.start()
        for number in (1, 2, 3):
            await broker.publish({"n": number}, stream=stream, maxlen=1000)
        await asyncio.wait_for(finished.wait(), PATIENCE_SECONDS)
        client = broker._connection
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await client.xpending(stream, "work"))["pending"]:
                await asyncio.sleep(0.01)  # an entry is acknowledged after its handler
    print(json.dumps({name: sorted(values) for name, values in seen.items()}))


if __name__ == "__main__":
    asyncio.run(main())
