"""Errors for names that nothing has. They suggest the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.domain.errors import NotFound
from penstock.domain.validation import nearest, shown


def no_queue(name: str, known: Iterable[str], purpose: str = "") -> NotFound:
    return NotFound(f"there is no queue {shown(name)}{purpose}{nearest(name, known)}")


def no_group(queue: str, name: str, known: Iterable[str]) -> NotFound:
    return NotFound(f"queue {queue!r} has no group {shown(name)}{nearest(name, known)}")


def no_schedule(name: str, known: Iterable[str]) -> NotFound:
    return NotFound(f"there is no schedule {shown(name)}{nearest(name, known)}")


def no_address(queue: str, address: str) -> NotFound:
    return NotFound(f"queue {queue!r} never had a message with address {shown(address)}")
