"""What a read reaches: which queues, from which mark to which, and in which pieces."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from json import loads

from penstock.domain.errors import InvalidInput, LogDiverged, NotFound, RangeTrimmed
from penstock.domain.names import nearest, shown
from penstock.domain.observations import Part
from penstock.engines.contract import Engine, Mark
from penstock.spark.options import Position, ReadOptions

logger = logging.getLogger("penstock.spark")
# Fewer rows than this are not worth a task of their own.
ROWS_PER_TASK = 20_000


class Reach:
    """The queues of a read, looked up anew each time for a pattern: queues may come."""

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
                raise NotFound(f"there is no queue {shown(name)}: {_there_are(known)}{nearest(name, known)}")
        return listed

    def _listed(self) -> list[str] | None:
        """The names given, or None for a pattern. Queues may have any name, so one of just this name comes first."""
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
            return self._earliest(queue) if stands is None else stands
        if position.word == "start":
            return self._earliest(queue)
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

    def _earliest(self, queue: str) -> Mark:
        return self.engine.earliest(queue, self.options.table)

    def next_mark(self, queue: str, start: Mark, end: Mark, shares: int, limited: bool) -> Mark:
        """As far as one trigger goes; `start` itself when there is nothing new, though others have written."""
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

    # -- pieces ----------------------------------------------------------------------------------------------------

    def parts(self, queue: str, start: Mark, end: Mark, parts: int) -> list[Part]:
        if start == end and self.options.table != "dead_letters":
            return []
        try:
            return self.engine.window(queue, start, end, parts, self.options.table)
        except LogDiverged as error:
            raise with_advice(error) from None
        except RangeTrimmed as error:
            if self.options.fail_on_data_loss:
                raise RangeTrimmed(
                    f"{error}; to go on without them set failOnDataLoss to false, or seek the group and start with a "
                    "new checkpoint"
                ) from None
            logger.warning("rows are lost, and failOnDataLoss is false: %s", error)
            return self.engine.window(queue, self._earliest(queue), end, parts, self.options.table)

    def tasks(self, starts: dict[str, Mark], ends: dict[str, Mark]) -> list[tuple[Part, ...]]:
        """Pieces of like size, each for one task: large queues are split, small ones put together."""
        wanted = self.options.min_partitions or os.cpu_count() or 1
        parts = [part for queue in sorted(starts) for part in self.parts(queue, starts[queue], ends[queue], wanted)]
        total = sum(part.count for part in parts)
        least = 1 if self.options.min_partitions else ROWS_PER_TASK
        return list(_packed(parts, max(least, -(-total // max(1, wanted)))))


def with_advice(error: LogDiverged) -> LogDiverged:
    """A mark that the store refuses is told together with what to do."""
    return LogDiverged(f"{error}; choose where to go on (startingPosition) and start with a new checkpoint")


def _packed(parts: list[Part], size: int) -> Iterable[tuple[Part, ...]]:
    task: list[Part] = []
    for part in parts:
        if task and sum(one.count for one in task) + part.count > size:
            yield tuple(task)
            task = []
        task.append(part)
    if task:
        yield tuple(task)


def _there_are(known: list[str]) -> str:
    return f"the store has {', '.join(shown(name) for name in known[:20])}" if known else "the store has no queues"
