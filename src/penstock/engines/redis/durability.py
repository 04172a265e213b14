"""Durability: what a call waits for before it returns."""

from __future__ import annotations

from typing import NamedTuple

from penstock.domain.errors import InvalidUrl
from penstock.domain.validation import shown


class Durability(NamedTuple):
    """`aof` waits for the disk of the server, `replicas` for that many replicas."""

    aof: bool = False
    replicas: int = 0

    @property
    def is_awaited(self) -> bool:
        return self.aof or self.replicas > 0


MEMORY = Durability()


def parse(text: str) -> Durability:
    if text == "memory":
        return MEMORY
    if text == "aof":
        return Durability(aof=True)
    kind, _, count = text.partition("=")
    if kind == "replicas" and count.isascii() and count.isdigit() and int(count) > 0:
        return Durability(replicas=int(count))
    raise InvalidUrl(f"durability must be memory, aof or replicas=N, not {shown(text)}")
