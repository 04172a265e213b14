"""Conversion of the columns that are read to those that were requested, as whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.domain.message import BYTES, SYSTEM
from penstock.engines import tables
from penstock.engines.identities import made_ids
from penstock.engines.postgres import rows

if TYPE_CHECKING:
    import pyarrow

# Requested columns that are computed from others.
_RAW = {
    "id": ("id", "created_at", "position"),
    "queue": (),
    "priority": ("lane_id",),
    "shard": ("lane_id",),
    "available_at": ("available_at", "created_at"),
}
# The meaning of null.
_OTHERWISE = {"content_type": BYTES, "created_by": SYSTEM, "by": SYSTEM}
# Columns of archive and audit that all messages of an entry share, by their names in the trail.
_TRAIL = {
    "entry": "entry",
    "at": "at",
    "finished_at": "at",
    "event": "event",
    "state": "state",
    "outcome": "state",
    "by": "by",
    "group": "group",
    "reason": "reason",
    "attempt": "attempt",
    "attempts": "attempt",
    "token": "token",
}


class Lane(NamedTuple):
    lane_id: int
    priority: int
    shard: int


class Columns:
    """The columns to read for a schema, and their conversion."""

    def __init__(self, schema: pyarrow.Schema, queue: str, lanes: list[Lane], salt: int) -> None:
        self.schema = schema
        self.queue = queue
        self.lanes = lanes
        self.salt = salt
        # For archive and audit: the entries.
        self.trail: pyarrow.Table | None = None

    @property
    def raw(self) -> list[str]:
        """The columns to read, each once; at least one, so that rows are counted."""
        names = [raw for name in self.schema.names for raw in self._raw(name)]
        return list(dict.fromkeys(names)) or ["position"]

    def _raw(self, name: str) -> tuple[str, ...]:
        if self.trail is not None and name in _TRAIL:
            return ()
        raw = _RAW.get(name, (name,))
        return () if raw == ("lane_id",) and len(self.lanes) == 1 else raw

    def shaped(self, found: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        arrow = tables.pyarrow_module()
        happened = None if self.trail is None else self._happened(found)
        arrays = [self._column(found, happened, field).cast(field.type) for field in self.schema]
        return arrow.record_batch(arrays, schema=self.schema)

    def _happened(self, found: pyarrow.RecordBatch) -> pyarrow.Table:
        """The entry of each row."""
        from pyarrow import compute

        assert self.trail is not None
        places = compute.index_in(found.column("entry"), value_set=self.trail.column("entry"))
        return self.trail.take(places)

    def _column(
        self, found: pyarrow.RecordBatch, happened: pyarrow.Table | None, field: pyarrow.Field
    ) -> pyarrow.Array:
        from pyarrow import compute

        name = field.name
        if name == "queue":
            return self._same(self.queue, field, found.num_rows)
        if name in ("priority", "shard"):
            return self._of_lane(found, field)
        if happened is not None and name in _TRAIL:
            column = happened.column(_TRAIL[name]).combine_chunks()
        else:
            column = found.column(_RAW.get(name, (name,))[0])
        if name == "id":
            return self._ids(found, column)
        if name == "reason":
            return compute.replace_substring(column, rows.NUL, "\0")
        if name == "available_at":
            return compute.coalesce(column, found.column("created_at"))
        return column.fill_null(_OTHERWISE[name]) if name in _OTHERWISE else column

    def _ids(self, found: pyarrow.RecordBatch, chosen: pyarrow.Array) -> pyarrow.Array:
        from pyarrow import compute

        if not chosen.null_count:
            return chosen
        made = made_ids(found.column("created_at").to_numpy(), self.salt, found.column("position").to_numpy())
        return made if chosen.null_count == len(chosen) else compute.coalesce(chosen, made)

    def _of_lane(self, found: pyarrow.RecordBatch, field: pyarrow.Field) -> pyarrow.Array:
        """Messages that ended while held have lanes of priority -1 - priority."""
        from pyarrow import compute

        arrow = tables.pyarrow_module()
        values = [
            lane.shard if field.name == "shard" else max(lane.priority, -1 - lane.priority) for lane in self.lanes
        ]
        if len(self.lanes) == 1:
            return self._same(values[0], field, found.num_rows)
        known = arrow.array([lane.lane_id for lane in self.lanes], arrow.int32())
        places = compute.index_in(found.column("lane_id"), value_set=known)
        return arrow.array(values, field.type).take(places)

    @staticmethod
    def _same(value: object, field: pyarrow.Field, count: int) -> pyarrow.Array:
        arrow = tables.pyarrow_module()
        return arrow.repeat(arrow.scalar(value, field.type), count)
