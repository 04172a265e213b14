"""One of several processes that make one call at once: `python -m tests.faults.concurrent_call CALL URL AHEAD ARG`.

It connects, prints `ready`, waits for a line on standard input, makes the call and prints the result as one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import penstock
from penstock import Ack, PenstockError
from penstock.domain.settlement import Leased

CHOSEN_ID = "00000000-0000-4000-8000-000000000001"
MINUTE = 60_000_000


class Handle:
    """A delivery for another process: its token and position."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.id: str = fields["id"]
        self.token: int = fields["token"]
        self.group: str = fields["group"]
        self.position: int = fields["position"]


def same_id(store: penstock.Store, _: Any) -> Any:
    return store.queue("race").send({"by": time.time_ns()}, id=CHOSEN_ID)


def same_address(store: penstock.Store, _: Any) -> Any:
    return store.queue("race").send(b"x", address="the one")


def last_acks(store: penstock.Store, handles: Any) -> Any:
    leased: list[Leased] = [Handle(fields) for fields in handles]
    return [result.ok for result in store.queue("race").settle([Ack(one) for one in leased])]


def receive_one(store: penstock.Store, _: Any) -> Any:
    return [delivery.id for delivery in store.queue("race").receive(limit=3)]


def sweep(store: penstock.Store, _: Any) -> Any:
    return store.sweep().fired


RACES: dict[str, Callable[[penstock.Store, Any], Any]] = {
    race.__name__: race for race in (same_id, same_address, last_acks, receive_one, sweep)
}


def main(what: str, url: str, ahead_minutes: str, argument: str) -> None:
    # A stopped clock, minutes ahead: every process finds the same ticks due.
    ahead = time.time_ns() // 1000 + int(ahead_minutes) * MINUTE
    settings: dict[str, Any] = {"clock": lambda: ahead} if int(ahead_minutes) else {}
    with penstock.connect(url, **settings) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            result = RACES[what](store, json.loads(argument))
        except PenstockError as error:
            result = type(error).__name__
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
