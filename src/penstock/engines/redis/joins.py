"""Sends to a batch that another queue of a cluster owns. The queues may be on different nodes, so the drafts are put
aside, the owner adds the members, and the drafts are sent: see `functions/joins.lua`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from penstock.domain.errors import PenstockError, StoreError
from penstock.domain.message import Draft
from penstock.engines.redis import drafts as draft_forms
from penstock.engines.redis.connection import RedisDatabase


def is_needed(database: RedisDatabase, queue: str, drafts: Sequence[Draft]) -> bool:
    return database.nodes.is_cluster and any(
        options.batch_queue is not None and options.batch_queue != queue for _, _, options in drafts
    )


def send(database: RedisDatabase, queue: str, drafts: Sequence[Draft], chance: dict[str, Any], **beliefs: Any) -> Any:
    """Send all drafts or none; return what a send returns."""
    given, payloads = draft_forms.packed(drafts)
    opened, wanted = database.write("join_open", queue, payloads, **given, **beliefs)
    number = opened.decode()
    try:
        refs, states = _members(database, queue, number, wanted)
        return database.write("join_send", queue, number=number, refs=refs, states=states, **chance, **beliefs)
    except PenstockError:
        # A sweep drops the join if this fails.
        with contextlib.suppress(StoreError):
            database.write("join_drop", queue, number=number)
        raise


def _members(
    database: RedisDatabase, queue: str, number: str, wanted: list[Any]
) -> tuple[dict[int, Any], dict[int, str]]:
    """By place of the draft: the member it is, and the state of its batch."""
    refs: dict[int, Any] = {}
    states: dict[int, str] = {}
    for owner, name, after, places in wanted:
        batch, label, state, members = database.write(
            "join_add", owner.decode(), sender=queue, number=number, name=name.decode(), after=after,
            count=len(places),
        )  # fmt: skip
        for place, member in zip(places, members, strict=True):
            refs[place] = {"q": owner.decode(), "n": batch, "m": member.decode(), "l": label.decode()}
            states[place] = state.decode()
    return refs, states
