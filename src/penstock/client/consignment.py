"""What a producer has gathered, on its way into the queue: each message goes in once, or it is known why not.

A batch is one transaction. When the reply to its commit is lost, nobody knows whether the messages are in. So they get
ids before the first try, and sending an id again is the same send. Ids that the store does not make itself cost an
entry in an index for each message; of a large batch only the first one gets such an id, and tells for all.
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
# Up to here each message gets an id of its own: one statement for all.
FEW = 8


class Gathered:
    """A message that a producer has taken: `is_sent` once it is in the queue, and `error` if the queue refused it."""

    __slots__ = ("draft", "error", "is_sent")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.is_sent = False
        self.error: PenstockError | None = None


class Consignment:
    """Messages that go in together. Refused ones are found by halves, and the others go in without them."""

    def __init__(self, gathered: Sequence[Gathered]) -> None:
        self._parts = deque([_Part(gathered)] if gathered else ())
        self.refused: list[Gathered] = []

    def __len__(self) -> int:
        """How many are not known to be in or refused."""
        return sum(len(part.gathered) for part in self._parts)

    def put(self, engine: Engine, queue: str) -> None:
        """Until nothing is left. An error of the store leaves what is left for another try."""
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
    """Messages of one transaction."""

    def __init__(self, gathered: Sequence[Gathered]) -> None:
        self.gathered = gathered
        self._was_tried = False
        has_ids = any(one.draft[2].id is not None for one in gathered)
        self._is_safe = has_ids or len(gathered) <= FEW
        for one in gathered if self._is_safe else gathered[:1]:
            _name(one)

    def put(self, engine: Engine, queue: str) -> None:
        if not (self._was_tried and not self._is_safe and self._is_in(engine, queue)):
            self._was_tried = True
            self._send(engine, queue)
        for one in self.gathered:
            one.is_sent = True

    def _send(self, engine: Engine, queue: str) -> None:
        drafts = [one.draft for one in self.gathered]
        if self._is_safe:
            engine.send(queue, drafts)
            return

        def both() -> None:
            """The first alone: the others, which are alike, are faster without it."""
            engine.send(queue, drafts[:1])
            engine.send(queue, drafts[1:])

        _raised(engine.together([both]))

    def _is_in(self, engine: Engine, queue: str) -> bool:
        """Whether an earlier try has come through. Its transaction may still be under way: a send with the same id
        waits for its end, and is undone."""
        first = self.gathered[0].draft

        def touch() -> None:
            engine.send(queue, [first])
            raise _Undone

        with suppress(_Undone):
            _raised(engine.together([touch]))
        try:
            engine.find(queue, first[2].id or "")
        except NotFound:
            return False
        return True


class _Undone(Exception):
    """A transaction that was only begun to wait for another one."""


def _name(gathered: Gathered) -> None:
    payload, content_type, options = gathered.draft
    if options.id is None:
        chosen = random_id(time.time_ns() // 1000, secrets.randbits(74))
        gathered.draft = payload, content_type, msgspec.structs.replace(options, id=chosen)


def _raised(outcomes: list[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def refusal(refused: Sequence[Gathered]) -> PenstockError:
    """The error of the first, with a note about all of them."""
    error = refused[0].error
    assert error is not None
    if len(refused) > 1:
        error.add_note(f"{len(refused)} messages were refused; the others are in the queue")
    return error


# -- producers that nobody closes --------------------------------------------------------------------------------------


class Open(Protocol):
    """A producer that has gathered something."""

    @property
    def _engine(self) -> Engine: ...
    @property
    def _left(self) -> int: ...
    def _put_at_exit(self) -> None: ...


# With the process that each belongs to: a child of it has a copy, which must not be sent again.
_open: dict[Open, int] = {}


def watch(producer: Open) -> None:
    _open[producer] = os.getpid()


def let_go(producer: Open) -> None:
    _open.pop(producer, None)


def left_open(engine: Engine | None = None) -> list[Any]:
    """Producers of this process, of one engine or of all, that have gathered something."""
    own = [producer for producer, process in list(_open.items()) if process == os.getpid()]
    return [producer for producer in own if engine is None or producer._engine is engine]


@atexit.register
def put_all(engine: Engine | None = None) -> None:
    """When a store is closed or the interpreter ends, what producers have gathered is sent: only a kill loses it."""
    for producer in left_open(engine):
        count = producer._left
        try:
            producer._put_at_exit()
        except Exception as error:
            say_lost(error)
        else:
            say_late(count)


def say_late(count: int) -> None:
    warnings.warn(f"a producer was not closed: its last {count} messages are sent now", ResourceWarning, 2)


def say_lost(error: Exception) -> None:
    warnings.warn(f"messages of a producer that was not closed are lost: {error}", RuntimeWarning, 2)
