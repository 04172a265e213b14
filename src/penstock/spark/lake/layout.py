"""Directory names of a lake, and the migration of lakes with the first layout.

The first layout had directories `queue=<name>`. Readers infer a partition column from that and its type, which collides
with the column `queue` of the files: queue 0017 became 17, and pandas raised an error.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from penstock.spark.lake.lake import Lake
    from penstock.spark.lake.manifest import FileEntry

# Of a queue's name; most file systems limit names to 255 bytes.
LONGEST_NAME = 80
# The directory of the computed tables.
TABLES = "tables"
FIRST_PREFIX = "queue="
FIRST_LONGEST_NAME = 200


def queue_folder(name: str) -> str:
    """The directory of a queue: a portable form of its name for people, and a digest that makes it unique and is not
    mistaken for a number or a date."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:LONGEST_NAME]
    return f"queue_dir={plain}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def adopt(lake: Lake) -> int:
    """Move files of the first layout to their new paths. Returns how many."""
    folders = {_first_folder(queue): queue_folder(queue) for queue in lake.manifest.marks()}
    moves: list[tuple[str, str, FileEntry]] = []
    for path, entry in lake.manifest.files().items():
        if path.startswith(f"{TABLES}/"):
            continue
        table, day, folder, name = path.split("/")
        if folder.startswith(FIRST_PREFIX):
            moves.append((path, f"{table}/{day}/{folders[folder]}/{name}", entry))
    if moves:
        with lake.change("adopt"):
            lake.manifest.stage(adds=tuple(moves), removes=tuple(path for path, _, _ in moves))
        lake.sign()
    return len(moves)


def _first_folder(name: str) -> str:
    spelled = quote(name, safe="")
    if len(spelled) > FIRST_LONGEST_NAME:
        spelled = f"{spelled[: FIRST_LONGEST_NAME - 20]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"{FIRST_PREFIX}{spelled}"
