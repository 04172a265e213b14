"""Handlers that fail with a code, or stop when their batch is cancelled; a child process can import them."""

from __future__ import annotations

import time

import penstock


class PrinterError(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def fail(delivery: penstock.Delivery) -> None:
    how = delivery.json()
    if how == "raise":
        raise PrinterError("no paper", 507)
    if how == "reject":
        raise penstock.Reject("no paper", code=507)
    if how == "cause":
        try:
            raise PrinterError("no paper", 507)
        except PrinterError as error:
            raise penstock.Reject from error
    delivery.reject("no paper", code="507")


def run_until_cancelled(delivery: penstock.Delivery) -> None:
    ends = time.monotonic() + 60
    while not delivery.is_cancelled():
        assert time.monotonic() < ends, "nobody said that the batch was cancelled"
        time.sleep(0.02)
    raise penstock.Retry(0, "stopped early")
