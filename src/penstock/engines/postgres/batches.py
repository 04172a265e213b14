"""Batches: creating, starting, cancelling and inspecting them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.message import Draft
from penstock.domain.results import BatchInfo
from penstock.engines.postgres import rows
from penstock.engines.postgres.calls import SQL, Caller


class PostgresBatches(Caller):
    def batch_mark(self, queue: str, name: str, opens: bool) -> int:
        return int(self._value(SQL.batch_mark, queue, name, opens))

    def batch_open(
        self, queue: str, name: str, end: Draft | None, abort: Draft | None, after: int | None = None
    ) -> BatchInfo:
        found = self._rows(SQL.batch_open, queue, name, rows.stored(end), rows.stored(abort), after)
        return rows.batch_info(found[0], queue)

    def batch_start(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        row = self._rows(SQL.batch_start, queue, name, after)[0]
        self.watch.committed()
        return rows.batch_info(row, queue)

    def batch_cancel(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        with self._suggesting(queue, name):
            row = self._rows(SQL.batch_cancel, queue, name, after)[0]
        self.watch.committed()
        return rows.batch_info(row, queue)

    def batch(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        with self._suggesting(queue, name):
            return rows.batch_info(self._rows(SQL.batch, queue, name, after)[0], queue)

    def batches(self, queue: str) -> list[BatchInfo]:
        return [rows.batch_info(row, queue) for row in self._rows(SQL.batches, queue)]

    def cancelled(self, queue: str, group: str, positions: Sequence[int]) -> list[bool]:
        with self._suggesting(queue):
            return list(self._value(SQL.cancelled, queue, group, list(positions)))
