"""(new) -> ready or held: putting messages in, alone or within the caller's own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.domain.identity import made_prefix
from penstock.domain.message import PLAIN, Draft
from penstock.engines.postgres import shapes
from penstock.engines.postgres.arrays import Payloads
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/verbs.sql")


class Runner(Protocol):
    """What runs one statement: the store, or the caller's connection."""

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


def send(runner: Runner, queue: str, drafts: Sequence[Draft], salt: int, notify: bool) -> list[str]:
    content_type = drafts[0][1]
    if _are_plain(drafts) and all(kind == content_type for _, kind, _ in drafts):
        payloads = Payloads([payload for payload, _, _ in drafts])
        created_at, first, seqs, ids = runner.rows(SQL.append, (queue, payloads, content_type, notify))[0]
        if ids is None:
            prefix = made_prefix(created_at, salt)
            return [f"{prefix}{seq:012x}" for seq in seqs or range(first, first + len(drafts))]
        return list(ids)
    parameters = (
        queue,
        Payloads([payload for payload, _, _ in drafts]),
        [kind for _, kind, _ in drafts],
        shapes.options_json(drafts),
        notify,
    )
    ids = runner.rows(SQL.put, parameters)[0][0]
    return list(ids)


def _are_plain(drafts: Sequence[Draft]) -> bool:
    kinds = {id(options): options for _, _, options in drafts}.values()
    return all(options == PLAIN for options in kinds)
