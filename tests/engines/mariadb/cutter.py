"""A proxy between a client and its server that ends a connection at a chosen packet of the client."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from enum import Enum
from pathlib import Path

from tests.ports import LOOPBACK


class Lost(Enum):
    """What of the packet is lost: the request, or the server's answer to it."""

    REQUEST = "request"
    ANSWER = "answer"


class Cutter:
    def __init__(self, target: Path) -> None:
        self._target = str(target)
        self._lock = threading.Lock()
        # Packets up to the one to cut; None when there is none to cut.
        self._left: int | None = None
        self._what = Lost.REQUEST
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, packet: int, what: Lost) -> None:
        """Cut the connection that sends the packet of this number, counted from now on."""
        with self._lock:
            self._left, self._what = packet, what

    def disarm(self) -> bool:
        """Whether a connection was cut since."""
        with self._lock:
            left, self._left = self._left, None
        return left is None

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                server.connect(self._target)
                drops = threading.Event()
                for forward in (self._requests, self._answers):
                    threading.Thread(target=forward, args=(client, server, drops), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, drops: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self._is_cut():
                    if self._what is Lost.REQUEST:
                        break
                    drops.set()
                server.sendall(data)
        self._end(client, server)

    def _is_cut(self) -> bool:
        with self._lock:
            if self._left is None:
                return False
            self._left -= 1
            if self._left > 0:
                return False
            self._left = None
            return True

    def _answers(self, client: socket.socket, server: socket.socket, drops: threading.Event) -> None:
        with suppress(OSError):
            while (data := server.recv(1 << 16)) and not drops.is_set():
                client.sendall(data)
        self._end(client, server)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
