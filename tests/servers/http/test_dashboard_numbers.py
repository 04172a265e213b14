"""On every engine the numbers on the pages are those of `stats`, and those are what SQL counts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import apsw
import httpx
import psycopg
import pytest

import penstock
from penstock.servers.http import application
from tests.conformance.engines import ENGINES, EngineRow
from tests.servers.http.busy_queue import make_busy

pytestmark = pytest.mark.anyio
COLUMNS = {"Waiting": "available", "Retries": "redo", "In progress": "in_progress", "Held": "held", "Lag": "lag"}
COLUMNS |= {"Done": "done", "Dead": "dead", "Consumers": "consumers"}
# Messages of the log, held ones, dead letters, and those that succeeded.
SQLITE = """
    select
        (select count(*) from penstock_log join penstock_lane using (lane_id) where queue_id = q.queue_id),
        (select count(*) from penstock_held where queue_id = q.queue_id),
        (select count(*) from penstock_dead_letter where group_id = g.group_id),
        (
            select coalesce(sum(last_position - first_position + 1), 0) from penstock_audit
            where queue_id = q.queue_id and group_id = g.group_id and state = 'succeeded'
        )
    from penstock_queue as q join penstock_group as g using (queue_id)
    where q.name = ? and g.name = 'default'
"""
POSTGRES = """
    select
        (select count(*) from penstock.message where queue = given.name and position is not null),
        (select count(*) from penstock.message where queue = given.name and position is null),
        (select count(*) from penstock.dead_letters where queue = given.name and group_name = 'default'),
        (
            select count(*) from penstock.message_archive
            where queue = given.name and group_name = 'default' and outcome = 'succeeded'
        )
    from (select %s::text as name) as given
"""


@pytest.fixture(params=ENGINES, ids=lambda row: row.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    row: EngineRow = request.param
    return row.fresh_url(tmp_path)


@pytest.fixture
def busy(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url) as store:
        store.queue("before").send_many([b"x"] * 3)
        queue = store.queue("busy")
        queue.register("c1", heartbeat_seconds=900)
        make_busy(queue)
        store.sweep()
        yield queue


@pytest.fixture
async def pages(url: str) -> AsyncIterator[httpx.AsyncClient]:
    app = application(url)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 5))
    headers = {"accept": "text/html"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield client
    await app.close()


def _row(text: str, name: str) -> dict[str, int]:
    """The numbers of a table's row by label."""
    shown = _cells(text, name)
    return {label: int(value.replace(",", "")) for label, value in shown.items() if re.fullmatch(r"[0-9,]+", value)}


def _cells(text: str, name: str) -> dict[str, str]:
    """The cells of a table's row by label."""
    (row,) = [one for one in text.split("<tr")[1:] if re.search(rf'<th scope="row"><a [^>]*>{name}</a>', one)]
    cells = re.findall(r'<td[^>]*data-label="([^"]*)"[^>]*>(.*?)</td>', row, re.DOTALL)
    return {label: re.sub(r"<[^>]*>", "", content).strip() for label, content in cells}


def _counted(url: str, queue: str) -> tuple[int, ...]:
    row: Any
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
        row = connection.execute(SQLITE, (queue,)).fetchone()
        connection.close()
    else:
        with psycopg.connect(url) as opened:
            row = opened.execute(POSTGRES, (queue,)).fetchone()
    return tuple(row)


async def test_pages_stats_and_sql_agree(url: str, busy: penstock.Queue, pages: httpx.AsyncClient) -> None:
    stats = busy.stats(group="default")
    shown = _row((await pages.get("/queues/busy")).text, "default")
    assert {label: shown[label] for label in COLUMNS} == {
        label: getattr(stats, field) for label, field in COLUMNS.items()
    }
    assert (stats.available, stats.in_progress, stats.held, stats.done, stats.dead) == (20, 7, 5, 11, 2)
    overview = _row((await pages.get("/")).text, "busy")
    assert overview["Waiting"] == stats.available + stats.redo
    assert (overview["In progress"], overview["Held"], overview["Dead"]) == (7, 5, 2)
    logged, held, dead, done = _counted(url, "busy")
    assert (held, dead, done) == (stats.held, stats.dead, stats.done)
    assert logged == stats.available + stats.redo + stats.in_progress + stats.done + stats.dead == 40


async def test_other_pages_count_the_same(busy: penstock.Queue, pages: httpx.AsyncClient) -> None:
    text = (await pages.get("/queues/busy/dead")).text
    assert "2 dead letters, 1 kind" in text
    batch = busy.batch("march")
    batch.send_many([b"one", b"two", b"three"])
    assert "0 of 3" in (await pages.get("/batches")).text
    metrics = (await pages.get("/metrics")).text
    for name, count in (("available", 20), ("in_progress", 7), ("dead", 2)):
        assert f'penstock_{name}{{group="default",queue="busy"}} {count}.0' in metrics


async def test_a_stream_group_does_not_stand_for_the_queue(url: str, pages: httpx.AsyncClient) -> None:
    with penstock.connect(url) as store:
        queue = store.queue("archived")
        queue.send_many([b"one", b"two"])
        store.engine.advance(queue.name, "lake", store.engine.horizon(queue.name))
        assert queue.stats(group="lake").lag == 0
        assert [check.advice for check in store.doctor() if check.name == "groups"] == []
    overview = (await pages.get("/")).text
    assert _row(overview, "archived")["Waiting"] == 2
    assert "drained" not in overview
    assert "Nobody has ever received" not in (await pages.get("/queues/archived")).text


async def test_a_queue_is_drained_only_when_every_group_is(url: str, pages: httpx.AsyncClient) -> None:
    with penstock.connect(url) as store:
        for name, read_by_search in (("behind", 1), ("finished", 2)):
            queue = store.queue(name, primary_group="billing")
            queue.send_many([b"one", b"two"])
            queue.ack_many(queue.receive(limit=read_by_search, group="search"))
            queue.ack_many(queue.receive(limit=2, group="billing"))
    overview = (await pages.get("/")).text
    assert _cells(overview, "behind")["Drains in"] == "–"
    assert _cells(overview, "finished")["Drains in"] == "drained"


async def test_an_engine_without_sql_templates_has_recipes_in_the_other_languages(
    url: str, pages: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.connect(url) as store:
        store.queue("orders").send(b"one")
        engine = type(store.engine)
    assert ">SQL</label>" in (await pages.get("/queues/orders")).text
    monkeypatch.setattr(engine, "name", "redis")
    shown = await pages.get("/queues/orders")
    assert shown.status_code == 200
    assert ">SQL</label>" not in shown.text
    assert ">redis-cli</label>" in shown.text
