"""From bytes to commands, without sockets.

The frame is checked here, header by header as it comes in, so that a claim never costs memory: only bytes that have
arrived are kept, and a claim beyond the limits ends the conversation at once. What has been found whole is taken apart
by hiredis. A line that does not begin with `*` is an inline command, as typed into telnet.
"""

from __future__ import annotations

import hiredis

from penstock.servers.resp.inline import split_line
from penstock.settings import Limits

Command = list[bytes]
STAR, DOLLAR, ZERO, CARRIAGE_RETURN, LINE_FEED = b"*$0\r\n"
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
        """Go over headers and contents as far as they are there. One loop, because it runs for every argument."""
        buffer, size = self._buffer, len(self._buffer)
        find, max_bulk = buffer.find, self._max_bulk
        at, left = self._at, self._left
        while at < size:
            first = buffer[at]
            if not left and first != STAR:
                self._at, self._left = at, left
                if not self._pass_line(buffer, size, commands):
                    return
                at, size = self._at, len(buffer)
                continue
            if left and first != DOLLAR:
                raise ProtocolError(f"expected '$', got {_shown(first)}")
            end = find(b"\r\n", at, at + MAX_HEADER)
            if end < 0:
                if size - at >= MAX_HEADER:
                    raise ProtocolError("invalid bulk length" if left else "invalid multibulk length")
                break
            digits = buffer[at + 1 : end]
            if not left:
                left = self._count(digits)
                if left:
                    at = end + 2
                else:  # says nothing, and is answered with nothing
                    self._at = at
                    self._take_apart(commands)
                    del buffer[: end + 2 - at]
                    at, size = 0, len(buffer)
                continue
            length = int(digits) if digits.isdigit() and (digits[0] != ZERO or len(digits) == 1) else -1
            if not 0 <= length <= max_bulk:
                raise self._bad_length(length)
            after = end + length + 4
            if after - self._begun > self._max_request:
                raise ProtocolError(f"too big a request: at most {self._max_request} bytes")
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

    def _count(self, digits: bytearray) -> int:
        """`*3`: how many arguments follow."""
        count = _number(digits)
        if count is None or count > self.limits.arguments:
            raise ProtocolError("invalid multibulk length")
        if count > self._max_arguments:
            raise ProtocolError("unauthenticated multibulk length")
        return max(0, count)

    def _bad_length(self, length: int) -> ProtocolError:
        is_known_size = 0 <= length <= self.limits.bulk_bytes
        return ProtocolError("unauthenticated bulk length" if is_known_size else "invalid bulk length")

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
    """Written in the one way that Redis takes: no leading zeros, no minus zero."""
    bare = digits[1:] if digits[:1] == b"-" else digits
    if not bare.isdigit() or (bare[0] == ZERO and len(digits) > 1):
        return None
    return int(digits)


def _shown(byte: int) -> str:
    return f"'{chr(byte)}'" if 32 <= byte < 127 else f"byte {byte}"
