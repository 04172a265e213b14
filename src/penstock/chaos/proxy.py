"""A proxy on loopback whose connections can be cut at any moment, with the data in transit."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading

LOOPBACK = "127.0.0.1"
LISTENED = (12_000, 32_000)
# With this setting a close sends a reset, which the peers notice immediately.
RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards bytes to a TCP address or a Unix socket, in a thread of its own."""

    def __init__(self, target: tuple[str, int] | str) -> None:
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="chaos-proxy")
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self, dice: random.Random) -> int:
        """Cut some or all of the connections; returns how many."""
        share = dice.choice([0.2, 0.5, 1.0])
        chosen = [one for one in list(self._open) if dice.random() < share]
        for one in chosen:
            self._loop.call_soon_threadsafe(_reset, one)
        return len(chosen)

    def lead_to(self, target: tuple[str, int] | str) -> None:
        """Change the target of new connections."""
        self._target = target

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for one in list(self._open):
            _reset(one)
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, LOOPBACK, 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward_reader, onward_writer = await self._connect()
        except OSError:
            _reset(writer)
            return
        ends = (writer, onward_writer)
        self._open.update(ends)
        try:
            await asyncio.gather(_copy(reader, onward_writer), _copy(onward_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in ends:
                self._open.discard(one)
                _reset(one)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, str):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection(*self._target)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(65536):
        writer.write(content)
        await writer.drain()
    # Close the other direction too: neither side uses half-closed connections.
    raise ConnectionResetError


def _reset(writer: asyncio.StreamWriter) -> None:
    end = writer.get_extra_info("socket")
    if end is not None and end.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def free_port() -> int:
    """Choose a port outside the range of outgoing connections: a killed server must be able to bind it again, also
    while other runs connect to their servers."""
    while True:
        port = random.SystemRandom().randrange(*LISTENED)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
