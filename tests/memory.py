"""Where tests keep their files: in memory where there is room, because a disk is waited for at every commit of SQLite
and no test turns the machine off. Processes that are killed lose nothing by it: a file in memory outlives them.
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
