"""Convert results to replies: field names as in Python, times as ISO 8601 text."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from penstock.servers.resp.encoder import Reply


def to_reply(value: Any) -> Reply:
    if isinstance(value, msgspec.Struct):
        return {name: to_reply(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [to_reply(one) for one in value]
    if isinstance(value, dict):
        return {str(name): to_reply(one) for name, one in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return str(value.value)
    return value
