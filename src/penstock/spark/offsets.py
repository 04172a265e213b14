"""Stream offsets as Spark keeps them in a checkpoint: the store's epoch, the table, and a mark for each queue.

Spark compares offsets as text, so keys are written in a fixed order.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import shown
from penstock.engines.contract import Mark

VERSION = 1


class Offsets(msgspec.Struct, frozen=True):
    epoch: str
    table: str
    marks: dict[str, Mark]

    def document(self) -> dict[str, Any]:
        marks = {queue: self.marks[queue] for queue in sorted(self.marks)}
        return {"version": VERSION, "epoch": self.epoch, "table": self.table, "queues": marks}

    def moved(self, marks: dict[str, Mark]) -> Offsets:
        return Offsets(self.epoch, self.table, {**self.marks, **marks})


def from_document(document: dict[str, Any]) -> Offsets:
    if document.get("version") != VERSION or not isinstance(document.get("queues"), dict):
        raise InvalidInput(f"the checkpoint holds no offsets of Penstock: {shown(document)}; name another directory")
    return Offsets(document["epoch"], document["table"], document["queues"])


def check_same(offsets: Offsets, epoch: str, table: str, queues: set[str] | None) -> None:
    """Check that a checkpoint belongs to this store, table and queues; `queues` is None for a pattern."""
    advice = "name another checkpointLocation, or start again with an empty one"
    if offsets.epoch != epoch:
        raise InvalidInput(
            f"the checkpoint belongs to another store (epoch {shown(offsets.epoch)}, this one has {shown(epoch)}): "
            f"{advice}"
        )
    if offsets.table != table:
        raise InvalidInput(f"the checkpoint belongs to the table {shown(offsets.table)}, not to {table}: {advice}")
    if queues is not None and set(offsets.marks) != queues:
        there, wanted = sorted(offsets.marks), sorted(queues)
        raise InvalidInput(f"the checkpoint belongs to queue {shown(there)}, not to {shown(wanted)}: {advice}")
