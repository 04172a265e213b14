"""The sink: how Spark writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow


class SinkContract(Protocol):
    """Staged messages: written part by part, then sent all at once and only once."""

    def stage(self, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
        """Stage messages (`sink_rows.schema`) under a key, as one part of several, invisible to readers; returns how
        many. A task that runs twice uses another part name."""

    def release(self, queue: str, key: str, parts: Sequence[str]) -> int | None:
        """(new) -> ready or held for all messages that these parts have staged, in that order, together with the ledger
        entry `key/queue` of kind "sink". None, with nothing sent, when the ledger has that entry already. Other parts
        of the key are dropped, and so is everything that was not released within a day."""

    def discard(self, queue: str, key: str) -> None:
        """Drop what was staged under a key."""
