"""Handlers that a child process can import."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import penstock

LATER = {"nak": {"delay_seconds": 60}}


def handle(delivery: penstock.Delivery) -> None:
    do = delivery.json()["do"]
    if do == "raise":
        raise KeyError("in the child")
    if do == "reject":
        raise penstock.Reject("no")
    if do == "retry":
        raise penstock.Retry(60, "later")
    if do == "ack":
        delivery.ack("by hand")
    if do == "settle":
        getattr(delivery, delivery.json()["how"])(reason="by hand", **LATER.get(delivery.json()["how"], {}))
    if do == "order":
        note_order(delivery)
    if do == "extend":
        before = delivery.lease_ends_at
        assert delivery.extend(500) > before
    if do == "pid":
        raise penstock.Reject(str(os.getpid()))
    if do == "surrogate":
        raise ValueError("no such file: \udc80")
    if do == "fork":
        raise penstock.Reject(f"the copy ended with {fork()}")
    if do == "die":
        os.kill(os.getpid(), signal.SIGKILL)


def fork() -> int:
    """Fork; the child leaves the handler by an exception. Returns the child's exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12 and newer warn about forks in a multi-threaded process
        copy = os.fork()
    if copy == 0:
        sys.exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])


async def handle_async(delivery: penstock.AsyncDelivery) -> None:
    raise penstock.Reject(f"the copy ended with {fork()}")


def handle_batch(several: list[penstock.Delivery]) -> list[Any]:
    return [None if delivery.json()["number"] != 1 else penstock.Reject("one") for delivery in several]


def note_order(delivery: penstock.Delivery) -> None:
    """The first message of a shard is retried at once; the positions of acked messages go to a file."""
    path = Path(delivery.json()["path"])
    if delivery.attempt == 1 and not path.exists():
        path.touch()
        delivery.nak("once more", delay_seconds=0)
        return
    with path.open("a") as file:
        file.write(f"{delivery.position}\n")
