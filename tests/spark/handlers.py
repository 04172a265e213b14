"""Handlers that tests run on executors, imported there by name."""

from __future__ import annotations

import os
import signal
import time

from penstock import Delivery


def note(delivery: Delivery) -> None:
    """Record the message and the process in a file."""
    path = os.path.join(delivery.json()["folder"], f"{os.getpid()}.txt")
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{delivery.id} {delivery.attempt}\n")


def moody(delivery: Delivery) -> None:
    """Fails some messages and rejects others."""
    number = delivery.json()["number"]
    if number % 10 == 3:
        delivery.reject(f"number {number} is not wanted")
    elif number % 10 == 7 and delivery.attempt < 3:
        raise RuntimeError(f"number {number} is busy")
    note(delivery)


def slow(delivery: Delivery) -> None:
    """Takes longer than its lease."""
    note(delivery)
    time.sleep(delivery.json()["seconds"])


def deadly(delivery: Delivery) -> None:
    """Kills its process on the first two attempts."""
    note(delivery)
    if delivery.attempt <= 2:
        os.kill(os.getpid(), signal.SIGKILL)


NOT_A_FUNCTION = 3
