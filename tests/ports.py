"""Ports for the servers of tests."""

from __future__ import annotations

import itertools
import os
import socket

LOOPBACK = "127.0.0.1"
# Below the range from which the kernel gives a port to everybody who connects: nobody takes one of these between the
# moment it is found free and the moment the server listens on it. Browsers refuse to visit some that are lower still.
FIRST, COUNT = 20_000, 12_000
# Processes of a run begin far from each other.
_offsets = itertools.count(os.getpid() * 1_009)


def free_port() -> int:
    """A port that nobody listens on now; another one each time."""
    for offset in itertools.islice(_offsets, COUNT):
        port = FIRST + offset % COUNT
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
                return port
            except OSError:
                continue
    raise AssertionError(f"all ports from {FIRST} to {FIRST + COUNT - 1} are taken")
