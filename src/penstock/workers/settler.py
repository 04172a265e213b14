"""Settlements of a worker, gathered into few transactions.

A receive whose messages are all acked is acked as a whole, which costs the same however many they are; one that is only
half finished waits a moment for the other half. Every settlement carries its own token, so gathering loses no fencing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import POSITION, Engine
from penstock.workers.lease_batch import AnyHeld, LeaseBatch
from penstock.workers.outcome import ack_of
from penstock.workers.source import Source

# A half-finished receive waits this long for its other half: settling it as a whole is cheaper.
LINGER_SECONDS = 0.05


class Step(NamedTuple):
    """One call of the engine, what to do with its answer, and what to do when there is none."""

    operation: Callable[[], Any]
    apply: Callable[[Any], None]
    undo: Callable[[], None]


class Part(NamedTuple):
    """What is settled of a receive that is not acked as a whole."""

    batch: LeaseBatch
    acked: list[AnyHeld]
    others: list[Settle]


class Settler:
    def __init__(self, engine: Engine, sources: Iterable[Source]) -> None:
        self._engine = engine
        self._sources = sources

    @property
    def has_unsettled(self) -> bool:
        return any(source.touched for source in self._sources)

    def settle(self, everything: bool) -> bool:
        """Settle what has come to an end, or without lingering everything; whether anything was settled."""
        now = time.monotonic()
        steps = [step for source in self._sources for step in self._steps(source, now, everything)]
        self._run(steps)
        return bool(steps)

    def _run(self, steps: list[Step]) -> None:
        """All in one transaction; when it fails, all is as it was before."""
        if not steps:
            return
        try:
            if len(steps) == 1:
                answers = [steps[0].operation()]
            else:
                answers = self._engine.together([step.operation for step in steps])
        except BaseException:
            for step in steps:
                step.undo()
            raise
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        for step, answer in zip(steps, answers, strict=True):
            if not isinstance(answer, BaseException):
                step.apply(answer)
        if errors:
            raise errors[0]

    def _steps(self, source: Source, now: float, everything: bool) -> list[Step]:
        due: list[LeaseBatch] = []
        for _ in range(len(source.touched)):
            batch = source.touched.popleft()
            touched_at = batch.touched_at or now
            if batch.left <= 0 or now - touched_at >= LINGER_SECONDS or everything:
                due.append(batch)
            else:
                source.touched.append(batch)
        steps: list[Step] = []
        parts: list[Part] = []
        for batch in due:
            if batch.is_all_acked:
                steps.append(self._ack_all(source, batch))
            else:
                parts.append(Part(batch, list(batch.acked), list(batch.others)))
        if parts:
            steps.append(self._settle_parts(source, parts))
        return steps

    def _ack_all(self, source: Source, batch: LeaseBatch) -> Step:
        receipt = batch.receipt
        positions = [row[POSITION] for row in receipt.rows]
        operation = partial(self._engine.ack_all, source.name, source.group, receipt.token, positions)

        def apply(was_whole: bool) -> None:
            if was_whole:
                source.batches.pop(receipt.token, None)
                source.count([], batch.size)
                source.measure(batch.size, time.monotonic())
            else:
                # Somebody has changed a part of it: the parts that are still ours are acked one by one.
                self._run([self._settle_parts(source, [Part(batch, list(batch.acked), [])])])

        return Step(operation, apply, partial(source.touched.append, batch))

    def _settle_parts(self, source: Source, parts: list[Part]) -> Step:
        """What is tried again comes last, because an ordered queue then gives back what lies behind it."""
        settles = [ack_of(delivery) for part in parts for delivery in part.acked]
        settles += [settle for part in parts for settle in part.others]

        def apply(results: list[Settled]) -> None:
            self._note(source, settles, results)
            for part in parts:
                self._close(source, part)

        operation = partial(self._engine.settle, source.name, source.group, settles) if settles else list
        return Step(operation, apply, lambda: source.touched.extend(part.batch for part in parts))

    def _note(self, source: Source, settles: list[Settle], results: list[Settled]) -> None:
        done = [settle for settle, result in zip(settles, results, strict=True) if result.ok]
        # A message that was to be given back and is held no more is where it should be.
        lost = [
            settle.id
            for settle, result in zip(settles, results, strict=True)
            if not result.ok and settle.event is not Event.RELEASE
        ]
        if lost:
            source.note_lost(lost, "it ended, was settled or was taken over")
        source.count(done, 0)
        source.measure(sum(settle.event is not Event.RELEASE for settle in settles), time.monotonic())

    def _close(self, source: Source, part: Part) -> None:
        batch, acked, others = part
        batch.closed.update(delivery.position for delivery in acked)
        batch.closed.update(settle.position for settle in others)
        del batch.acked[: len(acked)]
        del batch.others[: len(others)]
        if batch.acked or batch.others:
            batch.touched_at = time.monotonic()
            source.touched.append(batch)
        elif batch.left <= 0:
            source.batches.pop(batch.receipt.token, None)
        else:
            batch.touched_at = None
            if batch.acked or batch.others:  # a slot has added to it just now, and saw that it was touched already
                batch.touched_at = time.monotonic()
                source.touched.append(batch)
