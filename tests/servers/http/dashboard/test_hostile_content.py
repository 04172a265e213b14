"""What senders can put into a store is shown rightly and harmlessly."""

from __future__ import annotations

import hashlib

import httpx
import pytest
from playwright.sync_api import Page

import penstock
from penstock.servers.http.router import path_to

SCRIPT = "<script>window.ran = 1</script>"
IMAGE = '"><img src=x onerror="window.ran = 1">'
TURNED = "abc\u202etxt.exe"


def _where(*segments: str) -> str:
    return path_to({}, *segments)


def _payload_shown(page: Page) -> str:
    return page.locator("pre.payload").inner_text()


def test_a_script_in_everything_stays_text(page: Page, store: penstock.Store) -> None:
    name = f"{IMAGE}/{TURNED}"
    queue = store.queue(name, max_retries=0)
    message_id = queue.send(
        SCRIPT, headers={IMAGE: SCRIPT}, created_by=IMAGE, address=f"a{IMAGE}", key=IMAGE, content_type=f"text/{IMAGE}"
    )
    queue.receive(consumer=IMAGE)[0].reject(f"{SCRIPT} {TURNED}")
    queue.register(IMAGE, group="default", heartbeat_seconds=600)
    queue.receive(group=IMAGE)
    queue.batch(IMAGE).send(SCRIPT)
    store.schedule(IMAGE, "0 3 * * *", name, SCRIPT)
    paths = [
        _where(),
        _where("queues", name),
        _where("queues", name, "messages", message_id),
        _where("queues", name, "dead"),
        _where("search") + f"?queue={_where(name)[1:]}",
        _where("search") + f"?q={_where(IMAGE)[1:]}",
        _where("batches"),
        _where("schedules"),
        _where("consumers"),
        _where("dead"),
        _where("queues", IMAGE),  # there is none: the error names it
        _where(SCRIPT),
    ]
    for path in paths:
        page.goto(path)
        assert page.evaluate("window.ran") is None, path
        assert page.locator("main img, main script").count() == 0, path
        assert "\u202e" not in page.locator("body").inner_text(), path
    assert SCRIPT in page.goto(_where("queues", name, "messages", message_id)).text().replace("&lt;", "<").replace(  # type: ignore[union-attr]
        "&gt;", ">"
    )
    store.unschedule(IMAGE)


def test_a_script_as_payload_is_shown_as_it_is(page: Page, queue: penstock.Queue) -> None:
    message_id = queue.send(SCRIPT.encode(), content_type="text/html")
    page.goto(f"/queues/{queue.name}/messages/{message_id}")
    assert _payload_shown(page) == SCRIPT


def test_large_integers_keep_their_digits(page: Page, queue: penstock.Queue) -> None:
    message_id = queue.send(b'{"big": 12345678901234567891, "same": 1, "same": 1.50}', content_type="application/json")
    page.goto(f"/queues/{queue.name}/messages/{message_id}")
    assert _payload_shown(page) == '{\n  "big": 12345678901234567891,\n  "same": 1,\n  "same": 1.50\n}'
    page.goto(f"/search?queue={queue.name}")
    assert "12345678901234567891" in page.locator("td.preview").inner_text()


def test_deep_json_is_shown(page: Page, queue: penstock.Queue) -> None:
    message_id = queue.send(b"[" * 50_000 + b"]" * 50_000, content_type="application/json")
    page.goto(f"/queues/{queue.name}/messages/{message_id}")
    assert _payload_shown(page).startswith("[\n  [\n    [")
    assert "Only the beginning is shown" in page.locator("main").inner_text()


def test_bytes_are_shown_as_bytes(page: Page, queue: penstock.Queue) -> None:
    message_id = queue.send(bytes(range(32)) + b"Penstock\xff")
    page.goto(f"/queues/{queue.name}/messages/{message_id}")
    shown = _payload_shown(page)
    assert shown.splitlines()[0].startswith("00000000  00 01 02 03 04 05 06 07  08 09")
    assert "50 65 6e 73 74 6f 63 6b  ff" in shown
    assert "Penstock·" in shown


def test_sixteen_mebibytes_are_cut_and_can_be_downloaded(page: Page, queue: penstock.Queue, http: httpx.Client) -> None:
    payload = b'{"text": "' + b"<b>0123456789</b>" * (16 * 1024 * 1024 // 17 - 2) + b'"}'
    message_id = queue.send(payload, content_type="application/json")
    path = f"/queues/{queue.name}/messages/{message_id}"
    answer = http.get(path)
    assert len(answer.content) < 600_000
    page.goto(path)
    assert "Only the beginning is shown" in page.locator("main").inner_text()
    assert page.locator("pre.payload b").count() == 0
    got = http.get(f"{path}/payload")
    assert hashlib.sha256(got.content).digest() == hashlib.sha256(payload).digest()
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"] == f'attachment; filename="{message_id}.json"'
    assert got.headers["x-content-type-options"] == "nosniff"


def test_lists_of_large_messages_stay_bounded(queue: penstock.Queue, http: httpx.Client) -> None:
    """A list reads payloads; it stops when it has read enough, and offers the rest."""
    for _ in range(8):
        queue.send(b"x" * (16 << 20))
    answer = http.get(f"/search?queue={queue.name}")
    assert answer.status_code == 200
    assert 4 <= answer.text.count('class="preview"') < 8
    assert "Go on with older ones" in answer.text


@pytest.mark.parametrize("payload", [b"", b"null", b"1 2 3", b'{"cut": ', b"plain text, not JSON", b'"\\u202e"'])
def test_odd_payloads_are_shown_as_they_are(payload: bytes, queue: penstock.Queue, http: httpx.Client) -> None:
    message_id = queue.send(payload, content_type="application/json")
    assert http.get(f"/queues/{queue.name}/messages/{message_id}").status_code == 200
