"""Group commit of a worker's settlements.

A receive whose messages are all acked is acked as a whole, at a cost independent of their number; an unfinished one
lingers for the rest. Every settlement carries its own token, so batching does not weaken fencing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import POSITION, Engine
from penstock.workers.lease_batch import AnyDelivery, LeaseBatch
from penstock.workers.outcome import ack_of
from penstock.workers.source import QueueSource

# A partly finished receive lingers this long, because acking it as a whole is cheaper.
LINGER_SECONDS = 0.05


class EngineCall(NamedTuple):
    """An engine call, what to do with its result, and what to undo when it fails."""

    operation: Callable[[], Any]
    apply: Callable[[Any], None]
    undo: Callable[[], None]


class PartialBatch(NamedTuple):
    """The settlements of a receive that is not acked as a whole."""

    batch: LeaseBatch
    acked: list[AnyDelivery]
    others: list[Settle]


class Settler:
    def __init__(self, engine: Engine, sources: Iterable[QueueSource]) -> None:
        self._engine = engine
        self._sources = sources

    @property
    def has_unsettled(self) -> bool:
        return any(source.touched for source in self._sources)

    def settle(self, everything: bool) -> bool:
        """Settle finished receives, or everything without lingering; returns whether anything was settled."""
        now = time.monotonic()
        steps = [step for source in self._sources for step in self._steps(source, now, everything)]
        self._run(steps)
        return bool(steps)

    def _run(self, steps: list[EngineCall]) -> None:
        """Run all calls in one transaction; undo all of them when it fails."""
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

    def _steps(self, source: QueueSource, now: float, everything: bool) -> list[EngineCall]:
        due: list[LeaseBatch] = []
        for _ in range(len(source.touched)):
            batch = source.touched.popleft()
            touched_at = batch.touched_at or now
            if batch.left <= 0 or now - touched_at >= LINGER_SECONDS or everything:
                due.append(batch)
            else:
                source.touched.append(batch)
        steps: list[EngineCall] = []
        parts: list[PartialBatch] = []
        for batch in due:
            if batch.is_all_acked:
                steps.append(self._ack_all(source, batch))
            else:
                parts.append(PartialBatch(batch, list(batch.acked), list(batch.others)))
        if parts:
            steps.append(self._settle_parts(source, parts))
            steps += self._keep_traces(source, parts)
        return steps

    def _ack_all(self, source: QueueSource, batch: LeaseBatch) -> EngineCall:
        receipt = batch.receipt
        positions = [row[POSITION] for row in receipt.rows]
        operation = partial(self._engine.ack_all, source.name, source.group, receipt.token, positions)

        def apply(was_whole: bool) -> None:
            if was_whole:
                source.batches.pop(receipt.token, None)
                source.count([], batch.size)
                source.measure(batch.size, time.monotonic())
            else:
                # A part of the lease was changed by others: ack the rest one by one.
                self._run([self._settle_parts(source, [PartialBatch(batch, list(batch.acked), [])])])

        return EngineCall(operation, apply, partial(source.touched.append, batch))

    def _settle_parts(self, source: QueueSource, parts: list[PartialBatch]) -> EngineCall:
        """Retries come last, because an ordered queue then releases the messages behind them."""
        settles = [ack_of(delivery) for part in parts for delivery in part.acked]
        settles += [settle for part in parts for settle in part.others]

        def apply(results: list[Settled]) -> None:
            self._note(source, settles, results)
            for part in parts:
                self._close(source, part)

        operation = partial(self._engine.settle, source.name, source.group, settles) if settles else list
        return EngineCall(operation, apply, lambda: source.touched.extend(part.batch for part in parts))

    def _keep_traces(self, source: QueueSource, parts: list[PartialBatch]) -> list[EngineCall]:
        """Store stack traces in the same transaction, after the settlements that they belong to."""
        settled = [settle.position for part in parts for settle in part.others]
        traces = [(position, source.traces[position]) for position in settled if position in source.traces]
        if not traces:
            return []

        def apply(_: None) -> None:
            for position, _trace in traces:
                source.traces.pop(position, None)

        return [EngineCall(partial(self._engine.keep_traces, source.name, source.group, traces), apply, lambda: None)]

    def _note(self, source: QueueSource, settles: list[Settle], results: list[Settled]) -> None:
        done = [settle for settle, result in zip(settles, results, strict=True) if result.ok]
        # A release that finds its lease lost is no loss.
        lost = [
            settle.id
            for settle, result in zip(settles, results, strict=True)
            if not result.ok and settle.event is not Event.RELEASE
        ]
        if lost:
            source.note_lost(lost, "it ended, was settled or was taken over")
        source.count(done, 0)
        source.measure(sum(settle.event is not Event.RELEASE for settle in settles), time.monotonic())

    def _close(self, source: QueueSource, part: PartialBatch) -> None:
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
            if batch.acked or batch.others:  # a slot appended meanwhile and found it marked already
                batch.touched_at = time.monotonic()
                source.touched.append(batch)
