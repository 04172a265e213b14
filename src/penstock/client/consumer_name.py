"""Names of consumers that were given none."""

from __future__ import annotations

import os
import socket
from uuid import uuid4

HOST = socket.gethostname()


def process_name() -> str:
    """The name of this process, with the current pid: a forked process is another consumer than its parent."""
    return f"{HOST}-{os.getpid()}"


def unique_name() -> str:
    """A name for one of several consumers of this process."""
    return f"{process_name()}-{uuid4().hex[:12]}"
