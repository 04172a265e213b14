"""A handler for a child process that never returns."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def handle(payload: dict[str, Any]) -> None:
    if "hang" in payload:
        Path(payload["hang"]).write_text(str(os.getpid()))
        time.sleep(60)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
