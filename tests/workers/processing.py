"""Handlers that a child process can import."""

from __future__ import annotations

import os
import signal
from typing import Any

import penstock


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
    if do == "extend":
        before = delivery.lease_ends_at
        assert delivery.extend(500) > before
    if do == "pid":
        raise penstock.Reject(str(os.getpid()))
    if do == "die":
        os.kill(os.getpid(), signal.SIGKILL)


def handle_batch(several: list[penstock.Delivery]) -> list[Any]:
    return [None if delivery.json()["number"] != 1 else penstock.Reject("one") for delivery in several]
