"""What moves messages: one thread that receives what handlers have room for and settles what they have finished.

It receives first, so that handlers work while the settlements are on their way to the disk; meanwhile the next ones
gather, so the faster the handlers, the more a transaction carries. A receive whose messages are all acked is acked as a
whole, which costs the same however many they are; one that is only half finished waits a moment for the other half.
Every settlement carries its own token, so gathering loses no fencing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from penstock.client.calling import BACKSTOP_SECONDS
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import POSITION, Engine, Receipt
from penstock.workers.listener import Listener
from penstock.workers.outcome import ack_of
from penstock.workers.patience import PASSING, Patience
from penstock.workers.slots import Slots
from penstock.workers.source import Source
from penstock.workers.take import AnyHeld, Take

# A half-finished receive waits this long for its other half: settling it as a whole is cheaper.
LINGER_SECONDS = 0.05
IN_VAIN_SECONDS = 0.002
LONGEST_IN_VAIN_SECONDS = 0.5
ENOUGH_IN_VAIN = 4


class Step(NamedTuple):
    """One call of the engine, what to do with its answer, and how to go back when there is none."""

    operation: Callable[[], Any]
    apply: Callable[[Any], None]
    undo: Callable[[], None] = lambda: None
    frees: bool = False


class Want:
    """What a source is waiting for. `dry` means that nothing is there, as far as is known; `due_at` is when there will
    be; `doubt` asks for a look before the next receive; `shut` means that no slot of the worker fits what is there.
    `in_vain` counts receives that brought nothing though a look had said that there was something, because somebody
    else was faster or is at it: they must not turn into a spin."""

    def __init__(self) -> None:
        self.in_vain = 0
        self.doubt = False
        self.dry = False
        self.shut = False
        self.due_at: float | None = None


class Pump:
    def __init__(
        self,
        engine: Engine,
        consumer: str,
        sources: dict[Source, Slots],
        fail: Callable[[BaseException], None],
        idle: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._consumer = consumer
        self._sources = sources
        self._wants = {source: Want() for source in sources}
        self._fail = fail
        self._on_idle = idle
        self._awake = threading.Event()
        self._heard = True
        self._told = False
        self._seen = 0
        self._is_receiving = True
        self._receiving = threading.Lock()
        self._finishing = threading.Event()
        self._listener = Listener(engine, self._hear)
        self._thread = threading.Thread(target=self._run, name="penstock-pump", daemon=True)

    def start(self) -> None:
        self._listener.start()
        self._thread.start()

    def wake(self) -> None:
        if not self._awake.is_set():
            self._awake.set()

    def stop_receiving(self, within_seconds: float) -> bool:
        """Nothing is asked for from now on; whether the receive under way, if there is one, has come in. Until then its
        messages are nobody's to give back, and the end of the consumer would cost them an attempt."""
        self._is_receiving = False
        if not self._receiving.acquire(timeout=within_seconds):
            return False
        self._receiving.release()
        return True

    def finish(self, within_seconds: float) -> bool:
        """After `stop_receiving`: settle what is left and end; whether all of it was settled in time."""
        self._finishing.set()
        self.wake()
        self._listener.stop()
        self._thread.join(max(0.0, within_seconds))
        return not self._thread.is_alive() and not self._has_unsettled()

    def look_again(self) -> None:
        """Something has changed that a look will tell: what is accepted, a policy, a slot."""
        self._heard = True
        self.wake()

    def _hear(self) -> None:
        self._told = self._engine.capabilities.receives_lightly
        self._heard = True
        self.wake()

    def _run(self) -> None:
        patience = Patience("the store of this worker")
        while True:
            self._awake.clear()
            try:
                timeout = self._cycle()
                patience.worked()
            except PASSING as error:
                timeout = patience.failed(error)
                # Not `_awake`: whoever finishes meanwhile must not turn an outage into a spin.
                if self._finishing.wait(timeout):
                    self._awake.wait(min(timeout, 0.1))
                if self._finishing.is_set() and not self._has_unsettled():
                    return
                continue
            except BaseException as error:
                self._fail(error)
                return
            if self._finishing.is_set() and not self._has_unsettled():
                return
            if timeout > 0:
                self._awake.wait(timeout)

    def _has_unsettled(self) -> bool:
        return any(source.touched for source in self._sources)

    # -- one turn --------------------------------------------------------------------------------------------------

    def _cycle(self) -> float:
        """Do what there is to do; seconds until there may be more."""
        now = time.monotonic()
        heard, self._heard = self._heard, False
        told, self._told = self._told, False
        with self._receiving:
            if self._is_receiving:
                self._look(now, heard, told)
                for source in self._sources:
                    self._take(self._receives(source))
        self._take([step for source in self._sources for step in self._settlements(source, now)])
        return self._rest()

    def _take(self, steps: list[Step]) -> None:
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
                # What was settled may make other messages ready: a retry, the next of a shard, the end of a batch.
                if step.frees:
                    # The engine will tell of that, too; but a look says more than a receive in vain.
                    self._heard, self._told = True, False
        if errors:
            raise errors[0]

    def _rest(self) -> float:
        """How long nothing will happen by itself."""
        if self._heard:
            return 0.0
        now = time.monotonic()
        wait = BACKSTOP_SECONDS
        is_idle, listens = True, False
        for source, want in self._wants.items():
            if source.touched:
                wait, is_idle = min(wait, LINGER_SECONDS), False
            if source.takes:
                is_idle = False
            if not source.accepted:
                continue
            if want.due_at is not None:
                wait = min(wait, max(0.0, want.due_at - now))
            listens = listens or want.dry or want.shut
            if want.in_vain and want.due_at is not None and want.in_vain < ENOUGH_IN_VAIN:
                is_idle = False
            if not want.dry:
                is_idle = False
                if self._is_receiving and not want.shut and self._room(source) > 0:
                    wait = 0.0
        if is_idle and self._is_receiving:
            self._on_idle()
        if listens and self._is_receiving:
            self._listener.listen(self._seen)
        return wait

    # -- receiving -------------------------------------------------------------------------------------------------

    def _look(self, now: float, heard: bool, told: bool) -> None:
        """Find out about sources that were dry. Looking takes no write lock; where a receive takes none either, to be
        told is enough to try one."""
        self._seen = self._engine.seen()
        for source, want in self._wants.items():
            is_due = want.due_at is not None and now >= want.due_at
            if not source.accepted or not (want.doubt or (want.dry and (heard or is_due))):
                continue
            if want.doubt and self._room(source) <= 0:
                continue
            if told and not want.doubt and not want.in_vain:
                want.dry, want.due_at = False, None
                continue
            seconds = self._engine.ready_in(source.name, source.group)
            want.doubt = False
            if seconds != 0:
                want.in_vain = 0
            elif want.in_vain:
                seconds = 0 if is_due else min(IN_VAIN_SECONDS * 2**want.in_vain, LONGEST_IN_VAIN_SECONDS)
            want.dry = seconds != 0
            want.due_at = None if not seconds else time.monotonic() + seconds
        if heard:
            for want in self._wants.values():
                want.shut = False

    def _room(self, source: Source) -> int:
        """How many messages to ask for. Not before half of what may wait here has been used up: receives are cheaper
        in large pieces."""
        target = source.target
        source.low_water = max((target - source.at_work) // 2, source.at_once - 1)
        if source.gate is None and len(source.ready) > source.low_water:
            return 0
        slots = self._sources[source]
        # A handler that waits for another message holds its own, but no slot.
        room = target - source.held + (slots.unfinished - slots.busy) * source.at_once
        if source.gate is not None:
            room = min(room, source.gate.room() * source.at_once)
        return room

    def _receives(self, source: Source) -> list[Step]:
        want = self._wants[source]
        if not source.accepted or want.dry or want.doubt or want.shut:
            source.low_water = -1 if want.dry else source.low_water
            return []
        room = self._room(source)
        if room > 0 and source.gate is not None and source.gate.is_tight(room):
            nearest = self._engine.peek(source.name, source.group, room)
            room = source.gate.fitting([message.priority for message in nearest])
            want.shut = room == 0
        if room <= 0:
            return []
        lease_seconds = source.policy.lease_seconds
        asked_at = time.monotonic()
        operation = partial(self._engine.receive, source.name, source.group, self._consumer, room, lease_seconds)
        return [Step(operation, partial(self._received, source, asked_at, room))]

    def _received(self, source: Source, asked_at: float, asked: int, receipt: Receipt) -> None:
        want = self._wants[source]
        want.doubt = len(receipt.rows) < asked
        want.in_vain = 0 if receipt.rows else want.in_vain + 1
        if receipt.rows:
            source.add(receipt, asked_at)
            self._sources[source].kick()

    # -- settling --------------------------------------------------------------------------------------------------

    def _settlements(self, source: Source, now: float) -> list[Step]:
        due: list[Take] = []
        for _ in range(len(source.touched)):
            take = source.touched.popleft()
            touched_at = take.touched_at or now
            if take.left <= 0 or now - touched_at >= LINGER_SECONDS or self._finishing.is_set():
                due.append(take)
            else:
                source.touched.append(take)
        steps: list[Step] = []
        parts: list[tuple[Take, list[AnyHeld], list[Settle]]] = []
        for take in due:
            if take.is_plain:
                steps.append(self._ack_whole(source, take))
            else:
                parts.append((take, list(take.acked), list(take.others)))
        if parts:
            steps.append(self._settle_parts(source, parts))
        return steps

    def _ack_whole(self, source: Source, take: Take) -> Step:
        receipt = take.receipt
        positions = [row[POSITION] for row in receipt.rows]
        operation = partial(self._engine.ack_all, source.name, source.group, receipt.token, positions)

        def apply(was_whole: bool) -> None:
            if was_whole:
                source.takes.pop(receipt.token, None)
                source.count([], take.size)
                source.measure(take.size, time.monotonic())
            else:
                # Somebody has changed a part of it: the parts that are still ours are acked one by one.
                self._take([self._settle_parts(source, [(take, list(take.acked), [])])])

        return Step(operation, apply, partial(source.touched.append, take), frees=True)

    def _settle_parts(self, source: Source, parts: list[tuple[Take, list[AnyHeld], list[Settle]]]) -> Step:
        """In the order in which they came to an end, as far as it matters: what is tried again comes last, because an
        ordered queue then gives back what lies behind it."""
        settles = [ack_of(delivery) for _, acked, _ in parts for delivery in acked]
        settles += [settle for _, _, others in parts for settle in others]

        def apply(results: list[Settled]) -> None:
            lost = [result.id for result in results if not result.ok]
            if lost:
                source.note_lost(lost, "it ended, was settled or was taken over")
            said = [settle for settle, result in zip(settles, results, strict=True) if result.ok]
            source.count(said, 0)
            source.measure(len(settles), time.monotonic())
            for take, acked, others in parts:
                self._close(source, take, acked, others)

        operation = partial(self._engine.settle, source.name, source.group, settles) if settles else list
        return Step(operation, apply, lambda: source.touched.extend(take for take, _, _ in parts), frees=True)

    def _close(self, source: Source, take: Take, acked: list[AnyHeld], others: list[Settle]) -> None:
        take.closed.update(delivery.position for delivery in acked)
        take.closed.update(settle.position for settle in others)
        del take.acked[: len(acked)]
        del take.others[: len(others)]
        if take.acked or take.others:
            take.touched_at = time.monotonic()
            source.touched.append(take)
        elif take.left <= 0:
            source.takes.pop(take.receipt.token, None)
        else:
            take.touched_at = None
            if take.acked or take.others:  # a slot has added to it just now, and saw that it was touched already
                take.touched_at = time.monotonic()
                source.touched.append(take)
