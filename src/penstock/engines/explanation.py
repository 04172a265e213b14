"""Explanation of a message's state, with the stack trace of its last error."""

from __future__ import annotations

import msgspec

from penstock.domain import explain as domain
from penstock.domain.results import Explanation
from penstock.engines.contract import Engine


def explain(engine: Engine, queue: str, message_id: str, group: str) -> Explanation:
    found = domain.explain(engine.situation(queue, message_id, group), queue, message_id, group)
    return msgspec.structs.replace(found, trace=engine.error_trace(queue, message_id, group))
