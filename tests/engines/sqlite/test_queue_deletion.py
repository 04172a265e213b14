"""A deleted queue leaves no rows."""

from __future__ import annotations

import apsw

from penstock import Store
from tests.conformance.test_delete import fill

NUMBERS = ("queue_id", "group_id", "lane_id", "batch_id")


def rows_left(path: str) -> dict[str, int]:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = [name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")]
        own = [
            name
            for name in tables
            if any(column[1] in NUMBERS for column in connection.execute(f"pragma table_info({name})"))
        ]
        assert len(own) > 15
        counts = {name: connection.execute(f"select count(*) from {name}").get for name in own}
    finally:
        connection.close()
    return {name: count for name, count in counts.items() if count}


def test_nothing_is_left_in_any_table(store: Store, url: str) -> None:
    queue = store.queue("orders")
    fill(queue)
    path = url.removeprefix("sqlite:///")
    assert rows_left(path)
    queue.delete()
    assert rows_left(path) == {}
