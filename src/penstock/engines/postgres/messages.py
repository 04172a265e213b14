"""(new) -> ready or held: sending messages, alone or within the caller's own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.domain.identity import made_prefix
from penstock.domain.message import PLAIN, Draft, Options
from penstock.engines.postgres import rows
from penstock.engines.postgres.calls import SQL
from penstock.engines.postgres.dumpers import Payloads


class Runner(Protocol):
    """Runs one statement: the store, or the caller's connection."""

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


def send(runner: Runner, queue: str, drafts: Sequence[Draft], salt: int, notify: bool) -> list[str]:
    if _are_alike(drafts):
        return _append(runner, queue, drafts, salt, notify)
    payloads = Payloads([payload for payload, _, _ in drafts])
    types = [kind for _, kind, _ in drafts]
    ids = runner.rows(SQL.send_messages, (queue, payloads, types, rows.options_json(drafts), notify))[0][0]
    return list(ids)


def _append(runner: Runner, queue: str, drafts: Sequence[Draft], salt: int, notify: bool) -> list[str]:
    _, content_type, options = drafts[0]
    payloads = Payloads([payload for payload, _, _ in drafts])
    created_at, first, positions, ids = runner.rows(SQL.append, (queue, payloads, content_type, notify, options.id))[0]
    if ids is not None:
        return list(ids)
    prefix = made_prefix(created_at, salt)
    ids = [f"{prefix}{position:012x}" for position in positions or range(first, first + len(drafts))]
    if options.id is not None:
        ids[0] = options.id
    return ids


def _are_alike(drafts: Sequence[Draft]) -> bool:
    """Whether all have one content type and no options, except for an id of the first."""
    _, content_type, first = drafts[0]
    kinds = {id(options): options for _, _, options in drafts[1:]}.values()
    return (
        (first == PLAIN or first == Options(id=first.id))
        and all(options == PLAIN for options in kinds)
        and all(kind == content_type for _, kind, _ in drafts)
    )
