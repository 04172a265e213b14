"""Rows to Parquet files aside, straight from Arrow, on the executors.

A task writes its own files and says what they are; files of a task that failed are never heard of and go with the
directory aside. Rows do not pass through Java on the way, which costs more than all the rest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.spark.lake.rows import TIMES, arrow_schema

if TYPE_CHECKING:
    import pyarrow

Batches = Iterable["pyarrow.RecordBatch"]
# What a task tells of a file that it wrote.
WRITTEN = "path string, day string, place int, rows long, size long, digest string"
# Columns with few different values; of others a dictionary only costs time.
FEW_VALUES = ("queue", "event", "state", "by", "group", "reason", "outcome", "content_type", "created_by", "batch")
ROW_GROUP = 250_000
# Readers take whole row groups into memory, and so does the writer: all of its open files together wait with no more.
ROW_GROUP_BYTES = 32 << 20
OPEN_FILES = 64
PIECE_BYTES = 1 << 20


def writer(table: Table, aside: str) -> Callable[[Batches], Iterator[pyarrow.RecordBatch]]:
    """From batches of rows with a `place` to a row for each file written below a directory."""

    def write(batches: Batches) -> Iterator[pyarrow.RecordBatch]:
        files = _Files(table, aside)
        for batch in batches:
            files.add(batch)
        yield files.close()

    return write


class _Files:
    """The files of one task: one for each day and place, and another when it had to be closed."""

    def __init__(self, table: Table, aside: str) -> None:
        self.table = table
        self.aside = aside
        self.open: dict[tuple[str, int], _File] = {}
        self.told: list[tuple[str, str, int, int, int, str]] = []

    def add(self, batch: pyarrow.RecordBatch) -> None:
        for day, place, part in split(batch, TIMES[self.table]):
            key = (day, place)
            if key not in self.open:
                if len(self.open) == OPEN_FILES:
                    self._close(next(iter(self.open)))
                self.open[key] = _File(self.table, self.aside)
            self.open[key].add(part)
        while sum(file.waiting for file in self.open.values()) >= ROW_GROUP_BYTES:
            max(self.open.values(), key=lambda file: file.waiting).flush()

    def _close(self, key: tuple[str, int]) -> None:
        file = self.open.pop(key)
        rows, size, digest = file.close()
        self.told.append((file.path, *key, rows, size, digest))

    def close(self) -> pyarrow.RecordBatch:
        for key in list(self.open):
            self._close(key)
        arrow = tables.pyarrow_module()
        types = (arrow.string(), arrow.string(), arrow.int32(), arrow.int64(), arrow.int64(), arrow.string())
        names = [column.split()[0] for column in WRITTEN.split(", ")]
        columns = zip(*self.told, strict=True) if self.told else [()] * len(types)
        arrays = [arrow.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        return arrow.record_batch(arrays, names=names)


def split(batch: pyarrow.RecordBatch, time: str) -> Iterator[tuple[str, int, pyarrow.RecordBatch]]:
    """The rows of each day and place; nearly always that is the whole batch."""
    from pyarrow import compute

    days = compute.floor_temporal(batch.column(time), unit="day")
    for place in compute.unique(batch.column("place")).to_pylist():
        here = compute.equal(batch.column("place"), place)
        for day in compute.unique(days.filter(here)).to_pylist():
            chosen = compute.and_(here, compute.equal(days, day))
            part = batch if compute.all(chosen).as_py() else batch.filter(chosen)
            yield f"{day:%Y-%m-%d}", place, part


class _File:
    def __init__(self, table: Table, aside: str) -> None:
        from pyarrow import parquet

        self.path = f"{table}/{uuid4().hex}.parquet"
        self._schema = arrow_schema(table)
        self._stream = _Counting(_opened(f"{aside}/{self.path}"))
        few = [name for name in self._schema.names if name in FEW_VALUES]
        # Numbers and times grow in small steps: their differences are short, and quicker to write than to compress.
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
        """What waits becomes a row group."""
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


class _Counting:
    """A file that knows how many bytes it got, and their digest."""

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


def _opened(path: str) -> Any:
    """A disk is written to directly, anything else through Arrow, which reads the same environment as Hadoop."""
    local = _local(path)
    if local is not None:
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return open(local, "wb")
    system, name = _system(path)
    return system.open_output_stream(name)


def digest_of(path: str) -> str | None:
    """The SHA-256 of a file, read piece by piece; None when there is none."""
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
