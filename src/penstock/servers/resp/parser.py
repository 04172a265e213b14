"""From bytes to commands, without sockets.

The frame is checked here, header by header as it comes in, so that a claim never costs memory: only bytes that have
arrived are kept, and a claim beyond the limits ends the conversation at once. What has been found whole is taken apart
by hiredis. A line that does not begin with `*` is an inline command, as typed into telnet.
"""

from __future__ import annotations

import hiredis

from penstock.servers.resp.inline import split_line
from penstock.servers.resp.limits import Limits

Command = list[bytes]
STAR, DOLLAR = b"*$"
# The longest header that can be right: a sign, nineteen digits and the line's end, with room to spare.
MAX_HEADER = 32
# What a browser sends first when a web page is made to talk to this port.
HTTP_WORDS = (b"POST", b"HOST:")


class ProtocolError(Exception):
    """What came in is no command, and nothing after it can be trusted: the connection ends."""


class Parser:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.error: ProtocolError | None = None
        self._reader = hiredis.Reader()
        self._buffer = bytearray()
        self._begun = 0  # where the command starts that is not whole yet
        self._at = 0  # up to here its headers were checked
        self._left = 0  # arguments that are still to come
        self._whole = 0  # commands found whole, not yet taken apart
        self.trust(False)

    def trust(self, known: bool) -> None:
        """Those who have said who they are may send more."""
        limits = self.limits
        self._max_arguments = limits.arguments if known else limits.stranger_arguments
        self._max_bulk = limits.bulk_bytes if known else limits.stranger_bulk_bytes
        self._max_request = limits.request_bytes if known else limits.stranger_bulk_bytes * 2

    @property
    def is_midway(self) -> bool:
        """Whether a command has begun and is not whole."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are whole now. After `error` was set there will be no more."""
        commands: list[Command] = []
        if self.error is None:
            self._buffer += data
            try:
                self._scan(commands)
            except ProtocolError as error:
                self.error = error
            self._take_apart(commands)
            if self.error is not None:
                self._buffer.clear()
        return commands

    def _scan(self, commands: list[Command]) -> None:
        buffer, size = self._buffer, len(self._buffer)
        while self._at < size:
            if self._left:
                if not self._pass_argument(buffer, size):
                    return
            elif buffer[self._at] == STAR:
                if not self._pass_count(buffer, size):
                    return
            elif not self._pass_line(buffer, size, commands):
                return
            else:
                buffer, size = self._buffer, len(self._buffer)

    def _pass_count(self, buffer: bytearray, size: int) -> bool:
        """`*3`: how many arguments follow."""
        end = buffer.find(b"\r\n", self._at, self._at + MAX_HEADER)
        if end < 0:
            return self._wait(size, "invalid multibulk length")
        count = _number(buffer[self._at + 1 : end])
        if count is None or count > self._max_arguments:
            raise ProtocolError(
                "unauthenticated multibulk length"
                if count is not None and count <= self.limits.arguments
                else "invalid multibulk length"
            )
        self._at = end + 2
        self._left = max(0, count)
        if count <= 0:  # says nothing, and is answered with nothing
            self._finish()
        return True

    def _pass_argument(self, buffer: bytearray, size: int) -> bool:
        """`$5`, five bytes and a line's end. Goes over as many arguments as are there."""
        at, left, max_bulk, find = self._at, self._left, self._max_bulk, buffer.find
        while left:
            if at >= size:
                break
            if buffer[at] != DOLLAR:
                raise ProtocolError(f"expected '$', got {_shown(buffer[at])}")
            end = find(b"\r\n", at, at + MAX_HEADER)
            if end < 0:
                self._at, self._left = at, left
                return self._wait(size, "invalid bulk length")
            digits = buffer[at + 1 : end]
            length = int(digits) if digits.isdigit() else -1
            if not 0 <= length <= max_bulk:
                raise ProtocolError(
                    "unauthenticated bulk length" if 0 <= length <= self.limits.bulk_bytes else "invalid bulk length"
                )
            after = end + length + 4
            if after - self._begun > self._max_request:
                raise ProtocolError(f"too big a request: at most {self._max_request} bytes")
            if after > size:
                break
            if buffer[after - 2] != 13 or buffer[after - 1] != 10:
                raise ProtocolError("expected the end of a line after a bulk string")
            at = after
            left -= 1
        self._at, self._left = at, left
        if left:
            return False
        self._finish()
        return True

    def _pass_line(self, buffer: bytearray, size: int, commands: list[Command]) -> bool:
        end = buffer.find(b"\n", self._at)
        if end < 0 or end - self._at > self.limits.inline_bytes:
            if size - self._at > self.limits.inline_bytes:
                raise ProtocolError("too big inline request")
            return False
        length = end - self._at
        self._take_apart(commands)  # the line stands at the front now
        arguments = split_line(bytes(self._buffer[:length]))
        del self._buffer[: length + 1]
        if arguments is None:
            raise ProtocolError("unbalanced quotes in request")
        if len(arguments) > self._max_arguments:
            raise ProtocolError("too many arguments in an inline request")
        if arguments and arguments[0].upper() in HTTP_WORDS:
            raise ProtocolError("this is no HTTP server")
        if arguments:
            commands.append(arguments)
        return True

    def _wait(self, size: int, otherwise: str) -> bool:
        """For the rest of a header, unless it is too long to become one."""
        if size - self._at >= MAX_HEADER:
            raise ProtocolError(otherwise)
        return False

    def _finish(self) -> None:
        self._whole += 1
        self._begun = self._at

    def _take_apart(self, commands: list[Command]) -> None:
        if not self._whole:
            return
        reader = self._reader
        reader.feed(bytes(self._buffer[: self._begun]))
        for _ in range(self._whole):
            command = reader.gets()
            if command:
                commands.append(command)
        del self._buffer[: self._begun]
        self._at -= self._begun
        self._whole = self._begun = 0


def _number(digits: bytearray) -> int | None:
    if digits.isdigit():
        return int(digits)
    return -1 if digits[:1] == b"-" and digits[1:].isdigit() and len(digits) <= 3 else None


def _shown(byte: int) -> str:
    return f"'{chr(byte)}'" if 32 <= byte < 127 else f"byte {byte}"
