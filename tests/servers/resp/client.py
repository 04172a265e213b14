"""A client that shows every reply as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis

PATIENCE_SECONDS = 120


def frame(*words: Any) -> bytes:
    data = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in data)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader(replyError=hiredis.ReplyError)

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def __call__(self, *words: Any) -> Any:
        self.send(*words)
        return await self.reply()

    async def error(self, *words: Any) -> str:
        reply = await self(*words)
        assert isinstance(reply, hiredis.ReplyError), f"expected an error, got {reply!r}"
        return str(reply)

    def send(self, *words: Any) -> None:
        self._writer.write(frame(*words))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def reply(self) -> Any:
        while (reply := self._parser.gets()) is False:
            data = await asyncio.wait_for(self._reader.read(65536), PATIENCE_SECONDS)
            if not data:
                raise ConnectionError("the server hung up")
            self._parser.feed(data)
        return reply

    async def wait_for_data(self) -> None:
        """Until the first of a reply has come. No more of it is read than the reader's own buffer takes."""
        self._parser.feed(await asyncio.wait_for(self._reader.readexactly(1), PATIENCE_SECONDS))

    async def read_some(self, size: int) -> None:
        self._parser.feed(await asyncio.wait_for(self._reader.read(size), PATIENCE_SECONDS))

    async def is_hung_up(self) -> bool:
        """Whether nothing follows but the end."""
        try:
            return not await asyncio.wait_for(self._reader.read(1), PATIENCE_SECONDS)
        except ConnectionError:
            return True

    def close(self) -> None:
        self._writer.close()


Talk = Callable[[], Awaitable[Client]]
