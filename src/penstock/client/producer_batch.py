"""The messages that a producer sends together: each is sent exactly once, or refused with an error.

A batch is one transaction. When the reply to its commit is lost, the outcome is unknown. Messages therefore get ids
before the first try: sending an id again is the same send. Each such id costs an index entry, so only the first message
of a batch gets one where the engine rolls back; whether it was stored tells whether the batch was.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import time
import warnings
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from penstock.domain.errors import NotFound, PenstockError, StoreError
from penstock.domain.identity import random_id
from penstock.domain.message import Draft
from penstock.engines.contract import Engine

logger = logging.getLogger("penstock.producer")


class Gathered:
    """A message accepted by a producer: `is_sent` once it is in the queue, `error` if the queue refused it."""

    __slots__ = ("draft", "error", "is_sent")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.is_sent = False
        self.error: PenstockError | None = None


class ProducerBatch:
    """Messages that are sent together. Refused ones are found by bisection, and the others are sent without them."""

    def __init__(self, gathered: Sequence[Gathered]) -> None:
        self._parts = deque([_Part(gathered)] if gathered else ())
        self.refused: list[Gathered] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __len__(self) -> int:
        """How many are neither sent nor refused."""
        return sum(len(part.gathered) for part in self._parts)

    def put(self, engine: Engine, queue: str) -> None:
        """Send all parts. After a store error the remaining ones can be retried."""
        while self._parts:
            part = self._parts[0]
            try:
                part.put(engine, queue)
            except StoreError:
                raise
            except PenstockError as error:
                self._parts.popleft()
                self._refuse(part, error)
            else:
                self._parts.popleft()

    def _refuse(self, part: _Part, error: PenstockError) -> None:
        if len(part.gathered) == 1:
            part.gathered[0].error = error
            self.refused.append(part.gathered[0])
            return
        half = len(part.gathered) // 2
        self._parts.extendleft((_Part(part.gathered[half:]), _Part(part.gathered[:half])))


class _Part:
    """The messages of one transaction."""

    def __init__(self, gathered: Sequence[Gathered]) -> None:
        self.gathered = gathered
        self._was_tried = False
        # With an id on every message the whole batch can be sent again.
        self._is_safe = len(gathered) == 1 or any(one.draft[2].id is not None for one in gathered)

    def put(self, engine: Engine, queue: str) -> None:
        if not self._was_tried:
            self.assign_ids(engine)
        if not (self._was_tried and not self._is_safe and self._is_stored(engine, queue)):
            self._was_tried = True
            engine.send(queue, [one.draft for one in self.gathered])
        for one in self.gathered:
            one.is_sent = True

    def assign_ids(self, engine: Engine) -> None:
        """Give an id to the first message, and to all where the engine cannot tell whether the batch was stored."""
        self._is_safe = self._is_safe or not engine.capabilities.rolls_back
        for one in self.gathered if self._is_safe else self.gathered[:1]:
            _assign_id(one)

    def _is_stored(self, engine: Engine, queue: str) -> bool:
        """Whether an earlier try was committed. Its transaction may still be open: a send with the same id waits for
        its end and is rolled back."""
        first = self.gathered[0].draft

        def touch() -> None:
            engine.send(queue, [first])
            raise _Undone

        with suppress(_Undone):
            _raise_first(engine.together([touch]))
        try:
            engine.find(queue, first[2].id or "")
        except NotFound:
            return False
        return True


class _Undone(Exception):
    """Rolls back a transaction that only waited for another one."""


def _assign_id(gathered: Gathered) -> None:
    payload, content_type, options = gathered.draft
    if options.id is None:
        chosen = random_id(time.time_ns() // 1000, secrets.randbits(74))
        gathered.draft = payload, content_type, msgspec.structs.replace(options, id=chosen)


def _raise_first(outcomes: list[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def refusal(refused: Sequence[Gathered]) -> PenstockError:
    """The error of the first refused message, with a note about the others."""
    error = refused[0].error
    assert error is not None
    if len(refused) > 1:
        error.add_note(f"{len(refused)} messages were refused; the others are in the queue")
    return error


# -- producers that were not closed ----------------------------------------------------------------------------------


class Open(Protocol):
    """A producer that has messages to send."""

    @property
    def _engine(self) -> Engine: ...
    @property
    def _left(self) -> int: ...
    def _put_at_exit(self) -> None: ...


# By producer, the process that it belongs to: a forked child has a copy, which must not be sent again.
_open: dict[Open, int] = {}


def watch(producer: Open) -> None:
    _open[producer] = os.getpid()


def unwatch(producer: Open) -> None:
    _open.pop(producer, None)


def left_open(engine: Engine | None = None) -> list[Any]:
    """Producers of this process, of one engine or of all, that have messages to send."""
    own = [producer for producer, process in list(_open.items()) if process == os.getpid()]
    return [producer for producer in own if engine is None or producer._engine is engine]


@atexit.register
def put_all(engine: Engine | None = None) -> None:
    """Send what producers still hold when a store is closed or the interpreter exits: only a kill loses it."""
    for producer in left_open(engine):
        count = producer._left
        try:
            producer._put_at_exit()
        except Exception as error:
            warn_lost(error)
        else:
            warn_late(count)


def warn_late(count: int) -> None:
    warnings.warn(f"a producer was not closed: its last {count} messages are sent now", ResourceWarning, 2)


def warn_lost(error: Exception) -> None:
    warnings.warn(f"messages of a producer that was not closed are lost: {error}", RuntimeWarning, 2)
