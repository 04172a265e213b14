"""Parse commands, without sockets.

Frames are checked header by header as they arrive, so that a declared length costs no memory: only received bytes are
buffered, and a length beyond the limits ends the connection at once. hiredis splits complete commands. A line that does
not begin with `*` is an inline command, as typed into telnet.
"""

from __future__ import annotations

import re

import hiredis

from penstock.servers.resp.inline import split_line
from penstock.settings import Limits

Command = list[bytes]
STAR, DOLLAR, CARRIAGE_RETURN, LINE_FEED = b"*$\r\n"
# A valid header has a sign, nineteen digits and a line end at most.
MAX_HEADER = 32
# Numbers in the form that Redis accepts: no leading zeros, no plus, no minus zero.
BULK = re.compile(rb"\$(0|[1-9][0-9]{0,18})\r\n").match
COUNT = re.compile(rb"\*(0|-?[1-9][0-9]{0,18})\r\n").match
# Short input is split into lines, and headers are looked up here instead of being parsed.
MAX_QUICK_DATA = 64 * 1024
QUICK_BULKS = {b"$%d" % length: length for length in range(2048)}
QUICK_COUNTS = {b"*%d" % count: count for count in range(1, 33)}
# The first words of HTTP requests, which web pages can send to this port.
HTTP_WORDS = (b"POST", b"HOST:")


class ProtocolError(Exception):
    """Malformed input: the connection ends, because the next command cannot be found."""


class Parser:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.error: ProtocolError | None = None
        self._reader = hiredis.Reader()
        self.buffer = bytearray()  # an incomplete command
        self._begun = 0  # start of the incomplete command
        self._at = 0  # end of its checked headers
        self._left = 0  # its missing arguments
        self._whole = 0  # complete commands in the buffer, not split yet
        self.trust(False)

    def trust(self, known: bool) -> None:
        """Set the limits of authenticated or unauthenticated clients."""
        limits = self.limits
        self._max_arguments = limits.arguments if known else limits.unauthenticated_arguments
        self._max_bulk = limits.bulk_bytes if known else limits.unauthenticated_bulk_bytes
        self._max_request = limits.request_bytes if known else limits.unauthenticated_bulk_bytes * 2
        self._max_quick = 0 if self._max_bulk < len(QUICK_BULKS) else min(MAX_QUICK_DATA, self._max_request)

    @property
    def is_midway(self) -> bool:
        """Whether a command is incomplete."""
        return bool(self.buffer)

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are complete now. After `error` was set there will be no more."""
        if self.error is not None:
            return []
        if self.buffer or len(data) > self._max_quick:
            return self._feed_buffer(data, [])
        lines = data.split(b"\r\n")
        size = len(lines) - 1  # the last one is not terminated
        count = QUICK_COUNTS.get(lines[0], 0)
        if size == 2 * count + 1 and not lines[size] and 0 < count <= self._max_arguments:
            # A single command, as from clients that wait for each reply.
            arguments = lines[2::2]
            if [*map(QUICK_BULKS.get, lines[1:size:2])] == [*map(len, arguments)]:
                return [arguments]
        commands, at = self._split(lines, size)
        if at:
            data = b"\r\n".join(lines[at:])
        return self._feed_buffer(data, commands) if data else commands

    def _split(self, lines: list[bytes], size: int) -> tuple[list[Command], int]:
        """The commands at the front, as long as no argument has a line end in it, and the number of their lines."""
        commands: list[Command] = []
        at = 0
        before: list[bytes] = []
        while at < size:
            count = QUICK_COUNTS.get(lines[at], 0)
            end = at + 1 + 2 * count
            if not 0 < count <= self._max_arguments or end > size:
                break
            now = lines[at:end]
            if now == before:
                commands.append(commands[-1])
            else:
                arguments = now[2::2]
                if [*map(QUICK_BULKS.get, now[1::2])] != [*map(len, arguments)]:
                    break
                commands.append(arguments)
                before = now
            at = end
        return commands, at

    def _feed_buffer(self, data: bytes, commands: list[Command]) -> list[Command]:
        self.buffer += data
        try:
            self._scan(commands)
        except ProtocolError as error:
            self.error = error
        self._split_complete(commands)
        if self.error is not None:
            self.buffer.clear()
        return commands

    def _scan(self, commands: list[Command]) -> None:
        """Check received headers and contents. One loop, because it runs for every argument."""
        buffer, size = self.buffer, len(self.buffer)
        max_bulk, most = self._max_bulk, self._max_request
        at, left = self._at, self._left
        while at < size:
            if not left:
                self._at = at
                left = self._begin_command(buffer, size, commands)
                at, size = self._at, len(buffer)
                if left < 0:
                    left = 0
                    break
                continue
            header = BULK(buffer, at)
            if header is None:
                self._check_bulk(buffer, at, size)
                break
            length = int(header[1])
            if length > max_bulk:
                raise self._bad_length(length)
            after = header.end() + length + 2
            if after - self._begun > most:
                raise ProtocolError(f"too big a request: at most {most} bytes")
            if after > size:
                break
            if buffer[after - 2] != CARRIAGE_RETURN or buffer[after - 1] != LINE_FEED:
                raise ProtocolError("expected the end of a line after a bulk string")
            at = after
            left -= 1
            if not left:
                self._whole += 1
                self._begun = at
        self._at, self._left = at, left

    def _begin_command(self, buffer: bytearray, size: int, commands: list[Command]) -> int:
        """The number of arguments; 0 for an empty or an inline command, -1 if the header is incomplete."""
        at = self._at
        if buffer[at] != STAR:
            return 0 if self._parse_inline(buffer, size, commands) else -1
        header = COUNT(buffer, at)
        if header is None:
            if size - at >= MAX_HEADER or buffer.find(b"\r\n", at) >= 0:
                raise ProtocolError("invalid multibulk length")
            return -1
        end = header.end()
        count = self._count(int(header[1]))
        if count:
            self._at = end
            return count
        # An empty command has no reply.
        self._split_complete(commands)
        del buffer[: end - at]
        self._at = 0
        return 0

    def _check_bulk(self, buffer: bytearray, at: int, size: int) -> None:
        """Raise unless the header is merely incomplete."""
        if buffer[at] != DOLLAR:
            raise ProtocolError(f"expected '$', got {_shown(buffer[at])}")
        if size - at >= MAX_HEADER or buffer.find(b"\r\n", at) >= 0:
            raise ProtocolError("invalid bulk length")

    def _count(self, count: int) -> int:
        """Check the number of arguments, as in `*3`."""
        if count > self.limits.arguments:
            raise ProtocolError("invalid multibulk length")
        if count > self._max_arguments:
            raise ProtocolError("unauthenticated multibulk length")
        return max(0, count)

    def _bad_length(self, length: int) -> ProtocolError:
        is_known_size = 0 <= length <= self.limits.bulk_bytes
        return ProtocolError("unauthenticated bulk length" if is_known_size else "invalid bulk length")

    def _parse_inline(self, buffer: bytearray, size: int, commands: list[Command]) -> bool:
        end = buffer.find(b"\n", self._at)
        if end < 0 or end - self._at > self.limits.inline_bytes:
            if size - self._at > self.limits.inline_bytes:
                raise ProtocolError("too big inline request")
            return False
        length = end - self._at
        self._split_complete(commands)  # the line is at the front of the buffer now
        arguments = split_line(bytes(self.buffer[:length]))
        del self.buffer[: length + 1]
        if arguments is None:
            raise ProtocolError("unbalanced quotes in request")
        if len(arguments) > self._max_arguments:
            raise ProtocolError("too many arguments in an inline request")
        if arguments and arguments[0].upper() in HTTP_WORDS:
            raise ProtocolError("this is no HTTP server")
        if arguments:
            commands.append(arguments)
        return True

    def _split_complete(self, commands: list[Command]) -> None:
        if not self._whole:
            return
        reader = self._reader
        reader.feed(bytes(self.buffer[: self._begun]))
        for _ in range(self._whole):
            command = reader.gets()
            if command:
                commands.append(command)
        del self.buffer[: self._begun]
        self._at -= self._begun
        self._whole = self._begun = 0


def _shown(byte: int) -> str:
    return f"'{chr(byte)}'" if 32 <= byte < 127 else f"byte {byte}"
