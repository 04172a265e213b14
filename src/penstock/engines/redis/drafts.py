"""Drafts and policies in the form that the functions take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

import msgspec

from penstock.domain.message import PLAIN, Draft, Options
from penstock.domain.policy import FIELDS, Policy

# The options of a draft that are passed on under another name.
_NAMES = {
    "deadline_at": "d", "address": "a", "headers": "h", "id": "i", "created_by": "y", "delay_seconds": "delay",
    "ttl_seconds": "ttl", "batch": "b", "batch_after": "after", "batch_queue": "bq",
}  # fmt: skip
_NULLABLE = {name: None for name, field in FIELDS.items() if field.is_nullable}


def packed(drafts: Sequence[Draft]) -> tuple[dict[str, Any], list[bytes]]:
    """The arguments of a send, and its payloads."""
    payloads, types, options = zip(*drafts, strict=True)
    given: dict[str, Any] = {}
    if types.count(types[0]) == len(types):
        given["type"] = types[0]
    else:
        given["types"] = {place: kind for place, kind in enumerate(types, 1) if kind is not None}
    own = {place: option_map(one) for place, one in enumerate(options, 1) if one is not PLAIN and one != PLAIN}
    if own:
        given["options"] = own
    return given, list(payloads)


def option_map(options: Options) -> dict[str, Any]:
    found = {short: value for name, short in _NAMES.items() if (value := getattr(options, name)) is not None}
    if options.priority:
        found["p"] = options.priority
    if options.key is not None:
        found.update(k=options.key, hash=crc32(options.key.encode()))
    return found


def policy_text(policy: Policy) -> str:
    """A policy as the functions read it: a field that is absent is none."""
    fields = msgspec.structs.asdict(policy)
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None}).decode()


@lru_cache(1024)
def policy_of(text: bytes) -> Policy:
    return msgspec.convert({**_NULLABLE, **msgspec.json.decode(text)}, Policy)
