"""Writes rows from Arrow to staged Parquet files, on the executors.

A task writes its own files and returns their names; files of a failed task are removed with the staging directory.
Rows do not pass through Java, which would cost more than reading and writing them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.spark.lake.columns import TIMES, arrow_schema

if TYPE_CHECKING:
    import pyarrow

Batches = Iterable["pyarrow.RecordBatch"]
# The row that a task returns for each file.
WRITTEN = "table string, path string, day string, queue string, rows long, size long, digest string"
# Columns with few distinct values; for others a dictionary only costs time.
FEW_VALUES = ("queue", "event", "state", "by", "group", "reason", "outcome", "content_type", "created_by", "batch")
ROW_GROUP = 250_000
# Row groups are held in memory by readers and by the writer; this bounds the buffers of all open files together.
ROW_GROUP_BYTES = 32 << 20
OPEN_FILES = 64
PIECE_BYTES = 1 << 20


def writer(staging: str) -> Callable[[Table, Batches], Iterator[pyarrow.RecordBatch]]:
    """A function that writes rows of a table to files below a directory and returns a row for each file."""

    def write(table: Table, batches: Batches) -> Iterator[pyarrow.RecordBatch]:
        files = _Files(table, staging)
        for batch in batches:
            files.add(batch)
        yield files.close()

    return write


class _Files:
    """The files of one task: one for each day and queue, or more when too many were open."""

    def __init__(self, table: Table, staging: str) -> None:
        self.table = table
        self.staging = staging
        self.open: dict[tuple[str, str], _File] = {}
        self.written: list[tuple[str, str, str, str, int, int, str]] = []

    def add(self, batch: pyarrow.RecordBatch) -> None:
        for day, queue, part in split(batch, TIMES[self.table]):
            key = (day, queue)
            if key not in self.open:
                if len(self.open) == OPEN_FILES:
                    self._close(next(iter(self.open)))
                self.open[key] = _File(self.table, self.staging)
            self.open[key].add(part)
        while sum(file.waiting for file in self.open.values()) >= ROW_GROUP_BYTES:
            max(self.open.values(), key=lambda file: file.waiting).flush()

    def _close(self, key: tuple[str, str]) -> None:
        file = self.open.pop(key)
        rows, size, digest = file.close()
        self.written.append((self.table, file.path, *key, rows, size, digest))

    def close(self) -> pyarrow.RecordBatch:
        for key in list(self.open):
            self._close(key)
        arrow = tables.pyarrow_module()
        types = (*[arrow.string()] * 4, arrow.int64(), arrow.int64(), arrow.string())
        names = [column.split()[0] for column in WRITTEN.split(", ")]
        columns = zip(*self.written, strict=True) if self.written else [()] * len(types)
        arrays = [arrow.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        return arrow.record_batch(arrays, names=names)


def split(batch: pyarrow.RecordBatch, time: str) -> Iterator[tuple[str, str, pyarrow.RecordBatch]]:
    """Split a batch by day and queue; nearly always it has one of each."""
    from pyarrow import compute

    days = compute.floor_temporal(batch.column(time), unit="day")
    for queue in compute.unique(batch.column("queue")).to_pylist():
        here = compute.equal(batch.column("queue"), queue)
        for day in compute.unique(days.filter(here)).to_pylist():
            chosen = compute.and_(here, compute.equal(days, day))
            part = batch if compute.all(chosen).as_py() else batch.filter(chosen)
            yield f"{day:%Y-%m-%d}", queue, part


class _File:
    def __init__(self, table: Table, staging: str) -> None:
        from pyarrow import parquet

        self.path = f"{table}/{uuid4().hex}.parquet"
        self._schema = arrow_schema(table)
        self._stream = _HashingFile(open_output(f"{staging}/{self.path}"))
        few = [name for name in self._schema.names if name in FEW_VALUES]
        # Numbers and times grow in small steps: differences are shorter, and faster to write than compressed values.
        steps = {field.name: "DELTA_BINARY_PACKED" for field in self._schema if _is_whole(field.type)}
        self._parquet: Any = parquet.ParquetWriter(
            self._stream, self._schema, compression="zstd", use_dictionary=few, column_encoding=steps
        )
        self._waiting: list[pyarrow.RecordBatch] = []
        self.waiting = 0
        self._rows = self._written = 0

    def add(self, batch: pyarrow.RecordBatch) -> None:
        self._waiting.append(batch.select(self._schema.names))
        self.waiting += batch.nbytes
        self._rows += batch.num_rows
        if self._rows - self._written >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the buffered batches as row groups."""
        if self._waiting:
            table = tables.pyarrow_module().Table.from_batches(self._waiting)
            size = min(2 * ROW_GROUP, max(1, table.num_rows * ROW_GROUP_BYTES // max(1, self.waiting)))
            self._parquet.write_table(table.cast(self._schema), row_group_size=size)
            self._waiting, self.waiting, self._written = [], 0, self._rows

    def close(self) -> tuple[int, int, str]:
        self.flush()
        self._parquet.close()
        self._stream.close()
        return self._rows, self._stream.size, self._stream.digest.hexdigest()


def _is_whole(kind: pyarrow.DataType) -> bool:
    types = tables.pyarrow_module().types
    return bool(types.is_integer(kind) or types.is_timestamp(kind))


class _HashingFile:
    """A file that counts and hashes the bytes written to it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size = 0
        self.digest = hashlib.sha256()
        self.closed = False

    def write(self, content: Any) -> int:
        self.digest.update(content)
        self.size += len(content)
        self._stream.write(content)
        return len(content)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def open_output(path: str) -> Any:
    """Local files are opened directly, others through Arrow, which reads the same credentials as Hadoop."""
    local = _local(path)
    if local is not None:
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return open(local, "wb")
    system, name = _system(path)
    return system.open_output_stream(name)


def digest_of(path: str) -> str | None:
    """The SHA-256 of a file, read in pieces; None when the file does not exist."""
    local = _local(path)
    system, name = (None, local) if local is not None else _system(path)
    digest = hashlib.sha256()
    try:
        with open(name, "rb") if system is None else system.open_input_stream(name) as stream:
            while piece := stream.read(PIECE_BYTES):
                digest.update(piece)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def _local(path: str) -> str | None:
    if not path.startswith("file:"):
        return None
    local = path.removeprefix("file:")
    return local.removeprefix("//") if local.startswith("//") else local


def _system(path: str) -> tuple[Any, str]:
    from pyarrow import fs

    system, name = fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    return system, name
