"""Scans of the store: which queues and marks a read covers, how its rows are split into tasks, and reading them.

The source and the lake use the same three steps: `split` a range of a queue into parts, `pack` parts into tasks, and
`read_part` as Arrow batches where the task runs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from json import loads
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.domain import refusals
from penstock.domain.errors import InvalidInput, LogDiverged, NotFound, RangeTrimmed
from penstock.domain.results import Part
from penstock.domain.validation import shown
from penstock.engines.contract import Engine, Mark, Table
from penstock.spark.options import Position, ReadOptions

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("penstock.spark")
# A smaller task costs more to start than to run.
ROWS_PER_TASK = 20_000
# The fixed cost of a batch equals that of about a thousand rows.
BATCH_ROWS = 20_000


class Counted(Protocol):
    """A part, or what holds one."""

    @property
    def count(self) -> int: ...


P = TypeVar("P", bound=Counted)


def split(
    engine: Engine,
    queue: str,
    start: Mark,
    end: Mark,
    parts: int,
    table: Table,
    on_trimmed: Callable[[RangeTrimmed], None],
) -> tuple[Mark, list[Part]]:
    """Split a range into parts of like size. When rows of it are past retention, `on_trimmed` raises, or returns to
    scan from the earliest readable mark. Returns the mark at which the parts begin."""
    try:
        return start, engine.window(queue, start, end, parts, table)
    except RangeTrimmed as error:
        on_trimmed(error)
    earliest = engine.earliest(queue, table)
    return earliest, engine.window(queue, earliest, end, parts, table)


def pack(parts: Sequence[P], rows_per_task: int, most_tasks: int) -> list[tuple[P, ...]]:
    """Group parts into tasks of like size without changing their order. Large ranges were split before; small ones
    share a task."""
    total = sum(part.count for part in parts)
    tasks = min(most_tasks, max(1, -(-total // rows_per_task)))
    size = -(-total // tasks)
    packed: list[list[P]] = []
    room = 0
    for part in parts:
        if not packed or part.count > room:
            packed.append([])
            room = size
        packed[-1].append(part)
        room -= part.count
    return [tuple(task) for task in packed]


def read_part(engine: Engine, part: Part, columns: Sequence[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
    return engine.read(part, BATCH_ROWS, columns)


class Scan:
    """One read as its options describe it. A pattern is matched at each read: queues may be created."""

    def __init__(self, engine: Engine, options: ReadOptions) -> None:
        self.engine = engine
        self.options = options

    # -- queues ----------------------------------------------------------------------------------------------------

    @property
    def is_pattern(self) -> bool:
        return self._listed() is None

    def queues(self) -> list[str]:
        known = [info.name for info in self.engine.queues()]
        listed = self._listed()
        if listed is None:
            found = [name for name in known if fnmatchcase(name, self.options.queue)]
            if not found:
                raise NotFound(f"no queue is named like {shown(self.options.queue)}: {_there_are(known)}")
            return found
        for name in listed:
            if name not in known:
                raise refusals.no_queue(name, known, f": {_there_are(known)}")
        return listed

    def _listed(self) -> list[str] | None:
        """The queues named by the option, or None for a pattern. A queue whose name is the whole option comes first,
        since names may contain any character."""
        given = self.options.queue
        if any(info.name == given for info in self.engine.queues()):
            return [given]
        if given.startswith("["):
            names = loads(given)
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise InvalidInput(f'queue {shown(given)} must be names such as ["orders", "returns"]')
            return sorted(set(names))
        if any(sign in given for sign in "*?["):
            return None
        return sorted({name.strip() for name in given.split(",")})

    # -- marks -----------------------------------------------------------------------------------------------------

    def starts(self, queues: Iterable[str]) -> dict[str, Mark]:
        return {queue: self._start(queue) for queue in queues}

    def _start(self, queue: str) -> Mark:
        position = self.options.start
        if position.word == "group":
            assert self.options.group is not None
            stands = self.engine.stream_position(queue, self.options.group)
            return self.earliest(queue) if stands is None else stands
        if position.word == "start":
            return self.earliest(queue)
        return self._mark(queue, position)

    def ends(self, queues: Iterable[str]) -> dict[str, Mark]:
        return {queue: self._mark(queue, self.options.end) for queue in queues}

    def _mark(self, queue: str, position: Position) -> Mark:
        if position.at is not None:
            return self.engine.mark_at(queue, position.at)
        if position.marks is not None:
            if queue not in position.marks:
                raise InvalidInput(f"no mark was given for queue {shown(queue)}: {shown(position.marks)}")
            return position.marks[queue]
        return self.engine.horizon(queue, self.options.table)

    def earliest(self, queue: str) -> Mark:
        return self.engine.earliest(queue, self.options.table)

    def next_mark(self, queue: str, start: Mark, end: Mark, shares: int, limited: bool) -> Mark:
        """Where the next micro-batch ends: `start` itself when the queue has no new row, though `end` has moved."""
        table = self.options.table
        first = self.engine.cut(queue, start, end, 1, table=table)
        if not self.parts(queue, start, first, 1):
            return start
        rows, size = self.options.max_rows, self.options.max_bytes
        if not limited or (rows is None and size is None):
            return end
        share = None if rows is None else max(1, rows // shares)
        room = None if size is None else max(1, size // shares)
        return self.engine.cut(queue, start, end, share, room, table=table)

    # -- tasks -----------------------------------------------------------------------------------------------------

    def parts(self, queue: str, start: Mark, end: Mark, parts: int) -> list[Part]:
        table = self.options.table
        if start == end and table != "dead_letters":
            return []
        return split(self.engine, queue, start, end, parts, table, self._check_loss)[1]

    def _check_loss(self, error: RangeTrimmed) -> None:
        if isinstance(error, LogDiverged):
            raise with_advice(error) from None
        if self.options.fail_on_data_loss:
            raise RangeTrimmed(
                f"{error}; to go on without them set failOnDataLoss to false, or seek the group and start with a new "
                "checkpoint"
            ) from None
        logger.warning("rows are lost, and failOnDataLoss is false: %s", error)

    def tasks(self, starts: dict[str, Mark], ends: dict[str, Mark]) -> list[tuple[Part, ...]]:
        wanted = self.options.min_partitions or os.cpu_count() or 1
        parts = [part for queue in sorted(starts) for part in self.parts(queue, starts[queue], ends[queue], wanted)]
        return pack(parts, 1 if self.options.min_partitions else ROWS_PER_TASK, wanted)


def with_advice(error: LogDiverged) -> LogDiverged:
    return LogDiverged(f"{error}; choose where to go on (startingPosition) and start with a new checkpoint")


def _there_are(known: list[str]) -> str:
    return f"the store has {', '.join(shown(name) for name in known[:20])}" if known else "the store has no queues"
