"""A real engine that records its calls, and can block or fail them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from penstock.engines.contract import Engine

PATIENCE_SECONDS = 90


class Observed:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.counts: Counter[str] = Counter()
        self._errors: dict[str, Exception] = {}
        self._gates: dict[str, tuple[threading.Event, threading.Event]] = {}

    def as_engine(self) -> Engine:
        return cast(Engine, self)

    def hold(self, verb: str) -> tuple[threading.Event, threading.Event]:
        """Block the next calls of a verb: the first event reports their arrival, the second lets them continue."""
        gate = self._gates[verb] = threading.Event(), threading.Event()
        return gate

    def fail(self, verb: str, error: Exception | None) -> None:
        """Let the next calls of a verb raise an error; None ends it."""
        if error is None:
            del self._errors[verb]
        else:
            self._errors[verb] = error

    def open_gates(self) -> None:
        for _, may_go in self._gates.values():
            may_go.set()

    def __getattr__(self, verb: str) -> Any:
        value = getattr(self._engine, verb)
        return self._observed(verb, value) if callable(value) else value

    def _observed(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def observed(*args: Any, **kwargs: Any) -> Any:
            self.counts[verb] += 1
            if verb in self._gates:
                arrived, may_go = self._gates[verb]
                arrived.set()
                assert may_go.wait(PATIENCE_SECONDS), f"nobody let {verb} go on"
            if verb in self._errors:
                raise self._errors[verb]
            return call(*args, **kwargs)

        return observed
