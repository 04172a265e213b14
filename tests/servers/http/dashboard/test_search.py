"""Search by id, address, batch, time and outcome."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from playwright.sync_api import Page

import penstock


def _found(text: str) -> list[str]:
    return re.findall(r'class="mono" href="[^"]*/messages/([0-9a-f-]{36})"', text)


def test_an_id_leads_to_its_message(page: Page, queue: penstock.Queue) -> None:
    message_id = queue.send(b"wanted")
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type(message_id.upper())
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/queues/{queue.name}/messages/{message_id}")


def test_an_id_that_two_queues_have_asks_which(
    store: penstock.Store, queue: penstock.Queue, http: httpx.Client
) -> None:
    message_id = queue.send(b"one")
    store.queue(f"{queue.name}-twin").send(b"two", id=message_id)
    answer = http.get("/search", params={"q": message_id})
    assert "Several queues have this id" in answer.text
    assert answer.text.count(f"/messages/{message_id}") == 2


def test_an_address_and_a_batch_are_found_by_name(queue: penstock.Queue, http: httpx.Client) -> None:
    word = f"thing/{queue.name}"
    message_id = queue.send(b"one", address=word)
    batch_ids = queue.batch(word).send_many([b"two", b"three"])
    queue.send(b"four")
    text = http.get("/search", params={"q": word}).text
    assert _found(text) == [message_id]
    assert "0 of 2" in text
    queue.batch(word).start()
    assert set(_found(http.get("/search", params={"queue": queue.name, "batch": word}).text)) == set(batch_ids)


def test_outcomes_and_times(queue: penstock.Queue, http: httpx.Client) -> None:
    ids = queue.send_many([{"n": number} for number in range(6)])
    done, rejected, failed, *_ = queue.receive(limit=3)
    done.ack()
    rejected.reject("never")
    failed.nak("again", delay_seconds=0)

    def found(**asked: str) -> list[str]:
        return _found(http.get("/search", params={"queue": queue.name, **asked}).text)

    assert found() == ids[::-1]
    assert found(outcome="succeeded") == [ids[0]]
    assert found(outcome="rejected") == [ids[1]]
    assert found(outcome="expired") == []
    soon, before = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(hours=1)
    assert found(since=before.isoformat(), until=soon.isoformat()) == ids[::-1]
    assert found(since=soon.isoformat()) == []
    assert found(until=before.isoformat()) == []


def test_a_long_queue_is_read_page_by_page(queue: penstock.Queue, http: httpx.Client) -> None:
    ids = queue.send_many([{"n": number} for number in range(120)])
    seen: list[str] = []
    where: str | None = f"/search?queue={queue.name}"
    while where is not None:
        text = http.get(where).text
        seen += _found(text)
        more = re.search(r'href="(\?[^"]*before=[^"]*)">Go on', text)
        where = None if more is None else "/search" + more[1].replace("&amp;", "&")
    assert seen == ids[::-1]


def test_wrong_questions_get_a_reason(http: httpx.Client) -> None:
    for asked, reason in (
        ({"queue": "no such queue"}, "there is no queue"),
        ({"outcome": "vanished"}, "is not a state"),
        ({"since": "yesterday"}, "since must be a time such as"),
    ):
        answer = http.get("/search", params=asked)
        assert answer.status_code in (400, 404)
        assert reason in answer.text


@pytest.mark.parametrize(
    ("wrong", "status", "told"),
    [
        ({"queue": "queue-"}, 404, "there is no queue 'queue-'; did you mean 'queue-"),
        ({"outcome": "done"}, 400, "'done' is not a state (held, "),
        ({"since": "yesterday"}, 400, "since must be a time such as 2026-11-15T09:30, in UTC, not 'yesterday'"),
        ({"since": "2026-01-02T00:00", "until": "2026-01-01T00:00"}, 400, "is after until 2026-01-01 00:00:00"),
        ({"group": "defualt"}, 404, "has no group 'defualt'; did you mean 'default'?"),
        ({"group": "a\x00"}, 400, "control character"),
        ({"before": "-4"}, 400, "before must be the position of a message, 0 to 4611686018427387904, not '-4'"),
        ({"before": "9" * 30}, 400, "before must be the position of a message"),
    ],
)
def test_a_wrong_search_is_told(
    queue: penstock.Queue, http: httpx.Client, wrong: dict[str, str], status: int, told: str
) -> None:
    queue.send(b"one")
    answer = http.get("/search", params={"queue": queue.name, **wrong})
    assert answer.status_code == status
    assert told in html.unescape(answer.text)


def test_a_group_or_a_queue_that_is_not_there_is_told(queue: penstock.Queue, http: httpx.Client) -> None:
    queue.send(b"one")
    answer = http.get(f"/queues/{queue.name}", params={"group": "defualt"})
    assert answer.status_code == 404
    assert "did you mean 'default'?" in html.unescape(answer.text)
    answer = http.get("/batches", params={"queue": f"{queue.name}x"})
    assert answer.status_code == 404
    assert f"there is no queue '{queue.name}x'" in html.unescape(answer.text)
