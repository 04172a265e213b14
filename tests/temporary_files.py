"""Where tests keep their files: in memory where there is room, because every commit of SQLite waits for a disk and no
test turns the machine off. Killed processes lose nothing: a file in memory outlives them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PLACE = Path("/dev/shm")
# Several times what a whole run needs at once.
ROOM_BYTES = 4 * 1024**3


def set_up() -> None:
    """Before anybody has asked for a temporary file; whoever sets TMPDIR has chosen."""
    if "TMPDIR" not in os.environ and os.access(PLACE, os.W_OK) and shutil.disk_usage(PLACE).free >= ROOM_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = str(PLACE)
