"""The messages of the demo and their expected outcomes, the same for all its processes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from penstock.domain.message import Outgoing

ORDERS, EMAILS, REPORTS = "orders", "emails", "reports"
DEFAULT, ANALYTICS = "default", "analytics"
QUEUES = (ORDERS, EMAILS, REPORTS)
# Every group of the demo that reads a queue.
READERS = ((ORDERS, DEFAULT), (ORDERS, ANALYTICS), (EMAILS, DEFAULT), (REPORTS, DEFAULT))

# Short times, so that retries and a lapsed lease happen during the demo.
POLICY: dict[str, Any] = {
    "lease_seconds": 1.5,
    "max_retries": 3,
    "backoff_base_seconds": 0.2,
    "backoff_jitter_seconds": 0.2,
    "backoff_max_seconds": 1,
}

ORDER_COUNT = 2000
ORDER_PRODUCERS = 2
EMAIL_COUNT = 600
OFFER_COUNT = 30
OFFER_TTL_SECONDS = 0.3
DIGEST_COUNT = 5
BATCH, BATCH_COUNT = "nightly", 100
END = {"batch": BATCH, "event": "all finished"}
SCHEDULE = "closing-time"
SCHEDULED = {"report": "closing"}
VICTIM, VICTIM_COUNT = "victim", 25


class Fate(StrEnum):
    SUCCEED = "succeed"
    FAIL_ONCE = "fail once"
    FAIL_ALWAYS = "fail always"
    REJECT = "reject"


REASONS = {
    Fate.FAIL_ONCE: "the payment gateway timed out",
    Fate.FAIL_ALWAYS: "the warehouse does not answer",
    Fate.REJECT: "the card was declined",
}


def order_fate(number: int) -> Fate:
    if number % 100 == 7:
        return Fate.REJECT
    if number % 400 == 11:
        return Fate.FAIL_ALWAYS
    if number % 10 == 3:
        return Fate.FAIL_ONCE
    return Fate.SUCCEED


def orders(producer: int) -> list[Outgoing]:
    """The orders of one producer, in three priorities."""
    numbers = range(producer, ORDER_COUNT, ORDER_PRODUCERS)
    return [
        Outgoing(payload={"order": number}, priority=number % 3, created_by=f"shop-{producer + 1}")
        for number in numbers
    ]


def emails() -> list[Outgoing]:
    """Every third email has a delay."""
    return [
        Outgoing(payload={"email": number}, delay_seconds=0.5 + number % 10 / 10 if number % 3 == 0 else None)
        for number in range(EMAIL_COUNT)
    ]


def digests() -> list[Outgoing]:
    """Messages with an address. The delay keeps them live until a second send to each address was refused."""
    return [
        Outgoing(payload={"digest": number}, address=f"digest-{number}", delay_seconds=1)
        for number in range(DIGEST_COUNT)
    ]


def offers() -> list[Outgoing]:
    """Messages with a short TTL that expire before anyone receives them."""
    return [Outgoing(payload={"offer": number}, ttl_seconds=OFFER_TTL_SECONDS) for number in range(OFFER_COUNT)]


def sent_counts() -> dict[str, int]:
    return {
        ORDERS: ORDER_COUNT,
        EMAILS: EMAIL_COUNT + DIGEST_COUNT + OFFER_COUNT,
        REPORTS: BATCH_COUNT + 2,  # the end message and the scheduled one
    }


def expected_outcomes() -> dict[tuple[str, str], dict[str, int]]:
    """The expected number of messages by outcome, for each queue and group."""
    fates = [order_fate(number) for number in range(ORDER_COUNT)]
    rejected, failed = fates.count(Fate.REJECT), fates.count(Fate.FAIL_ALWAYS)
    return {
        (ORDERS, DEFAULT): {"succeeded": ORDER_COUNT - rejected - failed, "rejected": rejected, "failed": failed},
        (ORDERS, ANALYTICS): {"succeeded": ORDER_COUNT},
        (EMAILS, DEFAULT): {"succeeded": EMAIL_COUNT + DIGEST_COUNT, "expired": OFFER_COUNT},
        (REPORTS, DEFAULT): {"succeeded": BATCH_COUNT + 2},
    }
