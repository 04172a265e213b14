"""Where the files of a queue lie in a lake, and lakes of the first layout brought to this one.

The first layout had directories called `queue=<name>`. Readers take the name of such a directory for the value of a
column, guess its type, and find that the files have a column of that name: queue 0017 became 17, and pandas refused.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from penstock.spark.lake.manifest import FileEntry
    from penstock.spark.lake.opening import Lake

# Of a queue's name; directory names have 255 bytes at most on most systems.
LONGEST_NAME = 80
FIRST_PREFIX = "queue="
FIRST_LONGEST_NAME = 200


def queue_folder(name: str) -> str:
    """The directory of a queue: letters of its name that any file system takes, for people, and a digest that tells
    queues apart and that nobody takes for a number or a date."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:LONGEST_NAME]
    return f"queue_dir={plain}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def adopt(lake: Lake) -> int:
    """Move the files of the first layout to their places in this one; how many that were."""
    folders = {_first_folder(queue): queue_folder(queue) for queue in lake.manifest.marks()}
    moves: list[tuple[str, str, FileEntry]] = []
    for path, entry in lake.manifest.files().items():
        table, day, folder, name = path.split("/")
        if folder.startswith(FIRST_PREFIX):
            moves.append((path, f"{table}/{day}/{folders[folder]}/{name}", entry))
    if moves:
        with lake.changing("adopt"):
            lake.manifest.stage(adds=tuple(moves), removes=tuple(path for path, _, _ in moves))
        lake.sign()
    return len(moves)


def _first_folder(name: str) -> str:
    spelled = quote(name, safe="")
    if len(spelled) > FIRST_LONGEST_NAME:
        spelled = f"{spelled[: FIRST_LONGEST_NAME - 20]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"{FIRST_PREFIX}{spelled}"
