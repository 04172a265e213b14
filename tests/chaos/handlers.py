"""A user's handler for chaos runs."""

from __future__ import annotations

import time

import penstock


def sleep(delivery: penstock.Delivery) -> None:
    time.sleep(0.01)
