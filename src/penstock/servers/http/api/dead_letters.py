"""Dead letters: look, redrive, purge."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from msgspec import Meta

from penstock.client.queue import MAX_LIMIT as STORE_LIMIT
from penstock.domain.errors import InvalidInput
from penstock.domain.results import DeadLetter
from penstock.domain.validation import check_name, from_time, shown
from penstock.engines.contract import Edge
from penstock.servers.http.api.documents import Count, DeadLetters, dead_letter_document
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.operations import ApiCall, operation
from penstock.servers.http.api.values import MAX_LIMIT, BulkLimit, GroupName, Limit, MessageId, Outcome, QueueName
from penstock.servers.permissions import Needs

TAG = "dead letters"
PLACE = r"^[0-9]{1,17}:[0-9]{1,17}:.+$"
Place = Annotated[str, Meta(description="`next` of the page before", extra_json_schema={"pattern": PLACE})]


class Choice(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters: those with given ids, those with an outcome, or all of the group."""

    wholes: ClassVar[tuple[str, ...]] = ("limit",)

    ids: Annotated[list[MessageId], Meta(max_length=MAX_LIMIT)] | None = None
    group: GroupName | None = None
    outcome: Outcome | None = None
    limit: BulkLimit = STORE_LIMIT


@operation("GET", "/queues/{queue}/dead_letters", Needs.READ_DEAD_LETTERS, TAG)
async def dead_letters(
    call: ApiCall,
    queue: QueueName,
    *,
    limit: Limit = 100,
    group: GroupName | None = None,
    outcome: Outcome | None = None,
    before: Place | None = None,
) -> DeadLetters:
    """Messages that ended without success, newest first, of all groups or of one."""
    source = await call.known(queue)
    found = await source.dead_letters(limit, group, outcome, None if before is None else _edge(before))
    following = _place(found[-1]) if len(found) == limit else None
    return DeadLetters([dead_letter_document(one) for one in found], following)


def _place(letter: DeadLetter) -> str:
    return f"{from_time('died_at', letter.died_at)}:{letter.position}:{letter.group}"


def _edge(place: str) -> Edge:
    if not re.fullmatch(PLACE, place, re.ASCII | re.DOTALL):
        raise InvalidInput(f"before must be `next` of the page before, not {shown(place)}")
    died_at, position, group = place.split(":", 2)
    return int(died_at), int(position), check_name("group", group)


@operation("POST", "/queues/{queue}/redrive", Needs.REDRIVE, TAG)
async def redrive(call: ApiCall, queue: QueueName, body: Choice) -> Count:
    """Send dead letters again, with attempts starting again. Returns how many."""
    source = await call.known(queue)
    return Count(await source.redrive(body.ids, group=body.group, outcome=body.outcome, limit=body.limit))


@operation("POST", "/queues/{queue}/purge", Needs.PURGE, TAG)
async def purge(call: ApiCall, queue: QueueName, body: Choice) -> Count:
    """Remove dead letters for good. Returns how many."""
    source = await call.known(queue)
    return Count(await source.purge(body.ids, group=body.group, outcome=body.outcome, limit=body.limit))
