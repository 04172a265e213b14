"""Durability: what a call waits for before it returns."""

from __future__ import annotations

from typing import NamedTuple

from penstock.domain.errors import InvalidUrl
from penstock.domain.validation import check_seconds, shown


class Durability(NamedTuple):
    """`aof` waits for the disk of the server, `replicas` for that many replicas."""

    aof: bool = False
    replicas: int = 0
    confirm_seconds: float = 0

    @property
    def is_awaited(self) -> bool:
        return self.aof or self.replicas > 0


MEMORY = Durability()


def parse(text: str, confirm_seconds: str) -> Durability:
    try:
        seconds = check_seconds("confirm_seconds", float(confirm_seconds), above=True)
    except ValueError:
        raise InvalidUrl(f"confirm_seconds must be a number of seconds above 0, not {shown(confirm_seconds)}") from None
    if text == "memory":
        return MEMORY
    if text == "aof":
        return Durability(aof=True, confirm_seconds=seconds)
    kind, _, count = text.partition("=")
    if kind == "replicas" and count.isascii() and count.isdigit() and int(count) > 0:
        return Durability(replicas=int(count), confirm_seconds=seconds)
    raise InvalidUrl(f"durability must be memory, aof or replicas=N, not {shown(text)}")
