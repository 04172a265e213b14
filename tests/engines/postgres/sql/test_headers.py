"""Headers of other interfaces, as SQL shows them."""

from __future__ import annotations

import pytest

from penstock import Store
from tests.engines.postgres.sql.conftest import Sql

HEADERS = {"a\0": "\0\0b", "escaped": "\\u0000", "both": "\\\0", "plain": "c"}
SHOWN = {"a\uffff": "\uffff\uffffb", "escaped": "\\u0000", "both": "\\\uffff", "plain": "c"}


@pytest.mark.parametrize(
    "query",
    [
        "select headers from penstock.receive('jobs')",
        "select headers from penstock.peek('jobs')",
        "select headers from penstock.message where queue = 'jobs'",
    ],
)
def test_a_nul_in_headers_is_shown_by_another_character(sql: Sql, store: Store, query: str) -> None:
    """jsonb cannot contain it, and one such message must not stop its queue."""
    store.queue("jobs").send(1, headers=HEADERS)
    assert sql(query) == [(SHOWN,)]


def test_a_message_with_a_nul_in_its_headers_is_dequeued(sql: Sql, store: Store) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    store.queue("jobs").send(1, headers=HEADERS)
    assert sql("select msg_json from jobs.dequeue('client', 30)") == [(1,)]
